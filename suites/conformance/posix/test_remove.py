"""unlink() and rmdir()."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import as_user, refused
from storagetest.agent.testlib.tmpfiles import a_file, opened, tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 unlink(): DESCRIPTION"),
]
unlink_errors = "POSIX.1-2024 unlink(): ERRORS"
rmdir = "POSIX.1-2024 rmdir(): DESCRIPTION"
rmdir_errors = "POSIX.1-2024 rmdir(): ERRORS"

NOBODY = 54321


def a_link(path):
    os.symlink("target", path)


MADE = {
    "FILE": a_file,
    "FIFO": os.mkfifo,
    "SYMLINK": a_link,
    "NODE": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.lower(), marks=pytest.mark.case(f"PSX-UNLINK-{kind}")) for kind in MADE],
)
@pytest.mark.case(kills=("unlink-not-done",))
def test_unlink_removes_the_name(here, kind):
    """It shall remove a link to a file; if path names a symbolic link, that link itself."""
    MADE[kind](here / "x")
    os.unlink(here / "x")
    refused(errno.ENOENT, os.lstat, here / "x")
    assert os.listdir(here) == []


@pytest.mark.case("PSX-UNLINK-NOT-FOLLOWED")
def test_what_a_link_names_stays(here):
    """unlink() does not affect any file named by the contents of a symbolic link."""
    a_file(here / "f", b"kept")
    os.symlink("f", here / "link")
    os.unlink(here / "link")
    assert (here / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-UNLINK-DIRECTORY", section=unlink_errors)
def test_unlink_of_a_directory(here):
    """[EPERM] The file is a directory, and that is prohibited; Linux says EISDIR (unlink(2))."""
    (here / "d").mkdir()
    refused((errno.EPERM, errno.EISDIR), os.unlink, here / "d")
    assert (here / "d").is_dir()


@pytest.mark.case("PSX-UNLINK-SLASH", section=unlink_errors)
def test_unlink_of_a_file_with_a_slash_after_its_name(here):
    """[ENOTDIR] The path contains a non-slash character and ends with slashes, and names no directory."""
    a_file(here / "f")
    refused(errno.ENOTDIR, os.unlink, f"{here}/f/")
    assert (here / "f").exists()


@pytest.mark.case("PSX-UNLINK-NLINK", kills=("link-not-counted",))
def test_the_link_count_is_one_less(here):
    """unlink() decrements the link count of the file that the link references."""
    a_file(here / "a")
    os.link(here / "a", here / "b")
    assert os.stat(here / "a").st_nlink == 2
    os.unlink(here / "b")
    assert os.stat(here / "a").st_nlink == 1


@pytest.mark.case("PSX-UNLINK-OTHER-NAME")
def test_the_other_name_and_the_data_stay(here):
    """Contents are freed only when the link count is 0 and no process has the file open."""
    a_file(here / "a", b"shared")
    os.link(here / "a", here / "b")
    os.unlink(here / "a")
    assert (here / "b").read_bytes() == b"shared"


@pytest.mark.case("PSX-UNLINK-OPEN-NLINK", kills=("unlinked-still-counted",))
def test_a_file_removed_while_open_has_no_links(here):
    """Where a process has the file open, its last link is removed before unlink() returns all the same."""
    with opened(a_file(here / "f", b"x")) as descriptor:
        os.unlink(here / "f")
        assert os.fstat(descriptor).st_nlink == 0


@pytest.mark.case("PSX-UNLINK-OPEN-EMPTY", section=rmdir, kills=("unlinked-open-stale",))
def test_a_directory_whose_last_file_was_removed_while_open_can_be_removed(here):
    """The link is gone when unlink() returns: its directory is empty."""
    (here / "d").mkdir()
    with opened(a_file(here / "d" / "f", b"x")) as descriptor:
        os.unlink(here / "d" / "f")
        os.rmdir(here / "d")
        assert os.pread(descriptor, 1, 0) == b"x"


@pytest.mark.case("PSX-UNLINK-TIMES", kills=("directory-mtime-not-moved", "link-ctime-not-moved"))
def test_unlink_stamps_the_directory_and_the_other_link(here):
    """The parent's mtime and ctime are marked; and if the file's link count is not 0, the file's ctime."""
    (here / "d").mkdir()
    a_file(here / "kept")
    os.link(here / "kept", here / "d" / "x")
    directory, file = os.stat(here / "d"), os.stat(here / "kept")
    tick(here)
    os.unlink(here / "d" / "x")
    assert os.stat(here / "d").st_mtime_ns > directory.st_mtime_ns
    assert os.stat(here / "d").st_ctime_ns > directory.st_ctime_ns
    assert os.stat(here / "kept").st_ctime_ns > file.st_ctime_ns
    assert os.stat(here / "kept").st_mtime_ns == file.st_mtime_ns


@pytest.mark.case("PSX-UNLINK-AGAIN", kills=("unlink-not-done",))
def test_a_name_can_be_used_again_at_once(here):
    """A name that was removed is free: what is made under it is another file."""
    with opened(a_file(here / "f", b"old")) as descriptor:
        os.unlink(here / "f")
        a_file(here / "f", b"new")
        assert os.pread(descriptor, 3, 0) == b"old"
        assert (here / "f").read_bytes() == b"new"


