"""unlink() and rmdir()."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, wait_clock_tick

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
    "FILE": make_file,
    "FIFO": os.mkfifo,
    "SYMLINK": a_link,
    "NODE": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.lower(), marks=pytest.mark.case(f"PSX-UNLINK-{kind}")) for kind in MADE],
)
@pytest.mark.case(kills=("unlink-not-done",))
def test_unlink_removes_the_name(client_dir, kind):
    """It shall remove a link to a file; if path names a symbolic link, that link itself."""
    MADE[kind](client_dir / "x")
    os.unlink(client_dir / "x")
    assert_errno(errno.ENOENT, os.lstat, client_dir / "x")
    assert os.listdir(client_dir) == []


@pytest.mark.case("PSX-UNLINK-NOT-FOLLOWED")
def test_what_a_link_names_stays(client_dir):
    """unlink() does not affect any file named by the contents of a symbolic link."""
    make_file(client_dir / "f", b"kept")
    os.symlink("f", client_dir / "link")
    os.unlink(client_dir / "link")
    assert (client_dir / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-UNLINK-DIRECTORY", section=unlink_errors)
def test_unlink_of_a_directory(client_dir):
    """[EPERM] The file is a directory, and that is prohibited; Linux says EISDIR (unlink(2))."""
    (client_dir / "d").mkdir()
    assert_errno((errno.EPERM, errno.EISDIR), os.unlink, client_dir / "d")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-UNLINK-SLASH", section=unlink_errors)
def test_unlink_of_a_file_with_a_slash_after_its_name(client_dir):
    """[ENOTDIR] The path contains a non-slash character and ends with slashes, and names no directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.unlink, f"{client_dir}/f/")
    assert (client_dir / "f").exists()


@pytest.mark.case("PSX-UNLINK-NLINK", kills=("link-not-counted",))
def test_the_link_count_is_one_less(client_dir):
    """unlink() decrements the link count of the file that the link references."""
    make_file(client_dir / "a")
    os.link(client_dir / "a", client_dir / "b")
    assert os.stat(client_dir / "a").st_nlink == 2
    os.unlink(client_dir / "b")
    assert os.stat(client_dir / "a").st_nlink == 1


@pytest.mark.case("PSX-UNLINK-OTHER-NAME")
def test_the_other_name_and_the_data_stay(client_dir):
    """Contents are freed only when the link count is 0 and no process has the file open."""
    make_file(client_dir / "a", b"shared")
    os.link(client_dir / "a", client_dir / "b")
    os.unlink(client_dir / "a")
    assert (client_dir / "b").read_bytes() == b"shared"


@pytest.mark.case("PSX-UNLINK-OPEN-NLINK", kills=("unlinked-still-counted",))
def test_a_file_removed_while_open_has_no_links(client_dir):
    """Where a process has the file open, its last link is removed before unlink() returns all the same."""
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        os.unlink(client_dir / "f")
        assert os.fstat(descriptor).st_nlink == 0


@pytest.mark.case("PSX-UNLINK-OPEN-EMPTY", section=rmdir, kills=("unlinked-open-stale",))
def test_a_directory_whose_last_file_was_removed_while_open_can_be_removed(client_dir):
    """The link is gone when unlink() returns: its directory is empty."""
    (client_dir / "d").mkdir()
    with open_fd(make_file(client_dir / "d" / "f", b"x")) as descriptor:
        os.unlink(client_dir / "d" / "f")
        os.rmdir(client_dir / "d")
        assert os.pread(descriptor, 1, 0) == b"x"


