"""unlink() and rmdir()."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    node,
    open_fd,
    rmdir_open_directory,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 unlink(): DESCRIPTION"
    ),
]
unlink_errors = "POSIX.1-2024 unlink(): ERRORS"
rmdir = "POSIX.1-2024 rmdir(): DESCRIPTION"
rmdir_errors = "POSIX.1-2024 rmdir(): ERRORS"

USER = 54321


def make_symlink(path):
    symbolic_link("target", path)


MAKERS = {
    "FILE": make_file,
    "FIFO": fifo,
    "SYMLINK": make_symlink,
    "NODE": lambda path: node(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.lower(), marks=pytest.mark.case(f"PSX-UNLINK-{kind}")) for kind in MAKERS],
)
@pytest.mark.case(kills=("unlink-not-done",))
def test_unlink_removes_the_name(client_dir, kind):
    """It shall remove a link to a file; if path names a symbolic link, that link itself."""
    MAKERS[kind](client_dir / "x")
    os.unlink(client_dir / "x")
    assert_errno(errno.ENOENT, os.lstat, client_dir / "x")
    assert os.listdir(client_dir) == []


@pytest.mark.case("PSX-UNLINK-NOT-FOLLOWED")
def test_unlink_does_not_follow_links(client_dir):
    """unlink() does not affect any file named by the contents of a symbolic link."""
    make_file(client_dir / "f", b"kept")
    symbolic_link("f", client_dir / "link")
    os.unlink(client_dir / "link")
    assert (client_dir / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-UNLINK-DIRECTORY", section=unlink_errors)
def test_unlink_of_a_directory_is_refused(client_dir):
    """[EPERM] The file is a directory, and that is prohibited; Linux returns EISDIR (unlink(2))."""
    (client_dir / "d").mkdir()
    assert_errno((errno.EPERM, errno.EISDIR), os.unlink, client_dir / "d")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-UNLINK-SLASH", section=unlink_errors)
def test_unlink_with_a_trailing_slash_is_refused(client_dir):
    """[ENOTDIR] The path contains a non-slash character and ends with slashes, and names no directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.unlink, f"{client_dir}/f/")
    assert (client_dir / "f").exists()


@pytest.mark.case(
    "PSX-UNLINK-NLINK", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"), kills=("link-not-counted",)
)
def test_unlink_decrements_the_link_count(client_dir):
    """unlink() decrements the link count of the file that the link references."""
    make_file(client_dir / "a")
    hard_link(client_dir / "a", client_dir / "b")
    assert os.stat(client_dir / "a").st_nlink == 2
    os.unlink(client_dir / "b")
    assert os.stat(client_dir / "a").st_nlink == 1


@pytest.mark.case("PSX-UNLINK-OTHER-NAME")
def test_unlink_keeps_the_other_link_and_the_data(client_dir):
    """Contents are freed only when the link count is 0 and no process has the file open."""
    make_file(client_dir / "a", b"shared")
    hard_link(client_dir / "a", client_dir / "b")
    os.unlink(client_dir / "a")
    assert (client_dir / "b").read_bytes() == b"shared"


@pytest.mark.case("PSX-UNLINK-OPEN-NLINK", kills=("unlinked-still-counted",))
def test_removed_open_file_has_no_links(client_dir):
    """If a process has the file open, its last link is still removed before unlink() returns."""
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        os.unlink(client_dir / "f")
        assert os.fstat(descriptor).st_nlink == 0


