"""Open files: what open() has decided holds for the descriptor, and fcntl() alone changes it.

open() checks the permissions, once: a call on the descriptor asks neither for the mode that the file has then
nor for the user that the process has become. O_APPEND is a flag of the open file that F_SETFL sets and
clears, and that counts for write() alone: a mapping has its own place.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import pytest

from storagetest.agent.testlib import CannotRun, call_in_subprocess, run_as_user
from storagetest.agent.testlib.libc import fallocate
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, OTHER = 54321, 54322
PAGE = mmap.PAGESIZE
SIZE = 12 * PAGE


class Used:
    """A file that is open for reading and writing, and the data that it has to have.

    A call that is refused for want of a permission raises ``refusal``.
    """

    def __init__(self, descriptor, reader, when, refusal=AssertionError):
        self.descriptor, self.reader, self.when, self.refusal = descriptor, reader, when, refusal
        self.wanted = bytearray(pattern_bytes(SIZE))
        self.at = 0

    def use(self, *, allocates=True):
        """Make each call once more, at the next place of the file."""
        self.at = self.at % (6 * PAGE) + 300
        for name, call in (
            ("read()", self._read), ("write()", self._write), ("a store through a mapping", self._store),
            ("an allocation", self._allocate), ("ftruncate()", self._resize), ("fsync()", self._sync),
        ):  # fmt: skip
            if name == "an allocation" and not allocates:
                continue
            try:
                call()
                found = os.pread(self.descriptor, len(self.wanted) + PAGE, 0)
            except CannotRun:
                continue
            except PermissionError as error:
                raise self.refusal(f"{name} is refused {self.when}: {error.strerror}") from None
            assert found == self.wanted, f"the file has other data after {name} {self.when}"

    def _read(self):
        for one in (self.descriptor, self.reader):
            os.posix_fadvise(one, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(one, PAGE, self.at) == self.wanted[self.at : self.at + PAGE], (
                f"read() returns other data {self.when}"
            )

    def _write(self):
        assert os.pwrite(self.descriptor, b"written", self.at) == 7
        self.wanted[self.at : self.at + 7] = b"written"

    def _store(self):
        at = 7 * PAGE + self.at % PAGE
        with map_file(self.descriptor, SIZE) as mapped:
            mapped[at : at + 6] = b"stored"
            mapped.flush()
        self.wanted[at : at + 6] = b"stored"
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def _allocate(self):
        size = len(self.wanted)
        fallocate(self.descriptor, 0, size, 100)
        self.wanted += bytes(100)

    def _resize(self):
        os.ftruncate(self.descriptor, len(self.wanted) + 10)
        self.wanted += bytes(10)

    def _sync(self):
        os.fsync(self.descriptor)
        os.fdatasync(self.reader)


def use_in_each_mode(client_dir, refusal):
    """Use an open file while its owner takes its permissions away; compare what a new open reads."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        path = make_file(client_dir / "f", pattern_bytes(SIZE), 0o600)
        with open_fd(path) as descriptor, open_fd(path, os.O_RDONLY) as reader:
            used = Used(descriptor, reader, "", refusal)
            for mode in (0o400, 0o200, 0o000, 0o600):
                os.chmod(path, mode)
                used.when = f"on a file that was open when its mode became {mode:#05o}"
                used.use()
        assert path.read_bytes() == used.wanted, "the file has other data in a new open"


@pytest.mark.case(
    "PSX-OPEN-RIGHTS-MODE",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    level="SHOULD",
    kills=("read-after-chmod-refused", "mapped-after-chmod-lost"),
)
def test_open_file_is_used_whatever_its_mode_becomes(client_dir):
    """Each call on a descriptor works as before after its owner has taken the file's permissions away.

    The effect of chmod() on open descriptors is implementation-defined; Linux has none.
    """
    use_in_each_mode(client_dir, AssertionError)


@pytest.mark.case(
    "PSX-OPEN-RIGHTS-DATA",
    section="POSIX.1-2024 open(), read(), write(), mmap(): DESCRIPTION",
    kills=("mapped-after-chmod-lost",),
)
def test_calls_that_are_not_refused_after_a_change_of_the_mode_are_done(client_dir):
    """A descriptor may be refused after chmod(); what was not refused is in the file."""
    use_in_each_mode(client_dir, CannotRun)


