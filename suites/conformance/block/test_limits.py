"""The limits that a device has told the kernel, and what is larger or not aligned."""

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="Linux, ABI sysfs-block")]


@pytest.mark.case("BLK-LIMIT-01", kills=("write-cut-short",))
def test_one_call_of_the_largest_request_is_whole(block_range):
    """One call of the largest request is whole."""
    most = 1024 * int(block_range.attribute("queue/max_sectors_kb", "0"))
    if most == 0:
        skip("the kernel does not say how large a request may be")
    count = max(1, min(most, block_range.length) // block_range.logical)
    block_range.write(0, count)
    block_range.assert_generation(0, count)
    record_observation(f"max_sectors_kb {most // 1024}")


@pytest.mark.case("BLK-LIMIT-02", kills=("write-cut-short", "write-torn", "read-short"))
def test_a_call_of_more_than_one_request_is_whole(block_range):
    """A call of more than one request is whole."""
    block_range.write(1, block_range.count - 1, generation=1)
    block_range.write(1, block_range.count - 1, generation=2)
    block_range.assert_generation(1, block_range.count - 1, generation=2)


@pytest.mark.case("BLK-LIMIT-03", section="open(2), O_DIRECT")
def test_less_than_a_block_is_refused(block_range):
    """Less than a block is refused."""
    block_range.write(0, 2)
    half, whole = (
        block_range.buffer(bytes(block_range.logical // 2)),
        block_range.buffer(bytes(block_range.logical)),
    )
    assert_errno(errno.EINVAL, os.pwritev, block_range.fd, [half], block_range.at(0, 1))
    assert_errno(
        errno.EINVAL, os.pwritev, block_range.fd, [whole], block_range.at(0, 1) + block_range.logical // 2
    )
    block_range.assert_generation(0, 2)


@pytest.mark.case("BLK-LIMIT-04")
def test_sizes_to_prefer_are_whole_blocks(block_range):
    """Sizes to prefer are whole blocks."""
    for name in ("minimum_io_size", "optimal_io_size"):
        size = int(block_range.attribute(f"queue/{name}", "0"))
        assert size % block_range.logical == 0, f"{name} is {size} bytes, which is no whole number of blocks"
    least, best = (
        int(block_range.attribute(f"queue/{name}", "0")) for name in ("minimum_io_size", "optimal_io_size")
    )
    assert best == 0 or best % least == 0, f"optimal_io_size {best} is no multiple of minimum_io_size {least}"


@pytest.mark.case("BLK-LIMIT-05", kills=("write-spills-over",))
def test_a_write_that_begins_in_the_middle_of_a_physical_block_is_whole(block_range):
    """A write that begins in the middle of a physical block is whole."""
    block_range.write(0, 64, generation=1)
    for first in (1, 9, 31, 47):
        block_range.write(first, 1, generation=2)
        block_range.assert_generation(first, 1, generation=2)
    block_range.assert_generation(0, 1, generation=1)
    block_range.assert_generation(2, 7, generation=1)
    block_range.assert_generation(48, 16, generation=1)
