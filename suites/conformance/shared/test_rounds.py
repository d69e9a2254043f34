"""What the second client has: locks that both share, names that it knew as absent, data of each fsync().

Sources: POSIX.1-2024 fcntl(), close() (a close removes the locks of its process), flock(2); RFC 7530 9.1 (a
lock is one of its owner), 10.3.1 (an open finds what was written and flushed before), 10.8 (names).
"""

from __future__ import annotations

import errno
from fcntl import F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN
from os import O_CREAT, O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(level="MUST"),
]

MIB = 1 << 20
PART = MIB // 2
"""Bytes of a call."""
NO_SUCH_FILES = (errno.EOPNOTSUPP, errno.EPERM)
"""Errors of link() and symlink() on a file system without such files (link(2), symlink(2), RFC 1813)."""


def _close(session, fd: int) -> None:
    session.close(fd)


def _close_another(session, _fd: int) -> None:
    session.close(session.open("f"))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(end, id=name, marks=pytest.mark.case(number))
        for number, name, end in (
            ("SHR-LOCK-59", "close", _close),
            ("SHR-LOCK-60", "close-of-another-descriptor", _close_another),
        )
    ],
)
@pytest.mark.case(
    section="RFC 7530 9.1; POSIX.1-2024 fcntl(), close(): DESCRIPTION",
    kills=("close-frees-shared-of-others",),
)
def test_read_lock_stays_when_the_other_reader_ends(a, b, fds, crossed_wire, end):
    """A close removes the locks of its process; the read lock of the other client on the range stays."""
    for session, fd in zip((a, b), fds, strict=True):
        with crossed_wire(session, "lock"):
            session.lock(fd, F_RDLCK, 0, 10)
    end(a, fds[0])
    if end is _close_another:
        a.lock(fds[0], F_UNLCK, 0, 10)  # a lock of SMB is one of the descriptor (mount.cifs(8))
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        granted = a.try_lock(fd, F_WRLCK, 0, 10)
    assert not granted, "a write lock is granted: the other client has a read lock on the range"
    b.lock(fds[1], F_UNLCK, 0, 10)
    with crossed_wire(a, "lock"):
        assert a.try_lock(fd, F_WRLCK, 0, 10), "a write lock is refused, after the last read lock is released"


@pytest.mark.case(
    "SHR-FLOCK-15", section="flock(2): LOCK_SH; RFC 7530 9.1", kills=("close-frees-shared-of-others",)
)
def test_shared_lock_stays_when_the_other_holder_closes(a, b, fds, crossed_wire):
    """The last close of an open file releases its lock; the shared lock of the other client stays."""
    for session, fd in zip((a, b), fds, strict=True):
        with crossed_wire(session, "lock"):
            session.flock(fd, LOCK_SH)
    a.close(fds[0])
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        granted = a.try_flock(fd, LOCK_EX)
    assert not granted, "an exclusive lock is granted: the other client has a shared one"
    b.flock(fds[1], LOCK_UN)
    with crossed_wire(a, "lock"):
        assert a.try_flock(fd, LOCK_EX), "an exclusive lock is refused, after the last shared one is released"


def _ofd_locked(session, fd: int) -> bool:
    """Lock the range for the open file, which the locks of its own process exclude, too (fcntl(2))."""
    try:
        session.call("ofd_lock", fd, F_WRLCK, 0, 10, False)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("share", "exclude", "release"),
    [
        pytest.param(*calls, id=name, marks=pytest.mark.case(number, section=section))
        for number, name, section, *calls in (
            (
                "SHR-LOCK-61", "record", "RFC 7530 9.1; fcntl(2): F_SETLK, F_OFD_SETLK",
                lambda session, fd: session.lock(fd, F_RDLCK, 0, 10),
                _ofd_locked,
                lambda session, fd: session.lock(fd, F_UNLCK, 0, 10),
            ),
            (
                "SHR-FLOCK-16", "flock", "RFC 7530 9.1; flock(2): LOCK_SH",
                lambda session, fd: session.flock(fd, LOCK_SH),
                lambda session, fd: session.try_flock(fd, LOCK_EX),
                lambda session, fd: session.flock(fd, LOCK_UN),
            ),
        )
    ],
)  # fmt: skip
@pytest.mark.case(kills=("close-frees-shared-of-others",))
def test_shared_lock_stays_when_the_other_holder_exits(a, b, fds, crossed_wire, share, exclude, release):
    """The end of a process releases its locks; the shared lock of the other client stays."""
    for session, fd in zip((a, b), fds, strict=True):
        with crossed_wire(session, "lock"):
            share(session, fd)
    other = b.open("f", O_RDWR)
    a.kill_worker()
    assert not exclude(b, other), "an exclusive lock is granted: the process that lives has a shared one"
    with crossed_wire(b, "lock"):
        release(b, fds[1])
    with crossed_wire(b, "lock"):
        assert exclude(b, other), "an exclusive lock is refused, after the last shared one is released"


