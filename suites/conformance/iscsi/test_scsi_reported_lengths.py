"""Lengths that a target reports or is sent, and whether its list of commands is true (SPC-4, SBC-3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import COMMANDS
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, reserved
from storagetest.wire.scsi.reservations import out_list

from .test_scsi_edges import CACHING, CONTROL, current_page

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 CDB fields", level="MUST")]

Facts = Any
"""The fixture of that name."""


# VPD pages and mode parameters

PAGE_LENGTHS = {0x86: 0x3C, 0xB1: 0x3C}
"""VPD pages of one length: Extended INQUIRY Data (SPC-4), Block Device Characteristics (SBC-3)."""
DP = 0x01
"""Of byte 5 of page B2h: a provisioning group descriptor follows."""


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"SCS-VPD-LENGTH-{page:02X}", kills=("page-of-63-bytes",)))
    for page in PAGE_LENGTHS
])  # fmt: skip
@pytest.mark.case(section="SPC-4, SBC-3, PAGE LENGTH of a VPD page")
def test_a_page_of_one_length_has_it(unit, facts, page):
    if page not in facts.pages:
        pytest.skip(f"no page {page:02x}h")
    data = unit.inquiry(page).good_data()
    assert int.from_bytes(data[2:4], "big") == PAGE_LENGTHS[page], (
        f"PAGE LENGTH of page {page:02x}h is {data[2:4].hex()}h; it has to be {PAGE_LENGTHS[page]:04x}h"
    )


@pytest.mark.case(
    "SCS-VPD-LENGTH-B2", section="SBC-3 Logical Block Provisioning, PAGE LENGTH", kills=("page-of-63-bytes",)
)
def test_the_provisioning_page_has_four_bytes_without_a_descriptor(unit, facts):
    """With DP, the designation descriptor of a provisioning group follows them."""
    if 0xB2 not in facts.pages:
        pytest.skip("no page b2h")
    data = unit.inquiry(0xB2).good_data()
    length = int.from_bytes(data[2:4], "big")
    described = len(data) > 5 and data[5] & DP
    assert length > 4 if described else length == 4, (
        f"PAGE LENGTH is {length}, and DP {described}: {data.hex()}"
    )


@pytest.mark.case(
    "SCS-MODE-ONE-DESCRIPTOR",
    section="SBC-3 mode parameter block descriptors",
    kills=("long-descriptor-unmarked", "long-descriptor-swapped"),
    builds_on=("SCS-MODE-04",),
)
def test_a_block_descriptor_is_one_and_describes_the_unit(unit, facts):
    """A short one has 8 bytes, a long one (LONGLBA) 16; each has the number and the length of the blocks."""
    for llbaa in (0, 1):
        answer = unit.run(c.MODE_SENSE_10, read=512, page=0x3F, llbaa=llbaa, allocation=512)
        if answer.check(SenseKey.ILLEGAL_REQUEST):
            pytest.skip(f"not supported: {answer}")
        data = answer.good_data()
        long, length = data[4] & 1, int.from_bytes(data[6:8], "big")
        size = 16 if long else 8
        assert length in (0, size), f"{answer}: LONGLBA is {long}, and BLOCK DESCRIPTOR LENGTH {length}"
        if not length:
            continue
        found = data[8 : 8 + size]
        blocks, block = (found[:8], found[12:]) if long else (found[:4], found[5:])
        number, every = int.from_bytes(blocks, "big"), facts.capacity.blocks
        assert int.from_bytes(block, "big") == facts.capacity.block_size, (
            f"{answer}: LOGICAL BLOCK LENGTH of {found.hex()} is not {facts.capacity.block_size}"
        )
        limit = (1 << 8 * len(blocks)) - 1
        assert number in (0, every, min(every, limit)), (
            f"{answer}: NUMBER OF LOGICAL BLOCKS of {found.hex()} is {number}, and the unit has {every}"
        )


# Lengths of parameter lists


@pytest.mark.case(
    "SCS-MSEL-DESCRIPTOR-LENGTH",
    section="SPC-4 MODE SELECT(10), BLOCK DESCRIPTOR LENGTH",
    kills=("descriptor-length-byte",),
    builds_on=("SCS-FORM-SELECT-CACHING",),
)
@pytest.mark.usefixtures("scratch")
def test_both_bytes_of_a_block_descriptor_length_count(unit):
    """A list without such descriptors is refused, and changes nothing; its page has the current values."""
    there = unit.run(c.MODE_SENSE_6, read=255, page=CACHING, dbd=1, allocation=255)
    page = CACHING if there.good else CONTROL
    before = current_page(unit, page)
    plain = bytes(4) + before
    if not unit.run(c.MODE_SELECT_10, data=plain, pf=1, allocation=len(plain)).good:
        pytest.skip("MODE SELECT(10) of the current values is refused")
    for length in (0x0100, 0x1000, 0x8000):
        data = bytes(6) + length.to_bytes(2, "big") + before[4:]
        answer = unit.run(c.MODE_SELECT_10, data=data, pf=1, allocation=len(data))
        refusals = (Asc.PARAMETER_LIST_LENGTH_ERROR, Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, *refusals), (
            f"{answer}: BLOCK DESCRIPTOR LENGTH is {length}, of a list of {len(data)} bytes"
        )
        assert current_page(unit, page) == before, f"{answer}, but the page has changed"


@pytest.mark.case(
    "SCS-PR-LIST-UPPER",
    section="SPC-4 PERSISTENT RESERVE OUT, PARAMETER LIST LENGTH",
    kills=("out-length-byte",),
    builds_on=("SCS-PR-36",),
)
def test_each_byte_of_the_length_of_a_reservation_list_counts(unreserved):
    """A list is longer than 24 bytes also if the low byte of its length is 24: it registers nothing."""
    a, _ = unreserved
    for length in (24 + 0x100, 24 + 0x1_0000):
        data = out_list(0, KEY_A).ljust(length, b"\0")
        answer = a.run(
            c.PERSISTENT_RESERVE_OUT, data=data, service_action=int(PrOut.REGISTER), allocation=length
        )
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the list has {length} bytes"
        assert not a.keys().keys, f"{answer}, and the key is registered"


@pytest.mark.parametrize("action", [
    pytest.param(action, marks=pytest.mark.case(
        f"SCS-PR-CUT-{action.name.replace('_', '-')}", kills=("reserve-in-length-cut", *more)))
    for action, more in (
        (PrIn.READ_KEYS, ("keys-last-cut",)), (PrIn.READ_RESERVATION, ()), (PrIn.READ_FULL_STATUS, ())
    )
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 PERSISTENT RESERVE IN, ADDITIONAL LENGTH",
    builds_on=RESERVING,
)
def test_an_allocation_length_cuts_what_is_reserved_and_changes_no_length(unreserved, action):
    """Two nexuses are registered, one holds a reservation; each cut has the first bytes of the whole."""
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    whole = a.reserve_in(action)
    if whole.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {whole}")
    data = whole.good_data()
    for allocation in sorted({9, 12, *range(8, len(data), 8), len(data) - 1, len(data) + 1}):
        answer = a.reserve_in(action, allocation=allocation)
        assert answer.good, f"{answer}; with {len(data)} bytes it was GOOD"
        assert answer.data == data[:allocation], f"{answer}: {answer.data.hex()}; the whole is {data.hex()}"


@pytest.mark.case(
    "SCS-PR-CUT-SHORT",
    section="SPC-4 allocation length",
    kills=("reserve-in-short-refused",),
    builds_on=("SCS-PR-CUT-READ-KEYS",),
)
def test_less_than_the_header_of_the_keys_is_no_error(unreserved):
    """An allocation length cuts the data wherever it ends, and of zero there are none."""
    whole = unreserved[0].reserve_in(PrIn.READ_KEYS).good_data()
    for allocation in (0, 1, 4, 7):
        answer = unreserved[0].reserve_in(PrIn.READ_KEYS, allocation=allocation)
        assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
        assert answer.data == whole[:allocation], f"{answer}: {answer.data.hex()}; the whole is {whole.hex()}"


# The list of commands


WITHOUT_LIST = (c.MODE_SELECT_6, c.MODE_SELECT_10, c.UNMAP, c.PERSISTENT_RESERVE_OUT, c.SEND_DIAGNOSTIC)
"""Commands that are sent with a parameter list of no bytes."""
SHORT = 64
"""Allocation length of the others (chosen)."""
NOT_TRIED = (c.START_STOP_UNIT, c.RESERVE_6, c.RELEASE_6, c.READ_6, c.WRITE_6)
"""Commands that change the state of the unit, or cannot name a block past the end."""


def listed_commands(unit: LogicalUnit) -> dict[tuple[int, int | None], bytes]:
    """Return the command descriptors by operation code and service action; skip if there is no list."""
    answer = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=8192, allocation=8192)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {answer}")
    entries, found = answer.good_data()[4:], {}
    while len(entries) >= 8:
        action = int.from_bytes(entries[2:4], "big") if entries[5] & 1 else None
        found[entries[0], action] = entries[:8]
        entries = entries[20 if entries[5] & 2 else 8 :]
    return found


def tried(unit: LogicalUnit, facts: Facts) -> Iterator[tuple[c.CommandFormat, ScsiResult]]:
    """Run each command that changes nothing: on a block past the end, or without data; yield the results."""
    past = facts.capacity.last_lba + 1
    for (_, action), command in COMMANDS.items():
        names = {place.name for place in command.fields}
        if command in NOT_TRIED or ("lba" in names and past > 0xFFFFFFFF and command.length < 16):
            continue
        fields: dict[str, int] = {"lba": past, "blocks": 1} if {"lba", "blocks"} <= names else {}
        data = b""
        if command in (c.COMPARE_AND_WRITE, c.ORWRITE_16) or "WRITE" in command.name:
            data = bytes(unit.block_size * (2 if command is c.COMPARE_AND_WRITE else 1))
        if command in (c.MODE_SELECT_6, c.MODE_SELECT_10):
            fields["pf"] = 1
        if command in (c.MODE_SENSE_6, c.MODE_SENSE_10):
            fields |= {"page": 0x3F, "dbd": 1}  # page 00h is the vendor's
        if command is c.GET_LBA_STATUS:
            fields["lba"] = past
        if action is None and command in (c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT):
            fields["service_action"] = int(PrIn.READ_KEYS)  # 00h is REGISTER, too
        reads = unit.block_size if command.name.startswith("READ(") else 0
        if "allocation" in names and command not in WITHOUT_LIST:
            fields["allocation"] = reads = SHORT
        yield command, unit.run(command, read=reads, data=data, **fields)


def action_of(command: c.CommandFormat) -> int | None:
    """Return the service action with which :func:`tried` runs a command."""
    reserves = command in (c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT)
    return 0 if reserves else command.service_action


@pytest.mark.case(
    "SCS-OPS-EXECUTED",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, all commands",
    kills=("listed-command-refused",),
    builds_on=("SCS-OPS-03",),
)
def test_each_command_of_the_list_is_there(unit, facts, scratch):
    """None of them ends in INVALID COMMAND OPERATION CODE; whatever else it ends in is not judged."""
    assert scratch.count
    listed = listed_commands(unit)
    for command, answer in tried(unit, facts):
        if (command.opcode, action_of(command)) in listed:
            assert not answer.unsupported, f"{answer}; the list of commands has {command.name}"


@pytest.mark.case(
    "SCS-OPS-WHOLE",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, all commands",
    kills=("executed-command-unlisted", "listed-length-other", "service-action-unmarked"),
    builds_on=("SCS-OPS-03",),
)
def test_each_command_that_is_there_is_in_the_list(unit, facts, scratch):
    """A command that needs no data, or a block past the end, shows by its status that it is known."""
    assert scratch.count
    listed = listed_commands(unit)
    known = (Asc.LBA_OUT_OF_RANGE, Asc.PARAMETER_LIST_LENGTH_ERROR)
    for command, answer in tried(unit, facts):
        if answer.good or answer.check(SenseKey.ILLEGAL_REQUEST, *known):
            actions = [action for opcode, action in listed if opcode == command.opcode]
            assert action_of(command) in actions, (
                f"{answer}: it is executed, and the list of commands lacks {command.name}; "
                f"the service actions that it has for {command.opcode:02X}h: {actions or 'no entry'}"
            )
