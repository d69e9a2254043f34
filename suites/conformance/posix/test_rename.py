"""rename(): atomic replacement, directories, errors and flags."""

from __future__ import annotations

import errno
import os
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 rename(): DESCRIPTION"
    ),
]
errors = "POSIX.1-2024 rename(): ERRORS"

USER = 54321


def make_symlink(path):
    symbolic_link("target", path)


MAKERS = {"FILE": make_file, "DIRECTORY": os.mkdir, "SYMLINK": make_symlink, "FIFO": fifo}


@pytest.mark.server_inodes
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.lower(), marks=pytest.mark.case(f"PSX-RENAME-{kind}")) for kind in MAKERS],
)
def test_rename_changes_the_name_only(client_dir, kind):
    """rename() shall change the name of a file; a symbolic link is renamed itself."""
    MAKERS[kind](client_dir / "old")
    before = os.lstat(client_dir / "old")
    os.rename(client_dir / "old", client_dir / "new")
    after = os.lstat(client_dir / "new")
    assert os.listdir(client_dir) == ["new"]
    assert (after.st_ino, after.st_mode, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_size,
        before.st_mtime_ns,
    )


@pytest.mark.case("PSX-RENAME-OTHER-DIRECTORY")
def test_rename_into_another_directory(client_dir):
    """The new name may be in another directory of the file system."""
    (client_dir / "a").mkdir()
    (client_dir / "b").mkdir()
    make_file(client_dir / "a" / "f", b"moved")
    os.rename(client_dir / "a" / "f", client_dir / "b" / "g")
    assert (os.listdir(client_dir / "a"), os.listdir(client_dir / "b")) == ([], ["g"])
    assert (client_dir / "b" / "g").read_bytes() == b"moved"


@pytest.mark.case("PSX-RENAME-DIRECTORY-TREE")
def test_rename_moves_a_directory_with_its_entries(client_dir):
    """A directory moves with its entries, and its dot-dot is its new parent."""
    (client_dir / "a" / "b").mkdir(parents=True)
    make_file(client_dir / "a" / "b" / "f", b"inside")
    (client_dir / "c").mkdir()
    os.rename(client_dir / "a" / "b", client_dir / "c" / "d")
    assert (client_dir / "c" / "d" / "f").read_bytes() == b"inside"
    assert os.path.samestat(os.stat(client_dir / "c" / "d" / ".."), os.stat(client_dir / "c"))


@pytest.mark.case("PSX-RENAME-REPLACE", kills=("rename-old-stays",))
def test_rename_replaces_a_file(client_dir):
    """If new names an existing file, it shall be removed and old renamed to new."""
    make_file(client_dir / "old", b"old")
    make_file(client_dir / "new", b"was there")
    os.rename(client_dir / "old", client_dir / "new")
    assert os.listdir(client_dir) == ["new"]
    assert (client_dir / "new").read_bytes() == b"old"


@pytest.mark.case("PSX-RENAME-REPLACE-OPEN")
def test_replaced_open_file_can_be_used(client_dir):
    """If the replaced file is open, its contents stay until all references are closed."""
    make_file(client_dir / "old", b"old")
    with open_fd(make_file(client_dir / "new", b"was there")) as descriptor:
        os.rename(client_dir / "old", client_dir / "new")
        assert os.pread(descriptor, 20, 0) == b"was there"
        assert (client_dir / "new").read_bytes() == b"old"


