"""Path resolution errors of every call that takes a path: a table of calls, and one case per call and error.

The prefix of a path is all of it but the last component (POSIX.1-2024 Base Definitions, Path Prefix).
"""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.tmpfiles import fifo, hard_link, make_file, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER = 54321
"""A user and group that own no file of the case."""

POSIX, LINUX = "POSIX.1-2024 {}(): ERRORS", "{}(2): ERRORS"

# name → (where its errors are documented, its page, the call on the tested path and on a valid path)
CALLS = {
    "chdir": (POSIX, "chdir", lambda path, _: os.chdir(path)),
    "chmod": (POSIX, "chmod", lambda path, _: os.chmod(path, 0o600)),
    "chown": (POSIX, "chown", lambda path, _: os.chown(path, 0, 0)),
    "creat": (POSIX, "open", lambda path, _: os.open(path, os.O_CREAT | os.O_WRONLY)),
    "getxattr": (LINUX, "getxattr", lambda path, _: os.getxattr(path, "user.x")),
    "lchown": (POSIX, "lchown", lambda path, _: os.lchown(path, 0, 0)),
    "link-from": (POSIX, "link", hard_link),
    "link-to": (POSIX, "link", lambda path, good: hard_link(good, path)),
    "lstat": (POSIX, "lstat", lambda path, _: os.lstat(path)),
    "mkdir": (POSIX, "mkdir", lambda path, _: os.mkdir(path)),
    "mkfifo": (POSIX, "mkfifo", lambda path, _: fifo(path)),
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
    "symlink": (POSIX, "symlink", lambda path, _: symbolic_link("x", path)),
    "truncate": (POSIX, "truncate", lambda path, _: os.truncate(path, 0)),
    "unlink": (POSIX, "unlink", lambda path, _: os.unlink(path)),
    "utimensat": (POSIX, "utimensat", lambda path, _: os.utime(path, ns=(1, 1))),
}
CREATING = {"creat", "link-to", "mkdir", "mkfifo", "mknod", "rename-to", "symlink"}
"""Calls that create their last component, so that its absence is no error."""


def for_each_call(error: str, calls=CALLS, *, bases=()):
    """Make a case ``PSX-CALL-ERROR`` of each call, which builds on the cases ``bases``."""
    cases = [
        pytest.param(
            name,
            id=name,
            marks=pytest.mark.case(
                f"PSX-{name.upper()}-{error}",
                section=CALLS[name][0].format(CALLS[name][1]),
                builds_on=("PSX-DATA-NEW-FILE", *bases),
            ),
        )
        for name in calls
    ]
    return pytest.mark.parametrize("call", cases)


def assert_refused(number: int, call: str, path, client_dir) -> None:
    """Assert that the call on ``path`` fails with errno ``number``; its other path is valid."""
    good = client_dir / "good"
    if not call.endswith("-from"):
        make_file(good)
    _, name, function = CALLS[call]

    def the_call():
        return function(path, good)

    the_call.__name__ = name
    assert_errno(number, the_call)


@for_each_call("PREFIX-ENOENT")
def test_absent_prefix_is_refused(client_dir, call):
    """[ENOENT] A component of the path prefix does not name an existing file."""
    assert_refused(errno.ENOENT, call, client_dir / "absent" / "x", client_dir)


@for_each_call("ENOENT", [name for name in CALLS if name not in CREATING])
def test_absent_file_is_refused(client_dir, call):
    """[ENOENT] The path does not name an existing file."""
    assert_refused(errno.ENOENT, call, client_dir / "absent", client_dir)


@for_each_call("EMPTY-PATH")
def test_empty_path_is_refused(client_dir, call):
    """[ENOENT] The path is an empty string."""
    assert_refused(errno.ENOENT, call, "", client_dir)


@for_each_call("PREFIX-ENOTDIR")
def test_prefix_that_is_no_directory_is_refused(client_dir, call):
    """[ENOTDIR] A component of the path prefix names a file that is neither a directory nor a link to one."""
    assert_refused(errno.ENOTDIR, call, make_file(client_dir / "file") / "x", client_dir)


@for_each_call("NAME-ENAMETOOLONG", bases=("PSX-STAT-NAME-ENAMETOOLONG",))
@pytest.mark.case(kills=("name-too-long-cut",))
def test_too_long_component_is_refused(client_dir, call):
    """[ENAMETOOLONG] The length of a component is larger than {NAME_MAX}."""
    longest = os.pathconf(client_dir, "PC_NAME_MAX")
    assert_refused(errno.ENAMETOOLONG, call, client_dir / ("n" * (longest + 1)), client_dir)


@for_each_call("PATH-ENAMETOOLONG")
def test_too_long_path_is_refused(client_dir, call):
    """[ENAMETOOLONG] The length of the path exceeds {PATH_MAX}, its terminating null byte included."""
    longest = os.pathconf(client_dir, "PC_PATH_MAX")
    path = f"{client_dir}/" + "./" * longest
    assert_refused(errno.ENAMETOOLONG, call, path[: longest - 1] + "x", client_dir)


@for_each_call("PREFIX-ELOOP")
def test_link_loop_in_the_prefix_is_refused(client_dir, call):
    """[ELOOP] A loop exists in symbolic links encountered during resolution of the path."""
    symbolic_link("second", client_dir / "first")
    symbolic_link("first", client_dir / "second")
    assert_refused(errno.ELOOP, call, client_dir / "first" / "x", client_dir)


@for_each_call("SEARCH-EACCES")
def test_prefix_without_search_permission_is_refused(client_dir, call):
    """[EACCES] Search permission is denied for a component of the path prefix."""
    client_dir.chmod(0o777)
    closed = client_dir / "closed"
    closed.mkdir()
    make_file(closed / "x", mode=0o666)
    closed.chmod(0o600)
    with run_as_user(USER, USER):
        assert_refused(errno.EACCES, call, closed / "x", client_dir)


@for_each_call("WRITE-EACCES", sorted(CREATING | {"unlink", "rmdir", "rename-from"}))
@pytest.mark.case(kills=("names-by-any-user",))
def test_directory_without_write_permission_is_refused(client_dir, call):
    """[EACCES] Write permission is denied on the directory whose entry is to be created or removed."""
    client_dir.chmod(0o777)
    closed = client_dir / "closed"
    closed.mkdir()
    if call == "rmdir":
        (closed / "x").mkdir()
    elif call not in CREATING:
        make_file(closed / "x", mode=0o666)
    closed.chmod(0o555)
    with run_as_user(USER, USER):
        assert_refused(errno.EACCES, call, closed / "x", client_dir)
