"""Flags of an inode: append-only, immutable, and those that are only kept (ioctl_iflags(2)).

A flag that a file system does not have is refused (EOPNOTSUPP); the case is skipped. Each case clears the
flags that it sets, through a descriptor that it opened before.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FS_APPEND,
    FS_IMMUTABLE,
    FS_NODUMP,
    XFLAG_APPEND,
    XFLAG_IMMUTABLE,
    XFLAG_NODUMP,
    extended_flags,
    fallocate,
    inode_flags,
    set_extended_flags,
    set_inode_flags,
)
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="ioctl_iflags(2): DESCRIPTION"),
]

USER = 54321
XFLAGS = {FS_APPEND: XFLAG_APPEND, FS_IMMUTABLE: XFLAG_IMMUTABLE, FS_NODUMP: XFLAG_NODUMP}
"""The same flags in struct fsxattr (ioctl_xfs_fsgetxattr(2))."""
NAMES = {FS_APPEND: "FS_APPEND_FL", FS_IMMUTABLE: "FS_IMMUTABLE_FL", FS_NODUMP: "FS_NODUMP_FL"}
REFUSED = (errno.EPERM, errno.EACCES)
LACKING = (errno.EOPNOTSUPP, errno.ENOSYS)
"""How a file system refuses links that it does not have."""


@contextmanager
def flagged(path, flag):
    """Open a file or directory for reading and set ``flag``; clear it at the end. Yield the descriptor.

    Skips the case if the file system does not have the flag or the process may not set it.
    """
    with open_fd(path, os.O_RDONLY) as descriptor:
        before = inode_flags(descriptor)
        try:
            set_inode_flags(descriptor, before | flag)
        except OSError as error:
            if error.errno == errno.EPERM:
                skip(f"the client may not set {NAMES[flag]}: it has no CAP_LINUX_IMMUTABLE (ioctl_iflags(2))")
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS):
                skip(f"this file system has no {NAMES[flag]}: {error.strerror} (ioctl_iflags(2))")
            raise
        try:
            yield descriptor
        finally:
            set_inode_flags(descriptor, before)


def shown(flags):
    return " | ".join(name for flag, name in NAMES.items() if flags & flag) or "none of the three"


def has_flag(descriptor, flag, *, before, when):
    """Assert that ``flag`` is set, and no other one of the three."""
    found = inode_flags(descriptor)
    wanted = before | flag
    known = sum(NAMES)
    assert found & known == wanted & known, (
        f"{when}: the flags are {shown(found)}; required: {shown(wanted)}, as they were set (ioctl_iflags(2))"
    )


def refused(calls, flag, unchanged):
    """Assert that each of ``calls``, by text, is refused, and that ``unchanged()`` stays as it was."""
    before = unchanged()
    for text, call in calls.items():
        try:
            call()
        except CannotRun:
            continue
        except OSError as error:
            assert error.errno in (*REFUSED, *LACKING), (
                f"{text} of a file with {NAMES[flag]} has to be refused by EPERM; it was refused by {error}"
            )
        else:
            raise AssertionError(
                f"{text} of a file with {NAMES[flag]} succeeds; it has to be refused by EPERM, for root, too "
                f"(ioctl_iflags(2))"
            )
        after = unchanged()
        assert after == before, (
            f"{text} of a file with {NAMES[flag]} is refused, and yet changes {before} to {after}"
        )


def described(path):
    """Return a function that describes a file: its data, names next to it and status."""

    def describe():
        one = os.stat(path)
        return (
            path.read_bytes(), sorted(os.listdir(path.parent)), one.st_mode, one.st_uid, one.st_gid,
            one.st_nlink, one.st_mtime_ns,
        )  # fmt: skip

    return describe


def opened(path, flags):
    """Return a call that opens a file and closes it."""
    return lambda: os.close(os.open(path, flags, 0o600))


def with_appender(path, call):
    """Return a call of ``call`` with a descriptor that appends."""

    def attempt():
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            call(descriptor)

    return attempt


def sets_attribute(path):
    """Set an extended attribute; CannotRun if the file system has none."""
    probe = make_file(path.with_name("probe"))
    try:
        os.setxattr(probe, "user.flags", b"v")
    except OSError as error:
        raise CannotRun(f"the file system has no user.* attributes: {error}") from None
    finally:
        os.unlink(probe)
    os.setxattr(path, "user.flags", b"v")


def status_calls(path):
    """Return the calls that change the status of a file."""
    return {
        "chmod()": lambda: os.chmod(path, 0o600),
        "chown()": lambda: os.chown(path, -1, 12),
        "utimensat() with explicit times": lambda: os.utime(path, (1_000_000_000, 1_000_000_000)),
        "setxattr()": lambda: sets_attribute(path),
    }


def name_calls(path):
    """Return the calls that remove, move or add a name of a file; those that succeed are undone by none."""
    other = path.with_name("other")
    return {
        "unlink()": lambda: os.unlink(path),
        "rename()": lambda: os.rename(path, path.with_name("moved")),
        "rename() to another directory": lambda: os.rename(path, path.parent.parent / "moved"),
        "rename() over it, which removes the name,": lambda: os.rename(other, path),
        "link()": lambda: os.link(path, path.with_name("linked")),
    }


def prepared(client_dir):
    """Make a directory with a file of some data and another one; return the path of the first."""
    directory = client_dir / "d"
    directory.mkdir()
    make_file(directory / "other", b"other")
    return make_file(directory / "f", b"0123456789" * 500, 0o644)


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(flag, id=name, marks=pytest.mark.case(f"PSX-IFLAGS-KEPT-{name.upper()}", kills=kills))
        for flag, name, kills in (
            (FS_NODUMP, "nodump", ("iflags-not-stored", "iflags-lost-by-rename", "iflags-lost-by-write")),
            (FS_APPEND, "append", ("iflags-not-stored", "iflags-lost-by-write", "iflags-others-set")),
            (FS_IMMUTABLE, "immutable", ("iflags-not-stored", "iflags-others-set")),
        )
    ],
)
def test_flag_is_kept_until_it_is_cleared(client_dir, flag):
    """A flag that is set is returned by each open, whatever is done to the file, until it is cleared."""
    path = prepared(client_dir)
    with open_fd(path.with_name("other"), os.O_RDONLY) as other, open_fd(path, os.O_RDONLY) as first:
        before, others = inode_flags(first), inode_flags(other)
        for turn in ("set", "set again"):
            with flagged(path, flag) as descriptor:
                has_flag(descriptor, flag, before=before, when=turn)
                with open_fd(path, os.O_RDONLY) as again:
                    has_flag(again, flag, before=before, when=f"{turn}, by another open")
                if flag != FS_IMMUTABLE:
                    with open_fd(path, os.O_WRONLY | os.O_APPEND) as appender:
                        os.write(appender, b"appended")
                    has_flag(descriptor, flag, before=before, when=f"{turn}, after write()")
                if flag == FS_NODUMP:
                    os.chmod(path, 0o640)
                    has_flag(descriptor, flag, before=before, when=f"{turn}, after chmod()")
                    os.truncate(path, 100)
                    has_flag(descriptor, flag, before=before, when=f"{turn}, after truncate()")
                    os.rename(path, client_dir / "moved")
                    with open_fd(client_dir / "moved", os.O_RDONLY) as moved:
                        has_flag(moved, flag, before=before, when=f"{turn}, after rename()")
                    os.rename(client_dir / "moved", path)
                found = inode_flags(other)
                assert found == others, (
                    f"flags of another file become {shown(found)} when {NAMES[flag]} of this one is set"
                )
            has_flag(first, 0, before=before, when=f"cleared after it was {turn}")
    with open_fd(path) as descriptor:
        os.write(descriptor, b"written")
    assert path.read_bytes().startswith(b"written")
    os.unlink(path)


@pytest.mark.case(
    "PSX-IFLAGS-APPEND-DATA",
    section="ioctl_iflags(2): FS_APPEND_FL; fallocate(2): ERRORS",
    kills=("append-only-written", "append-only-emptied", "append-only-cut", "append-only-punched"),
)
def test_append_only_file_is_opened_with_o_append_only(client_dir):
    """The file can be opened only with O_APPEND, by root, too; no call cuts it or changes what it has."""
    path = prepared(client_dir)
    with flagged(path, FS_APPEND):
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            for text in (b"one", b"two"):
                os.write(descriptor, text)
        wanted = b"0123456789" * 500 + b"onetwo"
        assert path.read_bytes() == wanted, (
            f"appended to, the file has {path.read_bytes()[-20:]!r} at its end"
        )
        refused(
            {
                "open() with O_WRONLY": opened(path, os.O_WRONLY),
                "open() with O_RDWR": opened(path, os.O_RDWR),
                "open() with O_CREAT": opened(path, os.O_WRONLY | os.O_CREAT),
                "open() with O_TRUNC": opened(path, os.O_WRONLY | os.O_TRUNC),
                "open() with O_TRUNC and O_APPEND": opened(path, os.O_WRONLY | os.O_TRUNC | os.O_APPEND),
                "open() with O_TRUNC and O_RDONLY": opened(path, os.O_RDONLY | os.O_TRUNC),
                "truncate() to a smaller size": lambda: os.truncate(path, 10),
                "truncate() to 0": lambda: os.truncate(path, 0),
                "ftruncate()": with_appender(path, lambda one: os.ftruncate(one, 10)),
                "FALLOC_FL_PUNCH_HOLE": with_appender(
                    path, lambda one: fallocate(one, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 4096)
                ),
            },
            FS_APPEND,
            described(path),
        )
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            os.pwrite(descriptor, b"three", 0)  # at the end: pwrite(2), BUGS
        assert path.read_bytes() in (wanted + b"three", wanted), "what was there is overwritten"
    os.truncate(path, 10)
    assert path.read_bytes() == b"0123456789"


@pytest.mark.case(
    "PSX-IFLAGS-APPEND-STATUS",
    section="chmod(2), chown(2), utimensat(2), setxattr(2), unlink(2), link(2): ERRORS [EPERM]",
    kills=("flagged-file-unlinked", "flagged-file-renamed", "flagged-file-linked", "flagged-file-chmod"),
)
def test_append_only_file_keeps_its_names_and_status(client_dir):
    """[EPERM] The file is marked append-only: it is not removed, moved or linked, and keeps its mode."""
    path = prepared(client_dir)
    with flagged(path, FS_APPEND):
        refused(status_calls(path) | name_calls(path), FS_APPEND, described(path))
        os.utime(path)
    os.rename(path, client_dir / "moved")
    os.unlink(client_dir / "moved")


@pytest.mark.case(
    "PSX-IFLAGS-IMMUTABLE",
    section="ioctl_iflags(2): FS_IMMUTABLE_FL",
    kills=("immutable-appended", "immutable-cut", "flagged-file-unlinked", "flagged-file-renamed",
           "flagged-file-linked", "flagged-file-chmod", "immutable-times-now"),
)  # fmt: skip
def test_immutable_file_does_not_change(client_dir):
    """No change is permitted to contents or metadata, link count and so on, also to the superuser."""
    path = prepared(client_dir)
    with flagged(path, FS_IMMUTABLE):
        refused(
            {
                "open() with O_WRONLY": opened(path, os.O_WRONLY),
                "open() with O_RDWR": opened(path, os.O_RDWR),
                "open() with O_APPEND": opened(path, os.O_WRONLY | os.O_APPEND),
                "open() with O_CREAT": opened(path, os.O_WRONLY | os.O_CREAT),
                "open() with O_TRUNC": opened(path, os.O_WRONLY | os.O_TRUNC),
                "truncate()": lambda: os.truncate(path, 10),
                "truncate() to a larger size": lambda: os.truncate(path, 10_000),
                "utimensat() with the current time": lambda: os.utime(path),
                **status_calls(path),
                **name_calls(path),
            },
            FS_IMMUTABLE,
            described(path),
        )
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, b"appended")
    os.chmod(path, 0o600)
    os.rename(path, client_dir / "moved")
    os.unlink(client_dir / "moved")


@pytest.mark.case(
    "PSX-IFLAGS-IMMUTABLE-DIRECTORY",
    section="ioctl_iflags(2): FS_IMMUTABLE_FL",
    kills=("immutable-directory-gets-files", "immutable-directory-loses-names"),
)
def test_immutable_directory_keeps_its_names(client_dir):
    """The contents of a directory are its names: none is made, removed or moved; files in it are written."""
    path = prepared(client_dir)
    directory = path.parent
    outside = make_file(client_dir / "outside", b"outside")
    (client_dir / "e").mkdir()

    def names():
        return sorted(os.listdir(directory)), sorted(os.listdir(client_dir))

    with flagged(directory, FS_IMMUTABLE):
        refused(
            {
                "open() with O_CREAT in a directory, which changes the contents,": opened(
                    directory / "new", os.O_WRONLY | os.O_CREAT
                ),
                "mkdir() in a directory": lambda: os.mkdir(directory / "new"),
                "symlink() in a directory": lambda: os.symlink("target", directory / "new"),
                "link() into a directory": lambda: os.link(outside, directory / "new"),
                "rename() into a directory": lambda: os.rename(outside, directory / "new"),
                "rename() out of a directory": lambda: os.rename(path, client_dir / "new"),
                "rename() within a directory": lambda: os.rename(path, directory / "new"),
                "rename() over a file in a directory": lambda: os.rename(outside, path),
                "unlink() in a directory": lambda: os.unlink(path),
                "rmdir()": lambda: os.rmdir(directory),
                "rename() of a directory": lambda: os.rename(directory, client_dir / "renamed"),
                "chmod() of a directory": lambda: os.chmod(directory, 0o700),
            },
            FS_IMMUTABLE,
            names,
        )
        path.write_bytes(b"written")
        assert path.read_bytes() == b"written"
    make_file(directory / "new")
    os.unlink(path)


@pytest.mark.case(
    "PSX-IFLAGS-APPEND-DIRECTORY",
    level="SHOULD",
    section="ioctl_iflags(2): FS_APPEND_FL",
    kills=("append-only-directory-loses-names",),
)
def test_append_only_directory_gets_names_only(client_dir):
    """Names can be added to an append-only directory, and none is removed or moved.

    SHOULD: the page describes files that are opened; Linux applies the flag to directories in this way.
    """
    path = prepared(client_dir)
    directory = path.parent
    with flagged(directory, FS_APPEND):
        make_file(directory / "new", b"new")
        os.mkdir(directory / "new directory")

        def names():
            return sorted(os.listdir(directory)), sorted(os.listdir(client_dir))

        refused(
            {
                "unlink() in a directory": lambda: os.unlink(path),
                "unlink() of a new file in a directory": lambda: os.unlink(directory / "new"),
                "rmdir() in a directory": lambda: os.rmdir(directory / "new directory"),
                "rename() within a directory": lambda: os.rename(path, directory / "moved"),
                "rename() out of a directory": lambda: os.rename(path, client_dir / "moved"),
                "rename() over a file in a directory": lambda: os.rename(directory / "other", path),
            },
            FS_APPEND,
            names,
        )
    os.rmdir(directory / "new directory")


@pytest.mark.case(
    "PSX-IFLAGS-USERS",
    section="ioctl_iflags(2): DESCRIPTION",
    kills=("iflags-of-users-ignored",),
)
def test_flags_are_set_by_the_owner_and_append_and_immutable_by_privilege(client_dir):
    """The effective user owns the file, or has a capability; FS_APPEND_FL and FS_IMMUTABLE_FL need one."""
    client_dir.chmod(0o777)
    path = make_file(client_dir / "f", b"data", 0o666)
    os.chown(path, USER, USER)
    with flagged(path, FS_NODUMP) as descriptor:
        before = inode_flags(descriptor) & ~FS_NODUMP
    with open_fd(path, os.O_RDONLY) as descriptor:
        try:
            with run_as_user(USER + 1, USER + 1):
                assert_errno(REFUSED, set_inode_flags, descriptor, before | FS_NODUMP)
            has_flag(descriptor, 0, before=before, when="after FS_NODUMP_FL was refused to another user")
            with run_as_user(USER, USER):
                set_inode_flags(descriptor, before | FS_NODUMP)
            has_flag(descriptor, FS_NODUMP, before=before, when="after the owner has set FS_NODUMP_FL")
            for flag in (FS_APPEND, FS_IMMUTABLE):
                with run_as_user(USER, USER):
                    assert_errno(errno.EPERM, set_inode_flags, descriptor, before | FS_NODUMP | flag)
                when = f"after {NAMES[flag]} was refused to the owner"
                has_flag(descriptor, FS_NODUMP, before=before, when=when)
            with flagged(path, FS_APPEND):
                with run_as_user(USER, USER):
                    assert_errno(errno.EPERM, set_inode_flags, descriptor, before)
                when = "after the owner could not clear FS_APPEND_FL"
                has_flag(descriptor, FS_NODUMP | FS_APPEND, before=before, when=when)
        finally:
            set_inode_flags(descriptor, before)


@pytest.mark.case("PSX-IFLAGS-NEW", kills=("iflags-of-removed-file",))
def test_new_file_has_no_flags_of_one_that_is_gone(client_dir):
    """A file that was made after one of the same name was removed has the flags of a new file."""
    path = make_file(client_dir / "f", b"first")
    with open_fd(make_file(client_dir / "plain"), os.O_RDONLY) as other:
        plain = inode_flags(other)
    with flagged(path, FS_NODUMP):
        for turn in range(5):
            os.unlink(path)
            make_file(path, b"second")
            with open_fd(path, os.O_RDONLY) as new:
                found = inode_flags(new)
                assert found & FS_NODUMP == plain & FS_NODUMP, (
                    f"new file {turn + 1} of a name has {shown(found)} and the flags {found:#x}; required: "
                    f"{plain:#x}, the flags of a file that none were set of"
                )
                set_inode_flags(new, found | FS_NODUMP)
    record_observation(f"flags of a new file: {plain:#x}")


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(flag, id=name, marks=pytest.mark.case(f"PSX-IFLAGS-FORMS-{name.upper()}", kills=kills))
        for flag, name, kills in (
            (FS_NODUMP, "nodump", ("fsxattr-clears-nothing", "fsxattr-not-stored")),
            (FS_APPEND, "append", ("fsxattr-without-append", "fsxattr-clears-nothing")),
            (FS_IMMUTABLE, "immutable", ("fsxattr-not-stored", "fsxattr-others-shown")),
        )
    ],
)
@pytest.mark.case(section="ioctl_iflags(2); ioctl_xfs_fsgetxattr(2): fsx_xflags")
def test_both_forms_of_the_flags_are_of_one_inode(client_dir, flag):
    """What FS_IOC_SETFLAGS sets is in struct fsxattr, and FS_IOC_FSSETXATTR sets what GETFLAGS returns."""
    path = prepared(client_dir)
    other = FS_APPEND if flag == FS_NODUMP else FS_NODUMP

    def compare(descriptor, wanted, when):
        found, shown_x = inode_flags(descriptor), extended_flags(descriptor)[0]
        as_flags = sum(one for one, bit in XFLAGS.items() if shown_x & bit)
        for form, flags in (("FS_IOC_GETFLAGS", found), ("FS_IOC_FSGETXATTR", as_flags)):
            assert flags & sum(NAMES) == wanted, (
                f"{when}: {form} returns {shown(flags)}; required: {shown(wanted)}, the flags of the inode"
            )

    with flagged(path, flag) as descriptor:
        compare(descriptor, flag, f"after FS_IOC_SETFLAGS of {NAMES[flag]}")
    with open_fd(path, os.O_RDONLY) as descriptor:
        before = inode_flags(descriptor)
        compare(descriptor, 0, f"after FS_IOC_SETFLAGS without {NAMES[flag]}")
        plain, attributes = extended_flags(descriptor)
        try:
            try:
                set_extended_flags(descriptor, plain | XFLAGS[flag], attributes)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS):
                    raise
                skip(f"the flag cannot be set by FS_IOC_FSSETXATTR here: {error.strerror}")
            compare(descriptor, flag, f"after FS_IOC_FSSETXATTR with {NAMES[flag]}")
            found = inode_flags(descriptor)
            assert found & ~flag == before & ~flag, (
                f"FS_IOC_FSSETXATTR with {NAMES[flag]} makes the flags {before:#x} to {found:#x}; required: "
                f"no other flag changes"
            )
            set_inode_flags(descriptor, before)  # ext4 changes no other flag of an immutable file
            set_inode_flags(descriptor, before | flag | other)
            set_extended_flags(descriptor, plain | XFLAGS[other], attributes)
            compare(descriptor, other, f"after FS_IOC_FSSETXATTR with {NAMES[other]} in its place")
        finally:
            set_inode_flags(descriptor, before)
        compare(descriptor, 0, "at the end")
    os.unlink(path)
