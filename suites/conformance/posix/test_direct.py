"""O_DIRECT: I/O that bypasses the page cache (open(2), NOTES)."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-DIRECT-WRITE"), section="open(2): O_DIRECT"
    ),
]
BLOCK = 4096
SIZE = 16 * BLOCK


def open_direct(path, flags: int = os.O_RDWR):
    """Open for direct I/O; skip the case if the file system does not support it (EINVAL, open(2))."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno == errno.EINVAL:
            skip("this file system does not support O_DIRECT (open(2), EINVAL)")
        raise


def direct(call, *arguments) -> int:
    """Return the result of aligned direct I/O; skip the case if it is refused.

    open(2), NOTES: the alignment that a file system requires is its own choice. It may support O_DIRECT at
    the open and refuse it (EINVAL) at the I/O.
    """
    try:
        return call(*arguments)
    except OSError as error:
        if error.errno == errno.EINVAL:
            skip(f"O_DIRECT opens, but {call.__name__} aligned to {BLOCK} bytes is EINVAL (open(2), NOTES)")
        raise


def page_aligned_buffer(size: int, data: bytes = b"") -> mmap.mmap:
    """Return a buffer that begins at a page boundary."""
    buffer = mmap.mmap(-1, size)
    buffer[: len(data)] = data
    return buffer


@pytest.mark.case("PSX-DIRECT-WRITE", kills=("write-last-byte-lost", "write-not-done"))
def test_direct_write_is_read_through_the_cache(client_dir):
    """A buffered read returns the data of a direct write."""
    data = pattern_bytes(SIZE)
    descriptor = open_direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    assert direct(os.pwrite, descriptor, page_aligned_buffer(SIZE, data), 0) == SIZE
    assert read_at(client_dir / "f", SIZE) == data
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-READ")
def test_buffered_write_is_read_directly(client_dir):
    """A direct read returns data of an earlier write, even if they are only in the cache."""
    data = pattern_bytes(SIZE)
    make_file(client_dir / "f", data)
    descriptor = open_direct(client_dir / "f")
    buffer = page_aligned_buffer(SIZE)
    assert direct(os.preadv, descriptor, [buffer], 0) == SIZE
    assert buffer[:] == data
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-INVALIDATES")
def test_direct_write_invalidates_the_cache(client_dir):
    """After a direct write the cache does not return the old data."""
    make_file(client_dir / "f", pattern_bytes(SIZE))
    descriptor = open_direct(client_dir / "f")
    with open_fd(client_dir / "f", os.O_RDONLY) as reader:
        assert os.pread(reader, SIZE, 0) == pattern_bytes(SIZE)
        assert direct(os.pwrite, descriptor, page_aligned_buffer(BLOCK, b"n" * BLOCK), 2 * BLOCK) == BLOCK
        assert os.pread(reader, BLOCK, 2 * BLOCK) == b"n" * BLOCK
        assert os.pread(reader, 16, 3 * BLOCK) == pattern_bytes(SIZE)[3 * BLOCK : 3 * BLOCK + 16]
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-MIXED")
def test_direct_and_buffered_writes_to_neighbouring_blocks(client_dir):
    """Direct and buffered writes to neighbouring blocks keep each other's data."""
    make_file(client_dir / "f", bytes(SIZE))
    descriptor = open_direct(client_dir / "f")
    with open_fd(client_dir / "f") as cached:
        for number in range(8):
            os.pwrite(cached, b"c" * BLOCK, 2 * number * BLOCK)
            block, offset = page_aligned_buffer(BLOCK, b"d" * BLOCK), (2 * number + 1) * BLOCK
            assert direct(os.pwrite, descriptor, block, offset) == BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", SIZE) == (b"c" * BLOCK + b"d" * BLOCK) * 8


@pytest.mark.case("PSX-DIRECT-EOF")
def test_a_direct_read_ends_at_the_end_of_the_file(client_dir):
    """A read that reaches the end returns the bytes before it; at the end it returns none."""
    make_file(client_dir / "f", pattern_bytes(BLOCK + 100))
    descriptor = open_direct(client_dir / "f")
    assert direct(os.preadv, descriptor, [page_aligned_buffer(2 * BLOCK)], 0) == BLOCK + 100
    assert direct(os.preadv, descriptor, [page_aligned_buffer(BLOCK)], 2 * BLOCK) == 0
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-EXTENDS", kills=("hole-reads-garbage",))
def test_direct_write_extends_the_file(client_dir):
    """Past the end, a direct write extends the file; the range between is a hole."""
    descriptor = open_direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    assert direct(os.pwrite, descriptor, page_aligned_buffer(BLOCK, b"e" * BLOCK), 4 * BLOCK) == BLOCK
    assert os.fstat(descriptor).st_size == 5 * BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", 8, 4 * BLOCK - 4) == bytes(4) + b"eeee"


@pytest.mark.case(
    "PSX-DIRECT-UNALIGNED", section="open(2): NOTES, O_DIRECT", level="MAY", kills=("write-not-done",)
)
def test_unaligned_direct_write_fails_or_is_correct(client_dir):
    """The file system decides about alignment: [EINVAL], or the write is done with the right data."""
    descriptor = open_direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    try:
        done = os.pwrite(descriptor, b"odd", 1)
    except OSError as error:
        assert error.errno == errno.EINVAL
        record_observation("I/O that is not aligned is refused by EINVAL")
    else:
        record_observation("I/O that is not aligned is done")
        assert done == 3
        assert read_at(client_dir / "f", 4) == b"\0odd"
    finally:
        os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-APPEND")
def test_o_direct_and_o_append_combine(client_dir):
    """O_DIRECT and O_APPEND can be combined."""
    make_file(client_dir / "f", b"a" * BLOCK)
    os.close(open_direct(client_dir / "f"))
    descriptor = os.open(client_dir / "f", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
    assert direct(os.write, descriptor, page_aligned_buffer(BLOCK, b"b" * BLOCK)) == BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", 2 * BLOCK) == b"a" * BLOCK + b"b" * BLOCK