@pytest.mark.server_inodes
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            "unlink",
            id="removed",
            marks=pytest.mark.case("PSX-UNLINK-OPEN-INODE", kills=("unlinked-inode-reused",)),
        ),
        pytest.param(
            "rename",
            id="replaced",
            marks=pytest.mark.case("PSX-RENAME-OPEN-INODE", kills=("replaced-inode-reused",)),
        ),
    ],
)
@pytest.mark.case(section="POSIX.1-2024 <sys/stat.h>: st_ino")
def test_new_files_have_other_numbers_than_open_files_without_a_name(client_dir, call):
    """st_ino and st_dev identify a file: one that is open, and was removed or replaced, keeps its number."""
    with ExitStack() as opened:
        held = {}
        for number in range(8):
            path = make_file(client_dir / f"f{number}", b"x")
            descriptor = opened.enter_context(open_fd(path, os.O_RDONLY))
            held[descriptor] = os.fstat(descriptor).st_ino
            if call == "unlink":
                os.unlink(path)
            else:
                os.rename(make_file(client_dir / "new", b"y"), path)
        assert {descriptor: os.fstat(descriptor).st_ino for descriptor in held} == held
        made = [make_file(client_dir / f"g{number}", b"z") for number in range(12)]
        if call == "rename":  # a removed name that is still there is judged elsewhere
            made += client_dir.glob("f?")
        numbers = [*held.values(), *(os.stat(path).st_ino for path in made if path.exists())]
        same = sorted({inode for inode in numbers if numbers.count(inode) > 1})
        assert not same, f"two files have one number, and one of them is open without a name: {same}"


@pytest.mark.case("PSX-UNLINK-OPEN-EMPTY", section=rmdir, kills=("unlinked-open-stale",))
def test_directory_of_a_removed_open_file_can_be_removed(client_dir):
    """The link is removed when unlink() returns: its directory is empty."""
    (client_dir / "d").mkdir()
    with open_fd(make_file(client_dir / "d" / "f", b"x")) as descriptor:
        os.unlink(client_dir / "d" / "f")
        os.rmdir(client_dir / "d")
        assert os.pread(descriptor, 1, 0) == b"x"


@pytest.mark.case(
    "PSX-UNLINK-TIMES",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    kills=("directory-mtime-not-moved", "link-ctime-not-moved", "unlink-keeps-ctime"),
)
def test_unlink_updates_the_times_of_directory_and_file(client_dir):
    """The parent's mtime and ctime are marked; and if the file's link count is not 0, the file's ctime."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "kept")
    hard_link(client_dir / "kept", client_dir / "d" / "x")
    directory, file = os.stat(client_dir / "d"), os.stat(client_dir / "kept")
    wait_clock_tick(client_dir)
    os.unlink(client_dir / "d" / "x")
    assert os.stat(client_dir / "d").st_mtime_ns > directory.st_mtime_ns
    assert os.stat(client_dir / "d").st_ctime_ns > directory.st_ctime_ns
    assert os.stat(client_dir / "kept").st_ctime_ns > file.st_ctime_ns
    assert os.stat(client_dir / "kept").st_mtime_ns == file.st_mtime_ns


@pytest.mark.case("PSX-UNLINK-KINDS-TIMES", kills=("unlink-of-link-leaves-times",))
def test_unlink_of_a_file_of_each_kind_updates_the_directory(client_dir):
    """The parent's mtime and ctime are marked, by a symbolic link, a FIFO and a second link, too."""
    at = client_dir / "d"
    at.mkdir()
    make_file(client_dir / "f")
    for kind, make in (
        ("file", make_file),
        ("symbolic link", lambda path: symbolic_link("absent", path)),
        ("FIFO", fifo),
        ("second link", lambda path: os.link(client_dir / "f", path)),
    ):
        try:
            make(at / "x")
        except OSError:
            continue  # the file system has none
        before = os.stat(at)
        wait_clock_tick(client_dir)
        os.unlink(at / "x")
        after = os.stat(at)
        assert after.st_mtime_ns > before.st_mtime_ns, f"unlink() of a {kind} leaves the parent's mtime"
        assert after.st_ctime_ns > before.st_ctime_ns, f"unlink() of a {kind} leaves the parent's ctime"


