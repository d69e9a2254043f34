"""read(), write(), lseek(), truncate() and related calls: data, offsets and sizes."""

from __future__ import annotations

import errno
import os
import resource
import signal
from contextlib import contextmanager

import pytest

from storagetest.agent.testlib import assert_errno, call_in_subprocess, record_observation, run_as_user, skip
from storagetest.agent.testlib.large_files import put
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 write(): DESCRIPTION"
    ),
]
read = "POSIX.1-2024 read(): DESCRIPTION"
lseek = "POSIX.1-2024 lseek(): DESCRIPTION"
truncate = "POSIX.1-2024 truncate(): DESCRIPTION"

USER = 54321


@pytest.mark.case("PSX-DATA-NEW-FILE", kills=("write-not-done",))
def test_data_of_a_new_file_are_read(client_dir):
    """A file can be created and written, and its data are read."""
    assert make_file(client_dir / "f", b"data").read_bytes() == b"data"


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=str(size), marks=pytest.mark.case(f"PSX-DATA-{size}"))
        for size in (1, 511, 4096, 4097, 65536, 1048577)
    ],
)
def test_written_data_are_read(client_dir, size):
    """After a write() has returned, any read() from those positions shall return the data written."""
    data = pattern_bytes(size)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        assert os.write(descriptor, data) == size
        assert os.pread(descriptor, size + 1, 0) == data
        os.fsync(descriptor)
    assert (client_dir / "f").read_bytes() == data
    assert os.stat(client_dir / "f").st_size == size


@pytest.mark.case("PSX-DATA-OTHER-PROCESS")
def test_written_data_are_visible_to_another_process(client_dir):
    """The data are visible to every process of this system when write() has returned."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for number in range(5):
            os.pwrite(descriptor, b"%d" % number * 100, 0)
            assert call_in_subprocess(lambda: read_at(client_dir / "f", 100).decode()) == str(number) * 100


@pytest.mark.case("PSX-DATA-OVERWRITE", kills=("write-last-byte-lost",))
def test_overwrite_changes_only_its_range(client_dir):
    """Any subsequent write to the same byte position shall overwrite that file data."""
    data = bytearray(pattern_bytes(300_000))
    with open_fd(make_file(client_dir / "f", bytes(data))) as descriptor:
        for offset, size in ((0, 1), (4095, 2), (65535, 4098), (299_999, 1), (131_072, 8192)):
            patch = b"\xa5" * size
            data[offset : offset + size] = patch
            assert os.pwrite(descriptor, patch, offset) == size
    assert (client_dir / "f").read_bytes() == bytes(data)


@pytest.mark.case("PSX-DATA-EXTEND", kills=("size-stale",))
def test_write_past_the_end_extends_the_file(client_dir):
    """After a write past the end, the size is the offset after the last byte written."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        os.pwrite(descriptor, b"z", 10)
        assert os.fstat(descriptor).st_size == 11
    assert (client_dir / "f").read_bytes() == b"abc" + bytes(7) + b"z"


@pytest.mark.case("PSX-DATA-OFFSET")
def test_offset_advances_by_the_bytes_transferred(client_dir):
    """The file offset shall be incremented by the number of bytes actually read or written."""
    with open_fd(make_file(client_dir / "f", b"0123456789")) as descriptor:
        assert os.read(descriptor, 3) == b"012"
        assert os.write(descriptor, b"xy") == 2
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 5
        assert os.read(descriptor, 2) == b"56"


@pytest.mark.case("PSX-DATA-PREAD", section="POSIX.1-2024 pread(): DESCRIPTION")
def test_pread_and_pwrite_leave_the_offset(client_dir):
    """pread() and pwrite() shall not change the file offset."""
    with open_fd(make_file(client_dir / "f", b"0123456789")) as descriptor:
        os.lseek(descriptor, 4, os.SEEK_SET)
        assert os.pread(descriptor, 2, 8) == b"89"
        assert os.pwrite(descriptor, b"x", 0) == 1
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 4


@pytest.mark.case("PSX-DATA-VECTOR", section="POSIX.1-2024 writev(): DESCRIPTION")
def test_writev_and_readv_use_all_buffers_in_order(client_dir):
    """writev() gathers from the buffers in turn; readv() always fills one before it goes to the next."""
    parts = [pattern_bytes(size) for size in (1, 4096, 3, 70_000)]
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        assert os.writev(descriptor, parts) == sum(map(len, parts))
        into = [bytearray(len(part)) for part in reversed(parts)]
        assert os.preadv(descriptor, into, 0) == sum(map(len, parts))
    assert b"".join(into) == b"".join(parts)


