"""What is written is read: by every size, at every place, beside whatever else is written.

A block device keeps what was written to each logical block until that block is written again (NVM Command
Set 3.3.4 and 3.3.6; SBC-3, READ and WRITE). Every block says which block of which writing it is, so a wrong
one is named: lost, stale, misplaced, torn, flipped.
"""

import os
from random import Random

import pytest

from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="NVM 3.3.6, SBC-3 WRITE")]


@pytest.mark.case("BLK-DATA-01", kills=("zeroes-instead",))
def test_one_block_that_was_written_is_read(block_range):
    """One block that was written is read."""
    block_range.write(0)
    block_range.assert_generation(0)


@pytest.mark.case("BLK-DATA-02", kills=("write-spills-over",))
def test_a_write_changes_its_own_blocks_and_no_others(block_range):
    """A write changes its own blocks and no others."""
    block_range.write(0, 64, generation=1)
    block_range.write(17, 3, generation=2)
    block_range.assert_generation(0, 17, generation=1)
    block_range.assert_generation(17, 3, generation=2)
    block_range.assert_generation(20, 44, generation=1)


@pytest.mark.case(
    "BLK-DATA-03", kills=("read-stale", "write-lost", "write-half-a-block", "write-late", "write-again")
)
def test_a_block_written_again_and_again_holds_the_last_writing(block_range):
    """A block written again and again holds the last writing."""
    for generation in range(1, 9):
        block_range.write(5, generation=generation)
        block_range.assert_generation(5, generation=generation)