@pytest.mark.case("PSX-UNLINK-AGAIN", kills=("unlink-not-done",))
def test_removed_name_can_be_reused(client_dir):
    """A removed name is free: a new file of that name is a different file."""
    with open_fd(make_file(client_dir / "f", b"old")) as descriptor:
        os.unlink(client_dir / "f")
        make_file(client_dir / "f", b"new")
        assert os.pread(descriptor, 3, 0) == b"old"
        assert (client_dir / "f").read_bytes() == b"new"


STICKY = [
    # owner of the directory, owner of the file, whether the call succeeds
    ("FILE-OWNER", "root", "caller", True),
    ("DIRECTORY-OWNER", "caller", "root", True),
    ("NEITHER", "root", "root", False),
]


def for_each_owner(call: str):
    return pytest.mark.parametrize(
        ("directory", "file", "permitted"),
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


@for_each_owner("unlink")
def test_unlink_in_a_directory_with_the_sticky_bit(client_dir, directory, file, permitted):
    """[EPERM] S_ISVTX is set on the directory, and the process owns neither it nor the file, unprivileged."""
    owners = {"root": 0, "caller": USER}
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "x", mode=0o666)
    os.chown(client_dir / "d" / "x", owners[file], 0)
    os.chown(client_dir / "d", owners[directory], 0)
    os.chmod(client_dir / "d", 0o1777)
    with run_as_user(USER, USER):
        if permitted:
            os.unlink(client_dir / "d" / "x")
        else:
            assert_errno((errno.EPERM, errno.EACCES), os.unlink, client_dir / "d" / "x")
    assert (client_dir / "d" / "x").exists() is not permitted


@for_each_owner("rmdir")
def test_rmdir_in_a_directory_with_the_sticky_bit(client_dir, directory, file, permitted):
    """[EPERM] S_ISVTX is set on the parent, and the process owns neither it nor the directory."""
    owners = {"root": 0, "caller": USER}
    (client_dir / "d").mkdir()
    (client_dir / "d" / "x").mkdir()
    os.chown(client_dir / "d" / "x", owners[file], 0)
    os.chown(client_dir / "d", owners[directory], 0)
    os.chmod(client_dir / "d", 0o1777)
    with run_as_user(USER, USER):
        if permitted:
            os.rmdir(client_dir / "d" / "x")
        else:
            assert_errno((errno.EPERM, errno.EACCES), os.rmdir, client_dir / "d" / "x")
    assert (client_dir / "d" / "x").exists() is not permitted


@pytest.mark.case("PSX-RMDIR-EMPTIED", section=rmdir, kills=("emptied-not-removed",))
def test_directory_whose_many_entries_are_gone_is_removed(client_dir):
    """The directory shall be removed if it is empty, whatever entries it had before."""
    directory, other = client_dir / "d", client_dir / "other"
    directory.mkdir()
    other.mkdir()
    for number in range(60):
        make_file(directory / f"file{number}")
    for number in range(5):
        (directory / f"directory{number}").mkdir()
    for number in range(60):
        if number % 3:
            (directory / f"file{number}").unlink()
        else:
            (directory / f"file{number}").rename(other / f"file{number}")
    for number in range(5):
        (directory / f"directory{number}").rmdir()
    assert os.listdir(directory) == []
    directory.rmdir()
    assert_errno(errno.ENOENT, os.lstat, directory)
    directory.mkdir()
    assert os.listdir(directory) == []


@pytest.mark.case("PSX-RMDIR-EMPTY", section=rmdir)
def test_rmdir_removes_an_empty_directory(client_dir):
    """The directory shall be removed only if it is an empty directory."""
    (client_dir / "d").mkdir()
    os.rmdir(client_dir / "d")
    assert os.listdir(client_dir) == []


