"""Each entry of a listing of several states what its own file states (MS-FSCC 2.4, MS-FSA 2.1.5.6.3).

The files of the listing differ in every value, and one of them is a directory. So an entry with a value of
another one, of an earlier look, or of no file, is found.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

import pytest

from storagetest.suites.conformance.smb2.support import case, open_directory
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    Access,
    Disposition,
    FileInfo,
    Options,
    SmbAttribute,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect, make_directory
from storagetest.wire.smb2.information import DirectoryEntry, attribute_list, directory_entries

pytestmark = [
    pytest.mark.needs("smb-wire"),
    pytest.mark.case(level="MUST", section="MS-FSCC 2.4, MS-FSA 2.1.5.6.3"),
]

T = TypeVar("T")

DAY = 864_000_000_000
"""A day in intervals of 100 ns, the unit of times (MS-FSCC 2.1.1)."""

FIRST = 0x01D0000000000000
"""A time of 2014."""

TIME_NAMES = "CreationTime", "LastAccessTime", "LastWriteTime", "ChangeTime"

FILES = {
    "alpha": (10, SmbAttribute.HIDDEN),
    "beta": (5000, SmbAttribute.ARCHIVE),
    "gamma-longer": (0, SmbAttribute.SYSTEM | SmbAttribute.ARCHIVE),
    "sub": (0, SmbAttribute.DIRECTORY),
    "omega-longest": (70_000, SmbAttribute.READONLY),
}
"""Names of the entries, with the size and attributes that each is given."""

CLASSES = {
    "DIRECTORY": FileInfo.DIRECTORY,
    "FULL": FileInfo.FULL_DIRECTORY,
    "BOTH": FileInfo.BOTH_DIRECTORY,
    "ID-BOTH": FileInfo.ID_BOTH_DIRECTORY,
    "ID-FULL": FileInfo.ID_FULL_DIRECTORY,
}
WITH_ID = {name: one for name, one in CLASSES.items() if "ID" in name}
WITH_EA = {name: one for name, one in CLASSES.items() if name != "DIRECTORY"}

EA_SIZES = {"alpha": b"x", "gamma-longer": b"y" * 40}
"""The values of the extended attributes of two files; the others have none."""


def basic(created: int, accessed: int, written: int, attributes: int = 0) -> bytes:
    """Return FileBasicInformation; 0 leaves a value as it is (MS-FSCC 2.4.7)."""
    return struct.pack("<4QII", created, accessed, written, 0, attributes, 0)


def stated_times(file: SmbFile) -> tuple[int, ...]:
    """Return the four times of FileBasicInformation."""
    return struct.unpack_from("<4Q", expect(file.query(FileInfo.BASIC)).buffer)


def stated_attributes(file: SmbFile) -> int:
    """Return the attributes of FileBasicInformation."""
    return int(struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)[0])


def stated_id(file: SmbFile) -> int:
    """Return the number of FileInternalInformation."""
    return int(struct.unpack_from("<Q", expect(file.query(FileInfo.INTERNAL)).buffer)[0])


def stated_ea_size(file: SmbFile) -> int:
    """Return the size of FileEaInformation."""
    return int(struct.unpack_from("<I", expect(file.query(FileInfo.EA)).buffer)[0])


def looked_at(tree: Tree, directory: str, name: str, look: Callable[[SmbFile], T]) -> T:
    """Return what ``look`` finds by an open of the file for its attributes alone."""
    access = Access.READ_ATTRIBUTES | Access.READ_EA | Access.SYNCHRONIZE
    file = tree.open(f"{directory}\\{name}", access=access, disposition=Disposition.OPEN, options=0)
    found = look(file)
    expect(file.close())
    return found


def each(tree: Tree, directory: str, look: Callable[[SmbFile], T]) -> dict[str, T]:
    """Return what ``look`` finds of every file."""
    return {name: looked_at(tree, directory, name, look) for name in FILES}


def listed(
    opened: SmbFile, info_class: int, pattern: str = "*", *, flags: int = RESTART_SCANS
) -> dict[str, DirectoryEntry]:
    """Return the entries of a whole listing by their names, without ``.`` and ``..``."""
    found: dict[str, DirectoryEntry] = {}
    for _ in range(20):
        message = opened.list(info_class, pattern, flags=flags)
        if message.status == SmbStatus.NO_MORE_FILES:
            break
        found |= {one.name: one for one in directory_entries(expect(message).buffer, info_class)}
        flags &= ~RESTART_SCANS
    return {name: one for name, one in found.items() if name not in (".", "..")}


@pytest.fixture
def filled(tree: Tree, directory: str) -> str:
    """Return the name of a directory with FILES, each with its own times."""
    for number, (name, (size, attributes)) in enumerate(FILES.items()):
        path = f"{directory}\\{name}"
        is_directory = attributes == SmbAttribute.DIRECTORY
        if is_directory:
            make_directory(tree, path)
        file = open_directory(tree, path, access=Access.GENERIC_ALL) if is_directory else tree.open(path)
        if size:
            for at in range(0, size, 50_000):
                expect(file.write(b"x" * min(50_000, size - at), at))
        times = [FIRST + (4 * number + each) * DAY for each in range(3)]
        expect(file.set(FileInfo.BASIC, basic(*times, 0 if is_directory else attributes)))
        expect(file.close())
    return directory


def compared(found: dict[str, T], wanted: dict[str, T], what: str) -> None:
    """Compare what the entries state with what the files state."""
    assert set(found) == set(wanted), f"the names of the listing are {sorted(found)}"
    other = [name for name in wanted if found[name] != wanted[name]]
    assert not other, (
        f"{what} of {other[0]!r} is {found[other[0]]} in the listing, and {wanted[other[0]]} of the file"
    )


@pytest.mark.parametrize(
    "info_class",
    [
        case(
            f"SMB-LISTED-TIMES-{name}",
            one,
            kills=(
                "listed-created-written",
                "listed-accessed-written",
                "listed-changed-of-first",
                "listed-times-of-directory",
            ),
            builds_on=("SMB-INFO-BASIC",),
        )
        for name, one in CLASSES.items()
    ],
)
def test_each_entry_has_the_times_of_its_file(tree: Tree, filled: str, info_class: FileInfo) -> None:
    """No file is read or written after its times were set: FileBasicInformation states the same four."""
    entries = listed(open_directory(tree, filled), info_class)
    wanted = each(tree, filled, stated_times)
    for number, what in enumerate(TIME_NAMES):
        found = {name: one.times[number] for name, one in entries.items()}
        compared(found, {name: times[number] for name, times in wanted.items()}, what)


@pytest.mark.parametrize(
    "info_class",
    [
        case(
            f"SMB-LISTED-ID-{name}",
            one,
            kills=("listed-id-of-first", "listed-id-32", "listed-id-directory"),
            builds_on=("SMB-INFO-INTERNAL",),
        )
        for name, one in WITH_ID.items()
    ],
)
def test_each_entry_has_the_number_of_its_file(tree: Tree, filled: str, info_class: FileInfo) -> None:
    """FileId is the number of FileInternalInformation, of files and directories, and differs for each."""
    numbers = {name: one.file_id for name, one in listed(open_directory(tree, filled), info_class).items()}
    if not any(numbers.values()):
        pytest.skip("the file system has no FileId of 64 bits, and states 0 (MS-FSCC 2.4)")
    compared(numbers, each(tree, filled, stated_id), "FileId")
    assert len(set(numbers.values())) == len(FILES), f"two files have one FileId: {numbers}"


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LISTED-ATTRIBUTES-{name}", one, kills=("listed-attributes-lost", "listed-system-lost"))
        for name, one in CLASSES.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4, 2.6")
def test_each_entry_has_the_attributes_of_its_file(tree: Tree, filled: str, info_class: FileInfo) -> None:
    entries = listed(open_directory(tree, filled), info_class)
    compared(
        {name: hex(one.attributes) for name, one in entries.items()},
        each(tree, filled, lambda one: hex(stated_attributes(one))),
        "FileAttributes",
    )


@pytest.mark.parametrize(
    "info_class",
    [
        case(
            f"SMB-LISTED-EA-{name}",
            one,
            kills=("listed-ea-zero", "listed-ea-of-first"),
            builds_on=("SMB-EA-SIZE",),
        )
        for name, one in WITH_EA.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4, 2.4.13")
def test_each_entry_has_the_size_of_the_attributes_of_its_file(
    tree: Tree, filled: str, info_class: FileInfo
) -> None:
    """EaSize is that of FileEaInformation, of files with and without extended attributes."""
    for name, value in EA_SIZES.items():
        file = tree.open(f"{filled}\\{name}", access=Access.WRITE_EA, disposition=Disposition.OPEN)
        if file.set(FileInfo.FULL_EA, attribute_list([("STORAGETEST", value)])).is_error:
            pytest.skip("the file system has no extended attributes")
        expect(file.close())
    entries = listed(open_directory(tree, filled), info_class)
    compared(
        {name: one.ea_size for name, one in entries.items()}, each(tree, filled, stated_ea_size), "EaSize"
    )


@pytest.mark.parametrize(
    ("info_class", "flags"),
    [
        case(
            f"SMB-LISTED-SINGLE-{name}",
            one,
            RESTART_SCANS | RETURN_SINGLE_ENTRY,
            kills=("listed-single-times",),
        )
        for name, one in CLASSES.items()
    ],
)
def test_single_entries_state_the_same_as_a_whole_listing(
    tree: Tree, filled: str, info_class: FileInfo, flags: int
) -> None:
    """Neither how many entries a response has, nor the pattern, changes what an entry states."""
    opened = open_directory(tree, filled)
    whole = listed(opened, info_class)
    assert listed(opened, info_class, flags=flags) == whole, "an entry that comes alone states something else"
    for name in FILES:
        alone = listed(open_directory(tree, filled), info_class, pattern=name)
        assert alone == {name: whole[name]}, f"{name!r} listed by its name states something else"


def _times(tree: Tree, path: str) -> None:
    file = tree.open(path, access=Access.WRITE_ATTRIBUTES, disposition=Disposition.OPEN)
    expect(file.set(FileInfo.BASIC, basic(FIRST + 100 * DAY, FIRST + 101 * DAY, FIRST + 102 * DAY)))
    expect(file.close())


def _attributes(tree: Tree, path: str) -> None:
    file = tree.open(path, access=Access.WRITE_ATTRIBUTES, disposition=Disposition.OPEN)
    expect(file.set(FileInfo.BASIC, basic(0, 0, 0, SmbAttribute.HIDDEN | SmbAttribute.READONLY)))
    expect(file.close())


def _replaced(tree: Tree, path: str) -> None:
    other = tree.open(f"{path}-other")
    expect(other.write(b"other"))
    expect(other.rename(path, replace=True))
    expect(other.close())


def _made_again(tree: Tree, path: str) -> None:
    expect(tree.open(path, disposition=Disposition.OPEN, options=Options.DELETE_ON_CLOSE).close())
    expect(tree.open(path, disposition=Disposition.CREATE).close())


CHANGES: dict[str, Callable[[Tree, str], None]] = {
    "TIMES": _times,
    "ATTRIBUTES": _attributes,
    "REPLACED": _replaced,
    "MADE-AGAIN": _made_again,
}
"""Changes of a file by another client; each is closed before the listing."""

STALE = {
    "TIMES": "listed-stale-times",
    "ATTRIBUTES": "listed-stale-attributes",
    "REPLACED": "listed-stale-id",
    "MADE-AGAIN": "listed-stale-times",  # a file that is made again may have the number of the old one
}
"""The mutant that each change finds."""


@pytest.mark.parametrize(
    "change",
    [
        case(
            f"SMB-LISTED-AFTER-{name}",
            change,
            kills=(STALE[name],),
        )
        for name, change in CHANGES.items()
    ],
)
def test_a_listing_that_begins_again_states_what_was_changed(
    tree: Tree, other: Tree, filled: str, change: Callable[[Tree, str], None]
) -> None:
    """Times, attributes and FileId of an open of the directory that stays are those after each change."""
    opened = open_directory(tree, filled)
    for info_class in CLASSES.values():
        listed(opened, info_class)
    change(other, f"{filled}\\beta")
    wanted = each(tree, filled, lambda one: (stated_times(one), hex(stated_attributes(one)), stated_id(one)))
    for info_class in CLASSES.values():
        entries = listed(opened, info_class)
        has_id = any(one.file_id for one in entries.values())
        found = {
            name: (one.times, hex(one.attributes), one.file_id if has_id else wanted[name][2])
            for name, one in entries.items()
        }
        compared(found, wanted, f"{info_class.name}: times, attributes and FileId")
