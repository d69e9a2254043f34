"""Calls that are refused hundreds of times: the next one is refused alike, and what is legal still succeeds.

What a file system acquires for a call, it has to give up on each of its exits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

import pytest

from storagetest.agent.testlib import CannotRun, call_in_subprocess, record_observation, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE",),
        section="POSIX.1-2024 XSH 2.3 Error Numbers",
    ),
]

TIMES = 400
SECONDS = 1.5
"""Seconds for the repetitions of one call, which are fewer on a slow mount (chosen)."""
USER = 54321
EXISTS = (errno.EEXIST, errno.ENOTEMPTY)


def often(text, errors, call):
    """Make a call that is refused, ``TIMES`` or for ``SECONDS``: each time by one of ``errors``."""
    until = time.monotonic() + SECONDS
    names = " or ".join(errno.errorcode[one] for one in errors)
    for number in range(1, TIMES + 1):
        try:
            call()
        except OSError as error:
            assert error.errno in errors, (
                f"{text}, time {number}, is refused by {error.strerror}; required: {names}, each time"
            )
        else:
            raise AssertionError(f"{text}, time {number}, succeeds; required: {names}, each time")
        if time.monotonic() > until:
            record_observation(f"{text}: {number} times in {SECONDS:g} s")
            return


def afterwards(text, call):
    """Make a call that has to succeed after others were refused."""
    try:
        return call()
    except CannotRun:
        raise
    except OSError as error:
        raise AssertionError(
            f"{text} is refused by {error.strerror} after other calls were refused many times; required: "
            "what is refused changes nothing"
        ) from None


def used_modes(directory):
    """Let others search a directory, if the file system stores modes."""
    try:
        directory.chmod(0o755)
    except OSError as error:
        record_observation(f"the file system stores no modes: {error.strerror}")


def opens(path, flags, mode=0o644):
    return lambda: os.close(os.open(path, flags, mode))


def used(directory):
    """Make, write, list, read, rename and remove a file and a directory: all of it has to succeed."""

    def call():
        path = make_file(directory / "usual", b"data")
        (directory / "usual directory").mkdir()
        assert {"usual", "usual directory"} <= set(os.listdir(directory))
        with open_fd(path) as descriptor:
            os.pwrite(descriptor, b"DATA", 0)
        os.rename(path, directory / "renamed")
        assert (directory / "renamed").read_bytes() == b"DATA"
        os.unlink(directory / "renamed")
        (directory / "usual directory").rmdir()

    afterwards("the usual use of a directory", call)


@pytest.mark.case("PSX-OFTEN-OPEN", kills=("refused-exclusive-leaks", "refused-open-leaks"))
def test_file_is_opened_after_opens_that_were_refused(client_dir):
    """open() that is refused opens nothing, and leaves the file and its directory as they are."""
    path = make_file(client_dir / "f", b"data")
    closed = make_file(client_dir / "closed", b"closed", 0o600)
    often("open() with O_EXCL of a file", (errno.EEXIST,), opens(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
    often("open() of no file", (errno.ENOENT,), opens(client_dir / "absent", os.O_RDWR))
    often("open() of a directory for writing", (errno.EISDIR,), opens(client_dir, os.O_RDWR))
    often("open() below a file", (errno.ENOTDIR,), opens(path / "below", os.O_RDWR | os.O_CREAT))
    often("open() with O_DIRECTORY of a file", (errno.ENOTDIR,), opens(path, os.O_RDONLY | os.O_DIRECTORY))
    if os.geteuid() == 0:
        used_modes(client_dir)
        with run_as_user(USER, USER):
            try:
                os.close(os.open(closed, os.O_RDONLY))
            except OSError:
                often("open() without permission", (errno.EACCES,), opens(closed, os.O_RDWR))
                # A new file, which the user may not make.
                often("open() with O_CREAT without permission", (errno.EACCES,), opens(
                    client_dir / "new", os.O_RDWR | os.O_CREAT))  # fmt: skip
            else:
                record_observation("modes are not stored: open() without permission is not refused")
    assert sorted(os.listdir(client_dir)) == ["closed", "f"], "opens that were refused make or remove a file"
    for one, data in ((path, b"data"), (closed, b"closed")):
        assert afterwards("open()", one.read_bytes) == data
        assert os.stat(one).st_nlink == 1
    used(client_dir)


@pytest.mark.case(
    "PSX-OFTEN-NAMES", kills=("refused-rmdir-fills", "refused-unlink-counts", "refused-rename-leaks")
)
def test_names_are_changed_after_changes_that_were_refused(client_dir):
    """mkdir(), rmdir(), unlink() and rename() that are refused leave names, link counts and directories."""
    for name in ("full", "empty"):
        (client_dir / name).mkdir()
    path = make_file(client_dir / "full" / "f", b"data")
    count = os.stat(client_dir).st_nlink
    often("mkdir() of a directory", (errno.EEXIST,), lambda: os.mkdir(client_dir / "full"))
    often("mkdir() of a file", (errno.EEXIST,), lambda: os.mkdir(path))
    often("rmdir() of a directory with an entry", EXISTS, lambda: os.rmdir(client_dir / "full"))
    often("rmdir() of a file", (errno.ENOTDIR,), lambda: os.rmdir(path))
    often("unlink() of no file", (errno.ENOENT,), lambda: os.unlink(client_dir / "absent"))
    often("rename() of no file", (errno.ENOENT,), lambda: os.rename(client_dir / "absent", path))
    often("rename() over a directory with an entry", EXISTS, lambda: os.rename(
        client_dir / "empty", client_dir / "full"))  # fmt: skip
    often("rename() of a file over a directory", (errno.EISDIR, *EXISTS), lambda: os.rename(
        path, client_dir / "empty"))  # fmt: skip
    assert sorted(os.listdir(client_dir)) == ["empty", "full"]
    assert os.stat(client_dir).st_nlink == count, (
        f"calls that were refused change st_nlink of a directory from {count} to "
        f"{os.stat(client_dir).st_nlink}"
    )
    assert path.read_bytes() == b"data"
    assert os.stat(path).st_nlink == 1
    used(client_dir / "full")
    afterwards("unlink()", lambda: os.unlink(path))
    afterwards(
        "rename() over an empty directory", lambda: os.rename(client_dir / "empty", client_dir / "full")
    )
    afterwards("rmdir()", lambda: os.rmdir(client_dir / "full"))


@pytest.mark.case(
    "PSX-OFTEN-LINKS", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"), kills=("refused-link-counts",)
)
def test_links_are_made_after_links_that_were_refused(client_dir):
    """link() and symlink() that are refused make no link, and are not counted."""
    path, other = make_file(client_dir / "f", b"data"), make_file(client_dir / "g", b"other")
    try:
        os.link(path, client_dir / "probe")
    except OSError as error:
        skip(f"the file system has no hard links: {error.strerror}")
    often("link() to a name that exists", (errno.EEXIST,), lambda: os.link(path, other))
    often("link() of a file to its own name", (errno.EEXIST,), lambda: os.link(path, path))
    often("link() of no file", (errno.ENOENT,), lambda: os.link(client_dir / "absent", client_dir / "new"))
    found = [os.stat(one).st_nlink for one in (path, other)]
    assert found == [2, 1], (
        f"after link() was refused many times the files have {found} links; required: [2, 1]"
    )
    afterwards("link()", lambda: os.link(path, client_dir / "new"))
    try:
        os.symlink("target", client_dir / "link")
    except OSError as error:
        record_observation(f"the file system has no symbolic links: {error.strerror}")
    else:
        often(
            "symlink() of a name that exists", (errno.EEXIST,), lambda: os.symlink("x", client_dir / "link")
        )
        assert os.readlink(client_dir / "link") == "target"
    used(client_dir)


@pytest.mark.case(
    "PSX-OFTEN-XATTR",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    section="setxattr(2), getxattr(2), removexattr(2): ERRORS",
    kills=("refused-xattr-fills",),
)
def test_attributes_are_set_after_calls_that_were_refused(client_dir):
    """setxattr(), getxattr() and removexattr() that are refused leave the attributes and their space."""
    path = make_file(client_dir / "f")
    try:
        os.setxattr(path, "user.one", b"first")
    except OSError as error:
        skip(f"this file system has no user.* attributes: {error.strerror}")
    try:
        os.setxattr(path, "user.one", b"second", os.XATTR_CREATE)
    except OSError:
        often("setxattr() with XATTR_CREATE of an attribute", (errno.EEXIST,), lambda: os.setxattr(
            path, "user.one", b"v" * 200, os.XATTR_CREATE))  # fmt: skip
        often("setxattr() with XATTR_REPLACE of an absent one", (errno.ENODATA,), lambda: os.setxattr(
            path, "user.absent", b"v" * 200, os.XATTR_REPLACE))  # fmt: skip
    else:
        record_observation("XATTR_CREATE replaces an attribute that exists")
        os.setxattr(path, "user.one", b"first")
    often("getxattr() of an absent attribute", (errno.ENODATA,), lambda: os.getxattr(path, "user.absent"))
    often("removexattr() of an absent one", (errno.ENODATA,), lambda: os.removexattr(path, "user.absent"))
    assert os.getxattr(path, "user.one") == b"first"
    afterwards("setxattr()", lambda: os.setxattr(path, "user.two", b"w" * 100))
    found = [name for name in os.listxattr(path) if name.startswith("user.")]
    assert sorted(found) == ["user.one", "user.two"], f"listed are {found}"


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-OFTEN-LOCKS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-WRITE-WRITE"),
    section="POSIX.1-2024 fcntl(): F_SETLK; flock(2): ERRORS",
    kills=("refused-lock-kept", "refused-flock-kept"),
)
def test_locks_are_granted_after_locks_that_were_refused(client_dir):
    """A lock that is refused is not held: when the other one is released, each process can have it."""
    for sort, lock in (("fcntl()", fcntl.lockf), ("flock()", fcntl.flock)):
        path = make_file(client_dir / sort[:5], b"data")

        def refused(path=path, sort=sort, lock=lock):
            with open_fd(path) as mine:
                often(f"{sort} of a locked file", (errno.EAGAIN, errno.EACCES), lambda: lock(
                    mine, fcntl.LOCK_EX | fcntl.LOCK_NB))  # fmt: skip
                time.sleep(0.01)

        def granted(path=path, lock=lock):
            with open_fd(path) as mine:
                lock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock(mine, fcntl.LOCK_UN)

        with open_fd(path) as holder:
            lock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            call_in_subprocess(refused, within=15)
            lock(holder, fcntl.LOCK_UN)
            what = f"{sort} of a file that no process holds a lock of"
            afterwards(what, lambda granted=granted: call_in_subprocess(granted))
            afterwards(what, lambda lock=lock, holder=holder: lock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB))
