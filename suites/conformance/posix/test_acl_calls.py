"""Access control lists and other calls: who may do what by an ACL, and what a change of it leaves alone."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import run_as_user, skip
from storagetest.agent.testlib.tmpfiles import make_file, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-KEPT"),
        section="acl(5): ACCESS CHECK ALGORITHM",
    ),
]
mode_bits = "acl(5): CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS"

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NO_ID = 0xFFFFFFFF
OWNER, USER, TEAM = 54320, 54321, 54400


def encode(owner, group, mask, others, *, user=None, team=None) -> bytes:
    """Return an ACL's attribute: version 2, then tag, permissions and ID of each entry, little-endian.

    ``user`` and ``team``: permissions of the named user :data:`USER` and the named group :data:`TEAM`. A
    ``mask`` of None is left out. Tags are those of <linux/posix_acl.h>.
    """
    entries = [
        (0x01, owner, NO_ID), (0x02, user, USER), (0x04, group, NO_ID), (0x08, team, TEAM),
        (0x10, mask, NO_ID), (0x20, others, NO_ID),
    ]  # fmt: skip
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry) for entry in entries if entry[1] is not None
    )


def set_acl(path, value: bytes, kind: str = ACCESS) -> None:
    """Set an ACL; skip the case if the mount has none."""
    try:
        os.setxattr(path, kind, value)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("there are no POSIX ACLs on this mount (setxattr(2), ENOTSUP)")
        raise


def mode_of(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.case(
    "PSX-ACL-SPECIAL-BITS",
    section=mode_bits,
    kills=("acl-change-drops-set-id-bits", "acl-change-drops-sticky-bit"),
)
def test_acl_changes_the_permission_bits_alone(client_dir):
    """An ACL corresponds to the nine permission bits: S_ISUID, S_ISGID and S_ISVTX stay as chmod() set them.

    Set, replaced and removed by a privileged process, of a file and of a directory.
    """
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", encode(7, 5, None, 5))
    for path, specials in (
        (make_file(client_dir / "f"), (0o4000, 0o2000, 0o6000)),
        (client_dir / "d", (0o1000, 0o2000, 0o3000)),
    ):
        for special in specials:
            os.chmod(path, special | 0o755)
            if mode_of(path) != special | 0o755:
                continue  # chmod() honors them or not: PSX-CHMOD-*
            changes = {
                "an ACL with a named user": lambda p=path: set_acl(p, encode(7, 5, 7, 5, user=6)),
                "another mask": lambda p=path: set_acl(p, encode(7, 5, 1, 5, user=6)),
                "three entries alone": lambda p=path: set_acl(p, encode(7, 5, None, 1)),
                "a named group": lambda p=path: set_acl(p, encode(7, 5, 5, 5, team=7)),
                "the ACL's removal": lambda p=path: os.removexattr(p, ACCESS),
            }
            for text, change in changes.items():
                change()
                found = mode_of(path)
                assert found & 0o7000 == special, (
                    f"{text} leaves the mode {found:#o} of the {'directory' if path.is_dir() else 'file'}, "
                    f"whose bits above the permission bits were {special:#o}; required: these are kept"
                )


@pytest.mark.case(
    "PSX-ACL-CTIME", section="inode(7): ctime; " + mode_bits, kills=("acl-change-leaves-ctime",)
)
def test_acl_that_changes_the_mode_changes_ctime(client_dir):
    """The status change time is that of the last change of the mode, also of one by an ACL; mtime stays."""
    (client_dir / "d").mkdir()
    path = make_file(client_dir / "f", mode=0o600)
    set_acl(path, encode(6, 0, 0, 0, user=4))
    for one in (path, client_dir / "d"):
        for number, acl in enumerate(
            (
                encode(7, 7, 6, 1, user=4),
                encode(7, 0, 1, 0, user=7),
                encode(6, 4, None, 4),
                encode(7, 7, 7, 0, team=5),
            )
        ):
            before = os.stat(one)
            wait_clock_tick(client_dir)
            set_acl(one, acl)
            after = os.stat(one)
            assert after.st_mode != before.st_mode, f"ACL {number + 1} of {one.name} does not set the mode"
            assert after.st_ctime_ns > before.st_ctime_ns, (
                f"ACL {number + 1} of {one.name} changes the mode from {before.st_mode & 0o777:o} to "
                f"{after.st_mode & 0o777:o}, and the ctime is the one before; required: that of the change"
            )
            assert after.st_mtime_ns == before.st_mtime_ns, f"ACL {number + 1} of {one.name} changes mtime"


@pytest.mark.case(
    "PSX-ACL-DEFAULT-SETGID",
    section="inode(7): S_ISGID; acl(5): OBJECT CREATION AND DEFAULT ACLs",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-DEFAULT-DIRECTORY"),
    kills=("mkdir-below-default-acl-loses-setgid", "group-below-default-acl-of-process"),
)
def test_directory_with_a_default_acl_and_s_isgid_passes_on_both(client_dir):
    """What is made there has the directory's group, and a directory S_ISGID too: also for a non-member."""
    top = client_dir / "top"
    top.mkdir()
    set_acl(top, encode(7, 7, 7, 5, user=7), DEFAULT)
    set_acl(top, encode(7, 7, 7, 7, user=7))
    os.chown(top, OWNER, TEAM)
    os.chmod(top, 0o2777)
    if not mode_of(top) & stat.S_ISGID:
        skip("a directory does not keep S_ISGID here")
    client_dir.chmod(0o755)
    for user, group in ((0, 0), (USER, USER), (OWNER, OWNER)):
        parent = top
        for depth in (1, 2, 3):
            parent = parent / f"{user}-{depth}"
            with run_as_user(user, group):
                parent.mkdir()
                make_file(parent / "f")
            for one in (parent, parent / "f"):
                found = os.stat(one).st_gid
                assert found == TEAM, (
                    f"{one.relative_to(client_dir)}, made by user {user}, has the group {found}; required: "
                    f"{TEAM}, that of the directory with S_ISGID, which has a default ACL too"
                )
            assert mode_of(parent) & stat.S_ISGID, (
                f"{parent.relative_to(client_dir)}, made by user {user} below a directory with S_ISGID and a "
                f"default ACL, has the mode {mode_of(parent):#o}; required: S_ISGID"
            )


