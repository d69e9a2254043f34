"""Rules that act with a second handle, a second name or another pattern (MS-FSA 2.1, MS-FSCC 2.4).

Share modes of directories, the position of each handle, attributes that stay, links in place of a file, names
that differ in case alone, and the wildcards of MS-DOS.
"""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import NO_LINKS, case, open_directory
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    Access,
    Disposition,
    FileInfo,
    Options,
    SmbAttribute,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-FSA 2.1.5.1.2.2", level="MUST")]

LATER = 0x01D0000000000000
"""A time of 2014, in intervals of 100 ns since 1601."""

NAME_AT = 100
"""Where FileName is in FileAllInformation (MS-FSCC 2.4.2)."""

# Share modes of a directory

SHARES = {
    "LIST": (Access.READ_DATA, SmbShare.READ),
    "ADD": (Access.WRITE_DATA, SmbShare.WRITE),
    "DELETE": (Access.DELETE, SmbShare.DELETE),
}
"""Rights to a directory, and what the share mode of another open has to have for each."""


def listed(tree: Tree, name: str, access: int, share: int) -> SmbFile:
    """Open a directory with a share mode."""
    return tree.open(
        name, access=access, share=share, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE
    )


@pytest.mark.parametrize(
    ("access", "needed"),
    [
        case(f"SMB-SHARE-DIR-{name}", *values, kills=("directory-shares-ignored",))
        for name, values in SHARES.items()
    ],
)
def test_an_open_of_a_directory_is_refused_against_its_share_mode(
    tree: Tree, directory: str, access: Access, needed: SmbShare
) -> None:
    """The share modes of the opens that exist are compared with the access, for a directory as for a file."""
    first = listed(tree, directory, Access.READ_DATA | Access.READ_ATTRIBUTES, SmbShare.ALL & ~needed)
    message = tree.create(
        directory, access=access, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE
    )
    expect(message, SmbStatus.SHARING_VIOLATION)
    expect(first.close())
    expect(listed(tree, directory, access, SmbShare.ALL).close())


@pytest.mark.case("SMB-SHARE-DIR-ASKED", kills=("directory-shares-ignored",))
def test_an_open_of_a_directory_that_shares_less_than_is_held_is_refused(tree: Tree, directory: str) -> None:
    """The access of the opens that exist is compared with the share mode of the new one."""
    first = open_directory(tree, directory, access=Access.READ_DATA)
    message = tree.create(
        directory,
        access=Access.READ_DATA,
        share=SmbShare.WRITE | SmbShare.DELETE,
        disposition=Disposition.OPEN,
        options=Options.DIRECTORY_FILE,
    )
    expect(message, SmbStatus.SHARING_VIOLATION)
    expect(first.close())


# The position


@pytest.mark.case("SMB-POSITION-OWN", section="MS-FSCC 2.4.39", kills=("position-of-all",))
def test_each_open_has_a_position_of_its_own(tree: Tree, path: str) -> None:
    """A unique offset is maintained for each open of a file (2.4.39)."""
    first, second = tree.open(path), tree.open(path)
    expect(second.set(FileInfo.POSITION, struct.pack("<Q", 3)))
    expect(first.set(FileInfo.POSITION, struct.pack("<Q", 8)))
    found = [struct.unpack("<Q", expect(file.query(FileInfo.POSITION)).buffer)[0] for file in (first, second)]
    assert found == [8, 3], f"positions 8 and 3 were set, and the opens state {found[0]} and {found[1]}"


# Attributes that stay


@pytest.mark.case("SMB-SET-ATTRIBUTES-ZERO", section="MS-FSA 2.1.5.15.2", kills=("attributes-zero-clear",))
def test_attributes_of_zero_leave_those_that_are(tree: Tree, path: str) -> None:
    """Attributes are set if FileAttributes is not 0; with 0, the times alone are set."""
    file = tree.open(path)
    kept = SmbAttribute.HIDDEN | SmbAttribute.SYSTEM
    message = file.set(FileInfo.BASIC, struct.pack("<4QII", 0, 0, 0, 0, kept, 0))
    if message.status == SmbStatus.NOT_SUPPORTED:
        pytest.skip("the file system keeps no attributes: NOT_SUPPORTED")
    expect(message)
    was = struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)[0]
    if was & kept != kept:
        pytest.skip(f"the file system does not keep HIDDEN and SYSTEM: the attributes are {was:#x}")
    expect(file.set(FileInfo.BASIC, struct.pack("<4QII", 0, 0, LATER, 0, 0, 0)))
    found = struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)[0]
    expect(file.set(FileInfo.BASIC, struct.pack("<4QII", 0, 0, 0, 0, SmbAttribute.NORMAL, 0)))
    assert found == was, f"the attributes are {found:#x} after FileAttributes 0, and were {was:#x}"


# Names


def link(file: SmbFile, path: str, *, replace: bool) -> int:
    """Give the file another name; return the status. Skip if the file system has no hard links."""
    name = path.encode("utf-16-le")
    data = struct.pack("<B7xQI", replace, 0, len(name)) + name
    message = file.set(FileInfo.LINK, data.ljust(24, b"\0"))
    if message.status in NO_LINKS:
        pytest.skip("the file system has no hard links (MS-FSA 2.1.5.15.6)")
    return message.status


