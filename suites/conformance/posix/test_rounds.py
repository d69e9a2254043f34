"""Second rounds: a file that was made without permissions, a directory that was full, a refused allocation.

Each object here is sound at its first use. The rules: open() decides how a file that it makes is open, and
its mode does not (O_CREAT); rename() replaces a directory that is empty, whatever was in it before; a call
that is refused leaves data and descriptors as they were.
"""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, run_as_user, skip
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, fallocate
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, OWNER = 54321, 54322
PAGE = mmap.PAGESIZE
SIZE = 8 * PAGE
MODES = (0o444, 0o400, 0o200, 0o111, 0o000)
"""Modes that refuse their owner to read, to write, or both."""
FULL = 60
"""Entries of a full directory: more than fit into an inode or a small page of entries (chosen)."""
TOO_LONG = 1 << 62
"""Bytes that no file system has."""

made = "POSIX.1-2024 open(): O_CREAT"
rename = "POSIX.1-2024 rename(): DESCRIPTION"


class Made:
    """A file that an unprivileged process has made with ``mode``, and the data that it has to have."""

    def __init__(self, path, mode, flags=0):
        self.path, self.name = path, f"a file that was made with mode {mode:04o}"
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR | flags, mode)
        self.wanted = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def do(self, what, call, *arguments):
        """Make a call on the descriptor that no permission of the file may refuse; return its result."""
        try:
            return call(*arguments)
        except PermissionError as error:
            raise AssertionError(
                f"{what} on {self.name}, by its maker's descriptor, is refused: {error.strerror}"
            ) from None

    def write(self, data, offset):
        """Write ``data`` at ``offset``."""
        done = self.do("write()", os.pwrite, self.descriptor, data, offset)
        assert done == len(data), f"write() on {self.name} writes {done} bytes of {len(data)}"
        self.wanted += bytes(max(0, offset + len(data) - len(self.wanted)))
        self.wanted[offset : offset + len(data)] = data

    def resize(self, size):
        """Set the size by ftruncate()."""
        self.do("ftruncate()", os.ftruncate, self.descriptor, size)
        self.wanted = self.wanted[:size] + bytes(max(0, size - len(self.wanted)))

    def check(self, after, descriptor=None):
        """Compare the file's data, read anew through the descriptor."""
        descriptor = self.descriptor if descriptor is None else descriptor
        self.do("fsync()", os.fsync, descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        assert size == len(self.wanted), f"{self.name} has {size} bytes after {after}, not {len(self.wanted)}"
        found = self.do("read()", os.pread, descriptor, len(self.wanted) + PAGE, 0)
        assert found == self.wanted, f"{self.name} has other data after {after}"


def each_mode(client_dir, use, flags=0):
    """Let ``use`` have a file of each of the modes; then compare its data through a new open by root."""
    client_dir.chmod(0o777)
    for mode in MODES:
        path = client_dir / f"{mode:04o}"
        with run_as_user(USER, USER), Made(path, mode, flags) as file:
            use(file)
        os.chmod(path, 0o644)
        with open_fd(path) as descriptor:
            file.check("its close, in a new open", descriptor)


@pytest.mark.case("PSX-MADE-WRITTEN", section=made, kills=("made-read-only-not-written",))
def test_file_is_written_by_its_maker_whatever_its_mode(client_dir):
    """The mode argument does not affect whether the file is open for reading, writing, or both."""

    def use(file):
        file.write(pattern_bytes(SIZE), 0)
        file.check("its first write")
        file.write(b"overwritten", PAGE - 5)
        file.write(b"beyond the end", SIZE + 3 * PAGE)
        file.check("writes after an fsync()")

    each_mode(client_dir, use)


@pytest.mark.case("PSX-MADE-RESIZED", section=made, kills=("made-read-only-not-cut",))
def test_file_is_truncated_by_its_maker_whatever_its_mode(client_dir):
    """ftruncate() asks whether the descriptor is open for writing, and not for the file's mode."""

    def use(file):
        file.resize(SIZE)
        file.check("ftruncate() of the empty file to a larger size")
        file.write(pattern_bytes(SIZE), 0)
        for size in (PAGE + 100, 3 * PAGE, 10):
            file.resize(size)
            file.check(f"ftruncate() to {size}")

    each_mode(client_dir, use, os.O_EXCL)


@pytest.mark.case("PSX-MADE-MAPPED", section=made, kills=("made-read-only-mapped-lost",))
def test_mapping_of_a_file_is_stored_by_its_maker_whatever_its_mode(client_dir):
    """What is stored through a shared mapping is in the file: after msync(), and at the end without it."""

    def use(file):
        file.write(pattern_bytes(SIZE), 0)
        with map_file(file.descriptor, SIZE) as mapped:
            for at in (5, PAGE - 3, SIZE - 6):
                mapped[at : at + 6] = b"stored"
                file.wanted[at : at + 6] = b"stored"
                mapped.flush()
                file.check("a store through a mapping and msync()")
            mapped[2 * PAGE : 2 * PAGE + 4] = b"last"
            file.wanted[2 * PAGE : 2 * PAGE + 4] = b"last"

    each_mode(client_dir, use)


@pytest.mark.case(
    "PSX-MADE-ALLOCATED",
    section="POSIX.1-2024 open(): O_CREAT; fallocate(2): ERRORS",
    kills=("made-read-only-not-allocated",),
)
def test_file_is_allocated_by_its_maker_whatever_its_mode(client_dir):
    """Space is allocated through a descriptor that is open for writing, past the end and inside."""

    def use(file):
        file.write(pattern_bytes(SIZE), 0)
        file.do("an allocation", fallocate, file.descriptor, 0, PAGE, SIZE)
        file.wanted += bytes(PAGE)
        file.check("an allocation past its end")
        file.do("an allocation", fallocate, file.descriptor, FALLOC_KEEP_SIZE, 0, 4 * SIZE)
        file.check("an allocation that keeps the size")

    each_mode(client_dir, use)


@pytest.mark.case(
    "PSX-OPEN-TRUNC-OTHERS",
    section="POSIX.1-2024 open(): O_TRUNC; write(), truncate(): DESCRIPTION",
    kills=("trunc-takes-owner",),
)
def test_file_stays_its_owners_when_others_change_its_data(client_dir):
    """O_TRUNC leaves mode and owner unchanged, and so do the other calls that change data."""
    path = make_file(client_dir / "f", bytes(100), 0o666)
    os.chown(path, OWNER, OWNER)

    def opened(flags):
        def change():
            with open_fd(path, os.O_WRONLY | flags) as descriptor:
                os.write(descriptor, bytes(10))

        return change

    def resized():
        with open_fd(path) as descriptor:
            os.ftruncate(descriptor, 1000)

    before = os.stat(path)
    for user, group in ((USER, USER), (USER, OWNER), (0, 0)):
        for call, change in (
            ("open() with O_TRUNC", opened(os.O_TRUNC)),
            ("open() with O_CREAT and O_TRUNC", opened(os.O_CREAT | os.O_TRUNC)),
            ("write()", opened(0)),
            ("write() with O_APPEND", opened(os.O_APPEND)),
            ("truncate()", lambda: os.truncate(path, 5)),
            ("ftruncate()", resized),
        ):
            if user:
                with run_as_user(user, group):
                    change()
            else:
                change()
            after = os.stat(path)
            for name in ("st_uid", "st_gid", "st_mode", "st_nlink"):
                found, wanted = getattr(after, name), getattr(before, name)
                assert found == wanted, f"{name} is {found} after {call} by user {user}, and was {wanted}"


def _unlink(directory, name, _other):
    os.unlink(directory / name)


def _move(directory, name, other):
    os.rename(directory / name, other / name)


def _move_over(directory, name, other):
    make_file(other / name, b"replaced")
    os.rename(directory / name, other / name)


def _rmdir(directory, name, _other):
    os.rmdir(directory / name)


@pytest.mark.case(
    "PSX-RENAME-EMPTIED",
    section="POSIX.1-2024 rename(): DESCRIPTION, ERRORS [EEXIST]",
    kills=("emptied-not-replaced",),
)
def test_directory_whose_many_entries_are_gone_is_replaced(client_dir):
    """A directory with one entry is not replaced; when that is gone it is, whatever was in it before."""
    for way, (make, empty) in {
        "unlink()": (make_file, _unlink),
        "a rename to another directory": (make_file, _move),
        "a rename over files of another directory": (make_file, _move_over),
        "rmdir()": (os.mkdir, _rmdir),
    }.items():
        root = client_dir / empty.__name__
        for name in ("", "d", "new", "other"):
            (root / name).mkdir()
        make_file(root / "new" / "f", b"of the new one")
        names = [f"entry-{number:02}" for number in range(FULL)]
        for name in names:
            make(root / "d" / name)
        for name in names[1:]:
            empty(root / "d", name, root / "other")
        assert os.listdir(root / "d") == names[:1]
        assert_errno((errno.EEXIST, errno.ENOTEMPTY), os.rename, root / "new", root / "d")
        empty(root / "d", names[0], root / "other")
        try:
            os.rename(root / "new", root / "d")
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            raise AssertionError(
                f"a directory that was emptied by {way} is not replaced: {error.strerror}"
            ) from None
        assert sorted(os.listdir(root)) == ["d", "other"]
        assert os.listdir(root / "d") == ["f"], f"emptied by {way} and replaced"
        assert (root / "d" / "f").read_bytes() == b"of the new one"


def refused_allocations(descriptor):
    """Yield in words each allocation of too much space that was refused; skip if one is not."""
    for mode, words in ((0, "an allocation"), (FALLOC_KEEP_SIZE, "an allocation that keeps the size")):
        for offset in (0, SIZE - 100, 20 * PAGE):
            try:
                fallocate(descriptor, mode, offset, TOO_LONG)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EFBIG):
                    raise
            else:
                skip(f"{words} of 2^62 bytes at {offset} is not refused")
            yield f"{words} of 2^62 bytes at {offset}, which was refused"