@pytest.mark.parametrize(("size", "first"), [
    pytest.param(4096, 0, marks=pytest.mark.case("BLK-DATA-04", kills=("flip-on-write",))),
    pytest.param(65536, 0, marks=pytest.mark.case("BLK-DATA-05", kills=("write-torn", "flip-on-write"))),
    pytest.param(1 << 20, 0, marks=pytest.mark.case("BLK-DATA-06", kills=("write-cut-short", "read-short"))),
    pytest.param(66048, 1, marks=pytest.mark.case("BLK-DATA-07", kills=("write-cut-short", "read-short"))),
])  # fmt: skip
def test_a_write_of_this_size_is_read(block_range, size, first):
    """A write of this size, over an older one, is read as it was written."""
    count = max(1, min(size // block_range.logical, block_range.count - first))
    block_range.write(first, count, generation=1)
    block_range.write(first, count, generation=2)
    block_range.assert_generation(first, count, generation=2)


@pytest.mark.case("BLK-DATA-08", section="NVM 3.3.4, SBC-3 READ", kills=("read-next-block", "zeroes-instead"))
def test_blocks_read_one_by_one_are_those_read_at_once(block_range):
    """Blocks read one by one are those read at once."""
    block_range.write(0, 32)
    block_range.assert_generation(0, 32)
    for each in range(32):
        block_range.assert_generation(each)


@pytest.mark.case("BLK-DATA-09", kills=("write-misplaced", "write-lost", "write-half-a-block"))
def test_blocks_written_in_any_order_are_each_in_their_place(block_range):
    """Blocks written in any order are each in their place."""
    order = list(range(min(128, block_range.count)))
    Random(block_range.offset).shuffle(order)  # noqa: S311  # an order of things, not a secret
    for each in order:
        block_range.write(each)
    block_range.assert_generation(0, len(order))


@pytest.mark.case("BLK-DATA-10", kills=("write-late", "write-again"))
def test_of_two_writes_that_overlap_the_later_one_stays(block_range):
    """Of two writes that overlap the later one stays."""
    for turn in range(1, 9):
        block_range.write(0, 16, generation=2 * turn)
        block_range.write(8, 16, generation=2 * turn + 1)
        block_range.assert_generation(0, 8, generation=2 * turn)
        block_range.assert_generation(8, 16, generation=2 * turn + 1)


@pytest.mark.case(
    "BLK-DATA-11", section="NVM 3.3.4, SBC-3 READ", kills=("flip-on-read", "zeroes-now-and-then")
)
def test_a_hundred_reads_give_the_same(block_range):
    """A hundred reads give the same."""
    block_range.write(0, 8)
    for _ in range(100):
        block_range.assert_generation(0, 8)


@pytest.mark.case("BLK-DATA-12", section="NVM 3.3.4, SBC-3 READ")
def test_reading_changes_nothing(block_range):
    """Reading changes nothing."""
    block_range.write(0, 64, generation=1)
    block_range.write(0, 64, generation=2)
    for first in (0, 16, 3, 48):
        block_range.read(first, 16)
    block_range.assert_generation(0, 64, generation=2)


@pytest.mark.case("BLK-DATA-13", section="open(2), O_DIRECT; block layer")
def test_what_went_through_the_page_cache_is_on_the_device_after_fsync(block_range):
    """What went through the page cache is on the device after fsync(2)."""
    with block_range.opened() as buffered:
        os.pwrite(buffered, block_range.pattern(0, 16, 1), block_range.at(0, 16))
        os.fsync(buffered)
    block_range.assert_generation(0, 16)


@pytest.mark.case("BLK-DATA-14", section="linux/fs.h BLKFLSBUF", kills=("read-stale",))
def test_what_was_written_round_the_page_cache_is_read_through_it(block_range):
    """What was written round the page cache is read through it."""
    block_range.write(0, 16, generation=1)
    with block_range.opened() as buffered:
        os.pread(buffered, 16 * block_range.logical, block_range.at(0, 16))
        block_range.write(0, 16, generation=2)
        block_range.drop_cache()
        assert os.pread(buffered, 16 * block_range.logical, block_range.at(0, 16)) == block_range.pattern(
            0, 16, 2
        )


@pytest.mark.case("BLK-DATA-15", section="pwritev(2)", kills=("write-torn",))
def test_a_write_from_many_buffers_lands_in_order(block_range):
    """A write from many buffers lands in order."""
    parts = [block_range.buffer(block_range.pattern(8 * each, 8, 1)) for each in range(8)]
    assert os.pwritev(block_range.fd, parts, block_range.at(0, 64)) == 64 * block_range.logical
    block_range.assert_generation(0, 64)


@pytest.mark.case("BLK-DATA-16", kills=("write-swapped", "write-lost-under-load"))
def test_writers_side_by_side_do_not_disturb_each_other(block_range):
    """Writers side by side do not disturb each other."""
    share = block_range.count // 8

    def write(which):
        for generation in (1, 2, 3):
            for each in range(which * share, which * share + min(share, 24)):
                block_range.write(each, generation=generation)

    run_threads(write, 8)
    for which in range(8):
        block_range.assert_generation(which * share, min(share, 24), generation=3)


@pytest.mark.case("BLK-DATA-17", section="NVM 3.3.4, SBC-3 READ", kills=("read-swapped", "read-next-block"))
def test_readers_side_by_side_each_get_what_they_asked_for(block_range):
    """Readers side by side each get what they asked for."""
    count = min(256, block_range.count)
    block_range.write(0, count)

    def read(which):
        for each in range(which, count, 8):
            block_range.assert_generation(each)

    run_threads(read, 8)


@pytest.mark.case("BLK-DATA-18")
def test_neighbouring_blocks_written_by_two_writers_are_both_kept(block_range):
    """Neighbouring blocks written by two writers are both kept."""

    # A device of larger inner blocks reads, changes and writes them; two writers must not undo each other.
    def write(which):
        for generation in range(1, 9):
            for each in range(which, 64, 2):
                block_range.write(each, generation=generation)

    run_threads(write, 2)
    block_range.assert_generation(0, 64, generation=8)


@pytest.mark.case("BLK-DATA-19", section="open(2), O_DIRECT")
def test_two_descriptors_see_the_same_blocks(block_range):
    """Two descriptors see the same blocks."""
    with block_range.opened(os.O_DIRECT) as other:
        block_range.write(0, 8, generation=1)
        block_range.assert_generation(0, 8, generation=1, fd=other)
        block_range.write(0, 8, generation=2, fd=other)
        block_range.assert_generation(0, 8, generation=2)


@pytest.mark.case("BLK-DATA-20", kills=("compresses-badly",))
def test_blocks_of_one_byte_repeated_are_kept(block_range):
    """Blocks of one byte repeated are kept."""
    # A device that compresses or deduplicates treats these by rules of their own.
    for value in (0x00, 0xFF, 0x55):
        data = bytes([value]) * (16 * block_range.logical)
        block_range.write(0, 16)
        block_range.write_bytes(0, data)
        assert block_range.read(0, 16) == data, f"16 blocks of {value:02x}h"


@pytest.mark.case("BLK-DATA-21")
def test_blocks_of_the_same_contents_are_separate(block_range):
    """Blocks of the same contents are separate."""
    same = block_range.pattern(0, 1, 1)
    for each in range(16):
        block_range.write_bytes(each, same)
    block_range.write(7, generation=2)
    for each in range(16):
        if each != 7:
            assert block_range.read(each) == same, (
                f"block {each} changed with block 7, which had the same contents"
            )
    block_range.assert_generation(7, generation=2)
