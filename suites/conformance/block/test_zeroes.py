"""Write zeroes: the blocks read as zeroes, by whatever means the kernel and the device find.

linux/fs.h BLKZEROOUT; fallocate(2) on a block device; NVM Command Set 3.3.8; SBC-3, WRITE SAME.
"""

import errno

import pytest

from storagetest.agent.testlib import lacks, observe, refused
from storagetest.agent.testlib.block_range import BLKZEROOUT, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", section="NVM 3.3.8, SBC-3 WRITE SAME"),
]


@pytest.mark.case("BLK-ZERO-01", kills=("zeroing-ignored",))
def test_zeroed_blocks_read_as_zeroes(blocks):
    """Zeroed blocks read as zeroes."""
    blocks.write(0, 256)
    blocks.zero_out(0, 256)
    blocks.expect_zeroes(0, 256)


@pytest.mark.case("BLK-ZERO-02", kills=("zeroing-spills", "zeroing-short"))
def test_the_blocks_beside_are_kept(blocks):
    """The blocks beside are kept."""
    blocks.write(0, 192)
    blocks.zero_out(64, 64)
    blocks.expect(0, 64)
    blocks.expect_zeroes(64, 64)
    blocks.expect(128, 64)


@pytest.mark.case("BLK-ZERO-03", kills=("zeroing-ignored", "zeroing-spills", "zeroing-rounds-down"))
def test_a_single_block_is_zeroed(blocks):
    """A single block is zeroed."""
    blocks.write(0, 16)
    blocks.zero_out(7, 1)
    blocks.expect(0, 7)
    blocks.expect_zeroes(7)
    blocks.expect(8, 8)


@pytest.mark.parametrize(("name", "mode"), [
    pytest.param("punch", FALLOC_FL_PUNCH_HOLE,
                 marks=pytest.mark.case("BLK-ZERO-04", kills=("zeroing-ignored", "zeroing-short"))),
    pytest.param("zero range", FALLOC_FL_ZERO_RANGE,
                 marks=pytest.mark.case("BLK-ZERO-05", kills=("zeroing-ignored", "zeroing-short"))),
])  # fmt: skip
@pytest.mark.case(section="fallocate(2)")
def test_fallocate_of_this_mode_gives_zeroes(blocks, name, mode):
    """Blocks that were punched or zeroed by fallocate(2) read as zeroes, and the blocks beside are kept."""
    blocks.write(0, 128)
    try:
        blocks.fallocate(mode, 32, 64)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        lacks(f"the device cannot do it ({name})")
    blocks.expect(0, 32)
    blocks.expect_zeroes(32, 64)
    blocks.expect(96, 32)


@pytest.mark.case("BLK-ZERO-06", kills=("zeroing-late",))
def test_what_is_written_after_zeroing_is_read(blocks):
    """What is written after zeroing is read."""
    blocks.write(0, 64, generation=1)
    blocks.zero_out(0, 64)
    blocks.write(16, 16, generation=2)
    blocks.expect_zeroes(0, 16)
    blocks.expect(16, 16, generation=2)
    blocks.expect_zeroes(32, 32)


@pytest.mark.case("BLK-ZERO-07", kills=("zeroing-ignored", "zeroing-short"))
def test_the_whole_range_is_zeroed(blocks):
    """The whole range is zeroed."""
    blocks.write(0, blocks.count)
    blocks.zero_out(0, blocks.count)
    blocks.expect_zeroes(0, blocks.count)
    observe(f"write_zeroes_max_bytes {blocks.attribute('queue/write_zeroes_max_bytes', 'not said')}")


@pytest.mark.case("BLK-ZERO-08", section="linux/fs.h BLKZEROOUT")
def test_zeroing_part_of_a_block_is_refused(blocks):
    """Zeroing part of a block is refused."""
    blocks.write(0, 2)
    refused(errno.EINVAL, blocks.span, BLKZEROOUT, blocks.logical // 2, blocks.logical)
    blocks.expect(0, 2)


@pytest.mark.case("BLK-ZERO-09", kills=("zeroing-rounds-down", "zeroing-spills"))
def test_zeroing_from_the_middle_of_a_larger_unit(blocks):
    """Zeroes begin and end where they are told to, also in the middle of a larger unit."""
    blocks.write(0, 64)
    blocks.zero_out(3, 42)
    blocks.expect(0, 3)
    blocks.expect_zeroes(3, 42)
    blocks.expect(45, 19)