@pytest.mark.case(
    "PSX-FALLOCATE-REFUSED-SIZE",
    level="SHOULD",
    section="fallocate(2): ERRORS",
    kills=("refused-allocation-grows",),
)
def test_refused_allocation_leaves_the_size(client_dir):
    """An allocation that runs out of space may have begun; one of more than any file system has does not."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(SIZE))) as descriptor:
        fallocate(descriptor, 0, 0, PAGE)
        for refused in refused_allocations(descriptor):
            size = os.fstat(descriptor).st_size
            assert size == SIZE, f"the file has {size} bytes instead of {SIZE} after {refused}"


@pytest.mark.case(
    "PSX-FALLOCATE-REFUSED-DATA",
    section="fallocate(2): ERRORS; POSIX.1-2024 write(): DESCRIPTION",
    kills=("refused-allocation-ends-writes", "refused-allocation-zeroes"),
    builds_on=("PSX-FALLOCATE-ENOSPC",),
)
def test_file_is_written_after_a_refused_allocation(client_dir):
    """The data stay, and the file is written and allocated as before, inside it and past its end."""
    wanted = bytearray(pattern_bytes(SIZE))
    path = make_file(client_dir / "f", bytes(wanted))
    with open_fd(path) as descriptor, open_fd(path) as other:
        fallocate(descriptor, 0, 0, PAGE)
        for number, refused in enumerate(refused_allocations(descriptor)):
            found = os.pread(other, SIZE + 20 * PAGE, 0)
            assert found[: len(wanted)] == wanted, f"the file has other data after {refused}"
            assert not found[len(wanted) :].strip(b"\0"), (
                f"what was added to the file is no zeroes, by {refused}"
            )
            os.ftruncate(descriptor, len(wanted))  # what was allocated past the end is free again
            for one, offset in (
                (descriptor, 100 * number),
                (descriptor, len(wanted) + 50),
                (other, PAGE - 3),
            ):
                data = b"written %d" % number
                try:
                    done = os.pwrite(one, data, offset)
                    os.fsync(one)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    volume = os.fstatvfs(one)
                    free = volume.f_bavail * volume.f_frsize
                    if free < SIZE:
                        skip("the file system has no space left")
                    raise AssertionError(
                        f"write() is ENOSPC after {refused}, and the file system has {free} free bytes"
                    ) from None
                assert done == len(data)
                wanted += bytes(max(0, offset + len(data) - len(wanted)))
                wanted[offset : offset + len(data)] = data
            size = len(wanted)
            fallocate(descriptor, 0, size, PAGE)
            wanted += bytes(PAGE)
    assert path.read_bytes() == wanted, "the file has other data in a new open"


def _remove(path):
    os.unlink(path)


def _empty(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def _cut(path):
    os.truncate(path, 1)


def _replace(path):
    os.rename(make_file(path.with_name("replaces")), path)


@pytest.mark.case(
    "PSX-REMOVED-DATA",
    section="POSIX.1-2024 lseek(), ftruncate(), unlink(): DESCRIPTION",
    kills=("hole-after-removal",),
)
def test_data_of_a_removed_file_are_not_in_a_new_one(client_dir):
    """What was never written reads as zeroes, in blocks that another file has just given up, too."""
    for free in (_remove, _empty, _cut, _replace):
        for name, gap in (
            ("a write past the end", lambda descriptor: os.pwrite(descriptor, b"end", SIZE)),
            ("a write inside the second page", lambda descriptor: os.pwrite(descriptor, b"end", PAGE + 100)),
            ("ftruncate()", lambda descriptor: os.ftruncate(descriptor, SIZE - 5)),
            ("an allocation", lambda descriptor: _allocate(descriptor, SIZE)),
        ):
            old = make_file(client_dir / "old", b"data of the former file " * 4000)
            with open_fd(old) as descriptor:
                os.fsync(descriptor)
            free(old)
            with open_fd(client_dir / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR) as descriptor:
                gap(descriptor)
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                found = os.pread(descriptor, 2 * SIZE, 0).removesuffix(b"end")
            wrong = found.strip(b"\0")
            assert not wrong, f"{wrong[:40]!r} is read after {name}, where nothing was written"
            os.unlink(client_dir / "new")
            if os.path.exists(old):
                os.unlink(old)


def _allocate(descriptor, size):
    try:
        fallocate(descriptor, 0, 0, size)
    except CannotRun:
        os.ftruncate(descriptor, size)
