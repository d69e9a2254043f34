"""What a reader sees of a write that is under way: a logical block is the old one or the new one, never both.

SBC-3 and NVM Command Set 2.1.4 (AWUN, which is at least one logical block). A physical block, or whatever
larger unit the kernel reports (queue/atomic_write_unit_max_bytes, Linux 6.11), is looked at and recorded.
"""

import os
import threading

import pytest

from storagetest.agent.testlib import lacks, observe
from storagetest.agent.testlib.concurrent import together

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="NVM 2.1.4, SBC-3")]

TURNS = 60


def written_over(blocks, first, count, look):
    """Write two generations in turn, TURNS times, while ``look`` reads; return how often it did."""
    blocks.write(first, count, generation=1)
    over = threading.Event()
    looks = []

    def work(which):
        if which:
            while not over.is_set():
                look()
                looks.append(1)
        else:
            for turn in range(TURNS):
                blocks.write(first, count, generation=1 + turn % 2)
            over.set()

    together(work, 3, over=over)
    if len(looks) < 2:
        lacks(f"only {len(looks)} reads beside {TURNS} writes: nothing is proven")


@pytest.mark.case("BLK-ATOM-01", kills=("tears-while-read",))
def test_a_logical_block_is_read_whole_while_it_is_written(blocks):
    """A reader sees a block as it was before a write or as it is after it, and nothing between."""
    written_over(blocks, 0, 1, lambda: blocks.expect_either(0, 1, (1, 2)))


@pytest.mark.case("BLK-ATOM-02", kills=("tears-while-read",))
def test_each_of_many_blocks_is_read_whole_while_they_are_written(blocks):
    """Each of many blocks is read whole while they are written."""
    written_over(blocks, 0, 32, lambda: blocks.expect_either(0, 32, (1, 2)))


@pytest.mark.case("BLK-ATOM-03", level="MAY", section="NVM 2.1.4, SBC-3 Block Limits")
def test_a_write_of_a_physical_block_is_read_whole(blocks):
    """A write of a physical block is read whole."""
    count = blocks.physical // blocks.logical
    mixed = []

    def look():
        if len(set(blocks.expect_either(0, count, (1, 2)))) > 1:
            mixed.append(1)

    written_over(blocks, 0, count, look)
    observe(f"physical block of {blocks.physical} bytes: {'mixed' if mixed else 'whole'} while written")


@pytest.mark.case("BLK-ATOM-04", section="Linux, ABI sysfs-block: atomic_write_unit_max_bytes")
def test_a_write_of_the_atomic_unit_is_read_whole(blocks):
    """A write of the atomic unit is read whole."""
    unit = int(blocks.attribute("queue/atomic_write_unit_max_bytes", "0"))
    if unit <= blocks.logical:
        lacks("the kernel reports no atomic unit larger than a block")
    count = min(unit // blocks.logical, blocks.count)
    first = -(-blocks.offset // unit) * unit - blocks.offset

    def look():
        found = set(blocks.expect_either(first // blocks.logical, count, (1, 2)))
        assert len(found) == 1, f"a write of {unit} bytes was seen half done"

    written_over(blocks, first // blocks.logical, count, look)


@pytest.mark.case("BLK-ATOM-05")
def test_of_two_writers_at_once_one_wins_each_block(blocks):
    """Of two writers at once one wins each block."""
    for _ in range(12):
        together(lambda which: blocks.write(0, 16, generation=1 + which), 2)
        blocks.expect_either(0, 16, (1, 2))


@pytest.mark.case("BLK-ATOM-06", section="write(2)", kills=("write-torn",))
def test_a_write_that_returned_is_seen_whole_at_once(blocks):
    """A write that returned is seen whole at once."""
    with blocks.opened(os.O_DIRECT) as other:
        for generation in range(1, 17):
            blocks.write(0, 64, generation=generation)
            blocks.expect(0, 64, generation=generation, fd=other)
