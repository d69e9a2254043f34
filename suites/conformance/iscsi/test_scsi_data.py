"""What blocks hold after each way of writing them: sizes, every byte, neighbours, another nexus (SBC-3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import has_twelve_byte_commands, require_address
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import first_grain
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")]

SIZES = (1, 2, 3, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024)
"""Numbers of blocks: each power of two, and its neighbours."""
PAST = 1 << 32
"""The first address that needs the high half of an LBA of 64 bits."""


def written(unit: LogicalUnit, lba: int, data: bytes, **more) -> None:
    """Write, and assert that the status is GOOD."""
    answer = unit.write(lba, data, **more)
    assert answer.good, answer


def holds(unit: LogicalUnit, lba: int, data: bytes, why: str, **more) -> None:
    """Assert that the blocks from ``lba`` hold ``data``; the message names the first byte that differs.

    They are read by one command, or by as many as the MAXIMUM TRANSFER LENGTH of the unit requires.
    """
    size = unit.block_size * (unit.largest or len(data))
    for start in range(0, len(data), size):
        wanted, first = data[start : start + size], lba + start // unit.block_size
        answer = unit.read(first, len(wanted) // unit.block_size, **more)
        assert answer.good, answer
        if answer.data != wanted:
            fail_at_difference(unit, first, answer, wanted, why)


def fail_at_difference(unit: LogicalUnit, lba: int, answer: ScsiResult, data: bytes, why: str) -> None:
    """Fail with the first byte of ``answer`` that is not that of ``data``."""
    pairs = enumerate(zip(answer.data, data, strict=False))
    shorter = min(len(answer.data), len(data))
    differs = next((at for at, (one, two) in pairs if one != two), shorter)
    pytest.fail(
        f"{answer.command}: {len(answer.data)} of {len(data)} bytes came; byte {differs % unit.block_size} "
        f"of block {lba + differs // unit.block_size} is wrong: {why}"
    )


def offered(answer, command: str):
    """Return ``answer``; skip if the command, or this form of it, is not supported."""
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"{command} is not supported: {answer}")
    return answer


@pytest.fixture
def area(unit, scratch, facts):
    """Write a pattern (seed 100) to 64 blocks, and return it."""
    data = scratch.pattern(64, seed=100)
    step = min(64, facts.largest)
    for at in range(0, 64, step):
        size = scratch.block_size
        written(unit, scratch.lba + at, data[at * size : (at + step) * size])
    return data


def changed(area: bytes, size: int, lba: int, data: bytes) -> bytes:
    """Return ``area`` with ``data`` from block ``lba`` of it."""
    return area[: lba * size] + data + area[lba * size + len(data) :]


@pytest.mark.parametrize(
    ("write", "read"),
    [
        pytest.param(
            c.WRITE_10, c.READ_10, marks=pytest.mark.case("SCS-DATA-01", kills=("read10-blocks-byte",))
        ),
        pytest.param(
            c.WRITE_12, c.READ_12, marks=pytest.mark.case("SCS-DATA-02", kills=("read-long-corrupt",))
        ),
        pytest.param(
            c.WRITE_16, c.READ_16, marks=pytest.mark.case("SCS-DATA-03", kills=("read-long-corrupt",))
        ),
    ],
)
def test_transfers_of_all_sizes_are_whole(unit, scratch, facts, write, read):
    if write is c.WRITE_12 and not has_twelve_byte_commands(unit, scratch.lba):
        pytest.skip("READ(12) is not supported")
    if write is c.WRITE_10 and unit.write(scratch.lba, scratch.pattern(1), command=write).unsupported:
        pytest.skip("WRITE(10) is not supported")
    for blocks in [size for size in SIZES if size <= facts.largest]:
        data = scratch.pattern(blocks, seed=200 + blocks)
        written(unit, scratch.lba, data, command=write)
        holds(unit, scratch.lba, data, f"{blocks} blocks were written by {write.name}", command=read)


@pytest.mark.case(
    "SCS-DATA-04", section="SBC-3 READ(6), WRITE(6)", kills=("read6-zero-blocks", "read-6-zero-is-none")
)
def test_a_six_byte_command_of_length_zero_transfers_256_blocks(unit, scratch, facts):
    if facts.largest < 256:
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {facts.largest}")
    data = scratch.pattern(256, seed=4)
    written(unit, scratch.lba, data)
    answer = unit.run(c.READ_6, read=len(data), lba=scratch.lba, blocks=0)
    if answer.unsupported:
        pytest.skip("READ(6) is not supported")
    assert answer.good, answer
    assert answer.data == data, f"{answer.command}: {len(answer.data)} bytes; 0 means 256 blocks"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c.READ_16,
            marks=pytest.mark.case("SCS-DATA-05", kills=("lba-low-half",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.WRITE_16,
            marks=pytest.mark.case("SCS-DATA-06", kills=("write-lba-low-half",), builds_on=("SCS-RW-05",)),
        ),
    ],
)
def test_the_high_half_of_an_lba_counts(unit, scratch, facts, area, command):
    if facts.capacity.blocks > PAST:
        pytest.skip(f"the unit has {facts.capacity.blocks} blocks: the address is valid")
    for at in (PAST + scratch.lba, (1 << 40) + scratch.lba, (1 << 63) + scratch.lba):
        reads, data = (scratch.block_size, b"") if command is c.READ_16 else (0, scratch.pattern(1, seed=6))
        answer = unit.run(command, read=reads, data=data, lba=at, blocks=1)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}; the unit ends at block {facts.capacity.last_lba}"
        )
    holds(unit, scratch.lba, area, "a write to another address was refused")


@pytest.mark.case("SCS-DATA-07", section="SAM-5, SBC-3 WRITE", kills=("read-other-nexus-stale",))
def test_each_initiator_reads_what_another_has_written_last(two, scratch):
    for turn in range(4):
        writer, reader = two[turn % 2], two[1 - turn % 2]
        for lba, blocks in ((scratch.lba, 1), (scratch.lba + 5, 8), (scratch.lba + 1000, 3)):
            data = scratch.pattern(blocks, seed=300 + turn)
            written(writer, lba, data)
            holds(reader, lba, data, f"the other initiator wrote it (turn {turn})")
            holds(writer, lba, data, f"this initiator wrote it (turn {turn})")


@pytest.mark.case("SCS-DATA-08", kills=("read-corrupt",))
def test_the_last_blocks_of_the_unit_hold_what_is_written(unit, facts, scratch):
    blocks = min(64, facts.largest)
    first = facts.capacity.blocks - blocks
    data = scratch.pattern(blocks, seed=8)
    written(unit, first, data)
    holds(unit, first, data, "they were written in one command")
    one = scratch.pattern(1, seed=9)
    written(unit, facts.capacity.last_lba, one)
    holds(unit, first, data[: -scratch.block_size] + one, "the last one was written again")


@pytest.mark.case("SCS-DATA-09", kills=("read-twentieth-corrupt",))
def test_the_same_blocks_are_read_the_same_many_times(unit, scratch, area):
    for turn in range(40):
        at = turn % 32
        piece = area[at * scratch.block_size : (at + 2) * scratch.block_size]
        holds(unit, scratch.lba + at, piece, f"it is read {turn} of 40")


# WRITE AND VERIFY, VERIFY


@pytest.mark.case("SCS-WVER-01", section="SBC-3 WRITE AND VERIFY", kills=("write-verify-nothing",))
def test_write_and_verify_writes_its_blocks_and_no_others(unit, scratch, area):
    for bytchk, at in ((0, 3), (1, 9)):
        data = scratch.pattern(4, seed=50 + at)
        answer = unit.run(c.WRITE_AND_VERIFY_10, data=data, lba=scratch.lba + at, blocks=4, bytchk=bytchk)
        if bytchk == 0:
            offered(answer, "WRITE AND VERIFY(10)")
        elif answer.check(SenseKey.ILLEGAL_REQUEST):
            continue  # BYTCHK need not be supported
        assert answer.good, answer
        area = changed(area, scratch.block_size, at, data)
        holds(unit, scratch.lba, area, f"4 blocks from the {at}th were written by WRITE AND VERIFY(10)")


# COMPARE AND WRITE


@pytest.mark.case("SCS-CAW-04", section="SBC-3 COMPARE AND WRITE", kills=("caw-tail-ignored",))
def test_a_difference_in_any_byte_is_a_miscompare(unit, scratch):
    old, new = scratch.pattern(1, seed=40), scratch.pattern(1, seed=41)
    written(unit, scratch.lba, old)
    size = scratch.block_size
    for at in (*range(0, size, max(1, size // 512)), size - 1):
        wrong = bytearray(old)
        wrong[at] ^= 0x01
        answer = unit.compare_and_write(scratch.lba, bytes(wrong), new)
        if answer.unsupported:
            pytest.skip("COMPARE AND WRITE is not supported")
        assert answer.check(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY), f"{answer}; byte {at} differs"
    holds(unit, scratch.lba, old, "every comparison failed")


@pytest.mark.case(
    "SCS-CAW-05",
    section="SBC-3 COMPARE AND WRITE",
    kills=("caw-first-compared",),
)
def test_every_block_is_compared_before_any_is_written(unit, scratch, facts, area):
    most = min(8, facts.limits.max_compare_and_write if facts.limits else 0)
    if most < 2:
        pytest.skip(f"MAXIMUM COMPARE AND WRITE LENGTH is {most}")
    size = scratch.block_size
    old, new = area[size : size * (most + 1)], scratch.pattern(most, seed=42)
    for block in range(most):
        wrong = bytearray(old)
        wrong[block * size + 5] ^= 0x80
        answer = unit.compare_and_write(scratch.lba + 1, bytes(wrong), new)
        if answer.unsupported:
            pytest.skip("COMPARE AND WRITE is not supported")
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}; block {block} of {most} differs"
        holds(unit, scratch.lba, area, f"block {block} of {most} differed")
    answer = unit.compare_and_write(scratch.lba + 1, old, new)
    assert answer.good, answer
    holds(unit, scratch.lba, changed(area, size, 1, new), f"{most} blocks were compared and written")


@pytest.mark.case(
    "SCS-CAW-06", section="SBC-3 COMPARE AND WRITE", kills=("lba-range-good-caw",), builds_on=("SCS-RW-05",)
)
def test_compare_and_write_past_the_end_is_out_of_range(unit, facts, scratch):
    data = scratch.pattern(1)
    answer = unit.compare_and_write(facts.capacity.blocks, data, data)
    if answer.unsupported:
        pytest.skip("COMPARE AND WRITE is not supported")
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), answer


# WRITE SAME


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-SAME-04", kills=("write-same-one-more",))),
        pytest.param(
            c.WRITE_SAME_16,
            marks=pytest.mark.case(
                "SCS-SAME-05", kills=("write-same-one-more", "write-same-one-less", "zeroes-kept")
            ),
        ),
    ],
)
@pytest.mark.case(section="SBC-3 WRITE SAME", level="MUST")
def test_write_same_fills_its_range_and_no_other_block(unit, scratch, facts, area, command):
    most = facts.limits.max_write_same if facts.limits and facts.limits.max_write_same else 64
    size = scratch.block_size
    for at, blocks, block in ((5, 1, scratch.pattern(1, seed=60)), (10, 40, scratch.pattern(1, seed=61)),
                              (12, 9, bytes(size))):  # fmt: skip
        if blocks > most:
            continue
        answer = offered(unit.run(command, data=block, lba=scratch.lba + at, blocks=blocks), command.name)
        assert answer.good, answer
        area = changed(area, size, at, block * blocks)
        holds(unit, scratch.lba, area, f"{blocks} blocks from the {at}th were written by {command.name}")


# UNMAP


@pytest.fixture
def grain(facts) -> int:
    """Return the granularity of UNMAP in blocks; skip if UNMAP is not supported or the area too small."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    found = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    if found > 64:
        pytest.skip(f"the granularity of UNMAP is {found} blocks")
    return found


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param(
            ((1, 1),), id="one",
            marks=pytest.mark.case("SCS-UNMAP-06", kills=("unmap-one-more",)),
        ),
        pytest.param(
            ((1, 1), (4, 2), (9, 1)), id="three",
            marks=pytest.mark.case("SCS-UNMAP-07", no_mutant_reason="LIO takes one descriptor"),
        ),
        pytest.param(
            tuple((at, 1) for at in range(1, 16, 2)), id="eight",
            marks=pytest.mark.case("SCS-UNMAP-EIGHT", kills=("unmap-later-ignored",)),
        ),
        pytest.param(
            ((1, 0), (3, 1), (6, 0), (9, 2)), id="none-among",
            marks=pytest.mark.case("SCS-UNMAP-EMPTY", kills=("unmap-empty-ends",)),
        ),
        pytest.param(
            ((1, 300),), id="long",
            marks=pytest.mark.case("SCS-UNMAP-08", kills=("unmap-one-more",)),
        ),
    ],
)  # fmt: skip
@pytest.mark.case(section="SBC-3 UNMAP", level="MUST")
def test_unmap_changes_the_blocks_of_its_descriptors_and_no_others(unit, scratch, facts, grain, ranges):
    """Each range is a number of grains, or of none. The area ends one grain behind the last one."""
    limits, size = facts.limits, scratch.block_size
    first = first_grain(facts.limits, scratch.lba)
    whole = (max(at + count for at, count in ranges) + 1) * grain
    asked = [(first + at * grain, count * grain) for at, count in ranges]
    if first + whole > scratch.lba + scratch.count:
        pytest.skip(f"{whole} blocks are more than the cases may overwrite")
    if limits and len(ranges) > limits.max_unmap_descriptors:
        pytest.skip(f"MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT is {limits.max_unmap_descriptors}")
    if limits and sum(count for _, count in asked) > limits.max_unmap_blocks:
        pytest.skip(f"MAXIMUM UNMAP LBA COUNT is {limits.max_unmap_blocks}")
    data, step = scratch.pattern(whole, seed=70), min(whole, facts.largest)
    for at in range(0, whole, step):
        written(unit, first + at, data[at * size : min(whole, at + step) * size])
    answer = unit.unmap(*asked)
    assert answer.good, answer
    zeroes = facts.provisioning.reads_zero or facts.capacity.reads_zero
    unmapped = {block for lba, count in asked for block in range(lba, lba + count)}
    for lba in range(first, first + whole):
        old = data[(lba - first) * size : (lba - first + 1) * size]
        if lba not in unmapped:
            holds(unit, lba, old, f"only {asked} were unmapped")
        elif zeroes:
            holds(unit, lba, bytes(size), f"{asked} were unmapped, and LBPRZ is set")


