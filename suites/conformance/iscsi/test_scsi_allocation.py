"""The allocation length of each command that returns data, in a Data-In Buffer that is larger than it.

SPC-4 4.2.5.6: no more is transferred than the allocation length, and a short one is no error. The initiator
expects more (RFC 7143 11.3.4), so a target that cuts data to what is expected alone returns too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import PrIn, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

if TYPE_CHECKING:
    from storagetest.wire.iscsi.outcomes import ScsiCompletion

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 allocation length", level="MUST"),
]

EXPECTED = 8192
"""Expected length: more than each allocation length that is tried (chosen)."""
LENGTHS = (0, 1, 3, 4, 5, 7, 8, 9, 16, 17, 255)
"""Allocation lengths, besides those about the length of the whole data (chosen)."""
REFUSABLE = {c.REPORT_LUNS: 16, c.PERSISTENT_RESERVE_IN: 8, c.REPORT_TARGET_PORT_GROUPS: 8}
"""Allocation lengths under which a refusal is not judged here (SCS-LUN-04 and SCS-PR-CUT-SHORT judge two)."""
RETURNING: dict[str, tuple[c.CommandFormat, dict[str, Any]]] = {
    "INQUIRY": (c.INQUIRY, {}),
    "VPD-00": (c.INQUIRY, {"evpd": 1, "page": 0x00}),
    "VPD-80": (c.INQUIRY, {"evpd": 1, "page": 0x80}),
    "VPD-83": (c.INQUIRY, {"evpd": 1, "page": 0x83}),
    "VPD-B0": (c.INQUIRY, {"evpd": 1, "page": 0xB0}),
    "SENSE-FIXED": (c.REQUEST_SENSE, {}),
    "SENSE-DESC": (c.REQUEST_SENSE, {"desc": 1}),
    "MODE-6": (c.MODE_SENSE_6, {"page": 0x3F}),
    "MODE-6-DBD": (c.MODE_SENSE_6, {"page": 0x3F, "dbd": 1}),
    "MODE-10": (c.MODE_SENSE_10, {"page": 0x3F}),
    "MODE-10-DBD": (c.MODE_SENSE_10, {"page": 0x3F, "dbd": 1}),
    "LOG": (c.LOG_SENSE, {"page_control": 1}),
    "CAPACITY": (c.READ_CAPACITY_16, {}),
    "LBAS": (c.GET_LBA_STATUS, {}),
    "LUNS": (c.REPORT_LUNS, {}),
    "PRIN-KEYS": (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.READ_KEYS)}),
    "PRIN-HELD": (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.READ_RESERVATION)}),
    "PRIN-CAN": (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.REPORT_CAPABILITIES)}),
    "PRIN-FULL": (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.READ_FULL_STATUS)}),
    "OPS": (c.REPORT_SUPPORTED_OPERATION_CODES, {}),
    "OPS-ONE": (c.REPORT_SUPPORTED_OPERATION_CODES, {"options": 1, "requested_opcode": 0x12}),
    "TMF": (c.REPORT_TASK_MANAGEMENT, {}),
    "GROUPS": (c.REPORT_TARGET_PORT_GROUPS, {}),
}
"""Commands with an allocation length whose data do not change by themselves."""
FITTED = ("LBAS",)
"""Those whose data may be as many whole descriptors as the allocation length has space for (SBC-3)."""


def stated(done: ScsiCompletion) -> int:
    """Return the residual with its sign: positive for an overflow, negative for an underflow."""
    return done.residual * (done.overflow - done.underflow)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-ALLOCATION-{name}", kills=(f"allocation-{name.lower()}",)))
    for name in RETURNING if name not in FITTED
])  # fmt: skip
def test_an_allocation_length_limits_the_data_of_a_larger_buffer(unit, name):
    """The data are the first bytes of the whole, and the rest of what was expected is an underflow.

    Zero comes last, because a target may fail at it alone.
    """
    command, fields = RETURNING[name]
    size = next(place.size for place in command.fields if place.name == "allocation")
    most = min(4095, 256**size - 1)
    first = unit.run(command, read=EXPECTED, allocation=most, **fields)
    if first.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {first}")
    assert first.good, first
    whole = first.data
    assert len(whole) <= most, f"{first}: {len(whole)} bytes; {most} are allowed"
    about = (len(whole) - 1, len(whole), len(whole) + 1)
    for length in sorted({*LENGTHS, *about} & set(range(most + 1)), key=lambda one: (one == 0, one)):
        block = cdb(command, allocation=length, **fields)
        done = unit.runner.command(block, read=EXPECTED)
        answer = LogicalUnit.result(done, f"{c.describe(block)}, of {EXPECTED} bytes that are expected")
        if length < REFUSABLE.get(command, 0) and answer.check(SenseKey.ILLEGAL_REQUEST):
            continue
        assert answer.good, f"{answer}: a short allocation length is no error"
        assert answer.data == whole[:length], (
            f"{answer}: {len(answer.data)} bytes; the data have {len(whole)}, and {length} are allowed"
        )
        assert stated(done) == len(answer.data) - EXPECTED, (
            f"{answer}: the residual is {stated(done):+}, of {EXPECTED} bytes, and {len(answer.data)} came"
        )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-ALLOCATION-LESS-{name}", kills=("allocation-less-padded",)))
    for name in RETURNING
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.4.5.1, SPC-4 allocation length", builds_on=("ISC-DATAIN-09",))
def test_less_is_expected_than_the_allocation_length_allows(unit, name):
    """The data are cut to what is expected. What does not come is an overflow, if it is no error."""
    command, fields = RETURNING[name]
    size = next(place.size for place in command.fields if place.name == "allocation")
    most = min(4095, 256**size - 1)
    first = unit.run(command, read=EXPECTED, allocation=most, **fields)
    if first.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {first}")
    whole = first.good_data()
    for expected in sorted({1, 3, 4, 5, len(whole) - 1} & set(range(1, len(whole)))):
        block = cdb(command, allocation=most, **fields)
        done = unit.runner.command(block, read=expected)
        answer = LogicalUnit.result(done, f"{c.describe(block)}, of {expected} bytes that are expected")
        if answer.check(SenseKey.ILLEGAL_REQUEST):
            continue  # 11.4.5 does not forbid it
        assert answer.good, answer
        assert answer.data == whole[:expected], (
            f"{answer}: {answer.data.hex(' ')}; the first bytes of the data are {whole[:expected].hex(' ')}"
        )
        assert stated(done) >= len(whole) - expected, (
            f"{answer}: the residual is {stated(done):+}; the data have {len(whole)} bytes"
        )
