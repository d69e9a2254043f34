"""O_DIRECT: I/O that bypasses the page cache (open(2), NOTES)."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at, wait_clock_tick

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


@pytest.mark.case("PSX-DIRECT-EOF", kills=("direct-read-padded",))
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


@pytest.mark.case(
    "PSX-DIRECT-HOLE",
    section="POSIX.1-2024 read(): DESCRIPTION; open(2): NOTES, O_DIRECT",
    kills=("hole-and-data-shifted",),
)
def test_direct_read_that_begins_in_a_hole_returns_zeroes_and_the_data(client_dir):
    """A direct read has a hole's zeroes and then the data in their place; one not aligned may be EINVAL."""
    wanted = bytearray(8 * BLOCK)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as cached:
        os.ftruncate(cached, len(wanted))
        for offset, length in ((3 * BLOCK - 1, 1), (5 * BLOCK, BLOCK)):
            wanted[offset : offset + length] = pattern_bytes(length)
            os.pwrite(cached, wanted[offset : offset + length], offset)
        os.fsync(cached)
    descriptor = open_direct(client_dir / "f")
    refused = 0
    for offset in (2 * BLOCK, 2 * BLOCK - 2, BLOCK + 1, 4 * BLOCK + 512, 5 * BLOCK - 2, 5 * BLOCK - 1, 1):
        for length in (BLOCK, 2 * BLOCK, BLOCK + 2, 2 * BLOCK - 1, 4 * BLOCK + 1):
            buffer = page_aligned_buffer(5 * BLOCK)
            try:
                done = os.preadv(descriptor, [memoryview(buffer)[:length]], offset)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                refused += 1
                continue
            wrong = first_difference(buffer[:done], bytes(wanted[offset : offset + length]))
            assert not wrong, f"a direct read of {length} bytes at {offset}, in a hole, returns {wrong}"
    os.close(descriptor)
    if refused:
        record_observation(f"{refused} of 35 ranges are refused by EINVAL")


