"""Data integrity: written blocks are read unchanged, for every size and position and with concurrent writes.

A block device keeps the data of each logical block until that block is written again (NVM Command
Set 3.3.4 and 3.3.6; SBC-3, READ and WRITE). Every block contains its number and generation, so
an error is classified: lost, stale, misplaced, torn, flipped.
"""

import os
from random import Random

import pytest

from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="NVM 3.3.6, SBC-3 WRITE"),
]


@pytest.mark.case("BLK-DATA-01", kills=("zeroes-instead",))
def test_written_block_is_read(block_range):
    """A read returns the block that was written."""
    block_range.write(0)
    block_range.assert_generation(0)


@pytest.mark.case("BLK-DATA-02", kills=("write-spills-over",))
def test_write_changes_only_its_blocks(block_range):
    """A write changes its own blocks and no others."""
    block_range.write(0, 64, generation=1)
    block_range.write(17, 3, generation=2)
    block_range.assert_generation(0, 17, generation=1)
    block_range.assert_generation(17, 3, generation=2)
    block_range.assert_generation(20, 44, generation=1)


@pytest.mark.case(
    "BLK-DATA-03", kills=("read-stale", "write-lost", "write-half-a-block", "write-late", "write-again")
)
def test_last_of_many_writes_is_read(block_range):
    """A block that is written repeatedly holds the last data."""
    for generation in range(1, 9):
        block_range.write(5, generation=generation)
        block_range.assert_generation(5, generation=generation)


