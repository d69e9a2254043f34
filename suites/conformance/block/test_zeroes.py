"""Write zeroes: the blocks read as zeroes, by any method of the kernel and the device.

linux/fs.h BLKZEROOUT; fallocate(2) on a block device; NVM Command Set 3.3.8; SBC-3, WRITE SAME.
"""

import errno

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.block_range import BLKZEROOUT, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="NVM 3.3.8, SBC-3 WRITE SAME"),
]


@pytest.mark.case("BLK-ZERO-01", kills=("zeroing-ignored",))
def test_zeroed_blocks_read_as_zeroes(block_range):
    """Zeroed blocks read as zeroes."""
    block_range.write(0, 256)
    block_range.zero_out(0, 256)
    block_range.assert_zeroes(0, 256)


@pytest.mark.case("BLK-ZERO-02", kills=("zeroing-spills", "zeroing-short"))
def test_zeroing_keeps_neighbouring_blocks(block_range):
    """Zeroing does not change the blocks before and after its range."""
    block_range.write(0, 192)
    block_range.zero_out(64, 64)
    block_range.assert_generation(0, 64)
    block_range.assert_zeroes(64, 64)
    block_range.assert_generation(128, 64)


@pytest.mark.case("BLK-ZERO-03", kills=("zeroing-ignored", "zeroing-spills", "zeroing-rounds-down"))
def test_single_block_is_zeroed(block_range):
    """A single block is zeroed, and no other."""
    block_range.write(0, 16)
    block_range.zero_out(7, 1)
    block_range.assert_generation(0, 7)
    block_range.assert_zeroes(7)
    block_range.assert_generation(8, 8)


@pytest.mark.parametrize(("name", "mode"), [
    pytest.param("punch", FALLOC_FL_PUNCH_HOLE,
                 marks=pytest.mark.case("BLK-ZERO-04", kills=("zeroing-ignored", "zeroing-short"))),
    pytest.param("zero range", FALLOC_FL_ZERO_RANGE,
                 marks=pytest.mark.case("BLK-ZERO-05", kills=("zeroing-ignored", "zeroing-short"))),
])  # fmt: skip
@pytest.mark.case(section="fallocate(2)")
def test_fallocate_of_this_mode_gives_zeroes(block_range, name, mode):
    """Blocks that fallocate(2) punches or zeroes read as zeroes; neighbouring blocks are kept."""
    block_range.write(0, 128)
    try:
        block_range.fallocate(mode, 32, 64)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        skip(f"the device does not support it ({name})")
    block_range.assert_generation(0, 32)
    block_range.assert_zeroes(32, 64)
    block_range.assert_generation(96, 32)


@pytest.mark.case("BLK-ZERO-06", kills=("zeroing-late",))
def test_write_after_zeroing_is_read(block_range):
    """Data that are written after zeroing are read."""
    block_range.write(0, 64, generation=1)
    block_range.zero_out(0, 64)
    block_range.write(16, 16, generation=2)
    block_range.assert_zeroes(0, 16)
    block_range.assert_generation(16, 16, generation=2)
    block_range.assert_zeroes(32, 32)


@pytest.mark.case("BLK-ZERO-07", kills=("zeroing-ignored", "zeroing-short"))
def test_whole_range_is_zeroed(block_range):
    """The whole range of the case is zeroed."""
    block_range.write(0, block_range.count)
    block_range.zero_out(0, block_range.count)
    block_range.assert_zeroes(0, block_range.count)
    record_observation(
        f"write_zeroes_max_bytes {block_range.attribute('queue/write_zeroes_max_bytes', 'not reported')}"
    )


@pytest.mark.case("BLK-ZERO-08", section="linux/fs.h BLKZEROOUT")
def test_zeroing_of_a_partial_block_is_refused(block_range):
    """Zeroing of a part of a block is refused."""
    block_range.write(0, 2)
    assert_errno(
        errno.EINVAL, block_range.range_ioctl, BLKZEROOUT, block_range.logical // 2, block_range.logical
    )
    block_range.assert_generation(0, 2)


@pytest.mark.case("BLK-ZERO-09", kills=("zeroing-rounds-down", "zeroing-spills"))
def test_zeroing_within_a_larger_unit(block_range):
    """Zeroes begin and end at the given blocks, also within a larger unit."""
    block_range.write(0, 64)
    block_range.zero_out(3, 42)
    block_range.assert_generation(0, 3)
    block_range.assert_zeroes(3, 42)
    block_range.assert_generation(45, 19)