@pytest.mark.case("PSX-DIRECT-REWRITE", kills=("direct-rewrite-lost",))
def test_block_is_written_directly_again_and_again(client_dir):
    """Each direct write of the same block is read, by any descriptor, directly and through the cache."""
    make_file(client_dir / "f", pattern_bytes(SIZE))
    descriptors = [open_direct(client_dir / "f") for _ in range(2)]
    for number, byte in enumerate(b"abcdef"):
        for offset in (0, 3 * BLOCK):
            wanted = bytes([byte]) * BLOCK
            writer = descriptors[number // 2 % 2]
            assert direct(os.pwrite, writer, page_aligned_buffer(BLOCK, wanted), offset) == BLOCK
            for reader in descriptors:
                buffer = page_aligned_buffer(BLOCK)
                assert direct(os.preadv, reader, [buffer], offset) == BLOCK
                assert buffer[:] == wanted, (
                    f"write {number + 1} of the block at {offset} is not read directly"
                )
            found = read_at(client_dir / "f", BLOCK, offset)
            assert found == wanted, (
                f"write {number + 1} of the block at {offset} is not read through the cache"
            )
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.case(
    "PSX-DIRECT-APPEND-LONG",
    section="POSIX.1-2024 open(): O_APPEND; write(): RETURN VALUE; open(2): O_DIRECT",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-DIRECT-APPEND"),
    kills=("direct-append-too-long", "direct-append-first-page-alone"),
)
def test_direct_appends_of_each_length_are_at_the_end(client_dir):
    """Each direct write with O_APPEND adds its bytes at the end, and no more: of 1 to 65 blocks, in turn."""
    make_file(client_dir / "f")
    os.close(open_direct(client_dir / "f"))
    wanted = b""
    for number, blocks in enumerate((1, 2, 3, 17, 1, 65, 2)):
        data = pattern_bytes(blocks * BLOCK)[number:] + bytes(number)
        try:
            descriptor = os.open(client_dir / "f", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
        except OSError as error:
            if error.errno == errno.EINVAL:
                skip("this file system does not open with both O_APPEND and O_DIRECT (open(2), EINVAL)")
            raise
        done = direct(os.write, descriptor, page_aligned_buffer(len(data), data))
        size = os.fstat(descriptor).st_size
        os.close(descriptor)
        assert 0 < done <= len(data)
        wanted += data[:done]
        assert size == len(wanted), (
            f"a direct append of {done} bytes to a file of {len(wanted) - done} makes its size {size}; "
            f"required: {len(wanted)}"
        )
        wrong = first_difference((client_dir / "f").read_bytes(), wanted)
        assert not wrong, (
            f"after a direct append of {done} bytes to {len(wanted) - done} the file has {wrong}"
        )
        if done % BLOCK:
            skip(f"a direct write of {len(data)} bytes is done up to byte {done}")


@pytest.mark.case("PSX-DIRECT-LONG", kills=("direct-write-of-512-kib", "direct-read-of-128-kib"))
def test_direct_io_of_many_pages_is_of_all_its_bytes(client_dir):
    """Each byte that a direct write or read reports is stored or returned: of 128 KiB to 4 MiB, in turn."""
    for number, blocks in enumerate((33, 64, 129, 257, 1024)):
        length = blocks * BLOCK
        data = pattern_bytes(length + BLOCK)[16 * number :][:length]
        descriptor = open_direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
        try:
            stored = direct(os.pwrite, descriptor, page_aligned_buffer(length, data), 0)
            assert 0 < stored <= length
            wrong = first_difference(read_at(client_dir / "f", stored), data[:stored])
            assert not wrong, f"a direct write of {length} bytes reports {stored}: the file has {wrong}"
            buffer = page_aligned_buffer(length)
            found = direct(os.preadv, descriptor, [buffer], 0)
            assert 0 < found <= stored
            wrong = first_difference(buffer[:found], data[:found])
            assert not wrong, f"a direct read of {length} bytes returns {found}, with {wrong}"
        finally:
            os.close(descriptor)


@pytest.mark.case(
    "PSX-DIRECT-MAPPED",
    section="POSIX.1-2024 msync(): DESCRIPTION; open(2): O_DIRECT",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-DIRECT-WRITE", "PSX-DIRECT-READ", "PSX-MMAP-WRITE"),
    kills=("direct-read-before-mapped-store",),
)
def test_direct_read_returns_what_msync_has_written(client_dir):
    """What was stored through a mapping is in the file after msync() with MS_SYNC: for a direct read, too."""
    data = bytearray(pattern_bytes(SIZE))
    make_file(client_dir / "f", bytes(data))
    descriptor = open_direct(client_dir / "f")
    try:
        with open_fd(client_dir / "f") as cached, map_file(cached, SIZE) as view:
            for turn, block in enumerate((3, 0, 15, 3)):
                buffer = page_aligned_buffer(SIZE)
                assert direct(os.preadv, descriptor, [buffer], 0) == SIZE
                assert buffer[:] == data, f"a direct read before store {turn + 1}"
                view[block * BLOCK : block * BLOCK + 100] = b"%d" % turn * 100
                view.flush()
                data[block * BLOCK : block * BLOCK + 100] = b"%d" % turn * 100
                assert direct(os.preadv, descriptor, [buffer], 0) == SIZE
                wrong = first_difference(buffer[:], bytes(data))
                assert not wrong, f"after a store in block {block} and msync() a direct read returns {wrong}"
    finally:
        os.close(descriptor)


@pytest.mark.case(
    "PSX-DIRECT-TIMES",
    section="POSIX.1-2024 write(): DESCRIPTION; open(2): O_DIRECT",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-DIRECT-WRITE", "PSX-TIME-WRITE"),
    kills=("direct-write-leaves-mtime",),
)
def test_direct_write_marks_the_times(client_dir):
    """Upon successful completion mtime and ctime are marked: by each direct write, inside and at the end."""
    descriptor = open_direct(client_dir / "f", os.O_CREAT | os.O_RDWR)
    try:
        for offset in (0, BLOCK, 0):
            before = os.fstat(descriptor)
            wait_clock_tick(client_dir)
            assert direct(os.pwrite, descriptor, page_aligned_buffer(BLOCK, b"n" * BLOCK), offset) == BLOCK
            after = os.fstat(descriptor)
            for name in ("st_mtime_ns", "st_ctime_ns"):
                assert getattr(after, name) > getattr(before, name), f"{name} after a write at {offset}"
    finally:
        os.close(descriptor)
