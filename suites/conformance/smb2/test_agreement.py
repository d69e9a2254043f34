"""Values that two responses state of one thing, and limits that a server states and then keeps.

Create contexts against information classes, file system classes against each other, capabilities and the time
of NEGOTIATE, and requests on what has ended (MS-SMB2 2.2, 3.3.5, MS-FSCC 2.5).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import (
    NO_FSCTL,
    case,
    open_directory,
    skip_if_encrypted,
)
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    Access,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    Options,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import CAPABILITIES
from storagetest.wire.smb2.harness import SmbHarness, expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import SmbMessage, request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-SMB2 3.3.5.4")]

# NEGOTIATE

GATED = {
    "MULTI-CHANNEL": Capability.MULTI_CHANNEL,
    "PERSISTENT": Capability.PERSISTENT_HANDLES,
    "DIRECTORY-LEASING": Capability.DIRECTORY_LEASING,
}
"""Capabilities of the family 3.x that the server has only if the request has them."""


@pytest.mark.parametrize(
    "capability",
    [
        case(f"SMB-NEG-CAP-UNASKED-{name}", one, kills=(f"capability-unasked-{name.lower()}",))
        for name, one in GATED.items()
    ],
)
def test_a_capability_that_the_client_lacks_is_not_granted(bench: SmbHarness, capability: Capability) -> None:
    """The server sets the bit only if it is set in the Capabilities of the request."""
    mine = CAPABILITIES & ~capability
    found = bench.connect().negotiate([Dialect.SMB_3_0_2], capabilities=mine).capabilities
    assert not found & capability, f"the response has {capability.name}, which the request does not have"


@pytest.mark.case("SMB-NEG-TIME-GOES-ON", section="MS-SMB2 3.3.5.4, 2.2.4", kills=("system-time-sticks",))
def test_the_system_time_goes_on(bench: SmbHarness) -> None:
    """SystemTime is the current time: it is later in a response that is sent a second later."""
    first = bench.connect().negotiate([Dialect.SMB_3_0_2]).message["system_time"]
    time.sleep(1.1)  # more than the granularity of the clock
    second = bench.connect().negotiate([Dialect.SMB_3_0_2]).message["system_time"]
    assert second > first, f"SystemTime is {second}, and was {first} a second before"


# Headers

CHARGE = 2
"""The CreditCharge of the requests: more than they need, and another one than 1."""


def _write(file: SmbFile, over: dict[str, int]) -> SmbMessage:
    return file.write(b"data", over=over)


def _query(file: SmbFile, over: dict[str, int]) -> SmbMessage:
    return file.query(FileInfo.BASIC, over=over)


def _set(file: SmbFile, over: dict[str, int]) -> SmbMessage:
    return file.set(FileInfo.POSITION, bytes(8), over=over)


def _list(file: SmbFile, over: dict[str, int]) -> SmbMessage:
    return open_directory(file.tree, file.name.rpartition("\\")[0]).list(over=over)


CHARGED: dict[str, Callable[[SmbFile, dict[str, int]], SmbMessage]] = {
    "WRITE": _write,
    "QUERY": _query,
    "SET": _set,
    "LIST": _list,
}


@pytest.mark.parametrize(
    "send",
    [case(f"SMB-CHARGE-RETURNED-{name}", one, kills=("charge-one",)) for name, one in CHARGED.items()],
)
@pytest.mark.case(section="MS-SMB2 3.3.4.1", level="SHOULD")
def test_each_response_has_the_credit_charge_of_its_request(
    tree: Tree, path: str, send: Callable[[SmbFile, dict[str, int]], SmbMessage]
) -> None:
    if not tree.session.connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    file = tree.open(path)
    with_credits(tree, 2 * CHARGE)
    message = expect(send(file, {"credit_charge": CHARGE}))
    assert message["credit_charge"] == CHARGE, f"CreditCharge is {message['credit_charge']}"


# What has ended

ENDED = (SmbCommand.CLOSE, SmbCommand.FLUSH, SmbCommand.QUERY_INFO)
"""Commands that are sent on a file of the tree or session that has ended."""


def on_file(file: SmbFile, command: SmbCommand) -> dict[str, Any]:
    """Return the fields of a request on an open file."""
    if command not in ENDED:
        return {}
    asked = {"output_length": 4096, "info_type": InfoType.FILE, "info_class": FileInfo.BASIC}
    return {"file_id": file.file_id, **(asked if command == SmbCommand.QUERY_INFO else {})}


@pytest.mark.parametrize(
    "command",
    [
        case("SMB-TREE-GONE-TREE-DISCONNECT", SmbCommand.TREE_DISCONNECT, kills=("accepts-tree-disconnect",)),
        *(
            case(f"SMB-TREE-GONE-{one.name.replace('_', '-')}", one, kills=("gone-file-closed",))
            for one in ENDED
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.11, 3.3.5.8")
def test_requests_on_a_tree_that_was_disconnected_are_refused(
    tree: Tree, path: str, command: SmbCommand
) -> None:
    """A TreeId that is in no TreeConnectTable ends with STATUS_NETWORK_NAME_DELETED, whatever the command."""
    file = tree.open(path)
    expect(tree.disconnect())
    expect(tree.call(request(command, **on_file(file, command))), SmbStatus.NETWORK_NAME_DELETED)


@pytest.mark.parametrize(
    "command",
    [
        case("SMB-SES-GONE-LOGOFF", SmbCommand.LOGOFF, kills=("accepts-logoff",)),
        case("SMB-SES-GONE-TREE-DISCONNECT", SmbCommand.TREE_DISCONNECT, kills=("accepts-tree-disconnect",)),
        *(
            case(f"SMB-SES-GONE-{one.name.replace('_', '-')}", one, kills=("gone-file-closed",))
            for one in ENDED
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.9, 3.3.5.6")
def test_requests_in_a_session_that_logged_off_are_refused(
    tree: Tree, path: str, command: SmbCommand
) -> None:
    """A SessionId that is in no SessionTable ends with STATUS_USER_SESSION_DELETED, whatever the command."""
    skip_if_encrypted(tree)
    file = tree.open(path)
    expect(tree.session.logoff())
    expect(tree.call(request(command, **on_file(file, command)), sign=False), SmbStatus.USER_SESSION_DELETED)


# Create contexts


@pytest.mark.parametrize(
    "options",
    [
        case("SMB-QFID-FILE", Options.NON_DIRECTORY_FILE, kills=("disk-id-other",)),
        case("SMB-QFID-DIRECTORY", Options.DIRECTORY_FILE, kills=("disk-id-other",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.14.2.9, 3.3.5.9", level="SHOULD")
def test_the_disk_id_is_the_number_of_the_file(tree: Tree, path: str, options: Options) -> None:
    """DiskFileId of SMB2_CREATE_QUERY_ON_DISK_ID is the number of FileInternalInformation."""
    opened = tree.open(path, options=options, contexts=[(c.ON_DISK_ID, b"")])
    if c.ON_DISK_ID not in opened.contexts:
        pytest.skip("the response has no QFid")
    number = expect(opened.query(FileInfo.INTERNAL)).buffer[:8]
    found = opened.contexts[c.ON_DISK_ID][:8]
    assert found == number, f"DiskFileId is {found.hex()}, and the number of the file {number.hex()}"


@pytest.mark.parametrize(
    "options",
    [
        case("SMB-MAXIMAL-SAME-FILE", Options.NON_DIRECTORY_FILE, kills=("maximal-access-granted",)),
        case("SMB-MAXIMAL-SAME-DIRECTORY", Options.DIRECTORY_FILE, kills=("maximal-access-granted",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.14.2.5, 3.3.5.9.5")
def test_the_maximal_access_does_not_depend_on_what_is_asked(tree: Tree, path: str, options: Options) -> None:
    """MaximalAccess is what the user may do with the file, and not what this open was granted."""
    made = tree.open(path, options=options)
    found = []
    for access in (Access.READ_ATTRIBUTES, Access.GENERIC_READ, Access.GENERIC_READ | Access.GENERIC_WRITE):
        opened = tree.open(
            path,
            access=access,
            options=options,
            disposition=Disposition.OPEN,
            contexts=[(c.MAXIMAL_ACCESS, b"")],
        )
        if c.MAXIMAL_ACCESS not in opened.contexts:
            pytest.skip("the response has no MxAc")
        found.append(struct.unpack("<II", opened.contexts[c.MAXIMAL_ACCESS])[1])
        expect(opened.close())
    expect(made.close())
    assert len(set(found)) == 1, f"MaximalAccess of three opens of one file is {[hex(one) for one in found]}"


# File system information


def volume(file: SmbFile, info_class: FsInfo, layout: str) -> tuple[int, ...]:
    """Return the fields at the start of a class; skip if the server does not have it."""
    message = file.query(info_class, kind=InfoType.FILESYSTEM)
    if message.status in (*NO_FSCTL, SmbStatus.INVALID_INFO_CLASS, SmbStatus.NOT_IMPLEMENTED):
        pytest.skip(f"the server has no {info_class.name} information of the file system")
    return struct.unpack_from(f"<{layout}", expect(message).buffer)


@pytest.mark.case(
    "SMB-FS-AVAILABLE", section="MS-FSA 2.1.5.13.4, 2.1.5.13.8", kills=("volume-available-half",)
)
def test_both_classes_of_sizes_have_one_count_of_available_units(tree: Tree, path: str) -> None:
    """Other clients use space at the same time, so one of several looks has to agree."""
    file, found = tree.open(path), []
    for _ in range(10):
        before = volume(file, FsInfo.SIZE, "QQII")
        _, available, actual, *unit = volume(file, FsInfo.FULL_SIZE, "QQQII")
        after = volume(file, FsInfo.SIZE, "QQII")
        assert [*before[2:]] == unit, "the classes state units of different sizes"
        assert available <= actual or before != after, "more is available to the caller than at all"
        found.append((before[1], available, after[1]))
        if min(before[1], after[1]) <= available <= max(before[1], after[1]):
            return
    pytest.fail(f"FileFsSize and FileFsFullSizeInformation never agree on the available units: {found}")


@pytest.mark.case("SMB-FS-SECTORS", section="MS-FSCC 2.5.7", kills=("sector-atomicity-half",))
def test_physical_sectors_are_whole_numbers_of_logical_ones(tree: Tree, path: str) -> None:
    """Each physical sector size is a multiple of LogicalBytesPerSector, and all are powers of two."""
    logical, *physical = volume(tree.open(path), FsInfo.SECTOR_SIZE, "IIII")
    assert logical >= 512
    assert not logical & (logical - 1), f"LogicalBytesPerSector is {logical}"
    for size in physical:
        assert size, "a physical sector has no bytes"
        assert not size % logical, f"a physical sector has {size} bytes, and a logical one {logical}"
        assert not size & (size - 1), f"a physical sector has {size} bytes"


@pytest.mark.case(
    "SMB-STREAM-ALLOCATION", section="MS-FSCC 2.4.49, MS-FSA 2.1.5.12", kills=("stream-allocation-zero",)
)
def test_the_allocation_of_a_stream_is_that_of_its_open(tree: Tree, path: str) -> None:
    """StreamAllocationSize of the unnamed stream is AllocationSize of FileStandardInformation."""
    made = tree.open(path)
    expect(made.write(b"x" * 5000))
    expect(made.close())
    file, found = tree.open(path, disposition=Disposition.OPEN), []
    for _ in range(5):  # the space in use may not be settled yet (delayed allocation)
        message = file.query(FileInfo.STREAM)
        if message.status in (*NO_FSCTL, SmbStatus.INVALID_INFO_CLASS):
            pytest.skip("the server has no FileStreamInformation")
        (stream,) = struct.unpack_from("<16xQ", expect(message).buffer)
        (allocated,) = struct.unpack_from("<Q", expect(file.query(FileInfo.STANDARD)).buffer)
        found.append((stream, allocated))
        if stream == allocated:
            return
    pytest.fail(f"the allocation of the stream and that of the file never agree: {found}")


LONGEST_TRIED = 255
"""Characters of a component that every file system of the field takes, or refuses (MS-FSCC 2.1.5.1)."""


@pytest.mark.case("SMB-FS-NAME-LONGEST", section="MS-FSCC 2.5.1", kills=("volume-name-length-short",))
def test_the_longest_name_is_the_stated_one(tree: Tree, directory: str) -> None:
    """A name of MaximumComponentNameLength characters is that of a file; a longer one is refused."""
    opened = open_directory(tree, directory)
    (longest,) = volume(opened, FsInfo.ATTRIBUTE, "4xI")
    if longest > LONGEST_TRIED:
        pytest.skip(f"a name may have {longest} characters")
    name = "n" * longest
    expect(tree.open(f"{directory}\\{name}", disposition=Disposition.CREATE).close())
    assert name in {one.name for one in directory_entries(expect(opened.list()).buffer)}
    message = tree.create(f"{directory}\\{name}n", disposition=Disposition.CREATE)
    assert message.status, f"a name has {longest + 1} characters, and MaximumComponentNameLength is {longest}"
    expect(message, SmbStatus.OBJECT_NAME_INVALID)