STICKY = [
    # who owns directory and file, who asks, and whether it may
    ("FILE-OWNER", "root", "asks", True),
    ("DIRECTORY-OWNER", "asks", "root", True),
    ("NEITHER", "root", "root", False),
]


def sticky(call: str):
    return pytest.mark.parametrize(
        ("directory", "file", "may"),
        [
            pytest.param(
                *rest,
                id=name.lower(),
                marks=pytest.mark.case(
                    f"PSX-{call.upper()}-STICKY-{name}", section=f"POSIX.1-2024 {call}(): ERRORS [S_ISVTX]"
                ),
            )
            for name, *rest in STICKY
        ],
    )


@sticky("unlink")
def test_unlink_in_a_directory_with_the_sticky_bit(here, directory, file, may):
    """[EPERM] S_ISVTX is set on the directory, and the process owns neither it nor the file, unprivileged."""
    owners = {"root": 0, "asks": NOBODY}
    (here / "d").mkdir()
    a_file(here / "d" / "x", mode=0o666)
    os.chown(here / "d" / "x", owners[file], 0)
    os.chown(here / "d", owners[directory], 0)
    os.chmod(here / "d", 0o1777)
    with as_user(NOBODY, NOBODY):
        if may:
            os.unlink(here / "d" / "x")
        else:
            refused((errno.EPERM, errno.EACCES), os.unlink, here / "d" / "x")
    assert (here / "d" / "x").exists() is not may


@sticky("rmdir")
def test_rmdir_in_a_directory_with_the_sticky_bit(here, directory, file, may):
    """[EPERM] S_ISVTX is set on the parent, and the process owns neither it nor the directory."""
    owners = {"root": 0, "asks": NOBODY}
    (here / "d").mkdir()
    (here / "d" / "x").mkdir()
    os.chown(here / "d" / "x", owners[file], 0)
    os.chown(here / "d", owners[directory], 0)
    os.chmod(here / "d", 0o1777)
    with as_user(NOBODY, NOBODY):
        if may:
            os.rmdir(here / "d" / "x")
        else:
            refused((errno.EPERM, errno.EACCES), os.rmdir, here / "d" / "x")
    assert (here / "d" / "x").exists() is not may


@pytest.mark.case("PSX-RMDIR-EMPTY", section=rmdir)
def test_rmdir_removes_an_empty_directory(here):
    """The directory shall be removed only if it is an empty directory."""
    (here / "d").mkdir()
    os.rmdir(here / "d")
    assert os.listdir(here) == []


def fills(what: str):
    return {"FILE": a_file, "DIRECTORY": os.mkdir, "DANGLING-LINK": a_link, "FIFO": os.mkfifo}[what]


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, id=what.lower(), marks=pytest.mark.case(f"PSX-RMDIR-NOT-EMPTY-{what}"))
        for what in ("FILE", "DIRECTORY", "DANGLING-LINK", "FIFO")
    ],
)
@pytest.mark.case(section=rmdir_errors, kills=("rmdir-full", "rmdir-full-wrong-errno"))
def test_rmdir_of_a_directory_that_is_not_empty(here, what):
    """[EEXIST] or [ENOTEMPTY] The directory is not empty."""
    (here / "d").mkdir()
    fills(what)(here / "d" / "x")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, here / "d")
    assert os.listdir(here / "d") == ["x"]


@pytest.mark.case("PSX-RMDIR-FILE", section=rmdir_errors)
def test_rmdir_of_a_file(here):
    """[ENOTDIR] A component of path is not a directory."""
    a_file(here / "f")
    refused(errno.ENOTDIR, os.rmdir, here / "f")


@pytest.mark.case("PSX-RMDIR-LINK", section=rmdir_errors)
def test_rmdir_of_a_link_to_a_directory(here):
    """[ENOTDIR] If path names a symbolic link, rmdir() shall fail."""
    (here / "d").mkdir()
    os.symlink("d", here / "link")
    refused(errno.ENOTDIR, os.rmdir, here / "link")
    assert (here / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT", section=rmdir_errors)
def test_rmdir_of_dot(here):
    """[EINVAL] The path contains a last component that is dot."""
    (here / "d").mkdir()
    refused(errno.EINVAL, os.rmdir, f"{here}/d/.")
    assert (here / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT-DOT", section=rmdir)
def test_rmdir_of_dot_dot(here):
    """If the path's final component is dot-dot, rmdir() shall fail: the parent is not empty."""
    (here / "d").mkdir()
    refused((errno.ENOTEMPTY, errno.EEXIST, errno.EINVAL), os.rmdir, f"{here}/d/..")


@pytest.mark.case("PSX-RMDIR-TIMES", section=rmdir, kills=("directory-mtime-not-moved",))
def test_rmdir_stamps_the_parent(here):
    """Upon success mtime and ctime of the parent directory are marked for update."""
    (here / "d").mkdir()
    (here / "d" / "x").mkdir()
    before = os.stat(here / "d")
    tick(here)
    os.rmdir(here / "d" / "x")
    after = os.stat(here / "d")
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-RMDIR-WORKING-DIRECTORY", section=rmdir)
def test_a_working_directory_that_was_removed_takes_no_files(here):
    """A directory that is removed while a process is in it gets no new entries."""
    (here / "d").mkdir()
    os.chdir(here / "d")
    os.rmdir(here / "d")
    refused((errno.ENOENT, errno.ESTALE), os.open, "f", os.O_CREAT | os.O_WRONLY)
