"""Where a file is put, what it keeps there, and what it gets: unnamed, exchanged, moved and linked files."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, renameat2
from storagetest.agent.testlib.tmpfiles import fifo, make_file, node, open_fd, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]
exchange = "rename(2): RENAME_EXCHANGE"

USER, GROUP = 1001, 4242
"""A user, and a group that no process of a case has (chosen)."""
LARGE_GROUPS = (65_535 + 4243, (1 << 24) + 4242, (1 << 31) + 4242)
"""Groups of more than 16, 24 and 31 bits (gid_t has 32); their low bits are other groups (chosen)."""


def unnamed(directory, mode):
    """Open a new file without a name; skip the case if the file system has none."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR, mode)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            skip(f"the file system has no O_TMPFILE: {error.strerror}")
        raise


def set_group_id_directory(path):
    """Make a directory that gives its group to new files; skip the case if directories keep no such bit."""
    path.mkdir()
    os.chown(path, -1, GROUP)
    os.chmod(path, 0o2777)
    if not os.stat(path).st_mode & stat.S_ISGID:
        skip("directories keep no set-group-ID bit: PSX-CHMOD-2755 tests whether that is legal")
    return path


def owner_and_mode(path):
    """Return user, group and mode, the latter as octal digits."""
    one = os.stat(path)
    return one.st_uid, one.st_gid, f"{stat.S_IMODE(one.st_mode):o}"


@pytest.mark.case(
    "PSX-TMPFILE-APART",
    section="open(2): O_TMPFILE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-TMPFILE-LINKED"),
    kills=("tmpfile-second-is-first",),
)
def test_two_unnamed_files_of_a_directory_are_two_files(client_dir):
    """Each open with O_TMPFILE makes a new file, also while another of the same directory is open."""
    descriptors = []
    try:
        for number in range(3):
            descriptors.append(unnamed(client_dir, 0o600))
            os.write(descriptors[-1], b"%d" % number * 10)
        assert len({os.fstat(one).st_ino for one in descriptors}) == 3, (
            "serial numbers of three unnamed files"
        )
        found = [os.pread(one, 20, 0) for one in descriptors]
        assert found == [b"0" * 10, b"1" * 10, b"2" * 10], f"three unnamed files have {found}"
    finally:
        for one in descriptors:
            os.close(one)


@pytest.mark.case(
    "PSX-TMPFILE-MADE",
    section="open(2): O_TMPFILE; umask(2)",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-TMPFILE-LINKED"),
    kills=("tmpfile-callers-group", "tmpfile-without-mask"),
)
def test_unnamed_file_has_mode_owner_and_group_as_one_with_a_name(client_dir):
    """In one directory an unnamed file and one with a name have the same mode, under a mask, and group."""
    directory = set_group_id_directory(client_dir / "d")
    with run_as_user(USER, USER):
        os.umask(0o027)
        descriptor = unnamed(directory, 0o666)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        with open_fd(directory / "f", os.O_CREAT | os.O_RDWR, 0o666) as named:
            wanted = os.fstat(named)
    for name in ("st_mode", "st_uid", "st_gid"):
        assert getattr(found, name) == getattr(wanted, name), f"{name} is another than with a name"


@pytest.mark.case(
    "PSX-SETGID-KINDS",
    section="inode(7): S_ISGID",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SETGID-DEEP"),
    kills=("mknod-ignores-setgid", "symlink-ignores-setgid"),
)
def test_group_is_inherited_by_files_of_each_kind(client_dir):
    """Files made in a set-group-ID directory have its group: FIFOs, sockets and links, too."""
    directory = set_group_id_directory(client_dir / "d")
    with run_as_user(USER, USER):
        make_file(directory / "a regular file")
        node(directory / "a file of mknod()", stat.S_IFREG | 0o600)
        symbolic_link("absent", directory / "a symbolic link")
        fifo(directory / "a FIFO")
        node(directory / "a socket", stat.S_IFSOCK | 0o600)
    for name in os.listdir(directory):
        group = os.lstat(directory / name).st_gid
        assert group == GROUP, f"{name} has group {group} instead of {GROUP}"


