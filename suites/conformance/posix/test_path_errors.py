"""What every call that takes a path says of a path that leads nowhere: one table of calls, one case an error.

The prefix of a path is all of it but the last component (POSIX.1-2024 Base Definitions, Path Prefix).
"""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.tmpfiles import make_file

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


def is_refused(number: int, call: str, path, client_dir) -> None:
    """Claim that the call on ``path`` is refused, where its other path is a good one."""
    good = client_dir / "good"
    if not call.endswith("-from"):
        make_file(good)
    _, name, made = CALLS[call]

    def the_call():
        return made(path, good)

    the_call.__name__ = name
    assert_errno(number, the_call)


@each("PREFIX-ENOENT")
def test_the_prefix_does_not_exist(client_dir, call):
    """[ENOENT] A component of the path prefix does not name an existing file."""
    is_refused(errno.ENOENT, call, client_dir / "absent" / "x", client_dir)


@each("ENOENT", [name for name in CALLS if name not in MAKE])
def test_the_file_does_not_exist(client_dir, call):
    """[ENOENT] The path does not name an existing file."""
    is_refused(errno.ENOENT, call, client_dir / "absent", client_dir)


@each("EMPTY-PATH")
def test_the_path_is_empty(client_dir, call):
    """[ENOENT] The path is an empty string."""
    is_refused(errno.ENOENT, call, "", client_dir)


@each("PREFIX-ENOTDIR")
def test_the_prefix_is_no_directory(client_dir, call):
    """[ENOTDIR] A component of the path prefix names a file that is neither a directory nor a link to one."""
    is_refused(errno.ENOTDIR, call, make_file(client_dir / "file") / "x", client_dir)


@each("NAME-ENAMETOOLONG")
@pytest.mark.case(kills=("name-too-long-cut",))
def test_a_component_is_too_long(client_dir, call):
    """[ENAMETOOLONG] The length of a component is larger than {NAME_MAX}."""
    longest = os.pathconf(client_dir, "PC_NAME_MAX")
    is_refused(errno.ENAMETOOLONG, call, client_dir / ("n" * (longest + 1)), client_dir)


@each("PATH-ENAMETOOLONG")
def test_the_path_is_too_long(client_dir, call):
    """[ENAMETOOLONG] The length of the path exceeds {PATH_MAX}, its terminating null byte included."""
    longest = os.pathconf(client_dir, "PC_PATH_MAX")
    path = f"{client_dir}/" + "./" * longest
    is_refused(errno.ENAMETOOLONG, call, path[: longest - 1] + "x", client_dir)


@each("PREFIX-ELOOP")
def test_the_prefix_is_a_loop_of_links(client_dir, call):
    """[ELOOP] A loop exists in symbolic links encountered during resolution of the path."""
    os.symlink("second", client_dir / "first")
    os.symlink("first", client_dir / "second")
    is_refused(errno.ELOOP, call, client_dir / "first" / "x", client_dir)


@each("SEARCH-EACCES")
def test_the_prefix_may_not_be_searched(client_dir, call):
    """[EACCES] Search permission is denied for a component of the path prefix."""
    client_dir.chmod(0o777)
    closed = client_dir / "closed"
    closed.mkdir()
    make_file(closed / "x", mode=0o666)
    closed.chmod(0o600)
    with run_as_user(NOBODY, NOBODY):
        is_refused(errno.EACCES, call, closed / "x", client_dir)


@each("WRITE-EACCES", sorted(MAKE | {"unlink", "rmdir", "rename-from"}))
@pytest.mark.case(kills=("names-by-anybody",))
def test_the_directory_may_not_be_written(client_dir, call):
    """[EACCES] Write permission is denied on the directory whose entry is to be made or removed."""
    client_dir.chmod(0o777)
    closed = client_dir / "closed"
    closed.mkdir()
    if call == "rmdir":
        (closed / "x").mkdir()
    elif call not in MAKE:
        make_file(closed / "x", mode=0o666)
    closed.chmod(0o555)
    with run_as_user(NOBODY, NOBODY):
        is_refused(errno.EACCES, call, closed / "x", client_dir)
