"""Each change of a name marks its directory: a sticky or set-group-ID one, one with an ACL or attributes."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import CannotRun, skip
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    rmdir_open_directory,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

PAST, FUTURE = 10**18, 4 * 10**18
"""Times that are set before each call, in ns: 2001 and 2096."""
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)


def with_acl(path):
    """Give a directory a default ACL that names a user."""
    entries = ((0x01, 7, -1), (0x02, 7, 54321), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *one) for one in entries)
    try:
        os.setxattr(path, "system.posix_acl_default", value)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            skip(f"the file system has no default ACLs: {error.strerror}")
        raise


def with_attributes(path):
    """Give a directory attributes."""
    try:
        for number in range(3):
            os.setxattr(path, f"user.{number}", b"v" * 50)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            skip(f"the file system has no user attributes: {error.strerror}")
        raise


def with_set_group_id(path):
    """Set the set-group-ID bit of a directory."""
    os.chmod(path, 0o2755)
    if not os.stat(path).st_mode & stat.S_ISGID:
        skip("directories keep no set-group-ID bit: PSX-CHMOD-2755 tests whether that is legal")


SORTS = {
    "sticky": lambda path: os.chmod(path, 0o1777),
    "setgid": with_set_group_id,
    "acl": with_acl,
    "attributes": with_attributes,
    "future": os.stat,
}
CALLS = {
    "open()": lambda path: make_file(path / "f"),
    "mkdir()": lambda path: (path / "d").mkdir(),
    "symlink()": lambda path: symbolic_link("x", path / "s"),
    "mkfifo()": lambda path: fifo(path / "p"),
    "link()": lambda path: hard_link(path / "f", path / "l"),
    "rename() within it": lambda path: os.rename(path / "f", path / "g"),
    "rename() out of it": lambda path: os.rename(path / "g", path.parent / "moved"),
    "rename() into it": lambda path: os.rename(path.parent / "moved", path / "f"),
    "rename() over a name": lambda path: os.rename(make_file(path.parent / "new"), path / "f"),
    "unlink()": lambda path: os.unlink(path / "f"),
    "rmdir()": lambda path: (path / "d").rmdir(),
}
"""Calls that change a name in a directory, in an order in which each can be made."""


@pytest.mark.parametrize(
    "sort",
    [
        pytest.param(sort, marks=pytest.mark.case(f"PSX-MARKED-{sort.upper()}", kills=kills))
        for sort, kills in (
            ("sticky", ("sticky-directory-mkdir-unmarked",)),
            ("setgid", ("setgid-directory-create-unmarked",)),
            ("acl", ("acl-directory-unlink-unmarked",)),
            ("attributes", ("xattr-directory-rename-unmarked",)),
            ("future", ("future-directory-keeps-mtime",)),
        )
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 open(), mkdir(), symlink(), link(), rename(), unlink(), rmdir(): DESCRIPTION"
)
def test_each_change_of_a_name_marks_a_directory_of_this_sort(client_dir, sort):
    """The directory's mtime is marked for update, whatever mode, attributes and times it has."""
    path, given = client_dir / "dir", FUTURE if sort == "future" else PAST
    path.mkdir()
    SORTS[sort](path)
    for name, call in CALLS.items():
        os.utime(path, ns=(given, given))
        if os.stat(path).st_mtime_ns != given:
            skip(f"mtime of a directory cannot be {given} ns: PSX-UTIMENS-DIRECTORY tests that")
        try:
            call(path)
        except CannotRun:
            continue  # PSX-SYMLINK-MAKES, PSX-MKFIFO-MAKES and PSX-LINK-MAKES test whether that is legal
        assert os.stat(path).st_mtime_ns != given, (
            f"{name} leaves mtime of the directory, which was set before"
        )


@pytest.mark.case(
    "PSX-REMOVED-DIRECTORY-CALLS",
    section="POSIX.1-2024 rmdir(): DESCRIPTION; fsync(), fchmod(), futimens(): ERRORS",
    kills=("removed-directory-fsync-refused", "removed-directory-chmod-refused"),
)
def test_open_directory_that_was_removed_is_used_by_its_descriptor(client_dir):
    """The directory exists until its last descriptor is closed: calls on the descriptor have no new error."""
    path = client_dir / "dir"
    path.mkdir()
    with open_fd(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            os.fsync(descriptor)
            synchronises = True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            synchronises = False
        rmdir_open_directory(path)
        try:
            os.fchmod(descriptor, 0o750)
            os.utime(descriptor, ns=(10**18, 10**18))
            found = os.fstat(descriptor)
            if synchronises:
                os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            skip("the server keeps no open directories without a name (RFC 1813 2.6 NFS3ERR_STALE)")
        assert found.st_mode & 0o777 == 0o750, "the mode of a removed open directory"
        assert found.st_mtime_ns == 10**18, "mtime of a removed open directory"
