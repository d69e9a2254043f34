"""What responses state after a change, and fields that few requests ask for (MS-SMB2, MS-FSCC, MS-FSA)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.smb2.support import NO_FSCTL, NO_LINKS, case, open_directory
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.caching import open_leased
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    LEASE_PARENT_KEY_SET,
    RESTART_SCANS,
    Access,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Fsctl,
    FsInfo,
    InfoType,
    Lease,
    Options,
    SmbAttribute,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-FSCC 2.4")]


def standard(file: SmbFile) -> tuple[int, int]:
    """Return EndOfFile and NumberOfLinks of FileStandardInformation (MS-FSCC 2.4.45)."""
    _, end, links = struct.unpack_from("<QQI", expect(file.query(FileInfo.STANDARD)).buffer)
    return end, links


def attributes_in(file: SmbFile) -> tuple[int, int]:
    """Return the attributes that FileBasic and FileAttributeTagInformation state (MS-FSCC 2.4.6, 2.4.7)."""
    (basic,) = struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)
    (tag,) = struct.unpack_from("<I", expect(file.query(FileInfo.ATTRIBUTE_TAG)).buffer)
    return basic, tag


# CREATE

LEVEL_OVER = 4
"""The first number that is no ImpersonationLevel (2.2.13)."""


@pytest.mark.parametrize(
    "level",
    [
        case(f"SMB-IMPERSONATION-{name}", level, kills=("impersonation-ignored",))
        for name, level in (("4", LEVEL_OVER), ("HIGH", 0x100), ("MOST", 0xFFFFFFFF))
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.9", level="SHOULD")
def test_an_impersonation_level_that_is_not_defined_is_refused(tree, path, level):
    message = tree.create(path, over={"impersonation": level})
    expect(message, SmbStatus.BAD_IMPERSONATION_LEVEL)
    expect(tree.create(path, disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.parametrize(
    "level",
    [case(f"SMB-IMPERSONATION-{level}", level, kills=("accepts-impersonation-2",)) for level in (0, 1, 3)],
)
@pytest.mark.case(section="MS-SMB2 2.2.13")
def test_each_impersonation_level_is_taken(tree, path, level):
    expect(tree.create(path, over={"impersonation": level}))


MAXIMAL = {
    "FILE": (Access.GENERIC_READ | Access.GENERIC_WRITE, Options.NON_DIRECTORY_FILE),
    "ATTRIBUTES": (Access.READ_ATTRIBUTES, Options.NON_DIRECTORY_FILE),
    "DIRECTORY": (Access.GENERIC_READ, Options.DIRECTORY_FILE),
}


@pytest.mark.parametrize(
    ("access", "options"),
    [case(f"SMB-MAXIMAL-{name}", *each, kills=("maximal-access-status",)) for name, each in MAXIMAL.items()],
)
@pytest.mark.case(section="MS-SMB2 2.2.14.2.5, 3.3.5.9.5")
def test_the_maximal_access_of_an_own_file_is_found(tree, path, access, options):
    """QueryStatus is success, and MaximalAccess has what the open was granted."""
    file = tree.open(path, access=access, options=options, contexts=[(c.MAXIMAL_ACCESS, b"")])
    assert c.MAXIMAL_ACCESS in file.contexts, "the response has no MxAc"
    status, most = struct.unpack("<II", file.contexts[c.MAXIMAL_ACCESS])
    (granted,) = struct.unpack_from("<I", expect(file.query(FileInfo.ACCESS)).buffer)
    assert status == SmbStatus.SUCCESS, f"QueryStatus is {SmbStatus.name_of(status)}"
    assert not granted & ~most, f"MaximalAccess {most:#x} lacks {granted & ~most:#x}, which was granted"


@pytest.mark.parametrize(
    "parent",
    [
        case("SMB-LEASE-PARENT-NONE", b"", kills=("lease-parent-flag-always",)),
        case("SMB-LEASE-PARENT-SET", b"\x31" * 16, kills=("lease-parent-key-other",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.14.2.11, 3.3.5.9.11")
def test_a_lease_states_the_parents_key_that_was_sent(bench, path, parent):
    """A server may leave the parent's key out; with the flag, it is that of the request."""
    tree = bench.tree([Dialect.SMB_3_1_1])
    if not tree.session.connection.settled.capabilities & Capability.LEASING:
        pytest.skip("the server has no leases")
    file = open_leased(tree, path, os.urandom(16), Lease.READ | Lease.HANDLE, parent=parent)
    if c.LEASE not in file.contexts:
        pytest.skip("the server grants no lease here")
    data = file.contexts[c.LEASE]
    is_set = bool(c.decode_lease(data).flags & LEASE_PARENT_KEY_SET)
    assert not is_set or parent, "the flag PARENT_LEASE_KEY_SET, and the request had no parent's key"
    assert not is_set or data[32:48] == parent, f"ParentLeaseKey is {data[32:48].hex()}"