def _link(session, name: str) -> None:
    session.link("linked", name)


def _symlink(session, name: str) -> None:
    session.symlink("linked", name)


def _moved_directory(session, name: str) -> None:
    session.mkdir("before")
    session.write_file("before/f", b"of the file")
    session.rename("before", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "path"),
    [
        pytest.param(make, path, id=name, marks=pytest.mark.case(
            number, section=f"RFC 7530 10.8; POSIX.1-2024 {call}(): DESCRIPTION", kills=(kills,)
        ))
        for number, name, call, make, path, kills in (
            ("SHR-KNOWN-15", "link", "link", _link, "new", "two-linked-in-absent"),
            ("SHR-KNOWN-16", "symlink", "symlink", _symlink, "new", "two-symlink-in-absent"),
            ("SHR-KNOWN-17", "directory", "rename", _moved_directory, "new/f", "two-directory-in-absent"),
        )
    ],
)  # fmt: skip
def test_name_that_was_absent_is_found_when_the_other_client_has_made_it(
    a, b, crossed_wire, eventually, make, path
):
    """The client finds the name and reads the file, each time that the other has made it, and not before."""
    a.write_file("linked", b"of the file")
    for turn in range(2):
        with crossed_wire(b, "query"):
            eventually(lambda: not b.exists("new"), f"that the name is absent, in turn {turn}")
        assert not b.can_open("new"), f"the name is opened in turn {turn}, and is not there"
        try:
            with crossed_wire(a, "change"):
                make(a, "new")
        except OSError as error:
            if error.errno not in NO_SUCH_FILES or make is _moved_directory:
                raise
            pytest.skip(f"there are no such files here: {error}")
        with crossed_wire(b, "query"):
            eventually(lambda: b.exists("new"), f"the name that the other client has made in turn {turn}")
            eventually(lambda: b.can_open(path), f"the file that has the name in turn {turn}, by an open")
        found = b.read_file(path)
        assert found == b"of the file", f"{found!r} is read through the name in turn {turn}"
        if make is _moved_directory:
            a.unlink("new/f")
            eventually(lambda: _removed(a), "the directory, to be removed")
        else:
            a.unlink("new")


def _removed(session) -> bool:
    """Remove the directory; return False if a file that is open elsewhere keeps it (SMB)."""
    try:
        session.rmdir("new")
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.EACCES):
            raise
        return False
    return True


def compare(session, wanted: bytes, after: str) -> None:
    """Open the file and compare size and data with ``wanted``."""
    fd = session.open("f")
    size = session.fstat(fd).size
    assert size == len(wanted), f"{size} bytes instead of {len(wanted)} after {after} by the other client"
    for at in range(0, len(wanted), PART):
        found = session.pread(fd, PART, at)
        assert found == wanted[at : at + PART], (
            f"a read at {at} does not return what was written before {after} by the other client"
        )
    session.close(fd)


@pytest.mark.case(
    "SHR-CTO-37",
    section="POSIX.1-2024 fsync(): DESCRIPTION; RFC 7530 10.3.1",
    kills=("two-fsync-first-mib", "two-second-fsync-keeps-data"),
)
def test_data_of_each_fsync_of_an_open_file_are_read_by_an_open(a, b, crossed_wire):
    """Long writes, short ones inside and past the end: each is there after its fsync(), before the close."""
    fd = a.open("f", O_CREAT | O_RDWR)
    wanted = bytearray()
    for turn, (offset, size) in enumerate(
        ((0, 2 * MIB + 5000), (MIB - 10, 20), (2 * MIB + 4990, 30), (3 * MIB, 100_000), (0, 1)), 1
    ):
        data = bytes([64 + turn]) * size
        with crossed_wire(a, "write"):
            for at in range(0, size, PART):
                part = data[at : at + PART]
                assert a.pwrite(fd, part, offset + at) == len(part)
            a.fsync(fd)
        wanted += bytes(max(0, offset + size - len(wanted)))
        wanted[offset : offset + size] = data
        compare(b, bytes(wanted), f"fsync() {turn}")
    a.close(fd)
    compare(b, bytes(wanted), "the close")
