"""The limits that a device has told the kernel, and what is larger or not aligned."""

import errno
import os

import pytest

from storagetest.agent.testlib import lacks, observe, refused

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="Linux, ABI sysfs-block")]


@pytest.mark.case("BLK-LIMIT-01", kills=("write-cut-short",))
def test_one_call_of_the_largest_request_is_whole(blocks):
    """One call of the largest request is whole."""
    most = 1024 * int(blocks.attribute("queue/max_sectors_kb", "0"))
    if most == 0:
        lacks("the kernel does not say how large a request may be")
    count = max(1, min(most, blocks.length) // blocks.logical)
    blocks.write(0, count)
    blocks.expect(0, count)
    observe(f"max_sectors_kb {most // 1024}")


@pytest.mark.case("BLK-LIMIT-02", kills=("write-cut-short", "write-torn", "read-short"))
def test_a_call_of_more_than_one_request_is_whole(blocks):
    """A call of more than one request is whole."""
    blocks.write(1, blocks.count - 1, generation=1)
    blocks.write(1, blocks.count - 1, generation=2)
    blocks.expect(1, blocks.count - 1, generation=2)


@pytest.mark.case("BLK-LIMIT-03", section="open(2), O_DIRECT")
def test_less_than_a_block_is_refused(blocks):
    """Less than a block is refused."""
    blocks.write(0, 2)
    half, whole = blocks.buffer(bytes(blocks.logical // 2)), blocks.buffer(bytes(blocks.logical))
    refused(errno.EINVAL, os.pwritev, blocks.fd, [half], blocks.at(0, 1))
    refused(errno.EINVAL, os.pwritev, blocks.fd, [whole], blocks.at(0, 1) + blocks.logical // 2)
    blocks.expect(0, 2)


@pytest.mark.case("BLK-LIMIT-04")
def test_sizes_to_prefer_are_whole_blocks(blocks):
    """Sizes to prefer are whole blocks."""
    for name in ("minimum_io_size", "optimal_io_size"):
        size = int(blocks.attribute(f"queue/{name}", "0"))
        assert size % blocks.logical == 0, f"{name} is {size} bytes, which is no whole number of blocks"
    least, best = (
        int(blocks.attribute(f"queue/{name}", "0")) for name in ("minimum_io_size", "optimal_io_size")
    )
    assert best == 0 or best % least == 0, f"optimal_io_size {best} is no multiple of minimum_io_size {least}"


@pytest.mark.case("BLK-LIMIT-05", kills=("write-spills-over",))
def test_a_write_that_begins_in_the_middle_of_a_physical_block_is_whole(blocks):
    """A write that begins in the middle of a physical block is whole."""
    blocks.write(0, 64, generation=1)
    for first in (1, 9, 31, 47):
        blocks.write(first, 1, generation=2)
        blocks.expect(first, 1, generation=2)
    blocks.expect(0, 1, generation=1)
    blocks.expect(2, 7, generation=1)
    blocks.expect(48, 16, generation=1)
