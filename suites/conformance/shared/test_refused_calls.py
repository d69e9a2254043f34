"""Refused calls: a call that fails changes nothing, neither for its own client nor for the other one.

Sources: POSIX.1-2024 2.3 and the pages of open(), mkdir(), rename() and fcntl() (on failure nothing is made,
changed or removed); open(): the mode is of a file that is made, and O_CREAT has no other effect on one that
exists. RFC 8881 18.16.3 (UNCHECKED4 of an existing file: no attribute but a size of zero is set; EXCLUSIVE4
and GUARDED4: NFS4ERR_EXIST), 18.26.3 (NFS4ERR_NOTEMPTY), RFC 7530 9.1 (a lock is of its owner).
"""

from __future__ import annotations

from fcntl import F_UNLCK, F_WRLCK
from os import O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 open()", level="MUST"),
]

LONG_AGO = 1_000_000_000 * 10**9
"""A time of modification, in nanoseconds: not that of the case."""


def _looks(session, name: str) -> tuple[object, ...]:
    one = session.stat(name)
    return oct(one.mode), one.size, one.mtime_ns, one.ino


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        pytest.param(O_EXCL | O_WRONLY, 0o666, id="exclusive", marks=pytest.mark.case(
            "SHR-REFUSED-01", section="POSIX.1-2024 open(): O_EXCL",
            kills=("refused-exclusive-cuts", "refused-exclusive-sets-times"))),
        pytest.param(O_EXCL | O_TRUNC | O_RDWR, 0o600, id="exclusive-truncating", marks=pytest.mark.case(
            "SHR-REFUSED-02", section="POSIX.1-2024 open(): O_EXCL",
            kills=("refused-exclusive-cuts", "refused-exclusive-sets-times"))),
        pytest.param(O_RDWR, 0o777, id="with-a-mode", marks=pytest.mark.case(
            "SHR-REFUSED-03", section="POSIX.1-2024 open(): O_CREAT", kills=("creat-sets-the-mode",))),
    ],
)  # fmt: skip
def test_creation_changes_nothing_of_a_file_that_the_other_client_made(a, b, crossed_wire, flags, mode):
    """O_CREAT of an existing file, refused with O_EXCL or not, leaves its data, size, mode and times."""
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.close(a.open("f", O_CREAT | O_EXCL | O_WRONLY, 0o640))
    a.write_file("f", b"of the first", 0)
    a.utime("f", LONG_AGO, LONG_AGO)
    before = _looks(a, "f")
    for _ in range(2):
        try:
            b.close(b.open("f", O_CREAT | flags, mode))
        except FileExistsError:
            assert flags & O_EXCL, "a file that exists is refused without O_EXCL"
        else:
            assert not flags & O_EXCL, "O_EXCL opens a file that exists"
        found = a.read_file("f")
        assert found == b"of the first", f"the open has changed the data to {found!r}"
        assert _looks(a, "f") == before, "mode, size, mtime or inode were changed by the open"


@pytest.mark.case(
    "SHR-REFUSED-04", section="POSIX.1-2024 mkdir(): ERRORS", kills=("refused-mkdir-sets-mode",)
)
def test_refused_mkdir_changes_nothing_of_the_directory(a, b, crossed_wire):
    """EEXIST: mode, time and entries are those that the other client gave it."""
    assert not b.exists("d")
    with crossed_wire(a, "change"):
        a.mkdir("d", 0o750)
    a.write_file("d/f", b"inside")
    a.utime("d", LONG_AGO, LONG_AGO)
    before = _looks(a, "d")
    for _ in range(2):
        with pytest.raises(FileExistsError):
            b.mkdir("d", 0o777)
        assert a.read_file("d/f") == b"inside"
        assert _looks(a, "d") == before, "mode, size, mtime or inode were changed by the refused mkdir()"


@pytest.mark.case(
    "SHR-REFUSED-05",
    section="POSIX.1-2024 rename(): ERRORS",
    kills=("refused-rename-hides", "rename-full-directory"),
)
def test_refused_rename_leaves_both_names(a, b):
    """ENOTEMPTY, EISDIR, ENOTDIR: both clients still have the source and the destination."""
    for name in ("d", "e"):
        a.mkdir(name)
        a.write_file(f"{name}/f", b"in " + name.encode())
    b.write_file("g", b"a file")
    for old, new in (("d", "e"), ("g", "e"), ("d", "g")):
        with pytest.raises(OSError, match=r"."):
            b.rename(old, new)
        for session in (a, b):
            found = [session.read_file(name) for name in ("d/f", "e/f", "g")]
            assert found == [b"in d", b"in e", b"a file"], f"{old} to {new} was refused, and left {found}"
            assert session.listdir() == ["d", "e", "g"]


@pytest.mark.case("SHR-LOCK-52", section="RFC 7530 9.1, 16.12", kills=("unlock-frees-those-of-others",))
def test_unlock_by_a_client_without_a_lock_releases_nothing(a, b, fds, crossed_wire):
    """The other client keeps its lock: where this one never asked, and where it was refused."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    for _ in range(2):
        b.lock(fds[1], F_UNLCK, 0, 10)
        b.lock(fds[1], F_UNLCK)
        assert not b.try_lock(fds[1], F_WRLCK, 5, 1), "an unlock has released the other client's lock"
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fds[1], F_WRLCK, 0, 10)


@pytest.mark.case(
    "SHR-LOCK-53", section="RFC 7530 9.1; POSIX.1-2024 close()", kills=("refused-close-frees-all",)
)
def test_close_by_a_client_that_was_refused_releases_nothing_of_the_other(a, b, fds, crossed_wire):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    assert not b.try_lock(fds[1], F_WRLCK, 0, 10)
    with crossed_wire(b, "lock"):
        b.lock(fds[1], F_WRLCK, 50, 10)
    b.close(fds[1])
    again = b.open("f", O_RDWR)
    assert not b.try_lock(again, F_WRLCK, 0, 10), "the close of a client that was refused released the lock"
    with crossed_wire(a, "lock"):
        assert a.try_lock(fds[0], F_WRLCK, 50, 10), "the lock of a closed file stays"
