"""The size that a device says it has is the size that it has."""

import errno
import fcntl
import os
import struct

import pytest

from storagetest.agent.testlib import refused
from storagetest.agent.testlib.block_range import BLKGETSIZE64

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", section="NVM Identify NSZE, SBC-3 READ CAPACITY"),
]


@pytest.mark.case("BLK-SIZE-01", section="linux/fs.h BLKGETSIZE64, lseek(2)")
def test_all_ways_to_ask_for_the_size_agree(blocks):
    """All ways to ask for the size agree."""
    asked = struct.unpack("=Q", fcntl.ioctl(blocks.fd, BLKGETSIZE64, bytes(8)))[0]
    with blocks.opened() as descriptor:
        sought = os.lseek(descriptor, 0, os.SEEK_END)
    said = 512 * int(blocks.attribute("size"))
    assert asked == sought == said, f"BLKGETSIZE64 {asked}, lseek(2) {sought}, sysfs {said}"


@pytest.mark.case("BLK-SIZE-02")
def test_block_sizes_fit_into_each_other(blocks):
    """Block sizes fit into each other."""
    logical, physical = blocks.logical, blocks.physical
    assert logical >= 512, f"a logical block of {logical} bytes"
    assert logical & (logical - 1) == 0, f"a logical block of {logical} bytes is no power of two"
    assert physical % logical == 0, f"a physical block of {physical} bytes, a logical one of {logical}"
    assert blocks.size % logical == 0, f"{blocks.size} bytes are no whole number of blocks"


@pytest.mark.case("BLK-SIZE-03", kills=("size-lies-and-fails",))
def test_the_last_blocks_can_be_written_and_read(blocks):
    """The last blocks can be written and read."""
    with blocks.last(8) as end:
        end.write(0, 8, generation=1)
        end.expect(0, 8, generation=1)
        end.zero_out(0, 8)


@pytest.mark.case("BLK-SIZE-04", kills=("size-lies-and-wraps",))
def test_a_block_is_found_at_its_own_place_only(blocks):
    """A block is found at its own place only."""
    # A device that claims more than it has, or drops the upper bits of an address, shows blocks twice. Looked
    # for at all distances of the size over a power of two; what else lies there is only read.
    blocks.write(0, 8)
    one = blocks.buffer(bytes(blocks.logical))
    for shift in range(1, 16):
        place = (blocks.offset + (blocks.size >> shift)) % blocks.size // blocks.logical * blocks.logical
        if (blocks.size >> shift) >= blocks.length:
            os.preadv(blocks.fd, [one], place)
            assert bytes(one) != blocks.stamped(0, 1, 1), f"block 0 of the range is at byte {place}, too"


@pytest.mark.case("BLK-SIZE-05", section="read(2), write(2)")
def test_there_is_nothing_past_the_end(blocks):
    """There is nothing past the end."""
    two = blocks.buffer(bytes(2 * blocks.logical))
    got = os.preadv(blocks.fd, [two], blocks.size - blocks.logical)
    assert got == blocks.logical, "bytes read of the last block and one past the end"
    assert os.preadv(blocks.fd, [two], blocks.size) == 0, "bytes read past the end"
    refused(errno.ENOSPC, os.pwritev, blocks.fd, [two], blocks.size)


@pytest.mark.case("BLK-SIZE-06", kills=("size-lies-and-fails",))
def test_blocks_all_over_the_device_answer(blocks):
    """Blocks all over the device answer."""
    # Reads only: what lies there is not this case's.
    step = max(blocks.logical, blocks.size // 64 // blocks.logical * blocks.logical)
    one = blocks.buffer(bytes(blocks.logical))
    for place in [*range(0, blocks.size, step), blocks.size - blocks.logical]:
        got = os.preadv(blocks.fd, [one], place)
        assert got == blocks.logical, f"bytes read of the block at byte {place}"