@pytest.mark.parametrize(("size", "first"), [
    pytest.param(4096, 0, marks=pytest.mark.case("BLK-DATA-04", kills=("flip-on-write",))),
    pytest.param(65536, 0, marks=pytest.mark.case("BLK-DATA-05", kills=("write-torn", "flip-on-write"))),
    pytest.param(1 << 20, 0, marks=pytest.mark.case("BLK-DATA-06", kills=("write-cut-short", "read-short"))),
    pytest.param(66048, 1, marks=pytest.mark.case("BLK-DATA-07", kills=("write-cut-short", "read-short"))),
])  # fmt: skip
def test_write_of_this_size_is_read(block_range, size, first):
    """A write of this size over older data is read as it was written."""
    count = max(1, min(size // block_range.logical, block_range.count - first))
    block_range.write(first, count, generation=1)
    block_range.write(first, count, generation=2)
    block_range.assert_generation(first, count, generation=2)


@pytest.mark.case("BLK-DATA-08", section="NVM 3.3.4, SBC-3 READ", kills=("read-next-block", "zeroes-instead"))
def test_single_reads_and_a_large_read_agree(block_range):
    """Reads of single blocks return the same data as one large read."""
    block_range.write(0, 32)
    block_range.assert_generation(0, 32)
    for each in range(32):
        block_range.assert_generation(each)


@pytest.mark.case("BLK-DATA-09", kills=("write-misplaced", "write-lost", "write-half-a-block"))
def test_blocks_written_in_random_order_are_at_their_positions(block_range):
    """Blocks that are written in random order are each at their own position."""
    order = list(range(min(128, block_range.count)))
    Random(block_range.offset).shuffle(order)  # noqa: S311  # an order of things, not a secret
    for each in order:
        block_range.write(each)
    block_range.assert_generation(0, len(order))


@pytest.mark.case("BLK-DATA-10", kills=("write-late", "write-again"))
def test_later_of_two_overlapping_writes_is_read(block_range):
    """Of two overlapping writes, the later one is read."""
    for turn in range(1, 9):
        block_range.write(0, 16, generation=2 * turn)
        block_range.write(8, 16, generation=2 * turn + 1)
        block_range.assert_generation(0, 8, generation=2 * turn)
        block_range.assert_generation(8, 16, generation=2 * turn + 1)


@pytest.mark.case(
    "BLK-DATA-11", section="NVM 3.3.4, SBC-3 READ", kills=("flip-on-read", "zeroes-now-and-then")
)
def test_repeated_reads_return_the_same_data(block_range):
    """A hundred reads return the same data."""
    block_range.write(0, 8)
    for _ in range(100):
        block_range.assert_generation(0, 8)


@pytest.mark.case("BLK-DATA-12", section="NVM 3.3.4, SBC-3 READ")
def test_reads_change_no_data(block_range):
    """Reads change no data."""
    block_range.write(0, 64, generation=1)
    block_range.write(0, 64, generation=2)
    for first in (0, 16, 3, 48):
        block_range.read(first, 16)
    block_range.assert_generation(0, 64, generation=2)


@pytest.mark.case("BLK-DATA-13", section="open(2), O_DIRECT; block layer")
def test_buffered_data_are_on_the_device_after_fsync(block_range):
    """Data written through the page cache are on the device after fsync(2)."""
    with block_range.reopen() as buffered:
        os.pwrite(buffered, block_range.pattern(0, 16, 1), block_range.at(0, 16))
        os.fsync(buffered)
    block_range.assert_generation(0, 16)


@pytest.mark.case("BLK-DATA-14", section="linux/fs.h BLKFLSBUF", kills=("read-stale",))
def test_direct_write_is_read_through_the_page_cache(block_range):
    """Data of a direct write are read through the page cache after it is dropped."""
    block_range.write(0, 16, generation=1)
    with block_range.reopen() as buffered:
        os.pread(buffered, 16 * block_range.logical, block_range.at(0, 16))
        block_range.write(0, 16, generation=2)
        block_range.drop_cache()
        assert os.pread(buffered, 16 * block_range.logical, block_range.at(0, 16)) == block_range.pattern(
            0, 16, 2
        )


@pytest.mark.case("BLK-DATA-15", section="pwritev(2)", kills=("write-torn",))
def test_vectored_write_keeps_the_order_of_its_buffers(block_range):
    """A write of several buffers stores them in order."""
    parts = [block_range.buffer(block_range.pattern(8 * each, 8, 1)) for each in range(8)]
    assert os.pwritev(block_range.fd, parts, block_range.at(0, 64)) == 64 * block_range.logical
    block_range.assert_generation(0, 64)


@pytest.mark.case("BLK-DATA-16", kills=("write-swapped", "write-lost-under-load"))
def test_concurrent_writers_keep_each_others_data(block_range):
    """Concurrent writers of different blocks keep each other's data."""
    share = block_range.count // 8

    for generation in (1, 2, 3):

        def write(which, generation=generation):
            for each in range(which * share, which * share + min(share, 24)):
                block_range.write(each, generation=generation)

        run_threads(write, 8)
        for which in range(8):  # before the next writes, which would replace what was lost
            block_range.assert_generation(which * share, min(share, 24), generation=generation)


@pytest.mark.case("BLK-DATA-17", section="NVM 3.3.4, SBC-3 READ", kills=("read-swapped", "read-next-block"))
def test_concurrent_readers_get_their_own_blocks(block_range):
    """Each of several concurrent readers gets the blocks that it requested."""
    count = min(256, block_range.count)
    block_range.write(0, count)

    def read(which):
        for each in range(which, count, 8):
            block_range.assert_generation(each)

    run_threads(read, 8)


@pytest.mark.case("BLK-DATA-18")
def test_concurrent_writes_of_neighbouring_blocks_are_kept(block_range):
    """Two writers of neighbouring blocks keep each other's data."""

    # A device with larger internal blocks modifies and rewrites these: writers must not undo each other.
    def write(which):
        for generation in range(1, 9):
            for each in range(which, 64, 2):
                block_range.write(each, generation=generation)

    run_threads(write, 2)
    block_range.assert_generation(0, 64, generation=8)


@pytest.mark.case("BLK-DATA-19", section="open(2), O_DIRECT")
def test_descriptors_see_each_others_writes(block_range):
    """A descriptor reads what another one wrote."""
    with block_range.reopen(os.O_DIRECT) as other:
        block_range.write(0, 8, generation=1)
        block_range.assert_generation(0, 8, generation=1, fd=other)
        block_range.write(0, 8, generation=2, fd=other)
        block_range.assert_generation(0, 8, generation=2)


@pytest.mark.case("BLK-DATA-20", kills=("compresses-badly",))
def test_blocks_of_a_repeated_byte_are_kept(block_range):
    """Blocks that consist of one repeated byte are read as they were written."""
    # A device that compresses or deduplicates handles these separately.
    for value in (0x00, 0xFF, 0x55):
        data = bytes([value]) * (16 * block_range.logical)
        block_range.write(0, 16)
        block_range.write_bytes(0, data)
        assert block_range.read(0, 16) == data, f"16 blocks of {value:02x}h"


@pytest.mark.case("BLK-DATA-21")
def test_blocks_of_equal_contents_are_independent(block_range):
    """A write to one of several blocks with equal contents does not change the others."""
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