@pytest.mark.case("PSX-UNLINK-TIMES", kills=("directory-mtime-not-moved", "link-ctime-not-moved"))
def test_unlink_stamps_the_directory_and_the_other_link(client_dir):
    """The parent's mtime and ctime are marked; and if the file's link count is not 0, the file's ctime."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "kept")
    os.link(client_dir / "kept", client_dir / "d" / "x")
    directory, file = os.stat(client_dir / "d"), os.stat(client_dir / "kept")
    wait_clock_tick(client_dir)
    os.unlink(client_dir / "d" / "x")
    assert os.stat(client_dir / "d").st_mtime_ns > directory.st_mtime_ns
    assert os.stat(client_dir / "d").st_ctime_ns > directory.st_ctime_ns
    assert os.stat(client_dir / "kept").st_ctime_ns > file.st_ctime_ns
    assert os.stat(client_dir / "kept").st_mtime_ns == file.st_mtime_ns


@pytest.mark.case("PSX-UNLINK-AGAIN", kills=("unlink-not-done",))
def test_a_name_can_be_used_again_at_once(client_dir):
    """A name that was removed is free: what is made under it is another file."""
    with open_fd(make_file(client_dir / "f", b"old")) as descriptor:
        os.unlink(client_dir / "f")
        make_file(client_dir / "f", b"new")
        assert os.pread(descriptor, 3, 0) == b"old"
        assert (client_dir / "f").read_bytes() == b"new"


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
def test_unlink_in_a_directory_with_the_sticky_bit(client_dir, directory, file, may):
    """[EPERM] S_ISVTX is set on the directory, and the process owns neither it nor the file, unprivileged."""
    owners = {"root": 0, "asks": NOBODY}
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "x", mode=0o666)
    os.chown(client_dir / "d" / "x", owners[file], 0)
    os.chown(client_dir / "d", owners[directory], 0)
    os.chmod(client_dir / "d", 0o1777)
    with run_as_user(NOBODY, NOBODY):
        if may:
            os.unlink(client_dir / "d" / "x")
        else:
            assert_errno((errno.EPERM, errno.EACCES), os.unlink, client_dir / "d" / "x")
    assert (client_dir / "d" / "x").exists() is not may


@sticky("rmdir")
def test_rmdir_in_a_directory_with_the_sticky_bit(client_dir, directory, file, may):
    """[EPERM] S_ISVTX is set on the parent, and the process owns neither it nor the directory."""
    owners = {"root": 0, "asks": NOBODY}
    (client_dir / "d").mkdir()
    (client_dir / "d" / "x").mkdir()
    os.chown(client_dir / "d" / "x", owners[file], 0)
    os.chown(client_dir / "d", owners[directory], 0)
    os.chmod(client_dir / "d", 0o1777)
    with run_as_user(NOBODY, NOBODY):
        if may:
            os.rmdir(client_dir / "d" / "x")
        else:
            assert_errno((errno.EPERM, errno.EACCES), os.rmdir, client_dir / "d" / "x")
    assert (client_dir / "d" / "x").exists() is not may


@pytest.mark.case("PSX-RMDIR-EMPTY", section=rmdir)
def test_rmdir_removes_an_empty_directory(client_dir):
    """The directory shall be removed only if it is an empty directory."""
    (client_dir / "d").mkdir()
    os.rmdir(client_dir / "d")
    assert os.listdir(client_dir) == []


def fills(what: str):
    return {"FILE": make_file, "DIRECTORY": os.mkdir, "DANGLING-LINK": a_link, "FIFO": os.mkfifo}[what]


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, id=what.lower(), marks=pytest.mark.case(f"PSX-RMDIR-NOT-EMPTY-{what}"))
        for what in ("FILE", "DIRECTORY", "DANGLING-LINK", "FIFO")
    ],
)
@pytest.mark.case(section=rmdir_errors, kills=("rmdir-full", "rmdir-full-wrong-errno"))
def test_rmdir_of_a_directory_that_is_not_empty(client_dir, what):
    """[EEXIST] or [ENOTEMPTY] The directory is not empty."""
    (client_dir / "d").mkdir()
    fills(what)(client_dir / "d" / "x")
    assert_errno((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, client_dir / "d")
    assert os.listdir(client_dir / "d") == ["x"]


@pytest.mark.case("PSX-RMDIR-FILE", section=rmdir_errors)
def test_rmdir_of_a_file(client_dir):
    """[ENOTDIR] A component of path is not a directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.rmdir, client_dir / "f")


@pytest.mark.case("PSX-RMDIR-LINK", section=rmdir_errors)
def test_rmdir_of_a_link_to_a_directory(client_dir):
    """[ENOTDIR] If path names a symbolic link, rmdir() shall fail."""
    (client_dir / "d").mkdir()
    os.symlink("d", client_dir / "link")
    assert_errno(errno.ENOTDIR, os.rmdir, client_dir / "link")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT", section=rmdir_errors)
def test_rmdir_of_dot(client_dir):
    """[EINVAL] The path contains a last component that is dot."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EINVAL, os.rmdir, f"{client_dir}/d/.")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT-DOT", section=rmdir)
def test_rmdir_of_dot_dot(client_dir):
    """If the path's final component is dot-dot, rmdir() shall fail: the parent is not empty."""
    (client_dir / "d").mkdir()
    assert_errno((errno.ENOTEMPTY, errno.EEXIST, errno.EINVAL), os.rmdir, f"{client_dir}/d/..")


@pytest.mark.case("PSX-RMDIR-TIMES", section=rmdir, kills=("directory-mtime-not-moved",))
def test_rmdir_stamps_the_parent(client_dir):
    """Upon success mtime and ctime of the parent directory are marked for update."""
    (client_dir / "d").mkdir()
    (client_dir / "d" / "x").mkdir()
    before = os.stat(client_dir / "d")
    wait_clock_tick(client_dir)
    os.rmdir(client_dir / "d" / "x")
    after = os.stat(client_dir / "d")
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-RMDIR-WORKING-DIRECTORY", section=rmdir)
def test_a_working_directory_that_was_removed_takes_no_files(client_dir):
    """A directory that is removed while a process is in it gets no new entries."""
    (client_dir / "d").mkdir()
    os.chdir(client_dir / "d")
    os.rmdir(client_dir / "d")
    assert_errno((errno.ENOENT, errno.ESTALE), os.open, "f", os.O_CREAT | os.O_WRONLY)
