"""A logical unit whose capacity an administrator changes: its reports, its data (SBC-3 READ CAPACITY).

The target's controls ``grow`` and ``shrink`` change the capacity. Each case restores it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from storagetest.errors import ControlError
from storagetest.suites.conformance.iscsi.conftest import Connections, Facts
from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import decode_capacity16, decode_inquiry
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [
    pytest.mark.needs("iscsi-wire", "resize"),
    pytest.mark.exclusive,
    pytest.mark.case(level="MUST", section="SBC-3 READ CAPACITY"),
]

WITHIN = 10.0
"""Seconds in which a unit reports what its administrator has changed (chosen)."""
MODE_HEADER = 8
"""Bytes of the mode parameter header of MODE SENSE(10), which the block descriptor follows (SPC-4)."""
MOST = 0xFFFFFFFF
"""What fields of 32 bits have if the number of blocks is larger (SBC-3)."""

Controls = Callable[[str], AbstractContextManager[None]]
Resize = Callable[[], AbstractContextManager[None]]
Units = tuple[LogicalUnit, LogicalUnit]


def _capacity(unit: LogicalUnit) -> int:
    """Return the number of blocks by READ CAPACITY(16); unit attentions are cleared."""
    unit.clear_attentions()
    return decode_capacity16(unit.capacity16().good_data()).blocks


@pytest.fixture
def resize(server_control: Controls, unit: LogicalUnit, facts: Facts) -> Resize:
    """Return what changes the capacity. Raises ControlError if an earlier case could not restore it."""
    if (found := _capacity(unit)) != facts.capacity.blocks:
        raise ControlError(
            f"the unit has {found} blocks, and had {facts.capacity.blocks} when the run began: the control "
            "`shrink` has not restored it"
        )
    return lambda: server_control("resize")


def _becomes(unit: LogicalUnit, holds: Callable[[int], bool], wanted: str) -> int:
    """Read the capacity until it is as wanted; return it."""
    until = time.monotonic() + WITHIN
    while not holds(blocks := _capacity(unit)):
        assert time.monotonic() < until, (
            f"SBC-3 READ CAPACITY(16): {WITHIN:g} s after the administrator has changed the capacity, it is "
            f"{blocks} blocks; it was to be {wanted}"
        )
        time.sleep(0.2)
    return blocks


def _described(unit: LogicalUnit) -> int | None:
    """Return the blocks of the block descriptor of MODE SENSE(10), which is optional (SPC-4)."""
    mode = unit.run(c.MODE_SENSE_10, read=255, page=0x3F, allocation=255)
    if not mode.good or int.from_bytes(mode.data[6:8], "big") != 8:
        return None
    return int.from_bytes(mode.data[MODE_HEADER : MODE_HEADER + 4], "big")


def _grows(unit: LogicalUnit, facts: Facts) -> int:
    """Return the capacity after the growth."""
    before = facts.capacity.blocks
    return _becomes(unit, lambda blocks: blocks > before, f"more than {before}")


def _write(unit: LogicalUnit, scratch: Scratch, lba: int, seed: int) -> None:
    answer = unit.write(lba, scratch.pattern(seed=seed))
    assert answer.good, f"{answer}: LBA {lba} is a block of the unit"


def _expect(unit: LogicalUnit, scratch: Scratch, lba: int, seed: int, when: str) -> None:
    """Claim that a block reads as it was written."""
    answer = unit.read(lba)
    assert answer.good, f"{answer}: LBA {lba} is a block of the unit {when}"
    assert answer.data == scratch.pattern(seed=seed), f"the data of LBA {lba} differ {when}"


def _out_of_range(unit: LogicalUnit, lba: int) -> None:
    """Claim that there is no such block, for a read, a write, and a range that begins before it."""
    one, two = bytes(unit.block_size), bytes(2 * unit.block_size)
    for answer in (unit.read(lba), unit.write(lba, one), unit.read(lba - 1, 2), unit.write(lba - 1, two)):
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}; the unit has {lba} blocks, so it ends with LOGICAL BLOCK ADDRESS OUT OF RANGE"
        )


@pytest.mark.case(
    "SCS-RESIZE-DATA", kills=("grown-unit-not-listed", "grown-unit-not-served", "grown-unit-has-no-end")
)
def test_a_logical_unit_grows_and_shrinks(two: Units, facts: Facts, scratch: Scratch, resize: Resize) -> None:
    """New blocks are usable to the last one, none is behind it, and the old ones keep their data.

    Both nexuses are used: what one has written is what the other reads.
    """
    first, second = two
    end = facts.capacity.blocks
    old = {scratch.lba: 1, scratch.lba + scratch.count - 1: 2}
    for lba, seed in old.items():
        _write(first, scratch, lba, seed)
    with resize():
        size = _grows(first, facts)
        _becomes(second, lambda blocks: blocks == size, str(size))
        new = {end: 3, (end + size) // 2: 4, size - 1: 5}
        for lba, seed in new.items():
            _write(first, scratch, lba, seed)
        for lba, seed in (old | new).items():
            _expect(second, scratch, lba, seed, "after the growth")
        _out_of_range(second, size)
    for unit in two:
        _becomes(unit, lambda blocks: blocks == end, str(end))
    for lba, seed in old.items():
        _expect(second, scratch, lba, seed, "after the shrink")
    _out_of_range(first, end)


@pytest.mark.case(
    "SCS-RESIZE-FORMS",
    section="SBC-3 READ CAPACITY, mode parameter block descriptors",
    kills=("grown-unit-old-capacity10", "grown-unit-old-descriptor", "grown-unit-one-nexus"),
)
def test_every_report_of_the_capacity_changes(two: Units, facts: Facts, resize: Resize) -> None:
    """READ CAPACITY(10), READ CAPACITY(16) and the block descriptor agree, in two nexuses."""

    def claim(unit: LogicalUnit, size: int, when: str) -> None:
        found = _capacity(unit)
        assert found == size, f"READ CAPACITY(16): {found} blocks {when}; another nexus has {size}"
        last = int.from_bytes(unit.run(c.READ_CAPACITY_10, read=8).good_data()[:4], "big")
        assert last == min(size - 1, MOST), (
            f"READ CAPACITY(10): the last LBA is {last} {when}; by READ CAPACITY(16) it is {size - 1}"
        )
        listed = _described(unit)
        assert listed is None or listed - described == size - facts.capacity.blocks or listed in (0, MOST), (
            f"MODE SENSE(10): the block descriptor has {listed} blocks {when}, and had {described} before; "
            f"the unit has {size}, and had {facts.capacity.blocks}"
        )

    described = _described(two[0]) or 0
    with resize():
        size = _grows(two[0], facts)
        for unit in two:
            claim(unit, size, "after the growth")
    for unit in two:
        claim(unit, facts.capacity.blocks, "after the shrink")


@pytest.mark.case("SCS-RESIZE-NAMES", section="SPC-4 INQUIRY", kills=("grown-unit-is-another",))
def test_a_resized_unit_is_the_same(
    unit: LogicalUnit, connections: Connections, facts: Facts, resize: Resize
) -> None:
    """Its names, its serial number, its INQUIRY data and its block size stay, for a new nexus as well."""

    def look(seen: LogicalUnit) -> dict[str, object]:
        pages = {
            f"VPD page {page:02X}h": seen.inquiry(page).good_data()
            for page in (0x80, 0x83)
            if page in facts.pages
        }
        size = decode_capacity16(seen.capacity16().good_data()).block_size
        return pages | {"INQUIRY data": decode_inquiry(seen.inquiry().good_data()), "block length": size}

    before = look(unit)
    with resize():
        _grows(unit, facts)
        for seen, nexus in ((unit, "the same"), (LogicalUnit(connections.login("later")), "a new")):
            changed = {what: found for what, found in look(seen).items() if found != before[what]}
            assert not changed, f"after the growth {nexus} nexus sees another unit: {changed}"


@pytest.mark.case(
    "SCS-RESIZE-ATTENTION",
    section="SPC-4 unit attention conditions",
    level="SHOULD",
    kills=("grown-unit-silent",),
)
def test_each_nexus_has_a_unit_attention_for_another_capacity(
    two: Units, facts: Facts, resize: Resize
) -> None:
    """CAPACITY DATA HAS CHANGED, of each nexus, after the growth and after the shrink."""

    def claim(when: str) -> None:
        for name, unit in zip(("first", "second"), two, strict=True):
            found: list[str] = []
            until = time.monotonic() + WITHIN
            while time.monotonic() < until:
                seen = unit.clear_attentions()
                found += map(str, seen)
                if any(one.asc == Asc.CAPACITY_DATA_HAS_CHANGED for one in seen):
                    break
                time.sleep(0.2)
            else:
                raise AssertionError(
                    f"{when} the {name} nexus has the unit attentions {found or 'none'} within {WITHIN:g} s; "
                    "CAPACITY DATA HAS CHANGED (2Ah/09h) is for it"
                )

    with resize():
        claim("after the growth")
        _grows(two[0], facts)
    claim("after the shrink")
