"""The size that a device says it has is the size that it has."""

import errno
import fcntl
import os
import struct

import pytest

from storagetest.agent.testlib import assert_errno
from storagetest.agent.testlib.block_range import BLKGETSIZE64

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", section="NVM Identify NSZE, SBC-3 READ CAPACITY"),
]


@pytest.mark.case("BLK-SIZE-01", section="linux/fs.h BLKGETSIZE64, lseek(2)")
def test_all_ways_to_ask_for_the_size_agree(block_range):
    """All ways to ask for the size agree."""
    asked = struct.unpack("=Q", fcntl.ioctl(block_range.fd, BLKGETSIZE64, bytes(8)))[0]
    with block_range.opened() as descriptor:
        sought = os.lseek(descriptor, 0, os.SEEK_END)
    said = 512 * int(block_range.attribute("size"))
    assert asked == sought == said, f"BLKGETSIZE64 {asked}, lseek(2) {sought}, sysfs {said}"


@pytest.mark.case("BLK-SIZE-02")
def test_block_sizes_fit_into_each_other(block_range):
    """Block sizes fit into each other."""
    logical, physical = block_range.logical, block_range.physical
    assert logical >= 512, f"a logical block of {logical} bytes"
    assert logical & (logical - 1) == 0, f"a logical block of {logical} bytes is no power of two"
    assert physical % logical == 0, f"a physical block of {physical} bytes, a logical one of {logical}"
    assert block_range.size % logical == 0, f"{block_range.size} bytes are no whole number of blocks"


@pytest.mark.case("BLK-SIZE-03", kills=("size-lies-and-fails",))
def test_the_last_blocks_can_be_written_and_read(block_range):
    """The last blocks can be written and read."""
    with block_range.last(8) as end:
        end.write(0, 8, generation=1)
        end.assert_generation(0, 8, generation=1)
        end.zero_out(0, 8)


@pytest.mark.case("BLK-SIZE-04", kills=("size-lies-and-wraps",))
def test_a_block_is_found_at_its_own_place_only(block_range):
    """A block is found at its own place only."""
    # A device that claims more than it has, or drops the upper bits of an address, shows blocks twice. Looked
    # for at all distances of the size over a power of two; what else lies there is only read.
    block_range.write(0, 8)
    one = block_range.buffer(bytes(block_range.logical))
    for shift in range(1, 16):
        place = (
            (block_range.offset + (block_range.size >> shift))
            % block_range.size
            // block_range.logical
            * block_range.logical
        )
        if (block_range.size >> shift) >= block_range.length:
            os.preadv(block_range.fd, [one], place)
            assert bytes(one) != block_range.pattern(0, 1, 1), f"block 0 of the range is at byte {place}, too"


@pytest.mark.case("BLK-SIZE-05", section="read(2), write(2)")
def test_there_is_nothing_past_the_end(block_range):
    """There is nothing past the end."""
    two = block_range.buffer(bytes(2 * block_range.logical))
    got = os.preadv(block_range.fd, [two], block_range.size - block_range.logical)
    assert got == block_range.logical, "bytes read of the last block and one past the end"
    assert os.preadv(block_range.fd, [two], block_range.size) == 0, "bytes read past the end"
    assert_errno(errno.ENOSPC, os.pwritev, block_range.fd, [two], block_range.size)


@pytest.mark.case("BLK-SIZE-06", kills=("size-lies-and-fails",))
def test_blocks_all_over_the_device_answer(block_range):
    """Blocks all over the device answer."""
    # Reads only: what lies there is not this case's.
    step = max(block_range.logical, block_range.size // 64 // block_range.logical * block_range.logical)
    one = block_range.buffer(bytes(block_range.logical))
    for place in [*range(0, block_range.size, step), block_range.size - block_range.logical]:
        got = os.preadv(block_range.fd, [one], place)
        assert got == block_range.logical, f"bytes read of the block at byte {place}"
