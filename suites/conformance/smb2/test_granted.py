"""What an open is granted, and what it may do then: MAXIMUM_ALLOWED, and read-only files (MS-SMB2 2.2.13.1).

An open with MAXIMUM_ALLOWED has each right that the client has on the file. What an open was granted stays
when the file becomes read-only: that attribute is compared when a file is opened.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storagetest.suites.conformance.smb2.support import basic_information, case
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import Access, Disposition, FileInfo, Options, SmbAttribute, SmbStatus
from storagetest.wire.smb2.harness import expect, make_directory

pytestmark = [
    pytest.mark.needs("smb-wire"),
    pytest.mark.case(section="MS-SMB2 2.2.13.1.1", level="MUST"),
]

RIGHTS = (
    Access.READ_DATA,
    Access.WRITE_DATA,
    Access.APPEND_DATA,
    Access.READ_EA,
    Access.WRITE_EA,
    Access.EXECUTE,
    Access.READ_ATTRIBUTES,
    Access.WRITE_ATTRIBUTES,
    Access.READ_CONTROL,
    Access.WRITE_DAC,
)
"""Rights that an open can have each alone. DELETE may be the directory's to give."""

MOST = Access.MAXIMUM_ALLOWED


def granted(file: SmbFile) -> int:
    """Return AccessFlags of FileAccessInformation (MS-FSCC 2.4.1)."""
    (access,) = struct.unpack_from("<I", expect(file.query(FileInfo.ACCESS)).buffer)
    return int(access)


def rights_of(tree: Tree, name: str, options: int) -> int:
    """Return the rights that the server grants the client on a file, each to an open of its own."""
    found = 0
    for right in RIGHTS:
        message = tree.create(name, access=right, disposition=Disposition.OPEN, options=options)
        if message.status == SmbStatus.SUCCESS:
            found |= right
            expect(SmbFile(tree, name, bytes(message["file_id"]), message).close())
        else:
            expect(message, SmbStatus.ACCESS_DENIED)
    return found


@pytest.mark.parametrize(
    "access",
    [
        case("SMB-MAXIMUM-FILE", MOST, kills=("maximum-allowed-reads",)),
        case(
            "SMB-MAXIMUM-FILE-READ", MOST | Access.GENERIC_READ, kills=("maximum-allowed-with-others-lost",)
        ),
    ],
)
def test_maximum_allowed_is_each_right_that_the_client_has(
    tree: Tree, written: Callable[..., str], access: int
) -> None:
    """The open has the highest level of access the client has on this file, whatever else was asked for."""
    name = written()
    wanted = rights_of(tree, name, Options.NON_DIRECTORY_FILE)
    file = tree.open(name, access=access, disposition=Disposition.OPEN)
    found = granted(file)
    assert not wanted & ~found, (
        f"an open with {access:#x} is granted {found:#x}, without {wanted & ~found:#x}, which opens that ask "
        "for it are granted"
    )


@pytest.mark.parametrize(
    "access",
    [
        case("SMB-MAXIMUM-DIRECTORY", MOST, kills=("maximum-allowed-reads",)),
        case(
            "SMB-MAXIMUM-DIRECTORY-READ",
            MOST | Access.GENERIC_READ,
            kills=("maximum-allowed-with-others-lost",),
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.13.1.2")
def test_maximum_allowed_of_a_directory_is_each_right_that_the_client_has(
    tree: Tree, directory: str, access: int
) -> None:
    """The open has the highest level of access the client has on this directory."""
    name = f"{directory}\\sub"
    make_directory(tree, name)
    wanted = rights_of(tree, name, Options.DIRECTORY_FILE)
    opened = tree.open(name, access=access, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE)
    found = granted(opened)
    assert not wanted & ~found, (
        f"an open with {access:#x} is granted {found:#x}, without {wanted & ~found:#x}, which opens that ask "
        "for it are granted"
    )


@pytest.mark.case("SMB-MAXIMUM-USED", kills=("maximum-allowed-reads",))
def test_an_open_with_maximum_allowed_reads_and_writes(tree: Tree, written: Callable[..., str]) -> None:
    """Each right that the open states to have is one that it uses."""
    name = written()
    wanted = rights_of(tree, name, Options.NON_DIRECTORY_FILE)
    needed = Access.READ_DATA | Access.WRITE_DATA
    if wanted & needed != needed:
        pytest.skip(f"the client has {wanted:#x} on its own file")
    file = tree.open(name, access=MOST, disposition=Disposition.OPEN)
    expect(file.write(b"new"))
    assert expect(file.read(5)).buffer == b"new34"


def assert_used(file: SmbFile) -> None:
    """Write through an open of a read-only file, change its size, and read."""
    expect(file.write(b"abcdef"))
    expect(file.set(FileInfo.END_OF_FILE, struct.pack("<Q", 3)))
    assert expect(file.read(10)).buffer == b"abc"


@pytest.mark.case("SMB-READONLY-MADE", section="MS-SMB2 3.3.5.13", kills=("readonly-made-not-written",))
def test_an_open_that_makes_a_read_only_file_writes_it(tree: Tree, path: str) -> None:
    """The attribute is that of the new file; the open has what it asked for."""
    file = tree.open(path, attributes=SmbAttribute.READONLY, disposition=Disposition.CREATE)
    assert_used(file)
    expect(file.set(FileInfo.BASIC, basic_information(SmbAttribute.NORMAL)))


@pytest.mark.parametrize(
    "by",
    [
        case("SMB-READONLY-SET-OWN", "own", kills=("readonly-set-not-written",)),
        case("SMB-READONLY-SET-OTHER", "other", kills=("readonly-set-not-written",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.13")
def test_an_open_for_writing_stays_one_when_the_file_becomes_read_only(
    tree: Tree, written: Callable[..., str], by: str
) -> None:
    """A write is compared with what its open was granted, and not with the attributes of the file."""
    name = written()
    file = tree.open(name, disposition=Disposition.OPEN)
    setter = file if by == "own" else tree.open(name, disposition=Disposition.OPEN)
    status = setter.set(FileInfo.BASIC, basic_information(SmbAttribute.READONLY)).status
    if status != SmbStatus.SUCCESS:
        pytest.skip(f"a file does not become read-only here: status {status:#010x}")
    (attributes,) = struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)
    if not attributes & SmbAttribute.READONLY:
        pytest.skip(f"a file does not become read-only here: its attributes are {attributes:#x}")
    assert_used(file)
    message = tree.create(name, access=Access.WRITE_DATA, disposition=Disposition.OPEN)
    expect(message, SmbStatus.ACCESS_DENIED)
    expect(setter.set(FileInfo.BASIC, basic_information(SmbAttribute.NORMAL)))
