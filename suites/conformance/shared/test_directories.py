"""Directories: one client lists the changes of another, and a directory that is not empty cannot be removed.

Sources: POSIX.1-2024 readdir(), rmdir(); RFC 7530 10.9, 16.24 (RFC 8881 10.8.2, 18.23); RFC 1813 3.3.16;
nfs(5), "Directory entry caching"; MS-SMB2 3.3.5.18.
"""

from __future__ import annotations

from errno import EEXIST, ENOTEMPTY
from os import O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.9; nfs(5)", level="MUST", kills=("listings-never-expire",)),
]

MANY = 400


def _files(first: int, last: int) -> list[str]:
    return [f"file-{number:05}" for number in range(first, last)]


@pytest.mark.case("SHR-DIR-01")
def test_created_file_is_listed_by_the_other_client(a, b, crossed_wire, eventually):
    a.mkdir("d")
    a.write_file("d/one", b"")
    assert b.listdir("d") == ["one"]
    with crossed_wire(a, "change"):
        a.write_file("d/two", b"")
    eventually(lambda: b.listdir("d") == ["one", "two"], "the file that the other client made")


@pytest.mark.case("SHR-DIR-02")
def test_removed_file_is_not_listed_by_the_other_client(a, b, crossed_wire, eventually):
    a.mkdir("d")
    for name in ("one", "two"):
        a.write_file(f"d/{name}", b"")
    assert b.listdir("d") == ["one", "two"]
    with crossed_wire(a, "change"):
        a.unlink("d/one")
    eventually(lambda: b.listdir("d") == ["two"], "that the other client removed a file")


@pytest.mark.case("SHR-DIR-03")
def test_renamed_file_is_listed_once_by_the_other_client(a, b, crossed_wire, eventually):
    a.mkdir("d")
    a.write_file("d/one", b"")
    assert b.listdir("d") == ["one"]
    with crossed_wire(a, "change"):
        a.rename("d/one", "d/two")
    eventually(lambda: b.listdir("d") == ["two"], "that the other client renamed a file")


@pytest.mark.case(
    "SHR-DIR-04", section="RFC 7530 16.24; POSIX.1-2024 readdir()", kills=("readdir-ends-early",)
)
def test_large_directory_is_listed_completely(a, b, crossed_wire):
    """A listing in several requests has each name once."""
    a.mkdir("d")
    a.each([("write_file", f"d/{name}", b"") for name in _files(0, MANY)], deadline=120)
    with crossed_wire(b, "list"):
        assert b.listdir("d") == _files(0, MANY)


@pytest.mark.case("SHR-DIR-05", section="POSIX.1-2024 readdir()", kills=("readdir-doubles",))
def test_unchanged_entries_are_listed_once_during_additions(a, b, race, crossed_wire):
    """Each listing has every file that existed throughout, once."""
    a.mkdir("d")
    a.each([("write_file", f"d/{name}", b"") for name in _files(0, MANY)], deadline=120)
    more = [("write_file", f"d/{name}", b"") for name in _files(MANY, MANY + 60)]
    with crossed_wire(b, "list"):
        _, listings = race(more, [("listdir", "d")] * 8)
    for listing in listings:
        assert [name for name in listing if name < f"file-{MANY:05}"] == _files(0, MANY)


@pytest.mark.case("SHR-DIR-06", section="POSIX.1-2024 readdir()", kills=("readdir-ends-early",))
def test_unchanged_entries_are_listed_once_during_removals(a, b, race, crossed_wire):
    """Each listing has every file that existed throughout, once."""
    a.mkdir("d")
    a.each([("write_file", f"d/{name}", b"") for name in _files(0, MANY + 60)], deadline=120)
    fewer = [("unlink", f"d/{name}") for name in _files(MANY, MANY + 60)]
    with crossed_wire(b, "list"):
        _, listings = race(fewer, [("listdir", "d")] * 8)
    for listing in listings:
        assert [name for name in listing if name < f"file-{MANY:05}"] == _files(0, MANY)