WHO = {"the named user": (USER, USER), "a member of the named group": (USER + 1, USER + 1, USER + 2, TEAM)}


def granting(who, bits) -> bytes:
    """Return an ACL that gives ``who`` these permissions, and all that he has not to everyone else."""
    rest = 7 - bits
    if who == "the named user":
        return encode(rest, rest, 7, rest, user=bits, team=rest)
    return encode(rest, rest, 7, rest, user=rest, team=bits)


def is_granted(call, *arguments) -> bool:
    """Return whether a call is granted; errors but EACCES are raised. A descriptor is closed."""
    try:
        result = call(*arguments)
    except PermissionError as error:
        if error.errno != errno.EACCES:
            raise
        return False
    if isinstance(result, int) and not isinstance(result, bool):
        os.close(result)
    return True


def wrong_right(who, bits, tries) -> str:
    """Make each (name, needed bits, call); return how the first result differs, or ""."""
    for name, needed, call, *arguments in tries:
        wanted = needed & bits == needed
        try:
            granted = is_granted(call, *arguments)
        except OSError as error:
            return f"{name}, {who} has {bits:03b} by the ACL: {error.strerror}"
        if granted is not wanted:
            return (
                f"{name} is {'granted to' if granted else 'refused to'} {who}, who has {bits:03b} by the "
                f"ACL; required: the ACL decides"
            )
    return ""


@pytest.mark.case(
    "PSX-ACL-RIGHTS-FILE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-NAMED-USER", "PSX-ACL-NAMED-GROUP"),
    section="acl(5): ACCESS CHECK ALGORITHM; utimensat(2), truncate(2), access(2): ERRORS",
    kills=("utimes-now-by-mode-bits", "truncate-by-mode-bits", "access-by-mode-bits"),
)
def test_each_call_on_a_file_is_by_its_acl(client_dir):
    """open(), truncate(), utimensat() to now and access() of a named user or group are by that entry."""
    path = make_file(client_dir / "f", b"content")
    os.chown(path, OWNER, TEAM + 9)
    for who, (user, group, *more) in WHO.items():
        for bits in (0, 2, 4, 5, 6, 7):
            set_acl(path, granting(who, bits))
            os.utime(path, (1_000_000_000, 1_000_000_000))
            tries = [
                ("open() for reading", 4, os.open, path, os.O_RDONLY),
                ("open() for writing", 2, os.open, path, os.O_WRONLY),
                ("open() for both", 6, os.open, path, os.O_RDWR),
                ("truncate()", 2, os.truncate, path, 7),
                ("utimensat() to now", 2, os.utime, path),
            ]
            with run_as_user(user, group, *more):
                found = sum(bit for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(path, bit))
                assert found == bits, f"access() grants {found:03b} to {who}, who has {bits:03b} by the ACL"
                wrong = wrong_right(who, bits, tries)
            assert not wrong, wrong
            is_new = os.stat(path).st_mtime > 1_000_000_000
            assert is_new is bool(bits & 2), f"the time is {'' if is_new else 'not '}set by {who}, {bits:03b}"


@pytest.mark.case(
    "PSX-ACL-RIGHTS-DIRECTORY",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-NAMED-USER", "PSX-ACL-NAMED-GROUP"),
    kills=("unlink-by-mode-bits", "rename-by-mode-bits", "list-by-mode-bits"),
)
def test_each_call_in_a_directory_is_by_its_acl(client_dir):
    """Listing, looking up, making, renaming and removing are by the entry of the named user or group."""
    directory = client_dir / "d"
    directory.mkdir()
    make_file(directory / "inside", b"x", 0o666)
    (directory / "empty").mkdir()
    os.chown(directory, OWNER, TEAM + 9)
    for who, (user, group, *more) in WHO.items():
        for bits in range(8):
            set_acl(directory, granting(who, bits))
            old = "made" if bits & 3 == 3 else "inside"
            gone = "directory" if bits & 3 == 3 else "empty"
            tries = [
                ("listing", 4, os.listdir, directory),
                ("looking up a file", 1, os.stat, directory / "inside"),
                ("mkdir()", 3, os.mkdir, directory / "directory"),
                ("open() of a new file", 3, os.open, directory / "made", os.O_CREAT | os.O_WRONLY),
                ("rename()", 3, os.rename, directory / old, directory / "renamed"),
                ("unlink()", 3, os.unlink, directory / ("renamed" if bits & 3 == 3 else "inside")),
                ("rmdir()", 3, os.rmdir, directory / gone),
            ]
            with run_as_user(user, group, *more):
                wrong = wrong_right(who, bits, tries)
            assert not wrong, wrong