def content(tree: Tree, path: str) -> bytes:
    """Return what is in a file."""
    file = tree.open(path, access=Access.GENERIC_READ, disposition=Disposition.OPEN)
    data = expect(file.read(100)).buffer
    expect(file.close())
    return data


def filled(tree: Tree, path: str, data: bytes) -> SmbFile:
    """Make a file with data, and return it open."""
    file = tree.open(path)
    expect(file.write(data))
    return file


@pytest.mark.case("SMB-LINK-REPLACES", section="MS-FSA 2.1.5.15.6", kills=("link-never-replaces",))
def test_a_link_takes_the_place_of_a_file_on_request(tree: Tree, path: str) -> None:
    """With ReplaceIfExists the link that exists is removed, and without it the name collides."""
    file = filled(tree, path, b"linked")
    expect(filled(tree, f"{path}-new", b"other").close())
    assert link(file, f"{path}-new", replace=False) == SmbStatus.OBJECT_NAME_COLLISION
    assert content(tree, f"{path}-new") == b"other", "a link that collides has changed the file"
    status = link(file, f"{path}-new", replace=True)
    assert status == SmbStatus.SUCCESS, f"with ReplaceIfExists the link ends in {SmbStatus.name_of(status)}"
    assert content(tree, f"{path}-new") == b"linked"
    assert content(tree, path) == b"linked"


@pytest.mark.case("SMB-ALL-LINKS", section="MS-FSCC 2.4.2", kills=("all-links-one",))
def test_all_information_counts_the_links(tree: Tree, path: str) -> None:
    """FileAllInformation has FileStandardInformation in it, with NumberOfLinks as that class has it."""
    file = filled(tree, path, b"linked")
    status = link(file, f"{path}-second", replace=False)
    assert status == SmbStatus.SUCCESS, f"the link ends in {SmbStatus.name_of(status)}"
    second = tree.open(f"{path}-second", disposition=Disposition.OPEN)
    for opened in (file, second):
        (standard,) = struct.unpack_from("<I", expect(opened.query(FileInfo.STANDARD)).buffer, 16)
        (every,) = struct.unpack_from("<I", expect(opened.query(FileInfo.ALL)).buffer, 56)
        assert (standard, every) == (2, 2), f"the classes count {standard} and {every} links of 2"


def names_in(tree: Tree, directory: str, pattern: str = "*") -> list[str]:
    """Return the names that match; of a pattern that none matches, an empty list."""
    opened = open_directory(tree, directory)
    message = opened.list(FileInfo.NAMES, pattern)
    found = (
        []
        if message.status == SmbStatus.NO_SUCH_FILE
        else directory_entries(expect(message).buffer, FileInfo.NAMES)
    )
    expect(opened.close())
    return sorted(one.name for one in found if one.name not in (".", ".."))


@pytest.mark.case("SMB-RENAME-CASE", section="MS-FSA 2.1.5.15.11", kills=("rename-case-collides",))
def test_a_rename_can_change_case_alone(tree: Tree, directory: str) -> None:
    """A file does not collide with itself; its name is the one that was given, in the case that was given."""
    file = filled(tree, f"{directory}\\lower.txt", b"kept")
    expect(file.rename(f"{directory}\\LOWER.TXT"))
    expect(file.close())
    assert names_in(tree, directory) == ["LOWER.TXT"]
    assert content(tree, f"{directory}\\LOWER.TXT") == b"kept"


@pytest.mark.case("SMB-RENAME-STATED", section="MS-FSCC 2.4.2", kills=("rename-stated-old",))
def test_the_name_of_an_open_is_the_one_after_a_rename(tree: Tree, directory: str) -> None:
    """FileAllInformation has the name of the file as it is, whatever it was when it was opened."""
    file = filled(tree, f"{directory}\\before", b"kept")
    for name in ("after", "longer-than-before"):
        expect(file.rename(f"{directory}\\{name}"))
        stated = expect(file.query(FileInfo.ALL)).buffer[NAME_AT:].decode("utf-16-le")
        assert stated.rpartition("\\")[2] == name, f"a file that was renamed to {name!r} states {stated!r}"


# The wildcards of MS-DOS

FILES = ("ab", "ab.c", "ab.c.txt", "abc.txt", "b.txt")
PATTERNS = {
    "STAR": ("a<.txt", ["ab.c.txt", "abc.txt"]),
    "QUESTION": ("a>>.txt", ["abc.txt"]),
    "QUESTION-END": ("ab.c>>", ["ab.c"]),
    "DOT": ('ab"c', ["ab.c"]),
    "DOT-END": ('ab"', ["ab"]),
}
"""Patterns with the names that they match: < is DOS_STAR, > is DOS_QM and " is DOS_DOT (2.1.4.3)."""


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        case(f"SMB-LIST-DOS-{name}", *values, kills=("dos-wildcards-literal",))
        for name, values in PATTERNS.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.4.4")
def test_the_wildcards_of_ms_dos_match_as_they_are_defined(
    tree: Tree, directory: str, pattern: str, matched: list[str]
) -> None:
    """DOS_STAR goes up to the last dot; DOS_QM and DOS_DOT also match nothing at the end (2.1.4.4)."""
    for name in FILES:
        expect(tree.open(f"{directory}\\{name}").close())
    assert names_in(tree, directory, pattern) == matched