@pytest.mark.case("SHR-DIR-07", section="POSIX.1-2024 rmdir() [ENOTEMPTY]", kills=("rmdir-full",))
def test_directory_filled_by_the_other_client_is_not_removed(a, b, crossed_wire):
    """rmdir() fails, although the client has cached an empty listing."""
    a.mkdir("d")
    assert a.listdir("d") == []
    with crossed_wire(b, "change"):
        b.write_file("d/f", b"mine")
    with crossed_wire(a, "change"), pytest.raises(OSError, match=r"not empty|exists"):
        a.rmdir("d")
    assert b.read_file("d/f") == b"mine"


@pytest.mark.case("SHR-DIR-08", section="POSIX.1-2024 rmdir()", kills=("unlink-not-done",))
def test_directory_emptied_by_the_other_client_is_removed(a, b, crossed_wire, at_once):
    """rmdir() succeeds, although the client has cached an entry."""
    a.mkdir("d")
    a.write_file("d/f", b"x")
    assert a.listdir("d") == ["f"]
    with crossed_wire(b, "change"):
        b.unlink("d/f")
    with crossed_wire(a, "change"):
        at_once(lambda: _removed(a, "d"), "the directory is empty, and can be removed")
    with pytest.raises(FileNotFoundError):
        b.open("d/f")


def _removed(session, name: str) -> bool:
    try:
        session.rmdir(name)
    except OSError as error:
        if error.errno not in (ENOTEMPTY, EEXIST):
            raise
        return False
    return True


@pytest.mark.case(
    "SHR-DIR-09", section="POSIX.1-2024 open() [ENOENT]", kills=("removed-directories-take-files",)
)
def test_removed_directory_takes_no_files_of_the_other_client(a, b, crossed_wire):
    """A creation in the removed directory fails with ENOENT or ESTALE."""
    a.mkdir("d")
    assert b.listdir("d") == []
    with crossed_wire(a, "change"):
        a.rmdir("d")
    with pytest.raises(OSError, match=r"No such file|[Ss]tale"):
        b.open("d/f", O_CREAT | O_EXCL | O_WRONLY)


@pytest.mark.case("SHR-DIR-10", section="RFC 7530 10.8; nfs(5)", kills=("names-appear-late",))
def test_created_tree_is_accessible_at_once(a, b, crossed_wire):
    with crossed_wire(a, "change"):
        a.mkdir("d")
        a.mkdir("d/e")
        a.write_file("d/e/f", b"deep")
    with crossed_wire(b, "query"):
        assert b.read_file("d/e/f") == b"deep"
    assert b.listdir("d") == ["e"]


@pytest.mark.slow
@pytest.mark.case(
    "SHR-DIR-11",
    section="RFC 7530 10.6; POSIX.1-2024 open(), O_CREAT",
    kills=("two-directory-time-old",),
)
def test_new_file_marks_the_directory_for_the_other_client(a, b, crossed_wire, eventually):
    """The directory's time of modification is another one after the other client made a file in it."""
    a.mkdir("d")
    a.utime("d", 10**18, 10**18)
    before = b.stat("d").mtime_ns
    with crossed_wire(a, "change"):
        a.write_file("d/f", b"")
    if a.stat("d").mtime_ns == before:
        pytest.skip("the client that made the file sees no new time of the directory itself")
    eventually(lambda: b.stat("d").mtime_ns != before, "the new time of the directory")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-DIR-17",
    section="RFC 7530 10.6; POSIX.1-2024 open(), O_CREAT",
    kills=("two-open-directory-time-old",),
)
def test_new_file_marks_a_directory_that_the_other_client_has_open(a, b, crossed_wire, eventually):
    """The new time of modification is seen by a client that has had the directory open all the time."""
    a.mkdir("d")
    a.utime("d", 10**18, 10**18)
    fd = b.open("d", O_RDONLY | O_DIRECTORY)
    before = b.fstat(fd).mtime_ns
    with crossed_wire(a, "change"):
        a.write_file("d/f", b"")
    if a.stat("d").mtime_ns == before:
        pytest.skip("the client that made the file sees no new time of the directory itself")
    eventually(lambda: b.fstat(fd).mtime_ns != before, "the new time of the open directory")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-DIR-12", section="RFC 7530 10.6; POSIX.1-2024 mkdir()", kills=("two-directory-links-old",)
)
def test_new_directory_is_counted_in_the_links_of_its_parent(a, b, crossed_wire, eventually):
    a.mkdir("d")
    before = b.stat("d").nlink
    with crossed_wire(a, "change"):
        a.mkdir("d/e")
    after = a.stat("d").nlink
    if after == before:
        pytest.skip("the links of a directory do not count its directories here")
    eventually(lambda: b.stat("d").nlink == after, "the new count of links of the directory")


