"""What every call that takes a path says of a path that leads nowhere: one table of calls, one case an error.

The prefix of a path is all of it but the last component (POSIX.1-2024 Base Definitions, Path Prefix).
"""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import as_user, refused
from storagetest.agent.testlib.tmpfiles import a_file

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]

NOBODY = 54321
"""A user and group that own nothing here."""

POSIX, LINUX = "POSIX.1-2024 {}(): ERRORS", "{}(2): ERRORS"

# name → (where its errors are said, its page, the call on the path in question and a path that is good)
CALLS = {
    "chdir": (POSIX, "chdir", lambda path, _: os.chdir(path)),
    "chmod": (POSIX, "chmod", lambda path, _: os.chmod(path, 0o600)),
    "chown": (POSIX, "chown", lambda path, _: os.chown(path, 0, 0)),
    "creat": (POSIX, "open", lambda path, _: os.open(path, os.O_CREAT | os.O_WRONLY)),
    "getxattr": (LINUX, "getxattr", lambda path, _: os.getxattr(path, "user.x")),
    "lchown": (POSIX, "lchown", lambda path, _: os.lchown(path, 0, 0)),
    "link-from": (POSIX, "link", os.link),
    "link-to": (POSIX, "link", lambda path, good: os.link(good, path)),
    "lstat": (POSIX, "lstat", lambda path, _: os.lstat(path)),
    "mkdir": (POSIX, "mkdir", lambda path, _: os.mkdir(path)),
    "mkfifo": (POSIX, "mkfifo", lambda path, _: os.mkfifo(path)),
    "mknod": (POSIX, "mknod", lambda path, _: os.mknod(path, stat.S_IFREG | 0o600)),
    "open": (POSIX, "open", lambda path, _: os.open(path, os.O_RDONLY)),
    "opendir": (POSIX, "opendir", lambda path, _: os.listdir(path)),
    "readlink": (POSIX, "readlink", lambda path, _: os.readlink(path)),
    "rename-from": (POSIX, "rename", os.rename),
    "rename-to": (POSIX, "rename", lambda path, good: os.rename(good, path)),
    "rmdir": (POSIX, "rmdir", lambda path, _: os.rmdir(path)),
    "setxattr": (LINUX, "setxattr", lambda path, _: os.setxattr(path, "user.x", b"1")),
    "stat": (POSIX, "stat", lambda path, _: os.stat(path)),
    "statvfs": (POSIX, "statvfs", lambda path, _: os.statvfs(path)),
    "symlink": (POSIX, "symlink", lambda path, _: os.symlink("x", path)),
    "truncate": (POSIX, "truncate", lambda path, _: os.truncate(path, 0)),
    "unlink": (POSIX, "unlink", lambda path, _: os.unlink(path)),
    "utimensat": (POSIX, "utimensat", lambda path, _: os.utime(path, ns=(1, 1))),
}
MAKE = {"creat", "link-to", "mkdir", "mkfifo", "mknod", "rename-to", "symlink"}
"""Calls that make their last component, so that its absence is no error."""


def each(what: str, calls=CALLS):
    """Make a case ``PSX-CALL-WHAT`` of each call."""
    cases = [
        pytest.param(
            name,
            id=name,
            marks=pytest.mark.case(
                f"PSX-{name.upper()}-{what}", section=CALLS[name][0].format(CALLS[name][1])
            ),
        )
        for name in calls
    ]
    return pytest.mark.parametrize("call", cases)


def is_refused(number: int, call: str, path, here) -> None:
    """Claim that the call on ``path`` is refused, where its other path is a good one."""
    good = here / "good"
    if not call.endswith("-from"):
        a_file(good)
    _, name, made = CALLS[call]

    def the_call():
        return made(path, good)

    the_call.__name__ = name
    refused(number, the_call)


@each("PREFIX-ENOENT")
def test_the_prefix_does_not_exist(here, call):
    """[ENOENT] A component of the path prefix does not name an existing file."""
    is_refused(errno.ENOENT, call, here / "absent" / "x", here)


@each("ENOENT", [name for name in CALLS if name not in MAKE])
def test_the_file_does_not_exist(here, call):
    """[ENOENT] The path does not name an existing file."""
    is_refused(errno.ENOENT, call, here / "absent", here)


@each("EMPTY-PATH")
def test_the_path_is_empty(here, call):
    """[ENOENT] The path is an empty string."""
    is_refused(errno.ENOENT, call, "", here)


@each("PREFIX-ENOTDIR")
def test_the_prefix_is_no_directory(here, call):
    """[ENOTDIR] A component of the path prefix names a file that is neither a directory nor a link to one."""
    is_refused(errno.ENOTDIR, call, a_file(here / "file") / "x", here)


@each("NAME-ENAMETOOLONG")
@pytest.mark.case(kills=("name-too-long-cut",))
def test_a_component_is_too_long(here, call):
    """[ENAMETOOLONG] The length of a component is larger than {NAME_MAX}."""
    longest = os.pathconf(here, "PC_NAME_MAX")
    is_refused(errno.ENAMETOOLONG, call, here / ("n" * (longest + 1)), here)


@each("PATH-ENAMETOOLONG")
def test_the_path_is_too_long(here, call):
    """[ENAMETOOLONG] The length of the path exceeds {PATH_MAX}, its terminating null byte included."""
    longest = os.pathconf(here, "PC_PATH_MAX")
    path = f"{here}/" + "./" * longest
    is_refused(errno.ENAMETOOLONG, call, path[: longest - 1] + "x", here)


@each("PREFIX-ELOOP")
def test_the_prefix_is_a_loop_of_links(here, call):
    """[ELOOP] A loop exists in symbolic links encountered during resolution of the path."""
    os.symlink("second", here / "first")
    os.symlink("first", here / "second")
    is_refused(errno.ELOOP, call, here / "first" / "x", here)


@each("SEARCH-EACCES")
def test_the_prefix_may_not_be_searched(here, call):
    """[EACCES] Search permission is denied for a component of the path prefix."""
    here.chmod(0o777)
    closed = here / "closed"
    closed.mkdir()
    a_file(closed / "x", mode=0o666)
    closed.chmod(0o600)
    with as_user(NOBODY, NOBODY):
        is_refused(errno.EACCES, call, closed / "x", here)


@each("WRITE-EACCES", sorted(MAKE | {"unlink", "rmdir", "rename-from"}))
@pytest.mark.case(kills=("names-by-anybody",))
def test_the_directory_may_not_be_written(here, call):
    """[EACCES] Write permission is denied on the directory whose entry is to be made or removed."""
    here.chmod(0o777)
    closed = here / "closed"
    closed.mkdir()
    if call == "rmdir":
        (closed / "x").mkdir()
    elif call not in MAKE:
        a_file(closed / "x", mode=0o666)
    closed.chmod(0o555)
    with as_user(NOBODY, NOBODY):
        is_refused(errno.EACCES, call, closed / "x", here)
