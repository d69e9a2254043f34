"""rename(): old name gone, new name there, nothing in between, and what is refused."""

from __future__ import annotations

import errno
import os
import time

import pytest

from storagetest.agent.testlib import Elsewhere, as_user, observe, refused
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.tmpfiles import a_file, opened, tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 rename(): DESCRIPTION"),
]
errors = "POSIX.1-2024 rename(): ERRORS"

NOBODY = 54321


def a_link(path):
    os.symlink("target", path)


MADE = {"FILE": a_file, "DIRECTORY": os.mkdir, "SYMLINK": a_link, "FIFO": os.mkfifo}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.lower(), marks=pytest.mark.case(f"PSX-RENAME-{kind}")) for kind in MADE],
)
def test_rename_changes_the_name_and_nothing_else(here, kind):
    """rename() shall change the name of a file; links are renamed themselves, not what they name."""
    MADE[kind](here / "old")
    before = os.lstat(here / "old")
    os.rename(here / "old", here / "new")
    after = os.lstat(here / "new")
    assert os.listdir(here) == ["new"]
    assert (after.st_ino, after.st_mode, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_size,
        before.st_mtime_ns,
    )


@pytest.mark.case("PSX-RENAME-OTHER-DIRECTORY")
def test_rename_into_another_directory(here):
    """The new name may be in another directory of the file system."""
    (here / "a").mkdir()
    (here / "b").mkdir()
    a_file(here / "a" / "f", b"moved")
    os.rename(here / "a" / "f", here / "b" / "g")
    assert (os.listdir(here / "a"), os.listdir(here / "b")) == ([], ["g"])
    assert (here / "b" / "g").read_bytes() == b"moved"


@pytest.mark.case("PSX-RENAME-DIRECTORY-TREE")
def test_a_renamed_directory_takes_what_is_in_it_along(here):
    """A directory moves with its entries, and its dot-dot is its new parent."""
    (here / "a" / "b").mkdir(parents=True)
    a_file(here / "a" / "b" / "f", b"inside")
    (here / "c").mkdir()
    os.rename(here / "a" / "b", here / "c" / "d")
    assert (here / "c" / "d" / "f").read_bytes() == b"inside"
    assert os.path.samestat(os.stat(here / "c" / "d" / ".."), os.stat(here / "c"))


@pytest.mark.case("PSX-RENAME-REPLACE", kills=("rename-old-stays",))
def test_a_file_of_the_new_name_is_replaced(here):
    """If new names an existing file, it shall be removed and old renamed to new."""
    a_file(here / "old", b"old")
    a_file(here / "new", b"was there")
    os.rename(here / "old", here / "new")
    assert os.listdir(here) == ["new"]
    assert (here / "new").read_bytes() == b"old"


@pytest.mark.case("PSX-RENAME-REPLACE-OPEN")
def test_a_replaced_file_that_is_open_can_still_be_used(here):
    """If the file was open, its contents stay until all references are closed."""
    a_file(here / "old", b"old")
    with opened(a_file(here / "new", b"was there")) as descriptor:
        os.rename(here / "old", here / "new")
        assert os.pread(descriptor, 20, 0) == b"was there"
        assert (here / "new").read_bytes() == b"old"


@pytest.mark.case("PSX-RENAME-REPLACE-LINKED")
def test_a_replaced_file_has_one_link_less(here):
    """The link named new is removed: the file's other link stays, with a count of one."""
    a_file(here / "old", b"old")
    a_file(here / "new", b"other")
    os.link(here / "new", here / "kept")
    os.rename(here / "old", here / "new")
    assert os.stat(here / "kept").st_nlink == 1
    assert (here / "kept").read_bytes() == b"other"


@pytest.mark.case("PSX-RENAME-NEVER-ABSENT", kills=("rename-not-atomic", "rename-old-stays"))
def test_the_new_name_is_there_all_the_time(here):
    """A link named new shall exist throughout the operation, and refer to the file of before or of after."""
    a_file(here / "new", b"0" * 64)
    looking = Elsewhere(_look, [str(here / "new"), 0.4])
    number = 0
    while not looking.ended():
        number = (number + 1) % 10
        a_file(here / "old", b"%d" % number * 64)
        os.rename(here / "old", here / "new")
    looks, absent, torn = looking.result()
    assert looks > 0
    assert (absent, torn) == (0, 0), f"of {looks} looks {absent} found no file and {torn} a mixed one"


def _look(path, seconds):
    looks = absent = torn = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        looks += 1
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            absent += 1
        else:
            torn += len(data) != 64 or len(set(data)) != 1
    return looks, absent, torn


