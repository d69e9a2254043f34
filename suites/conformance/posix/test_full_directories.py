"""Directories of many entries over their lives: renamed, moved, emptied and filled again; their numbers."""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib.many_entries import is_full, make_many
from storagetest.agent.testlib.tmpfiles import longest_name, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 readdir(): DESCRIPTION"
    ),
]

MANY = 300
"""Entries: more than a reply of 32 KiB has with their attributes (chosen)."""
MOVED = 1_500
"""Entries of a directory that are moved into another of as many (chosen)."""
THOUSANDS = 2_300
"""Entries of a very large directory: more than a table of 2,048 has (chosen)."""
MAKING = 8.0
"""Seconds in which they have to be made."""
MAKING_THOUSANDS = 14.0
"""Seconds for :data:`THOUSANDS`, on a client under load: half of the case's time."""


def fill(directory, prefix, count=MANY):
    """Make ``count`` empty files, or as many as the directory takes; return their names, sorted."""
    return make_many(directory, [f"{prefix}-{number:04}" for number in range(count)])


def assert_listed(directory, names, when):
    """Assert that a listing has each of ``names`` once, and no other."""
    found = os.listdir(directory)
    lost, strange = set(names).difference(found), set(found).difference(names)
    assert not lost, f"{len(lost)} of {len(names)} names are not listed {when}, as {min(lost)}"
    assert not strange, f"{len(strange)} names are listed that do not exist {when}, as {min(strange)}"
    assert len(found) == len(names), f"{len(found) - len(names)} names are listed twice {when}"


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-FULL-DIRECTORY-LIFE",
    section="POSIX.1-2024 readdir(), rename(): DESCRIPTION",
    kills=("directory-renamed-lists-200", "directory-refilled-loses"),
)
def test_large_directory_is_listed_at_each_point_of_its_life(client_dir):
    """Each entry is returned once: after a rename, a move, and when the directory was emptied and filled."""
    (client_dir / "other").mkdir()
    (client_dir / "d").mkdir()
    names = fill(client_dir / "d", "first")
    assert_listed(client_dir / "d", names, "in a new directory")
    os.rename(client_dir / "d", client_dir / "renamed")
    assert_listed(client_dir / "renamed", names, "after its rename")
    moved = client_dir / "other" / "moved"
    os.rename(client_dir / "renamed", moved)
    assert_listed(moved, names, "after a move to another directory")
    with open_fd(moved, os.O_RDONLY) as place:
        for name in names:
            os.unlink(name, dir_fd=place)
    assert_listed(moved, [], "after all were removed")
    names = fill(moved, "second")
    assert_listed(moved, names, "when the emptied directory was filled again")
    os.rename(moved, client_dir / "d")
    assert_listed(client_dir / "d", names, "after it was moved back")


@pytest.mark.exclusive
@pytest.mark.case("PSX-FULL-DIRECTORY-LONG-NAMES", kills=("long-name-at-buffer-end-lost",))
def test_many_entries_with_long_names_are_listed(client_dir):
    """Each entry is returned once, if a reply holds few: 200 names of {NAME_MAX} bytes."""
    longest = min(255, longest_name(client_dir))
    (client_dir / "d").mkdir()
    names = fill(client_dir / "d", "n" * (longest - len("-0000")), 200)
    assert_listed(client_dir / "d", names, f"of {longest} bytes each")


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-FULL-DIRECTORY-RENAMES",
    section="POSIX.1-2024 readdir(), rename(): DESCRIPTION",
    kills=("full-directory-old-names",),
)
def test_entries_of_a_large_directory_are_renamed(client_dir):
    """An entry has its new name and no old one: of three, one is renamed, and one replaces the third."""
    at, away = client_dir / "d", client_dir / "away"
    for directory in (at, away):
        directory.mkdir()
    names = fill(at, "first")
    triples = len(names) // 3 * 3
    renamed, kept, moved = set(), set(names[triples:]), set()
    with open_fd(at, os.O_RDONLY) as place, open_fd(away, os.O_RDONLY) as other:
        for number in range(0, triples, 3):
            first, second, third = names[number : number + 3]
            os.rename(first, f"new-{first}", src_dir_fd=place, dst_dir_fd=place)
            os.rename(second, third, src_dir_fd=place, dst_dir_fd=place)
            renamed.add(f"new-{first}")
            if number % 2:
                os.rename(third, third, src_dir_fd=place, dst_dir_fd=other)
                moved.add(third)
            else:
                kept.add(third)
    assert_listed(at, renamed | kept, "after its entries were renamed")
    assert_listed(away, moved, "where entries were moved to")
    absent = [name for name in sorted(renamed | kept) if not os.path.lexists(at / name)]
    assert not absent, f"{len(absent)} names that are listed are not found, as {absent[0]}"
    wrong = [name for name in names if name not in kept and os.path.lexists(at / name)]
    assert not wrong, f"{len(wrong)} old names are still found, as {wrong[0]}"