@pytest.mark.case("PSX-DATA-EOF", section=read)
def test_read_at_or_after_the_end_returns_no_data(client_dir):
    """If the starting position is at or after the end-of-file, 0 shall be returned."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        assert os.pread(descriptor, 10, 3) == b""
        assert os.pread(descriptor, 10, 1 << 40) == b""
        assert os.pread(descriptor, 10, 1) == b"bc"


@pytest.mark.case("PSX-READ-EISDIR", section="POSIX.1-2024 read(): ERRORS")
def test_read_of_a_directory_is_refused(client_dir):
    """[EISDIR] The descriptor refers to a directory, and the implementation does not allow that."""
    with open_fd(client_dir, os.O_RDONLY) as descriptor:
        assert_errno(errno.EISDIR, os.read, descriptor, 10)


@pytest.mark.case("PSX-READ-HOLE", section=read, kills=("hole-reads-garbage",))
def test_unwritten_range_reads_as_zeroes(client_dir):
    """If the file has not been written at a position before its end, read() shall return bytes of value 0."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.pwrite(descriptor, b"end", 200_000)
        assert os.pread(descriptor, 200_000, 0) == bytes(200_000)
        assert os.pread(descriptor, 5, 199_998) == b"\0\0end"


@pytest.mark.case("PSX-PWRITE-EINVAL", section="POSIX.1-2024 pwrite(): ERRORS")
def test_a_negative_offset_is_refused(client_dir):
    """[EINVAL] The file is a regular file, and the offset is negative."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        assert_errno(errno.EINVAL, os.pwrite, descriptor, b"x", -1)
        assert_errno(errno.EINVAL, os.pread, descriptor, 1, -1)


@pytest.mark.case("PSX-LSEEK-PAST-END", section=lseek)
def test_seek_past_the_end_does_not_extend_the_file(client_dir):
    """lseek() shall allow an offset beyond the end, and shall not by itself extend the size."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        assert os.lseek(descriptor, 1000, os.SEEK_SET) == 1000
        assert os.lseek(descriptor, 10, os.SEEK_END) == 13
        assert os.fstat(descriptor).st_size == 3


@pytest.mark.case("PSX-LSEEK-EINVAL", section="POSIX.1-2024 lseek(): ERRORS")
def test_a_seek_before_the_beginning_is_refused(client_dir):
    """[EINVAL] The resulting file offset would be negative; the offset stays as it was."""
    with open_fd(make_file(client_dir / "f", b"abc")) as descriptor:
        os.lseek(descriptor, 2, os.SEEK_SET)
        assert_errno(errno.EINVAL, os.lseek, descriptor, -3, os.SEEK_CUR)
        assert_errno(errno.EINVAL, os.lseek, descriptor, 0, 99)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 2


@pytest.mark.case("PSX-LSEEK-END-OF-LATEST", section=lseek, kills=("size-stale",))
def test_seek_end_uses_the_current_size(client_dir):
    """SEEK_END is the current size plus offset, also after another descriptor extended the file."""
    with open_fd(make_file(client_dir / "f", b"abc")) as one, open_fd(client_dir / "f") as two:
        os.pwrite(two, b"x" * 50, 3)
        assert os.lseek(one, 0, os.SEEK_END) == 53


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=str(size), marks=pytest.mark.case(f"PSX-TRUNCATE-{size}"))
        for size in (0, 1, 4095, 4096, 5000, 70_000)
    ],
)
@pytest.mark.case(section=truncate)
def test_truncate_sets_the_size(client_dir, size):
    """If the file was larger, the extra data are discarded; if it was smaller, the added bytes are zeroes."""
    data = pattern_bytes(5000)
    make_file(client_dir / "f", data)
    os.truncate(client_dir / "f", size)
    assert os.stat(client_dir / "f").st_size == size
    assert (client_dir / "f").read_bytes() == (data + bytes(70_000))[:size]


@pytest.mark.case(
    "PSX-TRUNCATE-AGAIN",
    section=truncate,
    kills=("truncate-does-not-grow", "truncate-does-not-shrink", "truncate-keeps-old-data"),
)
def test_truncated_data_do_not_reappear(client_dir):
    """Data past the new end are lost: after the file grows again, the range reads as zeroes."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(10_000))) as descriptor:
        os.ftruncate(descriptor, 100)
        os.ftruncate(descriptor, 10_000)
        assert os.pread(descriptor, 9_900, 100) == bytes(9_900)
    assert read_at(client_dir / "f", 9_900, 100) == bytes(9_900)


@pytest.mark.case("PSX-TRUNCATE-OFFSET", section="POSIX.1-2024 ftruncate(): DESCRIPTION")
def test_ftruncate_leaves_the_offset(client_dir):
    """The value of the seek pointer shall not be modified by a call to ftruncate()."""
    with open_fd(make_file(client_dir / "f", b"0123456789")) as descriptor:
        os.lseek(descriptor, 8, os.SEEK_SET)
        os.ftruncate(descriptor, 2)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 8
        assert os.write(descriptor, b"x") == 1
    assert (client_dir / "f").read_bytes() == b"01" + bytes(6) + b"x"


@pytest.mark.case("PSX-TRUNCATE-EISDIR", section="POSIX.1-2024 truncate(): ERRORS")
def test_a_directory_is_not_truncated(client_dir):
    """[EISDIR] The named file is a directory."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EISDIR, os.truncate, client_dir / "d", 0)