@pytest.mark.case(
    "PSX-SETGID-LARGE",
    section="inode(7): S_ISGID",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SETGID-DEEP"),
    kills=("setgid-group-16-bit", "setgid-group-31-bit"),
)
def test_group_of_more_than_16_bits_is_inherited_whole(client_dir):
    """A new file has the same group as its directory, of whatever kind it is, also a group of 32 bits."""
    for number, group in enumerate(LARGE_GROUPS):
        directory = set_group_id_directory(client_dir / f"d{number}")
        try:
            os.chown(directory, -1, group)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM, errno.EACCES, errno.EOVERFLOW):
                raise
            skip(f"a file cannot have the group {group} here: {error.strerror}")
        os.chmod(directory, 0o2777)
        if os.stat(directory).st_gid != group:
            skip(f"a file cannot have the group {group} here: PSX-CHOWN-32-BIT tests whether that is legal")
        makers = {
            "open()": make_file,
            "mkdir()": lambda path: path.mkdir(),
            "symlink()": lambda path: symbolic_link("absent", path),
            "mkfifo()": fifo,
            "mknod() of a file": lambda path: node(path, stat.S_IFREG | 0o600),
            "mknod() of a socket": lambda path: node(path, stat.S_IFSOCK | 0o600),
        }
        for at, (how, make) in enumerate(makers.items()):
            path = directory / f"n{at}"
            with run_as_user(USER, USER):
                try:
                    make(path)
                except CannotRun:
                    continue
            found = os.lstat(path).st_gid
            assert found == group, (
                f"a file made by {how} has group {found} ({found:#x}); required: {group} ({group:#x}), the "
                f"group of its set-group-ID directory"
            )


@pytest.mark.case(
    "PSX-EXCHANGE-OPEN",
    section=exchange,
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EXCHANGE"),
    kills=("exchange-moves-open-files",),
)
def test_open_files_stay_the_same_when_their_names_are_exchanged(client_dir):
    """Open file descriptors are unaffected: what is written through them is in the file of the other name."""
    first, second = client_dir / "first", client_dir / "second"
    with open_fd(make_file(first, b"first")) as one, open_fd(make_file(second, b"second")) as other:
        renameat2(first, second, RENAME_EXCHANGE)
        os.pwrite(one, b"F", 0)
        os.pwrite(other, b"S", 0)
        os.ftruncate(one, 4)
        found = os.pread(one, 9, 0), os.pread(other, 9, 0)
        assert found == (b"Firs", b"Second"), "written and read by descriptors that were open before"
    assert (first.read_bytes(), second.read_bytes()) == (b"Second", b"Firs"), "read by their new names"


@pytest.mark.case(
    "PSX-EXCHANGE-STICKY",
    section="POSIX.1-2024 rename(): ERRORS [S_ISVTX]; rename(2): RENAME_EXCHANGE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EXCHANGE"),
    kills=("exchange-sticky-ignored",),
)
def test_exchange_in_a_directory_with_the_sticky_bit(client_dir):
    """[EPERM] or [EACCES] One of the two files is another user's, in either order; own ones are exchanged."""
    directory = client_dir / "d"
    directory.mkdir()
    for name, owner in (("mine", USER), ("mine too", USER), ("not mine", 0)):
        os.chown(make_file(directory / name, name.encode(), 0o666), owner, owner)
    renameat2(directory / "mine", directory / "mine too", RENAME_EXCHANGE)
    os.chmod(directory, 0o1777)
    with run_as_user(USER, USER):
        for old, new in (("mine", "not mine"), ("not mine", "mine")):
            assert_errno(
                (errno.EPERM, errno.EACCES), renameat2, directory / old, directory / new, RENAME_EXCHANGE
            )
        renameat2(directory / "mine", directory / "mine too", RENAME_EXCHANGE)
    for name in ("mine", "mine too", "not mine"):
        assert (directory / name).read_bytes() == name.encode(), f"{name} is another file"


