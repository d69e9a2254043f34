"""The size that the device reports is its real size."""

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
def test_reported_sizes_agree(block_range):
    """ioctl, lseek(2) and sysfs report the same size."""
    by_ioctl = struct.unpack("=Q", fcntl.ioctl(block_range.fd, BLKGETSIZE64, bytes(8)))[0]
    with block_range.reopen() as descriptor:
        by_seek = os.lseek(descriptor, 0, os.SEEK_END)
    by_sysfs = 512 * int(block_range.attribute("size"))
    assert by_ioctl == by_seek == by_sysfs, f"BLKGETSIZE64 {by_ioctl}, lseek(2) {by_seek}, sysfs {by_sysfs}"


@pytest.mark.case("BLK-SIZE-02")
def test_block_sizes_are_multiples(block_range):
    """The device's size and physical blocks are whole numbers of logical blocks."""
    logical, physical = block_range.logical, block_range.physical
    assert logical >= 512, f"a logical block of {logical} bytes"
    assert logical & (logical - 1) == 0, f"a logical block of {logical} bytes is not a power of two"
    assert physical % logical == 0, f"a physical block of {physical} bytes, a logical one of {logical}"
    assert block_range.size % logical == 0, f"{block_range.size} bytes are no whole number of blocks"


@pytest.mark.case("BLK-SIZE-03", kills=("size-lies-and-fails",))
def test_last_blocks_can_be_written_and_read(block_range):
    """The last blocks of the device can be written and read."""
    with block_range.last(8) as end:
        end.write(0, 8, generation=1)
        end.assert_generation(0, 8, generation=1)
        end.zero_out(0, 8)


@pytest.mark.case("BLK-SIZE-04", kills=("size-lies-and-wraps",))
def test_block_is_at_its_own_position_only(block_range):
    """A block is read at its own position and at no other."""
    # A device that claims more than it has, or drops the upper bits of an address, shows blocks twice. The
    # case reads at the size over each power of two; it does not write there.
    block_range.write(0, 8)
    one = block_range.buffer(bytes(block_range.logical))
    for shift in range(1, 16):
        offset = (
            (block_range.offset + (block_range.size >> shift))
            % block_range.size
            // block_range.logical
            * block_range.logical
        )
        if (block_range.size >> shift) >= block_range.length:
            os.preadv(block_range.fd, [one], offset)
            assert bytes(one) != block_range.pattern(0, 1, 1), f"block 0 is also at byte {offset}"


@pytest.mark.case("BLK-SIZE-05", section="read(2), write(2)")
def test_device_has_no_blocks_past_its_end(block_range):
    """Past the end of the device, reads return no data and writes are refused."""
    two = block_range.buffer(bytes(2 * block_range.logical))
    got = os.preadv(block_range.fd, [two], block_range.size - block_range.logical)
    assert got == block_range.logical, "bytes read of the last block and one past the end"
    assert os.preadv(block_range.fd, [two], block_range.size) == 0, "bytes read past the end"
    assert_errno(errno.ENOSPC, os.pwritev, block_range.fd, [two], block_range.size)


@pytest.mark.case("BLK-SIZE-06", kills=("size-lies-and-fails",))
def test_blocks_across_the_device_can_be_read(block_range):
    """Blocks at positions across the whole device can be read."""
    # Reads only: these blocks do not belong to the case.
    step = max(block_range.logical, block_range.size // 64 // block_range.logical * block_range.logical)
    one = block_range.buffer(bytes(block_range.logical))
    for offset in [*range(0, block_range.size, step), block_range.size - block_range.logical]:
        got = os.preadv(block_range.fd, [one], offset)
        assert got == block_range.logical, f"bytes read of the block at byte {offset}"
