"""What a request does not change, and access that it needs (MS-SMB2 3.3.5.21.1, MS-FSA 2.1.5)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.smb2.support import basic_information, case, open_directory
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    Access,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    SmbAttribute,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect

pytestmark = [
    pytest.mark.needs("smb-wire"),
    pytest.mark.case(level="MUST", section="MS-SMB2 3.3.5.21.1, MS-FSA 2.1.5.15.11"),
]

# Renames


def rename_from(file: SmbFile, root: int, path: str, *, replace: bool = False) -> SmbStatus:
    """Return the status of a rename whose RootDirectory is ``root`` (MS-FSCC 2.4.41.2)."""
    name = path.encode("utf-16-le")
    data = struct.pack("<B7xQI", replace, root, len(name)) + name
    return SmbStatus(file.set(FileInfo.RENAME, data).status)


@pytest.mark.parametrize(
    "root",
    [
        case(f"SMB-RENAME-ROOT-{name}", one, no_mutant_reason="smbd breaks this rule itself")
        for name, one in {"1": 1, "HIGH": 1 << 40, "MOST": (1 << 64) - 1}.items()
    ],
)
def test_a_rename_relative_to_another_directory_is_refused(
    tree: Tree, written: Callable[..., str], root: int
) -> None:
    """RootDirectory that is not zero ends with STATUS_INVALID_PARAMETER, and the file keeps its name."""
    name = written()
    file = tree.open(name, access=Access.DELETE | Access.READ_DATA, disposition=Disposition.OPEN)
    status = rename_from(file, root, f"{name}-new")
    assert status == SmbStatus.INVALID_PARAMETER, f"RootDirectory {root:#x}: the rename ends in {status.name}"
    expect(file.close())
    expect(tree.create(f"{name}-new", disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)
    expect(tree.open(name, disposition=Disposition.OPEN).close())


@pytest.mark.case("SMB-SET-DENIED-RENAME-DIR", no_mutant_reason="smbd breaks this rule itself")
def test_a_directory_is_not_renamed_without_the_access(tree: Tree, directory: str) -> None:
    """A rename needs DELETE, of a directory as of a file."""
    opened = open_directory(tree, directory, access=Access.READ_DATA | Access.READ_ATTRIBUTES)
    expect(opened.rename(f"{directory}-new"), SmbStatus.ACCESS_DENIED)


# Deletions


@pytest.mark.case(
    "SMB-SET-DENIED-DISPOSITION-BACK",
    section="MS-SMB2 3.3.5.21.1, MS-FSA 2.1.5.15.3",
    no_mutant_reason="smbd breaks this rule itself",
)
def test_a_deletion_is_not_taken_back_without_the_access(tree: Tree, written: Callable[..., str]) -> None:
    """FileDispositionInformation needs DELETE, whether DeletePending is TRUE or FALSE."""
    name = written()
    reads = tree.open(name, access=Access.READ_DATA | Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
    deletes = tree.open(name, access=Access.DELETE | Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
    expect(deletes.delete_on_close())
    expect(reads.delete_on_close(pending=False), SmbStatus.ACCESS_DENIED)


# Streams

STREAMS = 0x00040000
"""FILE_NAMED_STREAMS of the file system's attributes (MS-FSCC 2.5.1)."""

KINDS = {
    "OPEN": Disposition.OPEN,
    "OPEN-IF": Disposition.OPEN_IF,
    "NEW": Disposition.CREATE,
    "NEW-IF": Disposition.OPEN_IF,
}
"""How the stream is opened; it does not exist where the name begins with NEW."""

BROKEN: dict[str, Any] = {"no_mutant_reason": "smbd breaks this rule itself", "level": "SHOULD"}
"""Marks of the cases that create the stream: the text names no change of attributes, and forbids none."""

SETS = {"HIDDEN": SmbAttribute.HIDDEN, "SYSTEM": SmbAttribute.SYSTEM | SmbAttribute.ARCHIVE}


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        case(
            f"SMB-STREAM-{name}-{kind}",
            attribute,
            kind,
            **(BROKEN if kind.startswith("NEW") else {"kills": ("stream-open-clears",)}),
        )
        for name, attribute in SETS.items()
        for kind in KINDS
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.1.2")
def test_an_open_of_a_stream_keeps_the_attributes_of_its_file(
    tree: Tree, path: str, attributes: SmbAttribute, kind: str
) -> None:
    """An open that overwrites nothing, and at most creates a stream, sets no attribute of the file."""
    file = tree.open(path)
    data = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    if not int.from_bytes(data[:4], "little") & STREAMS:
        pytest.skip("the file system has no alternate streams")
    if not kind.startswith("NEW"):
        expect(tree.open(f"{path}:one").close())
    expect(file.set(FileInfo.BASIC, basic_information(attributes)))

    def stated() -> int:
        return int(struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)[0]) & attributes

    before = stated()
    expect(tree.open(f"{path}:one", disposition=KINDS[kind]).close())
    after = stated()
    expect(file.set(FileInfo.BASIC, basic_information(SmbAttribute.NORMAL)))
    assert after == before, f"the attributes are {after:#x} after the open of a stream, and were {before:#x}"