@pytest.mark.case(
    "PSX-EXCHANGE-NLINK",
    section="POSIX.1-2024 <sys/stat.h>: st_nlink; rename(2): RENAME_EXCHANGE",
    level="SHOULD",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EXCHANGE"),
    kills=("exchange-keeps-parent-nlink",),
)
def test_exchange_of_a_directory_and_a_file_moves_a_link_of_the_parents(client_dir):
    """If mkdir() raises the parent's link count, the count goes where the directory goes, and comes back."""
    for name in ("a", "b"):
        (client_dir / name).mkdir()
    empty = os.stat(client_dir / "a").st_nlink
    make_file(client_dir / "b" / "f")
    (client_dir / "a" / "d").mkdir()

    def counts():
        return tuple(os.stat(client_dir / name).st_nlink - empty for name in ("a", "b"))

    added, _ = counts()
    if not added:
        record_observation(f"a directory has {empty} link(s), whatever is in it")
    renameat2(client_dir / "a" / "d", client_dir / "b" / "f", RENAME_EXCHANGE)
    assert counts() == (0, added), "after RENAME_EXCHANGE of a directory in a and a file in b"
    renameat2(client_dir / "a" / "d", client_dir / "b" / "f", RENAME_EXCHANGE)
    assert counts() == (added, 0), "after RENAME_EXCHANGE of the same names again"


@pytest.mark.case(
    "PSX-REPLACED-DIRECTORY-NLINK",
    section="POSIX.1-2024 <sys/stat.h>: st_nlink; rename(): DESCRIPTION",
    level="SHOULD",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EMPTY-DIRECTORY"),
    kills=("replaced-directory-stays-counted",),
)
def test_directory_that_is_replaced_is_no_link_of_its_parent(client_dir):
    """If mkdir() raises the parent's link count, a directory in the place of another one is counted once."""
    (client_dir / "a").mkdir()
    empty = os.stat(client_dir / "a").st_nlink
    (client_dir / "a" / "d").mkdir()
    counted = os.stat(client_dir / "a").st_nlink
    if counted == empty:
        record_observation(f"a directory has {empty} link(s), whatever is in it")
    for parent in (client_dir, client_dir / "a"):
        (parent / "e").mkdir()
        try:
            os.rename(parent / "e", client_dir / "a" / "d")
        except OSError as error:
            skip(f"an empty directory is not replaced here ({error.strerror}): PSX-RENAME-EMPTY-DIRECTORY")
        found = os.stat(client_dir / "a").st_nlink
        assert found == counted, f"{found} links instead of {counted} after rename() over an empty directory"


@pytest.mark.case(
    "PSX-PLACED-GROUP",
    section="POSIX.1-2024 rename(), link(): DESCRIPTION",
    kills=("linked-gets-group", "moved-gets-group"),
)
def test_file_that_is_moved_or_linked_keeps_its_group(client_dir):
    """A set-group-ID directory gives its group to new files, and not to one that is moved or linked there."""
    directory = set_group_id_directory(client_dir / "d")
    for name in ("moved", "linked"):
        os.chown(make_file(client_dir / name, mode=0o640), USER, USER)
    (client_dir / "moved directory").mkdir(0o755)
    wanted = {name: owner_and_mode(client_dir / name) for name in ("moved", "moved directory", "linked")}
    for name in ("moved", "moved directory"):
        os.rename(client_dir / name, directory / name)
    try:
        os.link(client_dir / "linked", directory / "linked")
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS):
            raise
        record_observation(f"no hard links: {error.strerror}")
        del wanted["linked"]
    for name, was in wanted.items():
        found = owner_and_mode(directory / name)
        assert found == was, f"user, group and mode of {name} are {found} instead of {was}"


