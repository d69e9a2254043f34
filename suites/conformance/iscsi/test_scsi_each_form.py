"""What holds for one form of a command holds for each: last block, no blocks, a range past the end (SBC-3).

A target often has one function for each form. A rule that it keeps in READ(16) is no rule that it keeps in
READ(12), or in COMPARE AND WRITE.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered, require_address
from storagetest.wire.iscsi.look import is_write_protected
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3", level="MUST")]

READS = {"READ-10": c.READ_10, "READ-12": c.READ_12, "READ-16": c.READ_16}
WRITES = {
    "WRITE-10": c.WRITE_10,
    "WRITE-12": c.WRITE_12,
    "WRITE-16": c.WRITE_16,
    "WVER-10": c.WRITE_AND_VERIFY_10,
    "WVER-12": c.WRITE_AND_VERIFY_12,
    "WVER-16": c.WRITE_AND_VERIFY_16,
    "ORWRITE": c.ORWRITE_16,
}
VERIFIES = {"VERIFY-10": c.VERIFY_10, "VERIFY-12": c.VERIFY_12, "VERIFY-16": c.VERIFY_16}
SAMES = {"SAME-10": c.WRITE_SAME_10, "SAME-16": c.WRITE_SAME_16}
SYNCHRONIZERS = {"SYNC-10": c.SYNCHRONIZE_CACHE_10, "SYNC-16": c.SYNCHRONIZE_CACHE_16}
FETCHES = {"FETCH-10": c.PRE_FETCH_10, "FETCH-16": c.PRE_FETCH_16}
TRANSFERS = {**READS, **WRITES, **VERIFIES}
RANGES = {**TRANSFERS, **SAMES, **SYNCHRONIZERS, "CAW": c.COMPARE_AND_WRITE}
BLOCKS = 2048
"""The most blocks of a command here, as the cases overwrite no more."""
MOST_TRIED = 8192
"""The largest MAXIMUM TRANSFER LENGTH that is exceeded (chosen)."""
EXISTING = ("READ-12", "WRITE-12", "WVER-10", "VERIFY-16", "SYNC-16", "SAME-10")
"""Commands whose ranges past the end are those of SCS-RW-22 to SCS-RW-27."""


def named(command: c.CommandFormat, names: dict[str, c.CommandFormat]) -> bool:
    """Return whether ``command`` is one of ``names``."""
    return command in names.values()


def run(
    unit: LogicalUnit, command: c.CommandFormat, lba: int, old: bytes, new: bytes, *, blocks: int = 1
) -> ScsiResult:
    """Run a command on blocks that hold ``old``; commands that write send ``new``. Skip if there is none.

    ``old`` and ``new`` have the data of all ``blocks``; a comparison is one of ``old``.
    """
    where: dict[str, Any] = {"lba": lba, "blocks": blocks}
    if command is c.COMPARE_AND_WRITE:
        return offered(unit.run(command, data=old + new, **where))
    if named(command, READS):
        return offered(unit.run(command, read=len(old), **where))
    if named(command, VERIFIES):
        answer = offered(unit.run(command, data=old, bytchk=1, **where))
        if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):  # BYTCHK need not be supported
            answer = unit.run(command, **where)
        return answer
    sends = named(command, WRITES) or named(command, SAMES)
    return offered(unit.run(command, data=new if sends else b"", **where))


def left_by(command: c.CommandFormat, old: bytes, new: bytes) -> bytes:
    """Return what blocks that held ``old`` hold after a command that sent ``new``."""
    if command is c.ORWRITE_16:
        return bytes(a | b for a, b in zip(old, new, strict=True))
    writes = named(command, WRITES) or named(command, SAMES) or command is c.COMPARE_AND_WRITE
    return new if writes else old


def require_comparison(command: c.CommandFormat, facts: Any, blocks: int = 1) -> None:
    """Skip if the command is a COMPARE AND WRITE of more blocks than the unit states."""
    most = facts.limits.max_compare_and_write if facts.limits else 0
    if command is c.COMPARE_AND_WRITE and most < blocks:
        pytest.skip(f"MAXIMUM COMPARE AND WRITE LENGTH is {most}")


@pytest.mark.parametrize("name", [
    pytest.param(
        name,
        marks=pytest.mark.case(
            f"SCS-LAST-{name}",
            kills=(f"last-block-{name.partition('-')[0].lower()}",),
            builds_on=("SCS-RW-13",),
        ),
    )
    for name in RANGES
])  # fmt: skip
@pytest.mark.case(section="SBC-3, LOGICAL BLOCK ADDRESS")
def test_the_last_block_is_a_block_for_each_command(unit, facts, scratch, name):
    """A command on the last two blocks, and on the last one alone, is executed as on any others."""
    command, last = RANGES[name], facts.capacity.last_lba
    require_address(command, last)
    require_comparison(command, facts)
    size = scratch.block_size
    for blocks in (1, 2):
        if command is c.COMPARE_AND_WRITE and blocks > facts.limits.max_compare_and_write:
            continue
        first, old = last + 1 - blocks, scratch.pattern(blocks, seed=400)
        new = scratch.pattern(1 if named(command, SAMES) else blocks, seed=401)
        written = unit.write(first, old)
        assert written.good, written
        answer = run(unit, command, first, old, new, blocks=blocks)
        assert answer.good, f"{answer}; the last block of the unit is {last}"
        if named(command, READS):
            assert answer.data == old, f"{answer}: other data than those of the last {blocks} blocks"
        found, wanted = unit.read(first, blocks).data, left_by(command, old, (new * blocks)[: blocks * size])
        assert found == wanted, f"{answer}: the last {blocks} blocks do not hold what it leaves there"


@pytest.mark.parametrize("name", [
    pytest.param(
        name, marks=pytest.mark.case(f"SCS-PAST-{name}", kills=(f"past-end-{name.lower()}",))
    )
    for name in RANGES if name not in EXISTING
])  # fmt: skip
@pytest.mark.case(section="SBC-3, LOGICAL BLOCK ADDRESS", builds_on=("SCS-RW-05",))
def test_a_range_past_the_end_is_refused_by_each_command(unit, facts, scratch, name):
    """It begins behind the last block, or at the last block; nothing is transferred, nothing is changed."""
    command, last = RANGES[name], facts.capacity.last_lba
    require_address(command, last + 1)
    require_comparison(command, facts)
    before = unit.read(last).good_data()
    for lba, blocks in ((last + 1, 1), (last, 2)):
        if command is c.COMPARE_AND_WRITE and blocks > facts.limits.max_compare_and_write:
            continue
        new = scratch.pattern(1 if named(command, SAMES) else blocks, seed=402)
        answer = run(unit, command, lba, before * blocks, new, blocks=blocks)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}; the last block of the unit is {last}"
        )
        assert not answer.data, f"{answer}, with {len(answer.data)} bytes"
        assert unit.read(last).data == before, f"{answer}, but the last block has changed"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-NONE-{name}", kills=(f"no-blocks-{kind}",)))
    for kind, names in (("transfer", TRANSFERS), ("rest", {**SYNCHRONIZERS, **FETCHES}))
    for name in names
])  # fmt: skip
@pytest.mark.case(section="SBC-3, TRANSFER LENGTH, NUMBER OF LOGICAL BLOCKS", builds_on=("SCS-RW-14",))
def test_no_blocks_are_no_error_of_any_command(unit, facts, scratch, name):
    """A transfer of none is GOOD, and changes none; for a cache, 0 means all blocks up to the last one."""
    command, old = {**TRANSFERS, **SYNCHRONIZERS, **FETCHES}[name], scratch.pattern(1, seed=403)
    lba = facts.capacity.last_lba if named(command, FETCHES) else scratch.lba
    require_address(command, lba)
    assert unit.write(scratch.lba, old).good
    for fields in ({}, {"bytchk": 1}) if named(command, VERIFIES) else ({},):
        answer = offered(unit.run(command, lba=lba, blocks=0, **fields))
        if fields and answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
            continue  # BYTCHK need not be supported
        assert answer.good or (named(command, FETCHES) and answer.status == ScsiStatus.CONDITION_MET), answer
        assert not answer.data, f"{answer}, with {len(answer.data)} bytes"
        assert unit.read(scratch.lba).data == old, f"{answer}, but a block has changed"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-WVER-BYTES-{name[5:]}", kills=("bytchk-not-written",)))
    for name in WRITES if name.startswith("WVER")
])  # fmt: skip
@pytest.mark.case(section="SBC-3 WRITE AND VERIFY, BYTCHK", builds_on=("SCS-RW-01",))
def test_write_and_verify_writes_its_blocks_whatever_it_verifies(unit, scratch, name):
    """With BYTCHK of 00b and of 01b, each of three blocks is written, and no other."""
    size = scratch.block_size
    for bytchk in (0, 1):
        old, new = scratch.pattern(5, seed=404), scratch.pattern(3, seed=405 + bytchk)
        assert unit.write(scratch.lba, old).good
        answer = offered(unit.run(WRITES[name], data=new, lba=scratch.lba + 1, blocks=3, bytchk=bytchk))
        if bytchk and answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
            pytest.skip(f"BYTCHK is not supported: {answer}")
        assert answer.good, answer
        wanted = old[:size] + new + old[-size:]
        assert unit.read(scratch.lba, 5).data == wanted, f"{answer}: not its three blocks, or others"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-MOST-{name}", kills=("over-most",)))
    for name in TRANSFERS if name != "READ-16"
])  # fmt: skip
@pytest.mark.case(section="SBC-3 Block Limits, MAXIMUM TRANSFER LENGTH")
def test_no_command_transfers_more_than_the_maximum_transfer_length(unit, facts, scratch, name):
    """One block more is an invalid field, and nothing is written; READ(16) is that of SCS-RW-21.

    If these are more blocks than the cases overwrite, the data are those that are there.
    """
    most, command = facts.limits.max_transfer if facts.limits else 0, TRANSFERS[name]
    if not 0 < most < min(facts.capacity.blocks - scratch.lba, MOST_TRIED + 1):
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {most}: no limit, or too much to try")
    old, block = scratch.pattern(1, seed=407), scratch.pattern(1, seed=408)
    assert unit.write(scratch.lba, old).good
    if most < scratch.count:
        sent = (most + 1) * block
    else:
        held = unit.read(scratch.lba, most)
        assert held.good, f"{held}; MAXIMUM TRANSFER LENGTH is {most}"
        sent = held.data + unit.read(scratch.lba + most).good_data()
    reads, data = (len(sent), b"") if named(command, READS) else (0, sent)
    fields = {"bytchk": 1} if named(command, VERIFIES) else {}
    answer = offered(unit.run(command, read=reads, data=data, lba=scratch.lba, blocks=most + 1, **fields))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
        f"{answer}; MAXIMUM TRANSFER LENGTH is {most}"
    )
    assert unit.read(scratch.lba).data == old, f"{answer}, but a block has changed"


LARGEST = [name for name in (*TRANSFERS, *SAMES, "CAW") if name not in ("READ-16", "WRITE-16")]
"""The others are those of SCS-DATA-LARGEST."""


def largest_of(command: c.CommandFormat, facts: Any) -> int:
    """Return the most blocks that a command may name and that the cases may overwrite."""
    limits = facts.limits
    if command is c.COMPARE_AND_WRITE:
        return min(facts.largest, limits.max_compare_and_write if limits else 0)
    if named(command, SAMES):
        return min(BLOCKS, limits.max_write_same if limits and limits.max_write_same else BLOCKS)
    return int(facts.largest)


@pytest.mark.parametrize("name", [
    pytest.param(
        name,
        marks=pytest.mark.case(
            f"SCS-LARGEST-{name}", kills=("half-of-largest",), builds_on=("SCS-DATA-LARGEST",)
        ),
    )
    for name in LARGEST
])  # fmt: skip
@pytest.mark.case(section="SBC-3 Block Limits")
def test_the_largest_command_of_each_form_reaches_its_last_block(unit, facts, scratch, name):
    """As many blocks as the unit takes by one command; a comparison finds a difference in the last byte."""
    command, size = RANGES[name], scratch.block_size
    blocks = largest_of(command, facts)
    if blocks < 2:
        pytest.skip(f"the unit takes {blocks} blocks by {command.name}")
    old, new = (scratch.pattern(min(blocks, facts.largest), seed=seed) for seed in (409, 410))
    for at in range(0, blocks, facts.largest):
        data = old[: min(facts.largest, blocks - at) * size]
        assert unit.write(scratch.lba + at, data).good
    last = unit.read(scratch.lba + blocks - 1).good_data()
    sent = new[:size] if named(command, SAMES) else new
    answer = run(unit, command, scratch.lba, old, sent, blocks=blocks)
    if answer.check(SenseKey.ILLEGAL_REQUEST) and not (facts.limits and facts.limits.max_transfer):
        pytest.skip(f"{answer}: the unit states no MAXIMUM TRANSFER LENGTH, and takes fewer blocks")
    assert answer.good, answer
    if named(command, READS):
        assert answer.data == old, f"{answer}: {len(answer.data)} bytes, or other ones"
    wanted = left_by(command, last, sent[-size:])
    assert unit.read(scratch.lba + blocks - 1).data == wanted, (
        f"{answer}: the last of {blocks} blocks is wrong"
    )
    if named(command, VERIFIES):
        other = unit.run(
            command, data=old[:-1] + bytes((old[-1] ^ 1,)), lba=scratch.lba, blocks=blocks, bytchk=1
        )
        unsupported = other.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        assert unsupported or other.check(SenseKey.MISCOMPARE), f"{other}; the last byte differs"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PROTECT-{name}", kills=("protect-of-seldom-form",)))
    for name in ("READ-10", "READ-12", "WVER-12", "SAME-10")
])  # fmt: skip
@pytest.mark.case(section="SBC-3 protection information", level="SHOULD")
def test_protection_is_refused_in_each_form_by_a_unit_without_it(unit, facts, scratch, name):
    """The block stays; the other forms are those of SCS-RW-18 and of the other cases SCS-PROTECT-*."""
    if facts.capacity.protection:
        pytest.skip("the unit has protection information")
    command, old = RANGES[name], scratch.pattern(1, seed=411)
    assert unit.write(scratch.lba, old).good
    for protect in (1, 3, 5):
        reads, data = (len(old), b"") if named(command, READS) else (0, scratch.pattern(1, seed=412))
        answer = offered(unit.run(command, read=reads, data=data, lba=scratch.lba, blocks=1, protect=protect))
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer
        assert unit.read(scratch.lba).data == old, f"{answer}, but the block has changed"


WRITING = {**WRITES, **SAMES, "CAW": c.COMPARE_AND_WRITE, "UNMAP": c.UNMAP}
"""Commands that change blocks; WRITE(16) is that of SCS-AGREE-WP."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-WP-{name}", kills=("write-protected-forms",)))
    for name in WRITING if name != "WRITE-16"
])  # fmt: skip
@pytest.mark.case(section="SBC-3 write protection", builds_on=("SCS-AGREE-WP",))
def test_no_command_changes_a_unit_that_is_write_protected(unit, facts, erasable, name):
    """Each ends in DATA PROTECT, and the block is as before; the unit may have no such command."""
    if not is_write_protected(unit):
        pytest.skip("WP of MODE SENSE is 0: the unit can be written")
    command, lba = WRITING[name], erasable.lba
    require_comparison(command, facts)
    before = unit.read(lba).good_data()
    if command is c.UNMAP:
        answer = offered(unit.unmap((lba, 1)))
    else:
        answer = run(unit, command, lba, before, erasable.pattern(1, seed=413))
    assert answer.check(SenseKey.DATA_PROTECT), f"{answer}, and WP of MODE SENSE is 1"
    assert unit.read(lba).data == before, f"{answer}, but the block has changed"