@pytest.mark.case("PSX-TRUNCATE-EINVAL", section="POSIX.1-2024 truncate(): ERRORS")
def test_a_negative_length_is_refused(client_dir):
    """[EINVAL] The length argument is less than 0."""
    make_file(client_dir / "f", b"abc")
    assert_errno(errno.EINVAL, os.truncate, client_dir / "f", -1)
    assert os.stat(client_dir / "f").st_size == 3


@pytest.mark.case("PSX-FTRUNCATE-READ-ONLY", section="POSIX.1-2024 ftruncate(): ERRORS")
def test_a_descriptor_for_reading_does_not_truncate(client_dir):
    """[EBADF] or [EINVAL] The descriptor is not open for writing."""
    with open_fd(make_file(client_dir / "f", b"abc"), os.O_RDONLY) as descriptor:
        assert_errno((errno.EBADF, errno.EINVAL), os.ftruncate, descriptor, 0)
    assert os.stat(client_dir / "f").st_size == 3


@pytest.mark.case(
    "PSX-TRUNCATE-EACCES", section="POSIX.1-2024 truncate(): ERRORS", kills=("truncate-by-any-user",)
)
def test_truncate_without_write_permission_is_refused(client_dir):
    """[EACCES] Write permission is denied on the file."""
    client_dir.chmod(0o755)
    make_file(client_dir / "f", b"kept", 0o644)
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, os.truncate, client_dir / "f", 0)
    assert read_at(client_dir / "f", 10) == b"kept"


@pytest.mark.case(
    "PSX-TRUNCATE-EFBIG", section="POSIX.1-2024 truncate(): ERRORS", kills=("truncate-does-not-grow",)
)
def test_size_over_the_file_systems_maximum_is_refused(client_dir):
    """[EFBIG] or [EINVAL] The length is greater than the maximum file size."""
    make_file(client_dir / "f")
    try:
        os.truncate(client_dir / "f", (1 << 63) - 1)
    except OSError as error:
        assert error.errno in (errno.EFBIG, errno.EINVAL)
        record_observation(f"2^63 - 1 bytes are refused by {errno.errorcode[error.errno]}")
    else:
        record_observation("a file of 2^63 - 1 bytes can be made")
        assert os.stat(client_dir / "f").st_size == (1 << 63) - 1


@pytest.mark.case("PSX-WRITE-EFBIG", section="POSIX.1-2024 write(): ERRORS")
def test_write_past_the_file_size_limit_is_refused(client_dir):
    """[EFBIG] The file would exceed the process's file size limit; SIGXFSZ is sent, and is ignored here."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_fd(make_file(client_dir / "f")) as descriptor:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        assert_errno(errno.EFBIG, os.pwrite, descriptor, b"x", 4096)
        assert os.pwrite(descriptor, b"x" * 100, 4000) == 96
        assert os.fstat(descriptor).st_size == 4096


@contextmanager
def open_synchronised(path, flag):
    """Create a file for synchronised I/O; skip the case if the file system does not support it (EINVAL)."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | flag, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        skip("this file system does not support synchronised I/O (open(), EINVAL)")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(int(flag), id=name.lower(), marks=pytest.mark.case(f"PSX-{name}"))
        for name, flag in (("O-SYNC", os.O_SYNC), ("O-DSYNC", os.O_DSYNC))
    ],
)
@pytest.mark.case(section="POSIX.1-2024 open(): O_SYNC")
def test_synchronised_write_stores_its_data(client_dir, flag):
    """Writes complete as defined by synchronised I/O; the case checks only that the data are read."""
    data = pattern_bytes(20_000)
    with open_synchronised(client_dir / "f", flag) as descriptor:
        assert os.write(descriptor, data) == 20_000
    assert (client_dir / "f").read_bytes() == data


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(
            int(flag),
            id=name.lower(),
            marks=pytest.mark.case(f"PSX-{name}-LARGE", builds_on=(f"PSX-{name}",), kills=kills),
        )
        for name, flag, kills in (
            ("O-SYNC", os.O_SYNC, ("sync-write-64-kib",)),
            ("O-DSYNC", os.O_DSYNC, ("sync-write-64-kib",)),
        )
    ],
)
@pytest.mark.case(section="POSIX.1-2024 open(): O_SYNC; write(): DESCRIPTION")
def test_large_synchronised_writes_store_all_their_data(client_dir, flag):
    """All bytes that write() counts are stored: of a page to some MiB, at odd offsets, and a second time."""
    path, wanted = client_dir / "f", bytearray()
    with open_synchronised(path, flag) as descriptor:
        for offset, size in ((0, 65_537), (4095, 131_072), (100_001, (1 << 20) + 1), (7, (2 << 20) + 511)):
            data = pattern_bytes(size)
            done = os.pwrite(descriptor, data, offset)
            wanted[offset : offset + done] = data[:done]
            found = path.read_bytes()
            assert len(found) == len(wanted), f"{len(found)} bytes after {done} were written at {offset}"
            assert found == wanted, f"the data differ after a write of {done} bytes at {offset}"


