"""Discard: what is no longer needed may read as anything of its own, and nothing else changes.

SBC-3, UNMAP; NVM Command Set 3.3.3 (Dataset Management, Deallocate): afterwards a block reads as zeroes, as
ones, or as what was last written to it (3.3.3.2.1), and as the same each time.
"""

import errno

import pytest

from storagetest.agent.testlib import lacks, observe, refused
from storagetest.agent.testlib.block_range import BLKDISCARD

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="NVM 3.3.3, SBC-3 UNMAP")]


def discard(blocks, first, count):
    """Discard; where the device says that it does not, the case cannot be tried."""
    if blocks.attribute("queue/discard_max_bytes", "0") == "0":
        lacks("the device takes no discards (queue/discard_max_bytes is 0)")
    blocks.discard(first, count)


def what_is_read(blocks, first, count):
    """Return what discarded blocks read as: zeroes, ones or old, in a set. Anything else fails."""
    data, old = blocks.read(first, count), blocks.stamped(first, count, 1)
    kinds = set()
    for at in range(0, len(data), blocks.logical):
        piece = data[at : at + blocks.logical]
        if piece in (bytes(blocks.logical), b"\xff" * blocks.logical):
            kinds.add("ones" if piece[0] else "zeroes")
        else:
            same = piece == old[at : at + blocks.logical]
            assert same, f"block {at // blocks.logical} is neither zeroes, nor ones, nor what was there"
            kinds.add("what was there")
    return kinds


@pytest.mark.case("BLK-DISC-01", section="NVM 3.3.3.2.1, SBC-3 UNMAP", kills=("discard-gives-others",))
def test_discarded_blocks_read_as_zeroes_ones_or_what_was_there(blocks):
    """Discarded blocks read as zeroes ones or what was there."""
    blocks.write(0, 264)
    discard(blocks, 0, 256)
    observe(f"discarded blocks read as {', '.join(sorted(what_is_read(blocks, 0, 256)))}")


@pytest.mark.case("BLK-DISC-02", section="NVM 3.3.3.2.1, SBC-3 UNMAP", kills=("discard-unsteady",))
def test_discarded_blocks_read_the_same_each_time(blocks):
    """Discarded blocks read the same each time."""
    blocks.write(0, 64)
    discard(blocks, 0, 64)
    first = blocks.read(0, 64)
    for _ in range(8):
        assert blocks.read(0, 64) == first, "discarded blocks, which nobody wrote since, changed"


@pytest.mark.case("BLK-DISC-03", kills=("discard-spills", "discard-misplaced"))
def test_the_blocks_beside_are_kept(blocks):
    """The blocks beside are kept."""
    blocks.write(0, 256)
    discard(blocks, 64, 128)
    blocks.expect(0, 64)
    blocks.expect(192, 64)


@pytest.mark.case("BLK-DISC-04", kills=("discard-rounds-up", "discard-misplaced"))
def test_a_discard_of_less_than_the_granularity_touches_nothing_else(blocks):
    """A discard of less than the granularity touches nothing else."""
    blocks.write(0, 64)
    discard(blocks, 3, 1)
    discard(blocks, 17, 7)
    blocks.expect(0, 3)
    blocks.expect(4, 13)
    blocks.expect(24, 40)


@pytest.mark.case("BLK-DISC-05", kills=("discard-late",))
def test_what_is_written_after_a_discard_is_read(blocks):
    """What is written after a discard is read."""
    blocks.write(0, 128, generation=1)
    discard(blocks, 0, 128)
    blocks.write(32, 64, generation=2)
    blocks.expect(32, 64, generation=2)
    blocks.flush()
    blocks.expect(32, 64, generation=2)


@pytest.mark.case("BLK-DISC-06", kills=("discard-misplaced",))
def test_discarding_twice_is_no_more_than_once(blocks):
    """Discarding twice is no more than once."""
    blocks.write(0, 128)
    discard(blocks, 0, 64)
    discard(blocks, 0, 64)
    what_is_read(blocks, 0, 64)
    blocks.expect(64, 64)


@pytest.mark.case("BLK-DISC-07", kills=("discard-spills", "discard-gives-others"))
def test_many_discards_and_writes_in_turn(blocks):
    """Discards and writes in turn each do what they are to do, and no more."""
    blocks.write(0, 128, generation=1)
    for each in range(0, 128, 16):
        discard(blocks, each, 8)
        blocks.write(each, 4, generation=2)
    for each in range(0, 128, 16):
        blocks.expect(each, 4, generation=2)
        what_is_read(blocks, each + 4, 4)
        blocks.expect(each + 8, 8, generation=1)


@pytest.mark.case("BLK-DISC-08", section="linux/fs.h BLKDISCARD")
def test_a_discard_of_part_of_a_block_is_refused(blocks):
    """A discard of part of a block is refused."""
    blocks.write(0, 2)
    if blocks.attribute("queue/discard_max_bytes", "0") == "0":
        lacks("the device takes no discards (queue/discard_max_bytes is 0)")
    refused(errno.EINVAL, blocks.span, BLKDISCARD, blocks.logical // 2, blocks.logical)
    blocks.expect(0, 2)


@pytest.mark.case("BLK-DISC-09", section="Linux, ABI sysfs-block: discard_granularity, discard_max_bytes")
def test_what_the_device_says_of_discards_fits_together(blocks):
    """What the device says of discards fits together."""
    most = int(blocks.attribute("queue/discard_max_bytes", "0"))
    grain = int(blocks.attribute("queue/discard_granularity", "0"))
    if most == 0:
        refused(errno.EOPNOTSUPP, blocks.discard, 0, blocks.count)
        return
    assert grain >= blocks.logical, f"a granularity of {grain} bytes is less than a block"
    assert grain % blocks.logical == 0, f"a granularity of {grain} bytes is no whole number of blocks"
    assert most >= grain, f"at most {most} bytes a discard, of which {grain} is the least"


@pytest.mark.case("BLK-DISC-10", kills=("discard-late",))
def test_a_discard_of_the_whole_range_leaves_it_writable(blocks):
    """A discard of the whole range leaves it writable."""
    blocks.write(0, blocks.count, generation=1)
    discard(blocks, 0, blocks.count)
    what_is_read(blocks, 0, blocks.count)
    blocks.write(0, blocks.count, generation=2)
    blocks.expect(0, blocks.count, generation=2)