@pytest.mark.server_inodes
@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-FULL-DIRECTORY-NUMBERS",
    section="POSIX.1-2024 <sys/stat.h>: st_ino",
    kills=("inode-number-twice", "readdir-ino-wrong"),
)
def test_serial_numbers_of_many_files_are_distinct(client_dir):
    """st_ino and st_dev identify the file: of each of many files that exist together, as its d_ino."""
    (client_dir / "d").mkdir()
    fill(client_dir / "d", "file", 2 * MANY)
    with os.scandir(client_dir / "d") as entries:
        listed = {entry.name: entry.inode() for entry in entries}
    numbers: dict[tuple[int, int], str] = {}
    with open_fd(client_dir / "d", os.O_RDONLY) as place:
        for name, number in listed.items():
            one = os.stat(name, dir_fd=place)
            assert number == one.st_ino, f"{name}: d_ino is {number}, and st_ino {one.st_ino}"
            other = numbers.setdefault((one.st_dev, one.st_ino), name)
            assert other == name, f"{other} and {name} have the same number, {one.st_ino}"


@pytest.mark.exclusive
@pytest.mark.case("PSX-FULL-DIRECTORY-2300", kills=("entry-2048-lost",))
def test_directory_of_thousands_of_entries_is_listed(client_dir):
    """Each entry is returned once: by one descriptor again, and after some of them were removed."""
    directory = client_dir / "d"
    directory.mkdir()
    names = [f"{number:04}" for number in range(THOUSANDS)]
    names = make_many(directory, names, MAKING_THOUSANDS)
    with open_fd(directory, os.O_RDONLY) as place:
        assert_listed(place, names, "in a new directory")
        assert_listed(place, names, "again, by the same descriptor")
        removed = names[1::40]
        for name in removed:
            os.unlink(name, dir_fd=place)
    names = sorted(set(names).difference(removed))
    assert_listed(directory, names, f"after {len(removed)} of them were removed")
    for name in (names[0], names[-1]):
        assert os.stat(directory / name).st_size == 0


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-FULL-DIRECTORY-MOVED",
    section="POSIX.1-2024 readdir(), rename(): DESCRIPTION",
    kills=("full-directory-moved-lost",),
)
def test_entries_that_are_moved_into_a_large_directory_are_listed(client_dir):
    """Each entry is returned once, where it was made there and where it came from another large directory."""
    at, away = client_dir / "d", client_dir / "away"
    made = {}
    for directory, letter in ((at, "a"), (away, "b")):
        directory.mkdir()
        names = [f"{letter}{number:04}" + "x" * (number % 23) for number in range(MOVED)]
        made[letter] = make_many(directory, names, MAKING, least=MANY)
    moved = []
    with open_fd(at, os.O_RDONLY) as place, open_fd(away, os.O_RDONLY) as other:
        for name in made["b"]:
            try:
                os.rename(name, name, src_dir_fd=other, dst_dir_fd=place)
            except OSError as error:
                if not is_full(error, len(made["a"]) + len(moved)):
                    raise
                break
            moved.append(name)
    assert_listed(at, made["a"] + moved, "where entries were moved to")
    assert_listed(away, made["b"][len(moved) :], "where they came from")