@pytest.mark.case("PSX-RENAME-REPLACE-LINKED", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"))
def test_replaced_file_loses_a_link(client_dir):
    """The link named new is removed: the file's other link stays, with a count of one."""
    make_file(client_dir / "old", b"old")
    make_file(client_dir / "new", b"other")
    hard_link(client_dir / "new", client_dir / "kept")
    os.rename(client_dir / "old", client_dir / "new")
    assert os.stat(client_dir / "kept").st_nlink == 1
    assert (client_dir / "kept").read_bytes() == b"other"


@pytest.mark.case("PSX-RENAME-NEVER-ABSENT", kills=("rename-not-atomic", "rename-old-stays"))
def test_new_name_exists_throughout_the_rename(client_dir):
    """A link named new shall exist throughout the operation and refer to the old or to the new file."""
    make_file(client_dir / "new", b"0" * 64)
    reader = SubprocessCall(_read_repeatedly, [str(client_dir / "new"), 0.4])
    number = 0
    while not reader.ended():
        number = (number + 1) % 10
        make_file(client_dir / "old", b"%d" % number * 64)
        os.rename(client_dir / "old", client_dir / "new")
    reads, absent, torn = reader.result()
    assert reads > 0
    assert (absent, torn) == (0, 0), f"of {reads} reads {absent} found no file and {torn} a mixed one"


def _read_repeatedly(path, seconds):
    reads = absent = torn = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reads += 1
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            absent += 1
        else:
            torn += len(data) != 64 or len(set(data)) != 1
    return reads, absent, torn


@pytest.mark.case("PSX-RENAME-SAME")
def test_rename_to_the_same_name_does_nothing(client_dir):
    """If old and new resolve to the same entry, rename() shall return successfully and do nothing else."""
    make_file(client_dir / "f", b"kept")
    os.rename(client_dir / "f", client_dir / "f")
    assert (client_dir / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-RENAME-HARD-LINK")
def test_rename_to_another_link_of_the_same_file_does_nothing(client_dir):
    """If old and new are links to the same file, rename() shall return successfully and do nothing else."""
    make_file(client_dir / "a", b"kept")
    hard_link(client_dir / "a", client_dir / "b")
    os.rename(client_dir / "a", client_dir / "b")
    assert sorted(os.listdir(client_dir)) == ["a", "b"]


@pytest.mark.case("PSX-RENAME-EMPTY-DIRECTORY", kills=("rename-not-atomic",))
def test_rename_replaces_an_empty_directory(client_dir):
    """If new names an existing directory, it shall be an empty one, and is removed."""
    (client_dir / "old").mkdir()
    make_file(client_dir / "old" / "f")
    (client_dir / "new").mkdir()
    os.rename(client_dir / "old", client_dir / "new")
    assert os.listdir(client_dir) == ["new"]
    assert os.listdir(client_dir / "new") == ["f"]


@pytest.mark.case("PSX-RENAME-NOT-EMPTY", section=errors, kills=("rename-full-directory",))
def test_nonempty_directory_is_not_replaced(client_dir):
    """[EEXIST] or [ENOTEMPTY] The link named by new is a directory that is not empty."""
    (client_dir / "old").mkdir()
    (client_dir / "new").mkdir()
    make_file(client_dir / "new" / "f")
    assert_errno((errno.ENOTEMPTY, errno.EEXIST), os.rename, client_dir / "old", client_dir / "new")
    assert os.listdir(client_dir / "new") == ["f"]
    assert (client_dir / "old").is_dir()


@pytest.mark.case("PSX-RENAME-EISDIR", section=errors)
def test_a_file_does_not_replace_a_directory(client_dir):
    """[EISDIR] new points to a directory and old points to a file that is not one."""
    make_file(client_dir / "old")
    (client_dir / "new").mkdir()
    assert_errno(errno.EISDIR, os.rename, client_dir / "old", client_dir / "new")


@pytest.mark.case("PSX-RENAME-ENOTDIR", section=errors)
def test_a_directory_does_not_replace_a_file(client_dir):
    """[ENOTDIR] old names a directory and new names a file that is not one."""
    (client_dir / "old").mkdir()
    make_file(client_dir / "new", b"kept")
    assert_errno(errno.ENOTDIR, os.rename, client_dir / "old", client_dir / "new")
    assert (client_dir / "new").read_bytes() == b"kept"


@pytest.mark.parametrize(
    "below",
    [
        pytest.param("d/x", id="child", marks=pytest.mark.case("PSX-RENAME-EINVAL-CHILD")),
        pytest.param("d/e/f/x", id="deeper", marks=pytest.mark.case("PSX-RENAME-EINVAL-DEEPER")),
    ],
)
@pytest.mark.case(section=errors)
def test_a_directory_is_not_moved_into_itself(client_dir, below):
    """[EINVAL] The old directory is an ancestor of the new name."""
    (client_dir / "d" / "e" / "f").mkdir(parents=True)
    assert_errno(errno.EINVAL, os.rename, client_dir / "d", client_dir / below)
    assert (client_dir / "d" / "e" / "f").is_dir()


@pytest.mark.case("PSX-RENAME-ANCESTOR", section=errors)
def test_directory_does_not_replace_its_parent(client_dir):
    """[EEXIST] or [ENOTEMPTY] new is a directory that is not empty: it holds old."""
    (client_dir / "d" / "e").mkdir(parents=True)
    assert_errno((errno.ENOTEMPTY, errno.EEXIST), os.rename, client_dir / "d" / "e", client_dir / "d")


@pytest.mark.case("PSX-RENAME-DOT", section=errors)
def test_dot_and_dot_dot_are_not_renamed(client_dir):
    """[EINVAL] Either path has a final component of dot or dot-dot; Linux may return EBUSY (rename(2))."""
    (client_dir / "d").mkdir()
    assert_errno((errno.EINVAL, errno.EBUSY), os.rename, f"{client_dir}/d/.", client_dir / "x")
    assert_errno((errno.EINVAL, errno.EBUSY), os.rename, f"{client_dir}/d/..", client_dir / "x")


@pytest.mark.case("PSX-RENAME-SLASH-FILE", section=errors)
def test_rename_of_a_file_with_a_trailing_slash_is_refused(client_dir):
    """[ENOTDIR] old names a file that is no directory and ends in a slash, or new does."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.rename, f"{client_dir}/f/", client_dir / "x")
    assert_errno(errno.ENOTDIR, os.rename, client_dir / "f", f"{client_dir}/x/")


@pytest.mark.case("PSX-RENAME-TIMES", kills=("directory-mtime-not-moved", "move-target-unmarked"))
def test_rename_updates_the_times_of_both_directories(client_dir):
    """Upon success mtime and ctime of the parent directory of each file are marked for update."""
    for name in ("a", "b"):
        (client_dir / name).mkdir()
    make_file(client_dir / "a" / "f")
    before = [os.stat(client_dir / name) for name in ("a", "b")]
    wait_clock_tick(client_dir)
    os.rename(client_dir / "a" / "f", client_dir / "b" / "f")
    for old, name in zip(before, ("a", "b")):
        assert os.stat(client_dir / name).st_mtime_ns > old.st_mtime_ns
        assert os.stat(client_dir / name).st_ctime_ns > old.st_ctime_ns


@pytest.mark.case("PSX-RENAME-CTIME", level="MAY")
def test_rename_may_update_ctime(client_dir):
    """Some implementations mark the ctime of the renamed file (RATIONALE); most Linux file systems do."""
    make_file(client_dir / "f")
    before = os.stat(client_dir / "f")
    wait_clock_tick(client_dir)
    os.rename(client_dir / "f", client_dir / "g")
    assert os.stat(client_dir / "g").st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-RENAME-OPEN", kills=("rename-copies",))
def test_descriptor_stays_valid_after_rename(client_dir):
    """A rename changes a name only: open descriptors still refer to the file."""
    with open_fd(make_file(client_dir / "old", b"one")) as descriptor:
        os.rename(client_dir / "old", client_dir / "new")
        assert os.pwrite(descriptor, b"two", 0) == 3
    assert (client_dir / "new").read_bytes() == b"two"


STICKY = [
    # in a directory of root with the sticky bit: owner of old, owner of new, whether the call succeeds
    ("OWN", "caller", "none", True),
    ("NOT-OWN", "root", "none", False),
    ("OVER-OWN", "caller", "caller", True),
    ("OVER-NOT-OWN", "caller", "root", False),
]


@pytest.mark.parametrize(
    ("old", "new", "permitted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-RENAME-STICKY-{name}"))
        for name, *rest in STICKY
    ],
)
@pytest.mark.case(section="POSIX.1-2024 rename(): ERRORS [S_ISVTX]")
def test_rename_in_a_directory_with_the_sticky_bit(client_dir, old, new, permitted):
    """[EPERM] or [EACCES] S_ISVTX is set on a directory, and the process owns neither it nor the file."""
    owners = {"root": 0, "caller": USER}
    (client_dir / "d").mkdir()
    for name, owner in (("old", old), ("new", new)):
        if owner in owners:
            make_file(client_dir / "d" / name, mode=0o666)
            os.chown(client_dir / "d" / name, owners[owner], 0)
    os.chmod(client_dir / "d", 0o1777)
    with run_as_user(USER, USER):
        if permitted:
            os.rename(client_dir / "d" / "old", client_dir / "d" / "new")
        else:
            assert_errno(
                (errno.EPERM, errno.EACCES), os.rename, client_dir / "d" / "old", client_dir / "d" / "new"
            )
    assert (client_dir / "d" / "old").exists() is not permitted


@pytest.mark.case("PSX-RENAME-DIRECTORY-EACCES", section=errors)
def test_rename_to_a_new_parent_may_require_write_permission(client_dir):
    """[EACCES] Write permission may be required for a directory that gets a new parent."""
    client_dir.chmod(0o777)
    for name in ("a", "b"):
        (client_dir / name).mkdir()
        (client_dir / name).chmod(0o777)
    (client_dir / "a" / "d").mkdir()
    with run_as_user(USER, USER):
        try:
            os.rename(client_dir / "a" / "d", client_dir / "b" / "d")
        except OSError as error:
            assert error.errno == errno.EACCES
            record_observation("a directory that may not be written is not moved")
        else:
            record_observation("a directory that may not be written is moved")


@pytest.mark.case(
    "PSX-RENAME-NOREPLACE", section="rename(2): RENAME_NOREPLACE", kills=("rename-noreplace-ignored",)
)
def test_rename_noreplace_does_not_replace(client_dir):
    """[EEXIST] flags contains RENAME_NOREPLACE and newpath already exists."""
    make_file(client_dir / "old", b"old")
    renameat2(make_file(client_dir / "free"), client_dir / "fresh", RENAME_NOREPLACE)
    make_file(client_dir / "new", b"new")
    assert_errno(errno.EEXIST, renameat2, client_dir / "old", client_dir / "new", RENAME_NOREPLACE)
    assert (client_dir / "new").read_bytes() == b"new"


@pytest.mark.case(
    "PSX-RENAME-EXCHANGE",
    section="rename(2): RENAME_EXCHANGE",
    kills=("rename-exchange-moves", "rename-not-atomic"),
)
def test_rename_exchange_swaps_two_names(client_dir):
    """RENAME_EXCHANGE atomically exchanges oldpath and newpath; both must exist."""
    make_file(client_dir / "a", b"a")
    make_file(client_dir / "b", b"b")
    renameat2(client_dir / "a", client_dir / "b", RENAME_EXCHANGE)
    assert ((client_dir / "a").read_bytes(), (client_dir / "b").read_bytes()) == (b"b", b"a")
    assert_errno(errno.ENOENT, renameat2, client_dir / "a", client_dir / "absent", RENAME_EXCHANGE)