@pytest.mark.case(
    "PSX-OPEN-RIGHTS-USER",
    section="POSIX.1-2024 open(), read(), write(), mmap(): DESCRIPTION, ERRORS",
    kills=("write-by-other-user-refused",),
)
def test_open_file_is_used_by_the_user_that_the_process_becomes(client_dir):
    """A descriptor is as good after a change of the process's user, and in a child that is another user.

    Allocations are left out: a client of NFS 4.2 makes them with the rights of the user who calls.
    """
    path = make_file(client_dir / "f", pattern_bytes(SIZE), 0o600)
    with open_fd(path) as descriptor, open_fd(path, os.O_RDONLY) as reader:
        used = Used(descriptor, reader, "by a process that is another user since the open")
        for user in (USER, OTHER):
            with run_as_user(user, user):
                used.use(allocates=False)
        used.when = "by the user that opened the file, after another one used it"
        used.use()

        def append():
            with run_as_user(USER, USER):
                return os.pwrite(descriptor, b"by a child", 0)

        assert call_in_subprocess(append) == 10
    used.wanted[:10] = b"by a child"
    assert path.read_bytes() == used.wanted, "the file has other data in a new open"


@pytest.mark.case(
    "PSX-OPEN-APPEND-SETFL",
    section="POSIX.1-2024 fcntl(): F_SETFL; open(): O_APPEND",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-APPEND"),
    kills=("append-flag-of-open", "append-set-later-ignored"),
)
def test_append_flag_is_as_it_was_set_last(client_dir):
    """F_SETFL sets and clears O_APPEND: a write() goes to the end or to the file offset, as it was set."""
    for first in (0, os.O_APPEND):
        wanted = bytearray(pattern_bytes(5000))
        path = make_file(client_dir / f"f{first}", bytes(wanted))
        opened = f"of a file that was opened with{'' if first else 'out'} O_APPEND"
        with open_fd(path, os.O_RDWR | first) as descriptor, open_fd(path) as other:
            for number, flag in enumerate((os.O_APPEND, 0, 0, os.O_APPEND, os.O_APPEND, 0)):
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flag)
                os.pwrite(other, b"grown", len(wanted))
                wanted += b"grown"
                part, offset = b"part %d" % number, 100 * number + 50
                os.lseek(descriptor, offset, os.SEEK_SET)
                assert os.write(descriptor, part) == len(part)
                at = len(wanted) if flag else offset
                wanted[at : at + len(part)] = part
                what = f"write() after F_SETFL number {number + 1}, {'set' if flag else 'clear'}, {opened}"
                assert path.read_bytes() == wanted, f"{what}: the data are not at {at}"
                found = os.lseek(descriptor, 0, os.SEEK_CUR)
                assert found == at + len(part), f"{what}: the file offset is {found}, not {at + len(part)}"


@pytest.mark.case(
    "PSX-MMAP-APPEND",
    section="POSIX.1-2024 mmap(): DESCRIPTION; open(): O_APPEND",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-APPEND", "PSX-MMAP-WRITE"),
    kills=("mapped-append",),
)
def test_store_through_a_mapping_of_an_appending_descriptor_is_in_place(client_dir):
    """O_APPEND is for write(): what is stored through a mapping is in its page, between appends, too."""
    wanted = bytearray(pattern_bytes(3 * PAGE + 100))
    path = make_file(client_dir / "f", bytes(wanted))
    with open_fd(path, os.O_RDWR | os.O_APPEND) as descriptor, map_file(descriptor, len(wanted)) as mapped:
        for turn, at in enumerate((PAGE + 7, 3 * PAGE + 50, 0)):
            mapped[at : at + 5] = wanted[at : at + 5] = b"store"
            mapped.flush()
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            found = path.read_bytes()
            assert found == wanted, (
                f"after store {turn + 1}, at {at}, the file has {len(found)} bytes, or other ones"
            )
            assert os.write(descriptor, b"appended") == 8
            wanted += b"appended"
            assert path.read_bytes() == wanted, f"the data that were appended after store {turn + 1}"