@pytest.mark.case(
    "PSX-PLACED-ACL",
    section="acl(5): OBJECT CREATION AND DEFAULT ACLs",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-KEPT"),
    kills=("moved-gets-default-acl",),
)
def test_file_that_is_moved_gets_no_default_acl(client_dir):
    """A directory's default ACL is for what is made in it: a file that is moved there keeps its own mode."""
    entries = ((0x01, 7), (0x02, 7), (0x04, 5), (0x10, 7), (0x20, 5))
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHi", tag, bits, USER if tag == 0x02 else -1) for tag, bits in entries
    )
    directory, moved = client_dir / "d", client_dir / "d" / "f"
    directory.mkdir()
    try:
        os.setxattr(directory, "system.posix_acl_default", acl)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            skip(f"the file system has no default ACLs: {error.strerror}")
        raise
    os.rename(make_file(client_dir / "f", mode=0o600), moved)
    found = os.stat(moved).st_mode & 0o7777
    assert found == 0o600, f"the mode of a file of mode 600 is {found:o} after rename() to another directory"
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, os.open, moved, os.O_RDONLY)


@pytest.mark.case(
    "PSX-STICKY-NOT-INHERITED", section="mkdir(2): DESCRIPTION", kills=("mkdir-inherits-sticky",)
)
def test_directory_in_one_with_the_sticky_bit_does_not_have_the_bit(client_dir):
    """The mode is the argument without the mask: the parent's sticky bit is no part of it."""
    client_dir.chmod(0o1777)
    (client_dir / "d").mkdir(0o755)
    found = os.stat(client_dir / "d").st_mode & 0o7777
    assert not found & stat.S_ISVTX, f"the mode of a directory made with mode 755 is {found:o}"


@pytest.mark.case(
    "PSX-CHMOD-KINDS", section="POSIX.1-2024 chmod(): DESCRIPTION", kills=("chmod-of-socket-ignored",)
)
def test_mode_of_a_file_of_each_kind_is_changed(client_dir):
    """chmod() changes the permission bits of FIFOs and sockets, and nothing else of them."""
    made = 0
    for kind in (stat.S_IFIFO, stat.S_IFSOCK):
        path = client_dir / f"{kind:o}"
        try:
            os.mknod(path, kind | 0o600)
        except OSError as error:
            record_observation(f"no file of type {kind:o}: {error.strerror}")
            continue
        made += 1
        for mode in (0o640, 0o604, 0o600):
            os.chmod(path, mode)
            found = os.lstat(path).st_mode
            assert found == kind | mode, f"the mode is {found:o} after chmod() to {kind | mode:o}"
    if not made:
        skip("the file system has neither FIFOs nor sockets")


@pytest.mark.server_inodes("serial number of *")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("rename", id="rename", marks=pytest.mark.case("PSX-NAME-TAKEN-RENAME")),
        pytest.param("unlink", id="unlink", marks=pytest.mark.case("PSX-NAME-TAKEN-UNLINK")),
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 ftruncate(), write(), futimens(): DESCRIPTION",
    kills=("descriptor-cuts-by-name",),
)
def test_descriptor_is_of_its_file_when_another_has_its_name(client_dir, how):
    """What is done by a descriptor is done to its file, and not to a new file that has its old name."""
    path, moved = client_dir / "f", client_dir / "moved"
    with open_fd(path, os.O_CREAT | os.O_RDWR, 0o600) as descriptor:
        os.write(descriptor, b"the first file")
        if how == "rename":
            os.rename(path, moved)
        else:
            os.unlink(path)
        before = os.stat(make_file(path, b"the second file", 0o644))
        os.ftruncate(descriptor, 9)
        os.pwrite(descriptor, b"FIRST", 4)
        os.utime(descriptor, (10**9, 10**9))
        os.fsync(descriptor)
        one = os.fstat(descriptor)
        found = one.st_size, one.st_mtime
        assert found == (9, 10**9), "size and mtime of the first file, set by its descriptor"
        assert os.pread(descriptor, 20, 0) == b"the FIRST"
        assert path.read_bytes() == b"the second file", f"after {how}() of the first file"
        after = os.stat(path)
        assert after.st_ino == before.st_ino, "serial number of the second file"
        assert after.st_mtime > 10**9, (
            "mtime of the second file is what was set by the first one's descriptor"
        )
    if how == "rename":
        assert moved.read_bytes() == b"the FIRST"