@pytest.mark.case(
    "PSX-FSYNC",
    section="POSIX.1-2024 fsync(): DESCRIPTION",
    kills=("fsync-directory-refused", "fsync-refused"),
)
def test_fsync_accepts_files_and_directories(client_dir):
    """fsync() shall request that all data be transferred, and shall not return before that or an error.

    [EINVAL] is legal for a directory, if this operation is not possible on it.
    """
    with open_fd(make_file(client_dir / "f", pattern_bytes(9000))) as descriptor:
        os.fsync(descriptor)
        os.fdatasync(descriptor)
    with open_fd(client_dir, os.O_RDONLY) as directory:
        try:
            os.fsync(directory)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            record_observation("fsync() is not possible on a directory (EINVAL)")


@pytest.mark.case(
    "PSX-FSYNC-READ-ONLY", section="POSIX.1-2024 fsync(): DESCRIPTION", kills=("fsync-refused",)
)
def test_fsync_accepts_a_read_only_descriptor(client_dir):
    """fsync() takes any open descriptor, also one that is not open for writing."""
    with open_fd(make_file(client_dir / "f", b"x"), os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


@pytest.mark.case(
    "PSX-COPY-FILE-RANGE", section="copy_file_range(2): DESCRIPTION", kills=("copy-range-short",)
)
def test_copy_file_range_copies_a_range(client_dir):
    """copy_file_range() copies up to len bytes; given offsets are used, and the files' own stay unchanged."""
    data = pattern_bytes(200_000)
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    with (
        open_fd(make_file(client_dir / "a", data)) as source,
        open_fd(make_file(client_dir / "b", b"head")) as target,
    ):
        done = 0
        while done < 150_000:
            step = os.copy_file_range(source, target, 150_000 - done, 1000 + done, 4 + done)
            assert step > 0
            done += step
        assert os.lseek(source, 0, os.SEEK_CUR) == 0
    assert (client_dir / "b").read_bytes() == b"head" + data[1000:151_000]


@pytest.mark.case("PSX-COPY-FILE-RANGE-EOF", section="copy_file_range(2): RETURN VALUE")
def test_copy_file_range_at_the_end_copies_nothing(client_dir):
    """If the offset of the input is at or past the end of file, no bytes are copied, and it returns zero."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    with (
        open_fd(make_file(client_dir / "a", b"abc")) as source,
        open_fd(make_file(client_dir / "b")) as target,
    ):
        assert os.copy_file_range(source, target, 10, 3, 0) == 0
        assert os.fstat(target).st_size == 0


@pytest.mark.case("PSX-SENDFILE", section="sendfile(2): DESCRIPTION")
def test_sendfile_reads_the_file(client_dir):
    """sendfile() copies data from a file, here to another file."""
    data = pattern_bytes(50_000)
    with (
        open_fd(make_file(client_dir / "a", data), os.O_RDONLY) as source,
        open_fd(make_file(client_dir / "b")) as target,
    ):
        done = 0
        while done < 50_000:
            step = os.sendfile(target, source, done, 50_000 - done)
            assert step > 0
            done += step
    assert (client_dir / "b").read_bytes() == data


@pytest.mark.case(
    "PSX-LARGE-OFFSET",
    section="POSIX.1-2024 Rationale: large files",
    kills=("large-offset-refused", "write-at-wrong-offset", "write-31-bits"),
)
def test_offsets_over_4_gib_are_distinct(client_dir):
    """Offsets are 64 bits wide: data written beyond 2, 4 and 8 GiB are read there and nowhere else."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for shift in (31, 32, 33):
            put(descriptor, b"%d" % shift, (1 << shift) + 1)
        for shift in (31, 32, 33):
            assert os.pread(descriptor, 3, 1 << shift) == b"\0%d" % shift
        assert os.pread(descriptor, 4, 0) == bytes(4)
        assert os.fstat(descriptor).st_size == (1 << 33) + 3