@pytest.mark.case(
    "SHR-DIR-13",
    section="POSIX.1-2024 readdir(): d_ino; RFC 7530 10.9",
    kills=("two-listed-inode-old",),
)
def test_listing_has_the_inode_numbers_of_the_files_of_now(a, b, crossed_wire, eventually):
    """A name is listed with the inode number of the file that the other client has put there."""
    a.mkdir("d")
    for name in ("replaced", "first", "second", "kept"):
        a.write_file(f"d/{name}", b"old")
    a.write_file("new", b"new")
    before = _listed_and_found(b)
    if before[0] != before[1]:
        pytest.skip("this client lists other inode numbers than stat() has: PSX-DIR-INODES")
    with crossed_wire(a, "change"):
        a.rename("new", "d/replaced")
        for old, name in (("first", "third"), ("second", "first"), ("third", "second")):
            a.rename(f"d/{old}", f"d/{name}")
    b.mkdir("d/of-b")  # the reply shows that others have changed the directory, too
    assert b.read_file("d/replaced") == b"new"
    eventually(lambda: len(set(_listed_and_found(b))) == 1, "the inode numbers of three names that changed")


def _listed_and_found(session) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Return the inode numbers of a directory's entries, as readdir() and as stat() have them."""
    listed = tuple((name, inode) for name, (inode, _) in sorted(session.list_entries("d").items()))
    return listed, tuple((name, session.stat(f"d/{name}").ino) for name, _ in listed)


@pytest.mark.case(
    "SHR-DIR-14",
    section="POSIX.1-2024 posix_getdents(): d_type; RFC 7530 10.9",
    kills=("two-listed-type-old",),
)
def test_listing_has_the_types_of_the_files_of_now(a, b, crossed_wire, eventually):
    """A name is listed with the type of the file that the other client has put there."""
    a.mkdir("d")
    a.write_file("d/first", b"a file")
    a.mkdir("d/second")
    assert _types(b) == {"first": "file", "second": "directory"}
    with crossed_wire(a, "change"):
        a.unlink("d/first")
        a.rmdir("d/second")
        a.mkdir("d/first")
        a.write_file("d/second", b"a file")
    b.mkdir("d/third")  # as above
    now = {"first": "directory", "second": "file", "third": "directory"}
    eventually(lambda: _types(b) == now, "the types of two names that changed")


def _types(session) -> dict[str, str]:
    return {name: kind for name, (_, kind) in session.list_entries("d").items()}


@pytest.mark.slow
@pytest.mark.case(
    "SHR-DIR-15",
    section="RFC 7530 10.8, 10.9; nfs(5)",
    kills=("two-listing-of-the-name", "two-old-directory"),
)
def test_new_directory_of_a_known_name_has_its_own_listing(a, b, crossed_wire, eventually):
    """A directory that was listed is renamed, and another is made in its place: each has its own entries."""
    a.mkdir("d")
    for name in ("one", "two"):
        a.write_file(f"d/{name}", b"")
    assert b.listdir("d") == ["one", "two"]
    with crossed_wire(a, "change"):
        a.rename("d", "e")
        a.mkdir("d")
        a.write_file("d/three", b"")
    with crossed_wire(b, "query"):
        eventually(lambda: b.listdir("e") == ["one", "two"], "the entries of the renamed directory")
        eventually(lambda: b.listdir("d") == ["three"], "the entry of the new directory")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-DIR-16", section="RFC 7530 10.6; POSIX.1-2024 chmod()", kills=("two-directory-mode-old",)
)
def test_new_mode_of_a_directory_is_seen(a, b, crossed_wire, eventually):
    a.mkdir("d", 0o755)
    before = b.stat("d").mode
    with crossed_wire(a, "change"):
        a.chmod("d", 0o711)
    after = a.stat("d").mode
    if after == before:
        pytest.skip("the mode of a directory cannot be changed here")
    eventually(lambda: b.stat("d").mode == after, "the mode that the other client gave the directory")