# Information

IN_ALL = {
    FileInfo.EA: (72, 4),
    FileInfo.ACCESS: (76, 4),
    FileInfo.POSITION: (80, 8),
    FileInfo.MODE: (88, 4),
    FileInfo.ALIGNMENT: (92, 4),
}
"""Where FileAllInformation has the values of other classes, and their bytes (MS-FSCC 2.4.2)."""


@pytest.mark.parametrize(
    ("info_class", "at", "size"),
    [
        case(f"SMB-ALL-{one.name}", one, *each, kills=(f"all-{one.name.lower()}-other",))
        for one, each in IN_ALL.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4.2")
def test_each_part_of_all_information_is_that_of_its_class(tree, written, info_class, at, size):
    """The file is open for reading and some more, and its position was set, if the server stores one."""
    access = Access.GENERIC_READ | Access.WRITE_DATA
    file = tree.open(written(), access=access, disposition=Disposition.OPEN)
    placed = file.set(FileInfo.POSITION, struct.pack("<Q", 7))
    if placed.status != SmbStatus.NOT_SUPPORTED or info_class is FileInfo.POSITION:
        expect(placed)
    alone = expect(file.query(info_class)).buffer[:size]
    whole = expect(file.query(FileInfo.ALL)).buffer[at : at + size]
    assert whole == alone, f"{info_class.name} is {alone.hex()}, and {whole.hex()} in FileAllInformation"


MODES = {
    "NONE": 0,
    "WRITE-THROUGH": Options.WRITE_THROUGH,
    "SEQUENTIAL": 0x4,
    "BOTH": Options.WRITE_THROUGH | 0x4,
}


@pytest.mark.parametrize(
    "mode",
    [
        case(
            f"SMB-MODE-{name}",
            mode,
            no_mutant_reason="smbd breaks this rule itself",
            builds_on=("SMB-MODE-NONE",) if mode else (),
        )
        for name, mode in MODES.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4.30")
def test_the_mode_is_that_of_the_create_options(tree, path, mode):
    file = tree.open(path, options=Options.NON_DIRECTORY_FILE | mode)
    (found,) = struct.unpack_from("<I", expect(file.query(FileInfo.MODE)).buffer)
    assert found == mode, f"Mode is {found:#x}, and the options were {mode:#x}"


@pytest.mark.case(
    "SMB-SPARSE-ATTRIBUTE",
    section="MS-FSA 2.1.5.10.38",
    kills=("sparse-attribute-lost", "sparse-set-ignored"),
)
def test_a_sparse_file_has_the_attribute_until_it_is_none(tree, path):
    file = tree.open(path)
    expect(file.write(b"0123456789"))
    for data, sparse in ((b"", True), (b"\0", False), (b"\1", True), (b"\0", False)):
        message = file.ioctl(Fsctl.SET_SPARSE, data)
        if message.status in NO_FSCTL:
            pytest.skip("the server has no sparse files")
        expect(message)
        again = tree.open(path, access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
        stated = (*attributes_in(file), *attributes_in(again), int(again.message["attributes"]))
        expect(again.close())
        assert [bool(one & SmbAttribute.SPARSE_FILE) for one in stated] == [sparse] * 5, (
            f"SET_SPARSE of {data!r}: the attributes are {[hex(one) for one in stated]}"
        )
    assert expect(file.read(100)).buffer == b"0123456789"


LISTED = (
    FileInfo.DIRECTORY,
    FileInfo.FULL_DIRECTORY,
    FileInfo.BOTH_DIRECTORY,
    FileInfo.ID_BOTH_DIRECTORY,
    FileInfo.ID_FULL_DIRECTORY,
)


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-AFTER-{one.name.replace('_', '-')}", one, kills=("listing-size-sticks",))
        for one in LISTED
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.6.3")
def test_a_listing_has_the_size_after_each_change(tree, directory, info_class):
    """Each change is closed before the listing, which goes on with one open of the directory."""
    opened = open_directory(tree, directory)
    for change, size in ((b"x" * 10, 10), (b"x" * 5000, 5000), (3, 3), (b"", 3), (0, 0)):
        file = tree.open(f"{directory}\\file")
        expect(file.set_size(change) if isinstance(change, int) else file.write(change or b"xyz"))
        expect(file.close())
        data = expect(opened.list(info_class, pattern="file", flags=RESTART_SCANS)).buffer
        sizes = [one.size for one in directory_entries(data, info_class)]
        assert sizes == [size], f"EndOfFile of the entry is {sizes}, and the file has {size} bytes"


CHANGES: dict[str, Callable[[SmbFile], int]] = {
    "WRITE": lambda file: expect(file.write(b"more", 3000)) and 3004,
    "GROW": lambda file: expect(file.set_size(70_000)) and 70_000,
    "SHRINK": lambda file: expect(file.set_size(5)) and 5,
}
"""Changes of a file; each returns its size."""


@pytest.mark.parametrize(
    "change",
    [
        case(f"SMB-CLOSE-AFTER-{name}", change, kills=("close-size-of-open",))
        for name, change in CHANGES.items()
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.16, 3.3.5.10")
def test_a_close_states_the_size_after_the_changes_of_its_open(tree, written, change):
    file = tree.open(written(), disposition=Disposition.OPEN)
    size = change(file)
    closed = expect(file.close(flags=1))
    assert closed["flags"] == 1, "the attributes were asked for (SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB)"
    assert closed["end_of_file"] == size


STREAMS = 0x00040000
"""FILE_NAMED_STREAMS of the file system's attributes (MS-FSCC 2.5.1)."""


@pytest.mark.case("SMB-STREAM-SIZE", section="MS-FSCC 2.1.5.3, 2.4.45", kills=("stream-end-of-file",))
def test_a_stream_has_its_own_size(tree, path):
    """EndOfFile of each open of a stream is that of the stream, after each change of it."""
    file = tree.open(path)
    data = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    if not int.from_bytes(data[:4], "little") & STREAMS:
        pytest.skip("the file system has no alternate streams")
    expect(file.write(bytes(1000)))
    stream = tree.open(f"{path}:one")
    for size in (6, 3000, 3, 0):
        expect(stream.set_size(size) if size < 6 else stream.write(bytes(size)))
        again = tree.open(f"{path}:one", disposition=Disposition.OPEN)
        found = [standard(one)[0] for one in (stream, again)] + [int(again.message["end_of_file"])]
        found += [int(expect(again.close(flags=1))["end_of_file"])]
        assert found == [size] * 4, f"EndOfFile of the stream is {found}, not {size}"
        assert standard(file)[0] == 1000, "the size of the file is that of its stream"


# Names

Verb = Callable[[Tree, str, str], bool]
"""Whether an operation with the name in other letters is about the file."""


def opens(tree: Tree, _where: str, name: str) -> bool:
    """CREATE with FILE_OPEN."""
    message = tree.create(name, access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
    expect(message, SmbStatus.SUCCESS, SmbStatus.OBJECT_NAME_NOT_FOUND)
    return not message.status


def collides(tree: Tree, _where: str, name: str) -> bool:
    """CREATE with FILE_CREATE, undone if it makes a file."""
    message = tree.create(name, disposition=Disposition.CREATE, options=Options.DELETE_ON_CLOSE)
    expect(message, SmbStatus.SUCCESS, SmbStatus.OBJECT_NAME_COLLISION)
    if not message.status:
        expect(SmbFile(tree, name, bytes(message["file_id"]), message).close())
    return bool(message.status)


def is_listed(tree: Tree, where: str, name: str) -> bool:
    """QUERY_DIRECTORY with the name as the pattern."""
    opened = open_directory(tree, where)
    message = opened.list(pattern=name.rpartition("\\")[2])
    expect(opened.close())
    return not expect(message, SmbStatus.SUCCESS, SmbStatus.NO_SUCH_FILE).status


def renamed_over(tree: Tree, where: str, name: str) -> bool:
    """Rename of another file without ReplaceIfExists, undone if it succeeds."""
    other = tree.open(f"{where}\\other")
    message = other.rename(name)
    expect(message, SmbStatus.SUCCESS, SmbStatus.OBJECT_NAME_COLLISION)
    expect(other.delete_on_close())
    expect(other.close())
    return bool(message.status)


VERBS: dict[str, Verb] = {
    "FILE_OPEN": opens,
    "FILE_CREATE": collides,
    "QUERY_DIRECTORY": is_listed,
    "a rename": renamed_over,
}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        case(
            f"SMB-CASE-{name.upper()[:4]}",
            name,
            others,
            kills=("open-case-lost", "create-case-lost"),
            builds_on=("SMB-DISP-05",),
        )
        for name, others in {
            "file": ("FILE", "File", "fILE"),
            "MiXeD.Txt": ("mixed.txt", "MIXED.TXT"),
        }.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.1, 2.1.4.4")
def test_all_operations_agree_on_the_case_of_letters(tree, directory, observe, name, others):
    """A share distinguishes letters by case or not, whatever the operation; names are listed as made."""
    expect(tree.open(f"{directory}\\{name}").close())
    found: dict[str, Any] = {}
    for other in others:
        for verb, is_about in VERBS.items():
            found[f"{verb} of {other}"] = is_about(tree, directory, f"{directory}\\{other}")
    observe("case-insensitive" if all(found.values()) else "case-sensitive")
    assert len(set(found.values())) == 1, f"whether the name is that of the file: {found}"
    opened = open_directory(tree, directory)
    listed = directory_entries(expect(opened.list()).buffer)
    assert {one.name for one in listed} == {".", "..", name}


@pytest.mark.case("SMB-LINKS-EACH", section="MS-FSCC 2.4.45", kills=("links-of-first-look",))
def test_each_link_and_each_removal_is_counted_once(tree, directory):
    """NumberOfLinks of an open that stays, and of a new one by each name that is left."""
    first = tree.open(f"{directory}\\first")
    names = ["first"]

    def counted(step: str) -> None:
        opened = tree.open(
            f"{directory}\\{names[-1]}", access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN
        )
        links = (standard(first)[1], standard(opened)[1])
        expect(opened.close())
        assert links == (len(names), len(names)), f"{step}: NumberOfLinks is {links}, not {len(names)}"

    counted("one name")
    for name in ("second", "third"):
        target = f"{directory}\\{name}".encode("utf-16-le")
        message = first.set(FileInfo.LINK, struct.pack("<B7xQI", False, 0, len(target)) + target)
        if message.status in NO_LINKS:
            pytest.skip("the server has no hard links (FileLinkInformation)")
        expect(message)
        names.append(name)
        counted(f"{name} made")
    while len(names) > 1:
        name = names.pop()
        gone = tree.open(f"{directory}\\{name}", access=Access.DELETE, disposition=Disposition.OPEN)
        expect(gone.delete_on_close())
        expect(gone.close())
        counted(f"{name} removed")
