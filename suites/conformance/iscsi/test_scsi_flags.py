"""Bits of a CDB that few initiators set: executed or refused, as the unit states (SPC-4, SBC-3, SAM-5)."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 CDB fields", level="MUST"),
]

COMPARING = {
    "VERIFY-10": c.VERIFY_10,
    "VERIFY-12": c.VERIFY_12,
    "VERIFY-16": c.VERIFY_16,
    "WVER-10": c.WRITE_AND_VERIFY_10,
    "WVER-12": c.WRITE_AND_VERIFY_12,
    "WVER-16": c.WRITE_AND_VERIFY_16,
    "ORWRITE": c.ORWRITE_16,
    "CAW": c.COMPARE_AND_WRITE,
}
"""Commands that compare, verify or combine blocks; all have DPO, and a field for protection information."""
NACA = 0x04
"""Of CONTROL, the last byte of a CDB (SAM-5)."""
NORM_ACA = 0x20
"""Of byte 3 of standard INQUIRY data."""
VENDOR_PAGES = 0x30
"""From this code on, log pages are the vendor's."""
TIMEOUTS = 12
"""Bytes of a command timeouts descriptor; its length field counts those after itself."""


def run_on_zeroes(unit: LogicalUnit, scratch: Any, command: c.CommandFormat, **fields: int) -> ScsiResult:
    """Write a block of zeroes, and run ``command`` on it with zeroes and ``fields``."""
    zeroes = bytes(scratch.block_size)
    assert unit.write(scratch.lba, zeroes).good
    data = 2 * zeroes if command is c.COMPARE_AND_WRITE else zeroes
    if "VERIFY(" in command.name and "WRITE" not in command.name:
        fields |= {"bytchk": 1}
    answer = unit.run(command, data=data, lba=scratch.lba, blocks=1, **fields)
    if answer.unsupported:
        pytest.skip(f"{command.name} is not supported")
    return answer


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-DPO-{name}", kills=("dpo-refused",)))
    for name in COMPARING
])  # fmt: skip
@pytest.mark.case(section="SBC-3 DPOFUA", level="SHOULD")
def test_dpo_is_accepted_by_commands_that_compare_if_dpofua_is_set(unit, scratch, name):
    """DPO is a hint for the cache: with it, the command is executed as without it."""
    header = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, dbd=1, allocation=255)
    if not header.good or len(header.data) < 4 or not header.data[2] & 0x10:
        pytest.skip("DPOFUA is 0: DPO need not be supported")
    plain = run_on_zeroes(unit, scratch, COMPARING[name])
    if not plain.good:
        pytest.skip(f"not executed without DPO either: {plain}")
    answer = run_on_zeroes(unit, scratch, COMPARING[name], dpo=1)
    assert answer.good, f"{answer}; DPOFUA is 1, and without DPO it was GOOD"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-FUA-{name}", kills=("fua-refused",)))
    for name in ("ORWRITE", "CAW")
])  # fmt: skip
@pytest.mark.case(section="SBC-3 DPOFUA", level="SHOULD")
def test_fua_is_accepted_by_commands_that_compare_and_write_if_dpofua_is_set(unit, scratch, name):
    """Alone, and with DPO."""
    header = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, dbd=1, allocation=255)
    if not header.good or len(header.data) < 4 or not header.data[2] & 0x10:
        pytest.skip("DPOFUA is 0: FUA need not be supported")
    plain = run_on_zeroes(unit, scratch, COMPARING[name])
    if not plain.good:
        pytest.skip(f"not executed without FUA either: {plain}")
    for dpo in (0, 1):
        answer = run_on_zeroes(unit, scratch, COMPARING[name], fua=1, dpo=dpo)
        assert answer.good, f"{answer}; DPOFUA is 1, and without FUA it was GOOD"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PROTECT-{name}", kills=("protect-of-compare",)))
    for name in ("VERIFY-10", "VERIFY-12", "VERIFY-16", "ORWRITE", "CAW")
])  # fmt: skip
@pytest.mark.case(section="SBC-3 protection information", level="SHOULD")
def test_protection_is_refused_by_commands_that_compare_if_the_unit_has_none(unit, facts, scratch, name):
    if facts.capacity.protection:
        pytest.skip("the unit has protection information")
    for protect in (1, 3, 5):
        answer = run_on_zeroes(unit, scratch, COMPARING[name], protect=protect)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.parametrize("command", [
    pytest.param(c.TEST_UNIT_READY, marks=pytest.mark.case("SCS-NACA-READY")),
    pytest.param(c.READ_10, marks=pytest.mark.case("SCS-NACA-READ-10")),
    pytest.param(c.READ_CAPACITY_16, marks=pytest.mark.case("SCS-NACA-CAPACITY")),
])  # fmt: skip
@pytest.mark.case(section="SAM-5 CONTROL, NACA", kills=("naca-accepted",))
def test_naca_is_an_invalid_field_of_a_unit_without_aca(unit, command):
    """NormACA of INQUIRY states whether the unit has ACA. Without it NACA of 1 is an invalid field."""
    if unit.inquiry().good_data()[3] & NORM_ACA:
        pytest.skip("NormACA is 1: ACA is supported")
    block = bytearray(cdb(command, **({"blocks": 0} if command is c.READ_10 else {})))
    block[-1] |= NACA
    answer = LogicalUnit.result(unit.runner.command(bytes(block)), f"{command.name} with NACA")
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), f"{answer}; NormACA is 0"


