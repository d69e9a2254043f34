"""Rules that hold for each form of a command: other lengths of its CDB, and the upper bytes of its fields."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered, reserve_6
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat
from storagetest.wire.scsi.codes import Asc, PrIn, SenseKey
from storagetest.wire.scsi.data import decode_designators
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4, SBC-3", level="MUST")]

Fields = dict[str, Any]
WHOLE = 4095
"""Allocation length for the whole data; its low byte is not zero (chosen)."""
RETURNING: dict[str, tuple[CommandFormat, Fields]] = {
    "INQUIRY": (c.INQUIRY, {}),
    "VPD": (c.INQUIRY, {"evpd": 1, "page": 0x83}),
    "MODE": (c.MODE_SENSE_10, {"page": 0x3F, "dbd": 1}),
    "LOG": (c.LOG_SENSE, {"page_control": 1}),
    "CAPACITY": (c.READ_CAPACITY_16, {}),
    "LBAS": (c.GET_LBA_STATUS, {}),
    "LUNS": (c.REPORT_LUNS, {}),
    "PRIN": (c.PERSISTENT_RESERVE_IN, {"service_action": int(PrIn.REPORT_CAPABILITIES)}),
    "OPS": (c.REPORT_SUPPORTED_OPERATION_CODES, {}),
    "TMF": (c.REPORT_TASK_MANAGEMENT, {}),
}
"""Commands with an allocation length of two or four bytes, whose data do not change by themselves."""


def refusable(answer: ScsiResult) -> ScsiResult:
    """Return ``answer``; skip if the unit does not take the command, or a field of it."""
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {answer}")
    assert answer.good, answer
    return answer


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-ALLOC-UPPER-{name}", kills=(f"allocation-low-{name.lower()}",)))
    for name in RETURNING
])  # fmt: skip
@pytest.mark.case(section="SPC-4 allocation length")
def test_each_byte_of_an_allocation_length_counts(unit, name):
    """With a length of which one upper byte alone is not zero, the data are those of any other length.

    GET LBA STATUS may end with the last descriptor for which there is space, as its header states (SBC-4).
    """
    command, fields = RETURNING[name]
    whole = refusable(unit.run(command, read=WHOLE, allocation=WHOLE, **fields)).data
    size = next(place.size for place in command.fields if place.name == "allocation")
    for byte in range(1, size):
        allocation = 1 << 8 * byte
        answer = unit.run(command, read=allocation, allocation=allocation, **fields)
        assert answer.good, f"{answer}; with {WHOLE} bytes it was GOOD"
        found, wanted = answer.data, whole[:allocation]
        if command is c.GET_LBA_STATUS:
            found, wanted = found[8 : len(wanted)], wanted[8 : max(len(found), 24)]
        assert found == wanted, (
            f"{answer}: {len(answer.data)} bytes; the data have {len(whole)}, and {allocation} are allowed"
        )


@pytest.mark.parametrize("command", [
    pytest.param(command, marks=pytest.mark.case(
        f"SCS-LENGTH-UPPER-{name}", kills=(f"length-low-{name.lower()}",)))
    for name, command in (("READ-12", c.READ_12), ("READ-16", c.READ_16), ("WRITE-12", c.WRITE_12),
                          ("WRITE-16", c.WRITE_16), ("VERIFY-12", c.VERIFY_12), ("VERIFY-16", c.VERIFY_16))
])  # fmt: skip
@pytest.mark.case(section="SBC-3 TRANSFER LENGTH", builds_on=("SCS-RW-01",))
def test_each_byte_of_a_transfer_length_counts(unit, scratch, facts, command):
    """A range that only an upper byte of its length takes past the end is refused, and nothing is written."""
    data = scratch.pattern(1, seed=230)
    assert unit.write(scratch.lba, data).good
    moves: Fields = {}
    if command in (c.READ_12, c.READ_16):
        moves["read"] = scratch.block_size
    elif command in (c.WRITE_12, c.WRITE_16):
        moves["data"] = scratch.pattern(1, seed=231)
    checked = 0
    for byte in (2, 3):
        blocks = 1 << 8 * byte | 1
        if scratch.lba + blocks <= facts.capacity.blocks:
            continue
        answer = offered(unit.run(command, lba=scratch.lba, blocks=blocks, **moves))
        assert answer.check(SenseKey.ILLEGAL_REQUEST), (
            f"{answer}: {blocks} blocks; the unit has {facts.capacity.blocks}"
        )
        assert unit.read(scratch.lba).data == data, f"{answer}, and the first block was written"
        checked += 1
    if not checked:
        pytest.skip(f"each length fits into the unit, which has {facts.capacity.blocks} blocks")


@pytest.mark.case(
    "SCS-FORM-WRITE-6-ZERO",
    section="SBC-3 READ(6), WRITE(6)",
    kills=("write6-zero-blocks",),
    builds_on=("SCS-DATA-04",),
)
def test_write_6_of_length_zero_writes_256_blocks(unit, scratch, facts):
    if facts.largest < 256:
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {facts.largest}")
    old, data = scratch.pattern(256, seed=232), scratch.pattern(256, seed=233)
    assert unit.write(scratch.lba, old).good
    answer = offered(unit.run(c.WRITE_6, data=data, lba=scratch.lba, blocks=0))
    assert answer.good, answer
    read = unit.read(scratch.lba, 256)
    assert read.data == data, f"{answer}: 0 means 256 blocks; other data were read than it wrote"


@pytest.mark.case(
    "SCS-FORM-VERIFY-16", section="SBC-3 VERIFY", kills=("verify-16-good",), builds_on=("SCS-VERIFY-02",)
)
def test_verify_16_compares_each_byte_of_each_block(unit, scratch):
    data = scratch.pattern(3, seed=234)
    assert unit.write(scratch.lba, data).good
    refusable(unit.run(c.VERIFY_16, data=data, lba=scratch.lba, blocks=3, bytchk=1))
    for at in (0, unit.block_size, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1
        answer = unit.run(c.VERIFY_16, data=bytes(wrong), lba=scratch.lba, blocks=3, bytchk=1)
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}; byte {at} of {len(data)} differs"
    assert unit.read(scratch.lba, 3).data == data, "VERIFY(16) has changed the blocks"


@pytest.mark.case(
    "SCS-VPD-ASSOCIATION", section="SPC-4 Device Identification, designator types", kills=("port-of-unit",)
)
def test_each_designator_has_the_association_of_its_type(unit):
    """A relative target port identifier and a target port group are of the port."""
    for found in decode_designators(vpd_page(unit, 0x83)):
        wanted = {4: 1, 5: 1}.get(found.kind, found.association)
        assert found.association == wanted, (
            f"the designator of type {found.kind}h has association {found.association}, not {wanted}"
        )


@pytest.mark.case(
    "SCS-MSEL-ABSENT",
    section="SPC-4 MODE SELECT",
    level="SHOULD",
    kills=("mode-select-absent",),
    builds_on=("SCS-MSEL-01",),
)
def test_mode_select_of_a_page_that_is_not_there_is_refused(unit, scratch):  # noqa: ARG001  # it may be taken
    """Alone in its list; a page that MODE SENSE does not return is not supported."""
    listed = refusable(mode_sense(unit, c.MODE_SENSE_6)).data
    there = {code for code, _ in mode_pages(listed, ten=False)}
    page = next(code for code in (c.NO_MODE_PAGE, 0x1F, 0x0D) if code not in there)
    data = bytes(4) + bytes((page, 10)) + bytes(10)
    answer = offered(unit.run(c.MODE_SELECT_6, data=data, pf=1, allocation=len(data)))
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: MODE SENSE returns no page {page:02x}h"


def one_command(unit: LogicalUnit, **fields: int) -> bytes:
    """Return what REPORT SUPPORTED OPERATION CODES has of one command; skip if it is not supported."""
    answer = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=WHOLE, allocation=WHOLE, **fields)
    return refusable(answer).data


@pytest.mark.parametrize("options", [
    pytest.param(2, marks=pytest.mark.case("SCS-OPS-ACTION-ABSENT-2")),
    pytest.param(3, marks=pytest.mark.case("SCS-OPS-ACTION-ABSENT-3")),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 REPORT SUPPORTED OPERATION CODES",
    kills=("operations-any-action", "operations-action-refused"),
)
def test_a_service_action_that_is_not_defined_is_not_supported(unit, options):
    """READ CAPACITY(16) is there; 1Fh is reserved for an extension, and 00h reserved (SPC-4)."""
    opcode, action = c.READ_CAPACITY_16.opcode, c.READ_CAPACITY_16.service_action or 0
    there = one_command(unit, options=options, requested_opcode=opcode, requested_action=action)
    if there[1] & 7 != 3:
        pytest.skip(f"SUPPORT of READ CAPACITY(16) is {there[1] & 7}")
    for absent in (0x00, 0x1F):
        answer = unit.run(
            c.REPORT_SUPPORTED_OPERATION_CODES,
            read=64,
            options=options,
            requested_opcode=opcode,
            requested_action=absent,
            allocation=64,
        )
        assert answer.good, f"{answer}; SUPPORT states that a service action is not supported"
        data = answer.data
        assert data[1] & 7 in (0, 1), (
            f"SUPPORT is {data[1] & 7} for service action {absent:02x}h of {opcode:02x}h: {data[:8].hex()}"
        )


@pytest.mark.case(
    "SCS-OPS-TIMEOUTS-ONE",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, RCTD",
    level="SHOULD",
    kills=("timeouts-one-missing",),
)
def test_timeouts_of_one_command_are_returned_if_they_are_asked_for(unit):
    """RCTD asks for a descriptor behind CDB USAGE DATA, which CTDP announces; without it there is none."""
    for rctd in (0, 1):
        data = one_command(unit, options=1, requested_opcode=c.READ_10.opcode, rctd=rctd)
        if data[1] & 7 not in (3, 5):
            pytest.skip(f"SUPPORT is {data[1] & 7}: what follows it is not valid")
        size = int.from_bytes(data[2:4], "big")
        assert data[1] >> 7 == rctd, f"CTDP is {data[1] >> 7}, and RCTD was {rctd}: {data.hex()}"
        assert len(data) == 4 + size + 12 * rctd, f"{len(data)} bytes, RCTD {rctd}: {data.hex()}"


@pytest.mark.case(
    "SCS-R6-OTHERS", section="SPC-2 RESERVE(6)", kills=("reserve6-others",), builds_on=("SCS-R6-01",)
)
def test_a_reservation_of_reserve_6_excludes_commands_without_blocks(not_reserved):
    """TEST UNIT READY, MODE SELECT and RESERVE(6) of another nexus; MODE SELECT has no list."""
    a, b = not_reserved
    reserve_6(a)
    try:
        for command in (c.TEST_UNIT_READY, c.MODE_SELECT_6, c.MODE_SELECT_10, c.RESERVE_6):
            answer = b.run(command, **({"pf": 1} if "SELECT" in command.name else {}))
            absent = answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
            assert answer.conflict or absent, f"{answer}; RESERVE(6) of another nexus excludes it"
    finally:
        a.run(c.RELEASE_6)
