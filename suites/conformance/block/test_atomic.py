"""What a reader sees of a write that is under way: a logical block is the old one or the new one, never both.

SBC-3 and NVM Command Set 2.1.4 (AWUN, which is at least one logical block). A physical block, or whatever
larger unit the kernel reports (queue/atomic_write_unit_max_bytes, Linux 6.11), is looked at and recorded.
"""

import os
import threading

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="NVM 2.1.4, SBC-3")]

TURNS = 60


def written_over(block_range, first, count, look):
    """Write two generations in turn, TURNS times, while ``look`` reads; return how often it did."""
    block_range.write(first, count, generation=1)
    over = threading.Event()
    looks = []

    def work(which):
        if which:
            while not over.is_set():
                look()
                looks.append(1)
        else:
            for turn in range(TURNS):
                block_range.write(first, count, generation=1 + turn % 2)
            over.set()

    run_threads(work, 3, over=over)
    if len(looks) < 2:
        skip(f"only {len(looks)} reads beside {TURNS} writes: nothing is proven")


@pytest.mark.case("BLK-ATOM-01", kills=("tears-while-read",))
def test_a_logical_block_is_read_whole_while_it_is_written(block_range):
    """A reader sees a block as it was before a write or as it is after it, and nothing between."""
    written_over(block_range, 0, 1, lambda: block_range.assert_any_generation(0, 1, (1, 2)))


@pytest.mark.case("BLK-ATOM-02", kills=("tears-while-read",))
def test_each_of_many_blocks_is_read_whole_while_they_are_written(block_range):
    """Each of many blocks is read whole while they are written."""
    written_over(block_range, 0, 32, lambda: block_range.assert_any_generation(0, 32, (1, 2)))


@pytest.mark.case("BLK-ATOM-03", level="MAY", section="NVM 2.1.4, SBC-3 Block Limits")
def test_a_write_of_a_physical_block_is_read_whole(block_range):
    """A write of a physical block is read whole."""
    count = block_range.physical // block_range.logical
    mixed = []

    def look():
        if len(set(block_range.assert_any_generation(0, count, (1, 2)))) > 1:
            mixed.append(1)

    written_over(block_range, 0, count, look)
    record_observation(
        f"physical block of {block_range.physical} bytes: {'mixed' if mixed else 'whole'} while written"
    )


@pytest.mark.case("BLK-ATOM-04", section="Linux, ABI sysfs-block: atomic_write_unit_max_bytes")
def test_a_write_of_the_atomic_unit_is_read_whole(block_range):
    """A write of the atomic unit is read whole."""
    unit = int(block_range.attribute("queue/atomic_write_unit_max_bytes", "0"))
    if unit <= block_range.logical:
        skip("the kernel reports no atomic unit larger than a block")
    count = min(unit // block_range.logical, block_range.count)
    first = -(-block_range.offset // unit) * unit - block_range.offset

    def look():
        found = set(block_range.assert_any_generation(first // block_range.logical, count, (1, 2)))
        assert len(found) == 1, f"a write of {unit} bytes was seen half done"

    written_over(block_range, first // block_range.logical, count, look)


@pytest.mark.case("BLK-ATOM-05")
def test_of_two_writers_at_once_one_wins_each_block(block_range):
    """Of two writers at once one wins each block."""
    for _ in range(12):
        run_threads(lambda which: block_range.write(0, 16, generation=1 + which), 2)
        block_range.assert_any_generation(0, 16, (1, 2))


@pytest.mark.case("BLK-ATOM-06", section="write(2)", kills=("write-torn",))
def test_a_write_that_returned_is_seen_whole_at_once(block_range):
    """A write that returned is seen whole at once."""
    with block_range.reopen(os.O_DIRECT) as other:
        for generation in range(1, 17):
            block_range.write(0, 64, generation=generation)
            block_range.assert_generation(0, 64, generation=generation, fd=other)
