"""A file over 4 GiB: the sizes that responses state, and the offsets of requests (MS-FSCC 2.4)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import (
    NO_FSCTL,
    case,
    chunks,
    open_directory,
    resume_key,
)
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import Disposition, FileInfo, Fsctl, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-FSCC 2.4")]

FAR = 5 << 30
"""An offset whose low 32 bits are another one within the file."""

PIECE = 65536
TOO_LARGE = (SmbStatus.DISK_FULL, SmbStatus.INVALID_PARAMETER, SmbStatus.NOT_SUPPORTED)
POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""


@pytest.fixture
def large(tree: Tree, directory: str) -> SmbFile:
    """Return an open sparse file with letters at 0, at 1 GiB and at FAR, where it ends."""
    file = tree.open(f"{directory}\\large")
    if file.ioctl(Fsctl.SET_SPARSE).is_error:
        pytest.skip("the server has no sparse files, and would fill the file")
    expect(file.write(b"A" * PIECE))
    expect(file.write(b"B" * PIECE, FAR & 0xFFFF_FFFF))
    message = file.write(b"C" * PIECE, FAR)
    if message.status in TOO_LARGE:
        pytest.skip(f"the server has no file of this size ({SmbStatus.name_of(message.status)})")
    expect(message)
    return file


def letters(file: SmbFile) -> list[bytes]:
    """Return the first byte of each piece that has data; the three are in order of their offsets."""
    return [expect(file.read(1, at)).buffer for at in (0, FAR & 0xFFFF_FFFF, FAR)]


LISTINGS = (
    FileInfo.DIRECTORY,
    FileInfo.FULL_DIRECTORY,
    FileInfo.BOTH_DIRECTORY,
    FileInfo.ID_BOTH_DIRECTORY,
    FileInfo.ID_FULL_DIRECTORY,
)


@pytest.mark.parametrize(
    "info_class",
    [case(f"SMB-FAR-LIST-{one.name.replace('_', '-')}", one, kills=("listing-size-32",)) for one in LISTINGS],
)
def test_a_listing_states_a_size_of_more_than_32_bits(
    tree: Tree, directory: str, large: SmbFile, info_class: FileInfo
) -> None:
    """The file is closed before it is listed; EndOfFile has 64 bits in each class."""
    expect(large.set_size(FAR + 7))
    expect(large.close())
    data = expect(open_directory(tree, directory).list(info_class)).buffer
    sizes = {one.name: one.size for one in directory_entries(data, info_class)}
    assert sizes.get("large") == FAR + 7, f"EndOfFile of the entry is {sizes.get('large')}"


@pytest.mark.parametrize(
    ("info_class", "at"),
    [
        case("SMB-FAR-SET-STANDARD", FileInfo.STANDARD, 8, kills=("set-size-32",)),
        case("SMB-FAR-SET-NETWORK-OPEN", FileInfo.NETWORK_OPEN, 40, kills=("set-size-32",)),
        case("SMB-FAR-SET-ALL", FileInfo.ALL, 48, kills=("set-size-32",)),
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4.14")
def test_a_size_of_more_than_32_bits_is_set(large: SmbFile, info_class: FileInfo, at: int) -> None:
    for size in (FAR + 7, (1 << 32) + 1, 1 << 32, (1 << 32) - 1, FAR + PIECE):
        expect(large.set_size(size))
        (end,) = struct.unpack_from("<Q", expect(large.query(info_class)).buffer, at)
        assert end == size, f"the size was set to {size}, and EndOfFile is {end}"


@pytest.mark.case("SMB-FAR-OPEN", section="MS-SMB2 2.2.14, 2.2.16", kills=("open-size-32",))
def test_an_open_and_a_close_state_a_size_of_more_than_32_bits(tree: Tree, large: SmbFile) -> None:
    expect(large.close())
    file = tree.open(large.name, disposition=Disposition.OPEN)
    closed = expect(file.close(flags=POSTQUERY))
    found = [int(message["end_of_file"]) for message in (file.message, closed)]
    assert found == [FAR + PIECE] * 2, f"CREATE and CLOSE state {found}"


@pytest.mark.parametrize(
    ("start", "at", "letter"),
    [
        case("SMB-FAR-COPY-SOURCE", FAR, 0, b"C", kills=("copychunk-source-32",)),
        case("SMB-FAR-COPY-TARGET", 0, FAR, b"A", kills=("copychunk-target-32",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.15.6")
def test_a_chunk_is_copied_from_and_to_a_far_offset(
    tree: Tree, path: str, large: SmbFile, start: int, at: int, letter: bytes
) -> None:
    target = tree.open(f"{path}-target")
    expect(target.ioctl(Fsctl.SET_SPARSE))
    expect(target.write(b"T" * PIECE))
    data = chunks(resume_key(large), (start, at, 4096))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12))
    assert expect(target.read(4096, at)).buffer == letter * 4096, "the chunk is not at its place"
    first = letter if at == 0 else b"T"
    assert expect(target.read(1)).buffer == first, "the chunk is at another place"


@pytest.mark.case("SMB-FAR-ZERO", section="MS-FSA 2.1.5.10.40", kills=("zero-data-32",))
def test_zeroed_data_at_a_far_offset_are_zero_and_no_others(large: SmbFile) -> None:
    message = large.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", FAR, FAR + 4096))
    if message.status in NO_FSCTL:
        pytest.skip("the server has no FSCTL_SET_ZERO_DATA")
    expect(message)
    assert letters(large) == [b"A", b"B", b"\0"]
    assert expect(large.read(4096, FAR + 4096)).buffer == b"C" * 4096


@pytest.mark.case("SMB-FAR-RANGES", section="MS-FSA 2.1.5.10.22", kills=("allocated-ranges-32",))
def test_an_allocated_range_at_a_far_offset_holds_its_data(large: SmbFile) -> None:
    message = large.ioctl(Fsctl.QUERY_ALLOCATED_RANGES, struct.pack("<QQ", FAR, PIECE))
    if message.status in NO_FSCTL:
        pytest.skip("the server has no FSCTL_QUERY_ALLOCATED_RANGES")
    found = list(struct.iter_unpack("<QQ", expect(message).buffer))
    within = [at >= FAR and at + length <= FAR + PIECE for at, length in found]
    assert all(within), f"the ranges are {found}, and not within what was asked for"
    assert sum(length for _, length in found) == PIECE, f"the ranges are {found}"
