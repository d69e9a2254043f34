"""What several responses state of one file agrees; far offsets (MS-SMB2 2.2, MS-FSCC 2.4, MS-FSA 2.1.5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest

from storagetest.errors import AttachError
from storagetest.suites.conformance.smb2.handles import fill
from storagetest.suites.conformance.smb2.support import case, open_directory
from storagetest.wire.smb2.client import SmbFile
from storagetest.wire.smb2.codes import (
    Access,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Flags,
    Fsctl,
    Options,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import SmbMessage

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-SMB2 2.2.14")]

POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""

NETWORK_OPEN = ("SMB-INFO-SIZE-NETWORK-OPEN",)
"""The case of the class whose values are compared."""

TIMES = ("creation_time", "last_access_time", "last_write_time", "change_time")
SIZES = ("allocation_size", "end_of_file")


@dataclass(frozen=True, slots=True)
class Stated:
    """What a response states of a file; the time of access is left out, which a look may change."""

    created: int
    written: int
    changed: int
    allocated: int
    end: int
    attributes: int


def of_message(message: SmbMessage) -> Stated:
    """Return what CREATE or CLOSE states (2.2.14, 2.2.16)."""
    created, _, written, changed = (int(message[name]) for name in TIMES)
    allocated, end = (int(message[name]) for name in SIZES)
    return Stated(created, written, changed, allocated, end, int(message["attributes"]))


def of_network_open(file: SmbFile) -> Stated:
    """Return what FileNetworkOpenInformation states (MS-FSCC 2.4.33)."""
    data = expect(file.query(FileInfo.NETWORK_OPEN)).buffer
    created, _, written, changed, allocated, end, attributes = struct.unpack_from("<QQQQQQI", data)
    return Stated(created, written, changed, allocated, end, attributes)


def of_basic(file: SmbFile) -> Stated:
    """Return what FileBasicInformation and FileStandardInformation state (MS-FSCC 2.4.7, 2.4.45)."""
    created, _, written, changed, attributes = struct.unpack_from(
        "<QQQQI", expect(file.query(FileInfo.BASIC)).buffer
    )
    allocated, end = struct.unpack_from("<QQ", expect(file.query(FileInfo.STANDARD)).buffer)
    return Stated(created, written, changed, allocated, end, attributes)


def of_all(file: SmbFile) -> Stated:
    """Return what FileAllInformation states (MS-FSCC 2.4.2)."""
    data = expect(file.query(FileInfo.ALL)).buffer
    created, _, written, changed, attributes = struct.unpack_from("<QQQQI", data)
    allocated, end = struct.unpack_from("<QQ", data, 40)
    return Stated(created, written, changed, allocated, end, attributes)


@pytest.mark.parametrize(
    "size",
    [
        case(
            f"SMB-STATED-FILE-{size}",
            size,
            kills=("create-allocation-zero", "network-open-hidden") if size else ("network-open-hidden",),
            builds_on=NETWORK_OPEN,
        )
        for size in (0, 10, 100_000)
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.14, MS-FSCC 2.4")
def test_an_open_and_each_class_state_the_same_of_a_file(tree, directory, size):
    name = f"{directory}\\file"
    made = tree.open(name)
    fill(made, bytes(size))
    expect(made.close())
    for is_last in (False, True):
        file = tree.open(name, disposition=Disposition.OPEN)
        stated = of_message(file.message)
        looks = [of_network_open(file), of_basic(file), of_all(file)]
        expect(file.close())
        if looks == [stated] * 3 or is_last:
            break  # else the space in use may just have been settled (delayed allocation)
    assert stated.end == size
    assert looks == [stated] * 3, "FileNetworkOpen, FileBasic with FileStandard, FileAll"


@pytest.mark.case(
    "SMB-STATED-ACCESS-TIME",
    section="MS-FSCC 2.4",
    kills=("access-time-zero",),
    builds_on=NETWORK_OPEN,
)
def test_each_class_states_one_time_of_access(tree, directory):
    file = tree.open(f"{directory}\\file")
    classes = (FileInfo.BASIC, FileInfo.NETWORK_OPEN, FileInfo.ALL)
    times = {struct.unpack_from("<QQ", expect(file.query(one)).buffer)[1] for one in classes}
    assert len(times) == 1, f"the times of the last access are {times}"


@pytest.mark.case("SMB-STATED-NAME", section="MS-FSCC 2.4.2", kills=("all-name-other",))
def test_the_name_of_all_information_is_that_of_the_file(tree, directory):
    data = expect(tree.open(f"{directory}\\file").query(FileInfo.ALL)).buffer
    length = int.from_bytes(data[96:100], "little")
    name = data[100 : 100 + length].decode("utf-16-le")
    assert f"\\{name}".endswith(f"\\{directory}\\file"), f"the name is {name!r}"


@pytest.mark.parametrize(
    "kind",
    [
        case("SMB-STATED-CLOSE-FILE", "file", kills=("close-change-zero",), builds_on=NETWORK_OPEN),
        case("SMB-STATED-CLOSE-DIR", "directory", kills=("close-change-zero",), builds_on=NETWORK_OPEN),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.16, 3.3.5.10")
def test_a_close_states_what_the_open_states(tree, directory, kind):
    name, options = directory, Options.DIRECTORY_FILE
    if kind == "file":
        name, options = f"{directory}\\file", Options.NON_DIRECTORY_FILE
        made = tree.open(name)
        expect(made.write(bytes(5000)))
        expect(made.close())
    for is_last in (False, True):
        opened = tree.open(name, disposition=Disposition.OPEN, options=options)
        stated = of_network_open(opened)
        closed = of_message(expect(opened.close(flags=POSTQUERY)))
        if kind == "directory":  # a server may state a size of one or not
            stated, closed = (replace(one, allocated=0, end=0) for one in (stated, closed))
        if closed == stated or is_last:
            break  # else the space in use may just have been settled (delayed allocation)
    assert closed == stated


_LISTED = {
    FileInfo.DIRECTORY: 0,
    FileInfo.FULL_DIRECTORY: 0,
    FileInfo.BOTH_DIRECTORY: 0,
    FileInfo.ID_BOTH_DIRECTORY: 96,
    FileInfo.ID_FULL_DIRECTORY: 72,
}
"""Classes of listings with the offset of FileId, 0 if they have none (MS-FSCC 2.4)."""


@pytest.mark.parametrize(
    ("info_class", "id_at"),
    [
        case(
            f"SMB-STATED-LIST-{one.name.replace('_', '-')}",
            one,
            at,
            kills=("listing-write-time-zero", *(("listing-file-id",) if at else ())),
            builds_on=NETWORK_OPEN,
        )
        for one, at in _LISTED.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4, MS-FSA 2.1.5.6.3")
def test_an_entry_of_a_listing_states_what_the_file_states(tree, directory, info_class, id_at):
    made = tree.open(f"{directory}\\file")
    expect(made.write(bytes(5000)))
    expect(made.close())
    for is_last in (False, True):
        file = tree.open(f"{directory}\\file", disposition=Disposition.OPEN)
        number = expect(file.query(FileInfo.INTERNAL)).buffer[:8]
        stated = of_network_open(file)
        expect(file.close())
        listing = open_directory(tree, directory)
        data = expect(listing.list(info_class, pattern="file")).buffer
        expect(listing.close())
        created, _, wrote, changed, end, allocated, attributes = struct.unpack_from("<QQQQQQI", data, 8)
        listed = Stated(created, wrote, changed, allocated, end, attributes)
        if listed == stated or is_last:
            break  # else the space in use may just have been settled (delayed allocation)
    assert listed == stated
    if id_at and any(data[id_at : id_at + 8]) and any(number):
        assert data[id_at : id_at + 8] == number, "FileId is not the IndexNumber of the file"


# Offsets


@pytest.mark.parametrize(
    "offset",
    [
        case(f"SMB-FAR-{name}", offset, kills=("write-offset-31", "read-offset-31", "write-remaining"))
        for name, offset in (("2G", 1 << 31), ("4G", 1 << 32), ("4G-OVER", (1 << 32) - 2), ("1T", 1 << 40))
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.12, 3.3.5.13")
def test_data_at_a_far_offset_are_there_and_nowhere_else(tree, path, offset):
    file = tree.open(path)
    if file.ioctl(Fsctl.SET_SPARSE).is_error:
        pytest.skip("the server has no sparse files, and would fill the file up to the offset")
    expect(file.write(b"0123456789"))
    message = file.write(b"data", offset)
    if message.status in (SmbStatus.DISK_FULL, SmbStatus.INVALID_PARAMETER, SmbStatus.NOT_SUPPORTED):
        pytest.skip(f"the server has no file of this size ({SmbStatus.name_of(message.status)})")
    expect(message)
    assert expect(file.read(4, offset)).buffer == b"data"
    assert expect(file.read(10)).buffer == b"0123456789"
    end = struct.unpack_from("<QQ", expect(file.query(FileInfo.STANDARD)).buffer)[1]
    assert end == offset + 4


@pytest.mark.case("SMB-POSITION", section="MS-FSA 2.1.5.15", level="SHOULD", kills=("position-zero",))
def test_a_position_that_was_set_is_returned(tree, path):
    file = tree.open(path)
    expect(file.write(bytes(100)))
    for position in (40, 0, (1 << 33) + 5):
        expect(file.set(FileInfo.POSITION, struct.pack("<Q", position)))
        assert struct.unpack_from("<Q", expect(file.query(FileInfo.POSITION)).buffer)[0] == position


# Trees and headers


@pytest.mark.parametrize(
    ("share", "share_type"),
    [
        case("SMB-TREE-TYPE-DISK", "", 1, kills=("share-type-other",)),
        case("SMB-TREE-TYPE-PIPE", "IPC$", 2, kills=("share-type-other",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.10")
def test_a_tree_connect_states_the_type_of_the_share(bench, endpoint, share, share_type):
    session = bench.session([Dialect.SMB_3_0_2])
    try:
        tree = session.tree(share or endpoint.share)
    except AttachError as refusal:
        pytest.skip(str(refusal))
    assert tree.message["share_type"] == share_type


@pytest.mark.case(
    "SMB-TREE-HEADERS",
    section="MS-SMB2 3.3.4.3, 2.2.10, 2.2.32",
    kills=("close-tree-zero", "ioctl-file-zero", "tree-maximal-access-zero"),
)
def test_responses_name_the_tree_and_the_file_of_their_requests(bench, path):
    tree, needed = bench.tree([Dialect.SMB_3_0_2]), Access.READ_DATA | Access.WRITE_DATA | Access.DELETE
    file = tree.open(path, access=needed)
    assert tree.message["maximal_access"] & needed == needed, "MaximalAccess lacks access that was granted"
    message = file.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=32)
    if not message.is_error:
        assert message["file_id"] == file.file_id
    closed = expect(file.close())
    if not closed.flags & Flags.ASYNC:
        assert closed["tree_id"] == tree.tree_id


@pytest.mark.case(
    "SMB-CHARGE-RETURNED", section="MS-SMB2 3.3.4.1", level="SHOULD", kills=("read-charge-zero",)
)
def test_a_response_has_the_credit_charge_of_its_request(tree, path):
    connection = tree.session.connection
    if not connection.settled.capabilities & Capability.LARGE_MTU or connection.granted < 2:
        pytest.skip("the server has no multi-credit requests")
    file = tree.open(path)
    expect(file.write(b"data"))
    for charge in (1, 2) if connection.settled.message["max_read"] >= 131072 else (1,):
        message = expect(file.read(65536 * charge))
        assert message["credit_charge"] == charge, f"CreditCharge is {message['credit_charge']}"
