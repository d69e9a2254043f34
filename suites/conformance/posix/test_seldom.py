"""Sockets, devices, FIFOs and symbolic links have modes, owners, times and links as regular files have."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import CannotRun, record_observation, skip
from storagetest.agent.testlib.libc import RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.tmpfiles import hard_link, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

MAKERS = {
    "a FIFO": lambda path: os.mknod(path, stat.S_IFIFO | 0o600),
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a character device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "a block device": lambda path: os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(259, 65537)),
    "a symbolic link": lambda path: os.symlink("absent", path),
}
NOT_GIVEN_AWAY = (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)
"""What chown() and lchown() return if owners cannot be set here (chown(2); lchown(): ERRORS)."""
SET = 1_234_567_890 * 10**9
"""A time in nanoseconds (chosen)."""


def made_files(client_dir):
    """Return the paths of a file of each kind that the file system has."""
    paths = {}
    for number, (kind, make) in enumerate(MAKERS.items()):
        path = client_dir / f"kind{number}"
        try:
            make(path)
        except OSError as error:  # the cases of mknod() and symlink() test whether that is legal
            record_observation(f"no {kind.partition(' ')[2]}: {error.strerror}")
            continue
        paths[kind] = path
    return paths


def seldom_files(client_dir, *without):
    """Return them without some kinds; skip the case if there are none."""
    paths = {kind: path for kind, path in made_files(client_dir).items() if kind not in without}
    if not paths:
        skip("the file system has neither special files nor symbolic links")
    return paths


def looks(paths):
    return {kind: os.lstat(path) for kind, path in paths.items()}


@pytest.mark.case(
    "PSX-SELDOM-MODE",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHMOD-KINDS"),
    kills=("chmod-of-device-ignored",),
)
def test_mode_of_a_special_file_is_set(client_dir):
    """chmod() sets the permission bits of devices as of FIFOs and sockets, and marks their ctime."""
    paths = seldom_files(client_dir, "a symbolic link")
    for mode in (0o640, 0o604, 0o711):
        before = looks(paths)
        wait_clock_tick(client_dir)
        for kind, path in paths.items():
            os.chmod(path, mode)
            found, was = os.lstat(path), before[kind]
            wanted = stat.S_IFMT(was.st_mode) | mode
            assert found.st_mode == wanted, (
                f"{kind} has mode {found.st_mode:o} after chmod() to {mode:o} ({wanted:o})"
            )
            assert found.st_ctime_ns > was.st_ctime_ns, f"chmod() of {kind} leaves ctime"


@pytest.mark.case(
    "PSX-SELDOM-OWNER",
    section="POSIX.1-2024 lchown(): DESCRIPTION; chown(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-STAMPED-OWNER"),
    kills=("chown-of-socket-ignored", "chown-of-device-ignored", "lchown-keeps-ctime"),
)
def test_owner_of_a_special_file_is_set(client_dir):
    """Upon success user and group are those given, and ctime is marked: of devices and links, too."""
    paths = seldom_files(client_dir)
    for user, group in ((4242, 4243), (4244, 4245)):
        before = looks(paths)
        wait_clock_tick(client_dir)
        for kind, path in paths.items():
            try:
                os.chown(path, user, group, follow_symlinks=False)
            except OSError as error:
                if error.errno in NOT_GIVEN_AWAY:
                    raise CannotRun(f"{kind} cannot be given away here: {error.strerror}") from None
                raise
            found = os.lstat(path)
            assert (found.st_uid, found.st_gid) == (user, group), f"owner and group of {kind}"
            assert found.st_ctime_ns > before[kind].st_ctime_ns, f"chown() of {kind} leaves ctime"


@pytest.mark.case(
    "PSX-SELDOM-TIMES",
    section="POSIX.1-2024 utimensat(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-LINK", "PSX-STAMPED-UTIMENS"),
    kills=("utimens-of-socket-ignored", "utimens-of-device-ignored", "utimens-of-link-keeps-ctime"),
)
def test_times_of_a_special_file_are_set(client_dir):
    """The times are those given, and ctime is marked: of sockets, devices and symbolic links, too."""
    paths = seldom_files(client_dir)
    for turn in range(2):
        before = looks(paths)
        wait_clock_tick(client_dir)
        for kind, path in paths.items():
            times = (SET + turn * 10**12, SET + (turn + 5) * 10**12)
            os.utime(path, ns=times, follow_symlinks=False)
            found = os.lstat(path)
            assert found.st_mtime_ns == times[1], f"mtime of {kind}, time {turn + 1}"
            assert found.st_ctime_ns > before[kind].st_ctime_ns, f"utimensat() of {kind} leaves ctime"


@pytest.mark.case(
    "PSX-SELDOM-LINKS",
    section="POSIX.1-2024 link(): DESCRIPTION; unlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK", "PSX-LINK-CTIME"),
    kills=("link-of-socket-refused", "link-of-device-not-counted", "link-of-link-keeps-ctime"),
)
def test_links_of_a_special_file_are_counted(client_dir):
    """A link of any file but a directory is counted, and marks ctime; so does the removal of one of two."""
    paths = seldom_files(client_dir)
    (client_dir / "d").mkdir()
    second = {kind: client_dir / "d" / path.name for kind, path in paths.items()}
    for turn in (1, 2):
        before = looks(paths)
        wait_clock_tick(client_dir)
        for kind, path in paths.items():
            hard_link(path, second[kind], follow_symlinks=False)
        linked, others = looks(paths), looks(second)
        wait_clock_tick(client_dir)
        for path in second.values():
            os.unlink(path)
        left = looks(paths)
        for kind in paths:
            assert linked[kind].st_nlink == 2, f"{kind} has two names, and a link count of another number"
            assert os.path.samestat(linked[kind], others[kind]), f"the second name of {kind} is another file"
            assert others[kind].st_mode == before[kind].st_mode, f"mode of the second name of {kind}"
            assert linked[kind].st_ctime_ns > before[kind].st_ctime_ns, (
                f"link() of {kind} leaves ctime, time {turn}"
            )
            assert left[kind].st_nlink == 1, f"{kind} has one name, and a link count of another number"
            assert left[kind].st_ctime_ns > linked[kind].st_ctime_ns, f"unlink() of a name of {kind}: ctime"


@pytest.mark.case(
    "PSX-NOREPLACE-KINDS",
    section="rename(2): RENAME_NOREPLACE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-NOREPLACE"),
    kills=("noreplace-of-directory-refused", "noreplace-between-directories-copies"),
)
def test_rename_noreplace_renames_a_file_of_each_kind(client_dir):
    """If the new name is free, RENAME_NOREPLACE renames: of each kind, in one directory and to another."""
    probe = client_dir / "probe"
    probe.touch()
    renameat2(probe, client_dir / "free", RENAME_NOREPLACE)  # skips the case if there is no such flag
    paths = made_files(client_dir)
    for kind, name in (("a regular file", "regular"), ("a directory", "tree")):
        paths[kind] = client_dir / name
    paths["a regular file"].write_bytes(b"regular")
    paths["a directory"].mkdir()
    (paths["a directory"] / "inside").write_bytes(b"inside")
    (client_dir / "other").mkdir()
    for kind, path in paths.items():
        one = os.lstat(path)
        for old, new in (
            (path, client_dir / "new"),
            (client_dir / "new", client_dir / "other" / "new"),
            (client_dir / "other" / "new", path),
        ):
            try:
                renameat2(old, new, RENAME_NOREPLACE)
            except CannotRun:
                raise AssertionError(
                    f"RENAME_NOREPLACE is EINVAL for {kind}, and was not for a file"
                ) from None
            assert not os.path.lexists(old), f"{kind} has its old name {old.name} still"
            found = os.lstat(new)
            assert (found.st_mode, found.st_nlink) == (one.st_mode, one.st_nlink), f"{kind} as {new.name}"
    assert paths["a regular file"].read_bytes() == b"regular"
    assert os.listdir(paths["a directory"]) == ["inside"]
