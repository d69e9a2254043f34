"""O_DIRECT: the same file without the cache between (open(2), NOTES)."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="open(2): O_DIRECT"),
]
BLOCK = 4096
SIZE = 16 * BLOCK


def direct(path, flags: int = os.O_RDWR):
    """Open for direct I/O; it cannot be tried where the file system has it not (EINVAL, open(2))."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno == errno.EINVAL:
            skip("this file system does not support O_DIRECT (open(2), EINVAL)")
        raise


def aligned(size: int, data: bytes = b"") -> mmap.mmap:
    """Return a buffer that begins at a page."""
    buffer = mmap.mmap(-1, size)
    buffer[: len(data)] = data
    return buffer


@pytest.mark.case("PSX-DIRECT-WRITE", kills=("write-last-byte-lost", "write-not-done"))
def test_what_is_written_directly_is_read_through_the_cache(client_dir):
    """A direct write is a write: a read by any other descriptor returns it."""
    data = pattern_bytes(SIZE)
    descriptor = direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    assert os.pwrite(descriptor, aligned(SIZE, data), 0) == SIZE
    assert read_at(client_dir / "f", SIZE) == data
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-READ")
def test_what_is_written_through_the_cache_is_read_directly(client_dir):
    """A direct read returns what was written before it, be it in the cache alone."""
    data = pattern_bytes(SIZE)
    make_file(client_dir / "f", data)
    descriptor = direct(client_dir / "f")
    buffer = aligned(SIZE)
    assert os.preadv(descriptor, [buffer], 0) == SIZE
    assert buffer[:] == data
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-INVALIDATES")
def test_a_direct_write_replaces_what_was_cached(client_dir):
    """After a direct write the cache does not give the old data."""
    make_file(client_dir / "f", pattern_bytes(SIZE))
    descriptor = direct(client_dir / "f")
    with open_fd(client_dir / "f", os.O_RDONLY) as reader:
        assert os.pread(reader, SIZE, 0) == pattern_bytes(SIZE)
        assert os.pwrite(descriptor, aligned(BLOCK, b"n" * BLOCK), 2 * BLOCK) == BLOCK
        assert os.pread(reader, BLOCK, 2 * BLOCK) == b"n" * BLOCK
        assert os.pread(reader, 16, 3 * BLOCK) == pattern_bytes(SIZE)[3 * BLOCK : 3 * BLOCK + 16]
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-MIXED")
def test_direct_and_cached_writes_side_by_side(client_dir):
    """Writes of both kinds to neighbouring blocks leave each its data."""
    make_file(client_dir / "f", bytes(SIZE))
    descriptor = direct(client_dir / "f")
    with open_fd(client_dir / "f") as cached:
        for number in range(8):
            os.pwrite(cached, b"c" * BLOCK, 2 * number * BLOCK)
            assert os.pwrite(descriptor, aligned(BLOCK, b"d" * BLOCK), (2 * number + 1) * BLOCK) == BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", SIZE) == (b"c" * BLOCK + b"d" * BLOCK) * 8


@pytest.mark.case("PSX-DIRECT-EOF")
def test_a_direct_read_ends_at_the_end_of_the_file(client_dir):
    """A read that reaches the end returns what there is; at the end nothing."""
    make_file(client_dir / "f", pattern_bytes(BLOCK + 100))
    descriptor = direct(client_dir / "f")
    assert os.preadv(descriptor, [aligned(2 * BLOCK)], 0) == BLOCK + 100
    assert os.preadv(descriptor, [aligned(BLOCK)], 2 * BLOCK) == 0
    os.close(descriptor)


@pytest.mark.case("PSX-DIRECT-EXTENDS", kills=("hole-reads-garbage",))
def test_a_direct_write_makes_the_file_longer(client_dir):
    """Past the end, a direct write extends the file as any write does; what lies between is a hole."""
    descriptor = direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    assert os.pwrite(descriptor, aligned(BLOCK, b"e" * BLOCK), 4 * BLOCK) == BLOCK
    assert os.fstat(descriptor).st_size == 5 * BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", 8, 4 * BLOCK - 4) == bytes(4) + b"eeee"


@pytest.mark.case(
    "PSX-DIRECT-UNALIGNED", section="open(2): NOTES, O_DIRECT", level="MAY", kills=("write-not-done",)
)
def test_a_direct_write_that_is_not_aligned(client_dir):
    """Alignment is the file system's to want: [EINVAL], or the I/O is done; then the data are right."""
    descriptor = direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
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
def test_direct_appends(client_dir):
    """O_DIRECT and O_APPEND go together."""
    make_file(client_dir / "f", b"a" * BLOCK)
    os.close(direct(client_dir / "f"))
    descriptor = os.open(client_dir / "f", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
    assert os.write(descriptor, aligned(BLOCK, b"b" * BLOCK)) == BLOCK
    os.close(descriptor)
    assert read_at(client_dir / "f", 2 * BLOCK) == b"a" * BLOCK + b"b" * BLOCK