# Past the end


@pytest.mark.parametrize("command", [
    pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-SAME-MANY-10", builds_on=("SCS-SAME-04",))),
    pytest.param(c.WRITE_SAME_16, marks=pytest.mark.case("SCS-SAME-MANY-16", builds_on=("SCS-SAME-05",))),
])  # fmt: skip
@pytest.mark.case(section="SBC-3 WRITE SAME", kills=("same-count-byte",))
def test_write_same_fills_more_than_256_blocks(unit, scratch, facts, command):
    """The first, the last and those around the 256th have the data; the block behind them is as before."""
    blocks, after = 300, scratch.pattern(1, seed=251)
    if facts.limits and 0 < facts.limits.max_write_same < blocks:
        pytest.skip(f"MAXIMUM WRITE SAME LENGTH is {facts.limits.max_write_same}")
    for at in (0, 43, 44, 255, 256, blocks - 1, blocks):
        written(unit, scratch.lba + at, after)
    new = scratch.pattern(1, seed=252)
    answer = offered(unit.run(command, data=new, lba=scratch.lba, blocks=blocks), command.name)
    assert answer.good, answer
    for at in (0, 43, 44, 255, 256, blocks - 1):
        holds(unit, scratch.lba + at, new, f"it is one of {blocks} blocks that {command.name} fills")
    holds(unit, scratch.lba + blocks, after, f"{command.name} fills the {blocks} blocks before it")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c.READ_12,
            marks=pytest.mark.case("SCS-RW-22", kills=("lba-range-good-12",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.WRITE_12,
            marks=pytest.mark.case("SCS-RW-23", kills=("lba-range-good-12",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.WRITE_AND_VERIFY_10,
            marks=pytest.mark.case("SCS-RW-24", kills=("lba-range-good-verify",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.VERIFY_16,
            marks=pytest.mark.case(
                "SCS-RW-25", kills=("lba-range-good-verify",), builds_on=("SCS-RW-05", "SCS-RW-09")
            ),
        ),
        pytest.param(
            c.SYNCHRONIZE_CACHE_16,
            marks=pytest.mark.case(
                "SCS-RW-26", kills=("lba-range-good-verify",), builds_on=("SCS-RW-05", "SCS-RW-10")
            ),
        ),
        pytest.param(
            c.WRITE_SAME_10,
            marks=pytest.mark.case("SCS-RW-27", kills=("write-same-10-range",), builds_on=("SCS-RW-05",)),
        ),
    ],
)
def test_a_range_past_the_end_is_out_of_range_for_every_command(unit, facts, scratch, command):
    last = facts.capacity.last_lba
    require_address(command, last + 1)
    before = unit.read(last).data
    for lba, blocks in ((last + 1, 1), (last, 2)):
        reads = blocks * scratch.block_size if command is c.READ_12 else 0
        writes = command in (c.WRITE_12, c.WRITE_AND_VERIFY_10, c.WRITE_SAME_10)
        data = scratch.pattern(1 if command is c.WRITE_SAME_10 else blocks, seed=80) if writes else b""
        answer = unit.run(command, read=reads, data=data, lba=lba, blocks=blocks)
        if answer.unsupported:
            pytest.skip(f"{command.name} is not supported")
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), answer
        assert answer.data == b"", f"{answer}, with {len(answer.data)} bytes"
    holds(unit, last, before, f"{command.name} past the end was refused")
