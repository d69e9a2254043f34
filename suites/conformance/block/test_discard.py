"""Discard: what discarded blocks read as, and that no other block changes.

SBC-3, UNMAP; NVM Command Set 3.3.3 (Dataset Management, Deallocate): afterwards a block reads as zeroes, as
ones, or as what was last written to it (3.3.3.2.1), and as the same each time.
"""

import errno

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.block_range import BLKDISCARD

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="NVM 3.3.3, SBC-3 UNMAP"),
]


def discard(block_range, first, count):
    """Discard blocks; skip the case if the device does not support it."""
    if block_range.attribute("queue/discard_max_bytes", "0") == "0":
        skip("the device takes no discards (queue/discard_max_bytes is 0)")
    block_range.discard(first, count)


def classify_discarded(block_range, first, count):
    """Return how discarded blocks read, as a set of "zeroes", "ones" and "old data". Other data fail."""
    data, old = block_range.read(first, count), block_range.pattern(first, count, 1)
    kinds = set()
    for at in range(0, len(data), block_range.logical):
        piece = data[at : at + block_range.logical]
        if piece in (bytes(block_range.logical), b"\xff" * block_range.logical):
            kinds.add("ones" if piece[0] else "zeroes")
        else:
            same = piece == old[at : at + block_range.logical]
            assert same, f"block {at // block_range.logical} is neither zeroes, nor ones, nor the old data"
            kinds.add("old data")
    return kinds


@pytest.mark.case("BLK-DISC-01", section="NVM 3.3.3.2.1, SBC-3 UNMAP", kills=("discard-gives-others",))
def test_discarded_blocks_read_as_zeroes_ones_or_old_data(block_range):
    """Discarded blocks read as zeroes, as ones, or as their old data."""
    count = min(256, block_range.count - 8)
    block_range.write(0, count + 8)
    discard(block_range, 0, count)
    kinds = sorted(classify_discarded(block_range, 0, count))
    record_observation(f"discarded blocks read as {', '.join(kinds)}")


@pytest.mark.case("BLK-DISC-02", section="NVM 3.3.3.2.1, SBC-3 UNMAP", kills=("discard-unsteady",))
def test_discarded_blocks_read_the_same_each_time(block_range):
    """Discarded blocks read the same each time."""
    block_range.write(0, 64)
    discard(block_range, 0, 64)
    first = block_range.read(0, 64)
    for _ in range(8):
        assert block_range.read(0, 64) == first, "discarded blocks changed without a write"


@pytest.mark.case("BLK-DISC-03", kills=("discard-spills", "discard-misplaced"))
def test_discard_keeps_neighbouring_blocks(block_range):
    """A discard does not change the blocks before and after its range."""
    block_range.write(0, 256)
    discard(block_range, 64, 128)
    block_range.assert_generation(0, 64)
    block_range.assert_generation(192, 64)


@pytest.mark.case("BLK-DISC-04", kills=("discard-rounds-up", "discard-misplaced"))
def test_discard_below_the_granularity_changes_no_other_block(block_range):
    """A discard of less than the granularity changes no other block."""
    block_range.write(0, 64)
    discard(block_range, 3, 1)
    discard(block_range, 17, 7)
    block_range.assert_generation(0, 3)
    block_range.assert_generation(4, 13)
    block_range.assert_generation(24, 40)


@pytest.mark.case("BLK-DISC-05", kills=("discard-late",))
def test_write_after_a_discard_is_read(block_range):
    """Data that are written after a discard are read."""
    block_range.write(0, 128, generation=1)
    discard(block_range, 0, 128)
    block_range.write(32, 64, generation=2)
    block_range.assert_generation(32, 64, generation=2)
    block_range.flush()
    block_range.assert_generation(32, 64, generation=2)


@pytest.mark.case("BLK-DISC-06", kills=("discard-misplaced",))
def test_second_discard_changes_no_other_block(block_range):
    """A second discard of the same blocks changes no other block."""
    block_range.write(0, 128)
    discard(block_range, 0, 64)
    discard(block_range, 0, 64)
    classify_discarded(block_range, 0, 64)
    block_range.assert_generation(64, 64)


@pytest.mark.case("BLK-DISC-07", kills=("discard-spills", "discard-gives-others"))
def test_alternate_discards_and_writes(block_range):
    """Alternate discards and writes change only their own blocks."""
    block_range.write(0, 128, generation=1)
    for each in range(0, 128, 16):
        discard(block_range, each, 8)
        block_range.write(each, 4, generation=2)
    for each in range(0, 128, 16):
        block_range.assert_generation(each, 4, generation=2)
        classify_discarded(block_range, each + 4, 4)
        block_range.assert_generation(each + 8, 8, generation=1)


@pytest.mark.case("BLK-DISC-08", section="linux/fs.h BLKDISCARD")
def test_discard_of_a_partial_block_is_refused(block_range):
    """A discard of a part of a block is refused."""
    block_range.write(0, 2)
    if block_range.attribute("queue/discard_max_bytes", "0") == "0":
        skip("the device takes no discards (queue/discard_max_bytes is 0)")
    assert_errno(
        errno.EINVAL, block_range.range_ioctl, BLKDISCARD, block_range.logical // 2, block_range.logical
    )
    block_range.assert_generation(0, 2)


@pytest.mark.case("BLK-DISC-09", section="Linux, ABI sysfs-block: discard_granularity, discard_max_bytes")
def test_discard_limits_are_consistent(block_range):
    """The granularity is whole blocks and at most the maximum; without a maximum discards are refused."""
    maximum = int(block_range.attribute("queue/discard_max_bytes", "0"))
    granularity = int(block_range.attribute("queue/discard_granularity", "0"))
    if maximum == 0:
        assert_errno(errno.EOPNOTSUPP, block_range.discard, 0, block_range.count)
        return
    assert granularity >= block_range.logical, f"a granularity of {granularity} bytes is less than a block"
    assert granularity % block_range.logical == 0, (
        f"a granularity of {granularity} bytes is no whole number of blocks"
    )
    assert maximum >= granularity, (
        f"a maximum of {maximum} bytes per discard is below the granularity of {granularity} bytes"
    )


@pytest.mark.case("BLK-DISC-10", kills=("discard-late",))
def test_range_is_writable_after_its_discard(block_range):
    """A range can be written after it was discarded."""
    block_range.write(0, block_range.count, generation=1)
    discard(block_range, 0, block_range.count)
    classify_discarded(block_range, 0, block_range.count)
    block_range.write(0, block_range.count, generation=2)
    block_range.assert_generation(0, block_range.count, generation=2)