CONTENTS = {"FILE": make_file, "DIRECTORY": os.mkdir, "DANGLING-LINK": make_symlink, "FIFO": fifo}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(name, id=name.lower(), marks=pytest.mark.case(f"PSX-RMDIR-NOT-EMPTY-{name}"))
        for name in CONTENTS
    ],
)
@pytest.mark.case(section=rmdir_errors, kills=("rmdir-full", "rmdir-full-wrong-errno"))
def test_rmdir_of_a_nonempty_directory_is_refused(client_dir, entry):
    """[EEXIST] or [ENOTEMPTY] The directory is not empty."""
    (client_dir / "d").mkdir()
    CONTENTS[entry](client_dir / "d" / "x")
    assert_errno((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, client_dir / "d")
    assert os.listdir(client_dir / "d") == ["x"]


@pytest.mark.case("PSX-RMDIR-FILE", section=rmdir_errors)
def test_rmdir_of_a_file_is_refused(client_dir):
    """[ENOTDIR] A component of path is not a directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.rmdir, client_dir / "f")


@pytest.mark.case(
    "PSX-RMDIR-ANY-ENTRY",
    section="POSIX.1-2024 rmdir(): ERRORS",
    kills=("rmdir-hidden-names", "rmdir-takes-two-bytes-for-dots", "rmdir-takes-dots-for-dots"),
)
def test_directory_with_an_entry_of_any_name_is_kept(client_dir):
    """[ENOTEMPTY] whatever its only entry is called, by rmdir() and as the target of rename()."""
    full = (errno.ENOTEMPTY, errno.EEXIST)
    (client_dir / "d").mkdir()
    (client_dir / "other").mkdir()
    like_dots = (".x", "..x", ".-", "...", ".\u00e9")
    for name in (".hidden", "..f", "f", "-", "~", " ", ".nfs0001", "lost+found", "f" * 100, *like_dots):
        for make, remove in ((make_file, os.unlink), (os.mkdir, os.rmdir)):
            try:
                make(client_dir / "d" / name)
            except OSError as error:
                record_observation(f"{name!r} cannot be made: {error.strerror}")
                continue
            if name == "..." and os.listdir(client_dir / "d") != [name]:  # PSX-NAME-TRAILING-DOT
                record_observation(f"{name!r} is stored as {os.listdir(client_dir / 'd')}")
                remove(client_dir / "d" / name)
                continue
            assert_errno(full, os.rmdir, client_dir / "d")
            assert_errno(full, os.rename, client_dir / "other", client_dir / "d")
            assert os.listdir(client_dir / "d") == [name], "the refused call has changed the directory"
            remove(client_dir / "d" / name)
    assert sorted(os.listdir(client_dir)) == ["d", "other"]


@pytest.mark.case("PSX-RMDIR-LINK", section=rmdir_errors)
def test_rmdir_of_a_link_is_refused(client_dir):
    """[ENOTDIR] If path names a symbolic link, rmdir() shall fail."""
    (client_dir / "d").mkdir()
    symbolic_link("d", client_dir / "link")
    assert_errno(errno.ENOTDIR, os.rmdir, client_dir / "link")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT", section=rmdir_errors)
def test_rmdir_of_dot_is_refused(client_dir):
    """[EINVAL] The path contains a last component that is dot."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EINVAL, os.rmdir, f"{client_dir}/d/.")
    assert (client_dir / "d").is_dir()


@pytest.mark.case("PSX-RMDIR-DOT-DOT", section=rmdir)
def test_rmdir_of_dot_dot_is_refused(client_dir):
    """If the path's final component is dot-dot, rmdir() shall fail: the parent is not empty."""
    (client_dir / "d").mkdir()
    assert_errno((errno.ENOTEMPTY, errno.EEXIST, errno.EINVAL), os.rmdir, f"{client_dir}/d/..")


@pytest.mark.case("PSX-RMDIR-TIMES", section=rmdir, kills=("directory-mtime-not-moved",))
def test_rmdir_updates_the_parents_times(client_dir):
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
def test_removed_working_directory_takes_no_files(client_dir):
    """A directory that is removed while it is a working directory gets no new entries."""
    (client_dir / "d").mkdir()
    os.chdir(client_dir / "d")
    rmdir_open_directory(client_dir / "d")
    assert_errno((errno.ENOENT, errno.ESTALE), os.open, "f", os.O_CREAT | os.O_WRONLY)