@pytest.mark.case("PSX-RENAME-SAME")
def test_rename_to_the_same_name_does_nothing(here):
    """If old and new resolve to the same entry, rename() shall return successfully and do nothing else."""
    a_file(here / "f", b"kept")
    os.rename(here / "f", here / "f")
    assert (here / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-RENAME-HARD-LINK")
def test_rename_to_another_link_of_the_same_file_does_nothing(here):
    """If old and new are links to the same file, rename() shall return successfully and do nothing else."""
    a_file(here / "a", b"kept")
    os.link(here / "a", here / "b")
    os.rename(here / "a", here / "b")
    assert sorted(os.listdir(here)) == ["a", "b"]


@pytest.mark.case("PSX-RENAME-EMPTY-DIRECTORY", kills=("rename-not-atomic",))
def test_an_empty_directory_of_the_new_name_is_replaced(here):
    """If new names an existing directory, it shall be an empty one, and is removed."""
    (here / "old").mkdir()
    a_file(here / "old" / "f")
    (here / "new").mkdir()
    os.rename(here / "old", here / "new")
    assert os.listdir(here) == ["new"]
    assert os.listdir(here / "new") == ["f"]


@pytest.mark.case("PSX-RENAME-NOT-EMPTY", section=errors, kills=("rename-full-directory",))
def test_a_directory_that_is_not_empty_is_not_replaced(here):
    """[EEXIST] or [ENOTEMPTY] The link named by new is a directory that is not empty."""
    (here / "old").mkdir()
    (here / "new").mkdir()
    a_file(here / "new" / "f")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rename, here / "old", here / "new")
    assert os.listdir(here / "new") == ["f"]
    assert (here / "old").is_dir()


@pytest.mark.case("PSX-RENAME-EISDIR", section=errors)
def test_a_file_does_not_replace_a_directory(here):
    """[EISDIR] new points to a directory and old points to a file that is not one."""
    a_file(here / "old")
    (here / "new").mkdir()
    refused(errno.EISDIR, os.rename, here / "old", here / "new")


@pytest.mark.case("PSX-RENAME-ENOTDIR", section=errors)
def test_a_directory_does_not_replace_a_file(here):
    """[ENOTDIR] old names a directory and new names a file that is not one."""
    (here / "old").mkdir()
    a_file(here / "new", b"kept")
    refused(errno.ENOTDIR, os.rename, here / "old", here / "new")
    assert (here / "new").read_bytes() == b"kept"


@pytest.mark.parametrize(
    "below",
    [
        pytest.param("d/x", id="child", marks=pytest.mark.case("PSX-RENAME-EINVAL-CHILD")),
        pytest.param("d/e/f/x", id="deeper", marks=pytest.mark.case("PSX-RENAME-EINVAL-DEEPER")),
    ],
)
@pytest.mark.case(section=errors)
def test_a_directory_is_not_moved_into_itself(here, below):
    """[EINVAL] The old directory is an ancestor of the new name."""
    (here / "d" / "e" / "f").mkdir(parents=True)
    refused(errno.EINVAL, os.rename, here / "d", here / below)
    assert (here / "d" / "e" / "f").is_dir()


@pytest.mark.case("PSX-RENAME-ANCESTOR", section=errors)
def test_a_directory_is_not_put_in_the_place_of_its_parent(here):
    """[EEXIST] or [ENOTEMPTY] new is a directory that is not empty: it holds old."""
    (here / "d" / "e").mkdir(parents=True)
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rename, here / "d" / "e", here / "d")


@pytest.mark.case("PSX-RENAME-DOT", section=errors)
def test_dot_and_dot_dot_are_not_renamed(here):
    """[EINVAL] Either path has a final component of dot or dot-dot; Linux may say EBUSY (rename(2))."""
    (here / "d").mkdir()
    refused((errno.EINVAL, errno.EBUSY), os.rename, f"{here}/d/.", here / "x")
    refused((errno.EINVAL, errno.EBUSY), os.rename, f"{here}/d/..", here / "x")


@pytest.mark.case("PSX-RENAME-SLASH-FILE", section=errors)
def test_a_slash_after_a_files_name(here):
    """[ENOTDIR] old names a file that is no directory and ends in a slash, or new does."""
    a_file(here / "f")
    refused(errno.ENOTDIR, os.rename, f"{here}/f/", here / "x")
    refused(errno.ENOTDIR, os.rename, here / "f", f"{here}/x/")


