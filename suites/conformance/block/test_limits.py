"""I/O limits that the device reports to the kernel, and larger or unaligned I/O."""

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="Linux, ABI sysfs-block"),
]


@pytest.mark.case("BLK-LIMIT-01", kills=("write-cut-short",))
def test_write_of_the_largest_request_is_complete(block_range):
    """A write of the largest request size is stored completely."""
    maximum = 1024 * int(block_range.attribute("queue/max_sectors_kb", "0"))
    if maximum == 0:
        skip("the kernel does not report the maximum size of a request")
    count = max(1, min(maximum, block_range.length) // block_range.logical)
    block_range.write(0, count)
    block_range.assert_generation(0, count)
    record_observation(f"max_sectors_kb {maximum // 1024}")


@pytest.mark.case("BLK-LIMIT-02", kills=("write-cut-short", "write-torn", "read-short"))
def test_write_of_several_requests_is_complete(block_range):
    """A write that the kernel splits into several requests is stored completely."""
    block_range.write(1, block_range.count - 1, generation=1)
    block_range.write(1, block_range.count - 1, generation=2)
    block_range.assert_generation(1, block_range.count - 1, generation=2)


@pytest.mark.case("BLK-LIMIT-03", section="open(2), O_DIRECT")
def test_partial_block_io_is_refused(block_range):
    """A write of less than a block or from within a block is refused."""
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
def test_preferred_io_sizes_are_whole_blocks(block_range):
    """The minimum and optimal I/O sizes are whole blocks."""
    for name in ("minimum_io_size", "optimal_io_size"):
        size = int(block_range.attribute(f"queue/{name}", "0"))
        assert size % block_range.logical == 0, f"{name} is {size} bytes, which is no whole number of blocks"
    minimum, optimal = (
        int(block_range.attribute(f"queue/{name}", "0")) for name in ("minimum_io_size", "optimal_io_size")
    )
    assert optimal == 0 or optimal % minimum == 0, (
        f"optimal_io_size {optimal} is not a multiple of minimum_io_size {minimum}"
    )


@pytest.mark.case("BLK-LIMIT-05", kills=("write-spills-over",))
def test_write_within_a_physical_block_is_complete(block_range):
    """A write that begins within a physical block changes only its own blocks."""
    block_range.write(0, 64, generation=1)
    for first in (1, 9, 31, 47):
        block_range.write(first, 1, generation=2)
        block_range.assert_generation(first, 1, generation=2)
    block_range.assert_generation(0, 1, generation=1)
    block_range.assert_generation(2, 7, generation=1)
    block_range.assert_generation(48, 16, generation=1)