@pytest.mark.case("SCS-MODE-LONGLBA", section="SPC-4 MODE SENSE(10), LLBAA", kills=("long-lba-unasked",))
def test_a_block_descriptor_is_short_unless_llbaa_allows_a_long_one(unit):
    """LONGLBA is 0 without LLBAA; each descriptor has 8 bytes then, and 16 with LONGLBA."""
    for llbaa in (0, 1):
        answer = unit.run(c.MODE_SENSE_10, read=512, page=0x3F, llbaa=llbaa, allocation=512)
        if answer.check(SenseKey.ILLEGAL_REQUEST):
            pytest.skip(f"not supported: {answer}")
        assert answer.good, answer
        assert len(answer.data) >= 8, f"{answer}: {len(answer.data)} bytes"
        long, length = answer.data[4] & 1, int.from_bytes(answer.data[6:8], "big")
        assert llbaa or not long, f"{answer}: LONGLBA is 1, and LLBAA was 0"
        assert not length % (16 if long else 8), (
            f"{answer}: LONGLBA is {long}, BLOCK DESCRIPTOR LENGTH {length}"
        )


def commands(unit: LogicalUnit, **fields: int) -> bytes:
    """Return the command descriptors of REPORT SUPPORTED OPERATION CODES; skip if it is not supported."""
    answer = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=8192, allocation=8192, **fields)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {answer}")
    return answer.good_data()[4:]


@pytest.mark.case(
    "SCS-OPS-TIMEOUTS-LENGTH",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, COMMAND DATA LENGTH",
    kills=("timeouts-not-counted",),
)
def test_the_length_of_the_list_counts_its_timeouts(unit):
    """COMMAND DATA LENGTH is that of all descriptors, also those of the timeouts that CTDP announces."""
    entries = commands(unit, rctd=1)
    answer = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=4, allocation=4, rctd=1)
    length, at = int.from_bytes(answer.good_data()[:4], "big"), 0
    while at + 8 <= len(entries):
        at += 8 + TIMEOUTS * (entries[at + 5] >> 1 & 1)
    assert length == at, f"COMMAND DATA LENGTH is {length}; the descriptors have {at} bytes"


@pytest.mark.case(
    "SCS-OPS-TIMEOUTS",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, RCTD",
    level="SHOULD",
    kills=("timeouts-missing",),
)
def test_command_timeouts_are_returned_if_they_are_asked_for(unit):
    """RCTD asks for a descriptor behind each command; without RCTD there is none."""
    for rctd, entries in enumerate((commands(unit), commands(unit, rctd=1))):
        at = 0
        while at + 8 <= len(entries):
            entry, shown = entries[at : at + 8], entries[at + 5] >> 1 & 1
            assert shown == rctd, f"CTDP is {shown}, and RCTD was {rctd}: {entry.hex()}"
            if shown:
                length = int.from_bytes(entries[at + 8 : at + 10], "big")
                assert length == TIMEOUTS - 2, (
                    f"DESCRIPTOR LENGTH of command timeouts is {length}: {entry.hex()}"
                )
            at += 8 + shown * TIMEOUTS
        assert at == len(entries), f"RCTD {rctd}: {len(entries)} bytes, and the last descriptor ends at {at}"


def parameter_codes(body: bytes) -> list[int]:
    """Return the codes of the log parameters of a page, without its header."""
    codes = []
    while len(body) >= 4 and len(body) >= 4 + body[3]:
        codes.append(int.from_bytes(body[:2], "big"))
        body = body[4 + body[3] :]
    return codes


@pytest.mark.case(
    "SCS-LOG-POINTER", section="SPC-4 LOG SENSE, PARAMETER POINTER", kills=("log-pointer-ignored",)
)
def test_a_parameter_pointer_past_the_last_parameter_is_an_invalid_field(unit):
    """Of each log page of the standard that has parameters."""
    fields = {"read": 0xFFFF, "page_control": 1, "allocation": 0xFFFF}
    pages = unit.run(c.LOG_SENSE, **fields)
    if pages.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {pages}")
    judged = 0
    for page in (code for code in pages.good_data()[4:] if 0 < code < VENDOR_PAGES):
        codes = parameter_codes(unit.run(c.LOG_SENSE, page=page, **fields).good_data()[4:])
        if not codes or max(codes) == 0xFFFF:
            continue
        answer = unit.run(c.LOG_SENSE, page=page, parameter_pointer=max(codes) + 1, **fields)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
            f"{answer}; the last parameter of page {page:02x}h is {max(codes):04x}h"
        )
        judged += 1
    if not judged:
        pytest.skip("no log page has parameters")