@pytest.mark.case("PSX-RENAME-TIMES", kills=("directory-mtime-not-moved",))
def test_rename_stamps_both_directories(here):
    """Upon success mtime and ctime of the parent directory of each file are marked for update."""
    for name in ("a", "b"):
        (here / name).mkdir()
    a_file(here / "a" / "f")
    before = [os.stat(here / name) for name in ("a", "b")]
    tick(here)
    os.rename(here / "a" / "f", here / "b" / "f")
    for old, name in zip(before, ("a", "b")):
        assert os.stat(here / name).st_mtime_ns > old.st_mtime_ns
        assert os.stat(here / name).st_ctime_ns > old.st_ctime_ns


@pytest.mark.case("PSX-RENAME-CTIME", level="MAY")
def test_rename_stamps_the_file(here):
    """Some implementations mark the ctime of the renamed file (RATIONALE); Linux file systems mostly do."""
    a_file(here / "f")
    before = os.stat(here / "f")
    tick(here)
    os.rename(here / "f", here / "g")
    assert os.stat(here / "g").st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-RENAME-OPEN", kills=("rename-copies",))
def test_a_descriptor_follows_a_renamed_file(here):
    """A rename changes a name: who has the file open goes on with it."""
    with opened(a_file(here / "old", b"one")) as descriptor:
        os.rename(here / "old", here / "new")
        assert os.pwrite(descriptor, b"two", 0) == 3
    assert (here / "new").read_bytes() == b"two"


STICKY = [
    # in a directory of root's with the sticky bit: who owns old and new, and whether the process may
    ("OWN", "asks", "none", True),
    ("NOT-OWN", "root", "none", False),
    ("OVER-OWN", "asks", "asks", True),
    ("OVER-NOT-OWN", "asks", "root", False),
]


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-RENAME-STICKY-{name}"))
        for name, *rest in STICKY
    ],
)
@pytest.mark.case(section="POSIX.1-2024 rename(): ERRORS [S_ISVTX]")
def test_rename_in_a_directory_with_the_sticky_bit(here, old, new, may):
    """[EPERM] or [EACCES] S_ISVTX is set on a directory, and the process owns neither it nor the file."""
    owners = {"root": 0, "asks": NOBODY}
    (here / "d").mkdir()
    for name, owner in (("old", old), ("new", new)):
        if owner in owners:
            a_file(here / "d" / name, mode=0o666)
            os.chown(here / "d" / name, owners[owner], 0)
    os.chmod(here / "d", 0o1777)
    with as_user(NOBODY, NOBODY):
        if may:
            os.rename(here / "d" / "old", here / "d" / "new")
        else:
            refused((errno.EPERM, errno.EACCES), os.rename, here / "d" / "old", here / "d" / "new")
    assert (here / "d" / "old").exists() is not may


@pytest.mark.case("PSX-RENAME-DIRECTORY-EACCES", section=errors)
def test_moving_a_directory_needs_its_write_permission_to_change_dot_dot(here):
    """[EACCES] Write permission may be required for a directory that gets a new parent."""
    here.chmod(0o777)
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name).chmod(0o777)
    (here / "a" / "d").mkdir()
    with as_user(NOBODY, NOBODY):
        try:
            os.rename(here / "a" / "d", here / "b" / "d")
        except OSError as error:
            assert error.errno == errno.EACCES
            observe("a directory that may not be written is not moved")
        else:
            observe("a directory that may not be written is moved")


@pytest.mark.case(
    "PSX-RENAME-NOREPLACE", section="rename(2): RENAME_NOREPLACE", kills=("rename-noreplace-ignored",)
)
def test_rename_noreplace_does_not_replace(here):
    """[EEXIST] flags contains RENAME_NOREPLACE and newpath already exists."""
    a_file(here / "old", b"old")
    renameat2(a_file(here / "free"), here / "fresh", RENAME_NOREPLACE)
    a_file(here / "new", b"new")
    refused(errno.EEXIST, renameat2, here / "old", here / "new", RENAME_NOREPLACE)
    assert (here / "new").read_bytes() == b"new"


@pytest.mark.case(
    "PSX-RENAME-EXCHANGE",
    section="rename(2): RENAME_EXCHANGE",
    kills=("rename-exchange-moves", "rename-not-atomic"),
)
def test_rename_exchange_swaps(here):
    """RENAME_EXCHANGE atomically exchanges oldpath and newpath; both must exist."""
    a_file(here / "a", b"a")
    a_file(here / "b", b"b")
    renameat2(here / "a", here / "b", RENAME_EXCHANGE)
    assert ((here / "a").read_bytes(), (here / "b").read_bytes()) == (b"b", b"a")
    refused(errno.ENOENT, renameat2, here / "a", here / "absent", RENAME_EXCHANGE)
