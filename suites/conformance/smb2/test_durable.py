"""Durable handles: requests, reconnects, replays (MS-SMB2 3.3.5.9.6, .7, .10, .12)."""

from __future__ import annotations

import os
import struct

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.handles import again, drop, durable, only_durable, reconnected
from storagetest.suites.conformance.smb2.support import READ, SMB3, WRITE, case
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.caching import granted, open_leased
from storagetest.wire.smb2.client import create_request
from storagetest.wire.smb2.codes import Dialect, Disposition, Flags, Lease, Lock, Oplock, SmbShare, SmbStatus
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9.10", level="MUST")]

V1, V1_AGAIN = "MS-SMB2 3.3.5.9.6", "MS-SMB2 3.3.5.9.7"
V2, V2_AGAIN = "MS-SMB2 3.3.5.9.10", "MS-SMB2 3.3.5.9.12"
RWH = 7
REFUSED = ("accepts-create", "status-create")
NOW = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY


@pytest.fixture
def guid():
    """The create GUID of the case."""
    return os.urandom(16)


@pytest.fixture
def client():
    """The client GUID of the case, which its connections share."""
    return os.urandom(16)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-DURABLE-V1-GRANT", 1, kills=("durable-context-lost",), section=V1),
        case("SMB-DURABLE-V2-GRANT", 2, kills=("durable-context-lost",), section=V2),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_an_open_with_a_batch_oplock_is_durable(tree, path, guid, version):
    context = c.durable_v1() if version == 1 else c.durable_v2(guid)
    file = tree.open(path, oplock=Oplock.BATCH, contexts=[context])
    if file.message["oplock"] != Oplock.BATCH:
        pytest.skip("the server grants no batch oplock")
    assert {1: c.DURABLE, 2: c.DURABLE_V2}[version] in file.contexts


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-DURABLE-V1-LEASE", 1, kills=("durable-context-lost",), section=V1),
        case("SMB-DURABLE-V2-LEASE", 2, kills=("durable-context-lost",), section=V2),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_an_open_with_a_lease_of_handle_caching_is_durable(tree, path, guid, version):
    context = c.durable_v1() if version == 1 else c.durable_v2(guid)
    file = open_leased(tree, path, guid, RWH, contexts=[context])
    lease = granted(file)
    if lease is None or not lease.state & Lease.HANDLE:
        pytest.skip("the server grants no lease of handle caching")
    assert {1: c.DURABLE, 2: c.DURABLE_V2}[version] in file.contexts


@pytest.mark.parametrize(
    ("version", "oplock"),
    [
        case("SMB-DURABLE-V1-NONE", 1, Oplock.NONE, kills=("durable-without-oplock",), section=V1),
        case("SMB-DURABLE-V1-II", 1, Oplock.LEVEL_II, kills=("durable-without-oplock",), section=V1),
        case("SMB-DURABLE-V1-EXCLUSIVE", 1, Oplock.EXCLUSIVE, kills=("durable-without-oplock",), section=V1),
        case("SMB-DURABLE-V2-NONE", 2, Oplock.NONE, kills=("durable-without-oplock",), section=V2),
        case("SMB-DURABLE-V2-II", 2, Oplock.LEVEL_II, kills=("durable-without-oplock",), section=V2),
        case("SMB-DURABLE-V2-EXCLUSIVE", 2, Oplock.EXCLUSIVE, kills=("durable-without-oplock",), section=V2),
    ],
)
def test_an_open_without_handle_caching_is_not_durable(tree, path, guid, version, oplock):
    context = c.durable_v1() if version == 1 else c.durable_v2(guid)
    file = tree.open(path, oplock=oplock, contexts=[context])
    assert not {c.DURABLE, c.DURABLE_V2} & set(file.contexts)


@pytest.mark.case("SMB-DURABLE-V2-FLAGS", section="MS-SMB2 2.2.14.2.12", kills=("durable-persistent-set",))
def test_a_handle_is_persistent_only_if_it_was_requested(tree, path, guid):
    timeout, flags = struct.unpack("<II", durable(tree, path, guid).contexts[c.DURABLE_V2])
    assert not flags & c.DURABLE_PERSISTENT
    assert timeout >= 0


@pytest.mark.case("SMB-DURABLE-V2-TIMEOUT", level="SHOULD", kills=("durable-timeout-zero",))
def test_the_timeout_of_a_durable_handle_is_not_zero(tree, path, guid):
    assert struct.unpack("<II", durable(tree, path, guid).contexts[c.DURABLE_V2])[0] > 0


@pytest.mark.parametrize(
    "context",
    [
        case(
            "SMB-DURABLE-BOTH-1", c.durable_v1(), kills=REFUSED, section=V2
        ),
        case(
            "SMB-DURABLE-BOTH-2", c.reconnect_v1(bytes(16)), kills=REFUSED, section=V2
        ),
        case(
            "SMB-DURABLE-BOTH-3",
            c.reconnect_v2(bytes(16), bytes(16)),
            kills=REFUSED,
            section=V2,
        ),
    ],
)  # fmt: skip
def test_a_request_of_the_second_version_comes_alone(tree, path, guid, context):
    if tree.session.connection.settled.dialect not in SMB3:
        pytest.skip("dialects before 3.0 have no second version, and ignore its context (3.3.5.9.10)")
    message = tree.create(path, oplock=Oplock.BATCH, contexts=[c.durable_v2(guid), context])
    expect(message, SmbStatus.INVALID_PARAMETER)


# Reconnects


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        case("SMB-RECONNECT-V1-202", 1, Dialect.SMB_2_0_2, kills=("reconnect-refused",), section=V1_AGAIN),
        case("SMB-RECONNECT-V1-21", 1, Dialect.SMB_2_1, kills=("reconnect-refused",), section=V1_AGAIN),
        case("SMB-RECONNECT-V2-30", 2, Dialect.SMB_3_0, kills=("reconnect-refused",), section=V2_AGAIN),
        case("SMB-RECONNECT-V2-302", 2, Dialect.SMB_3_0_2, kills=("reconnect-refused",), section=V2_AGAIN),
        case("SMB-RECONNECT-V2-311", 2, Dialect.SMB_3_1_1, kills=("reconnect-refused",), section=V2_AGAIN),
    ],
)
def test_a_durable_handle_is_taken_over_after_a_lost_connection(bench, path, client, guid, version, dialect):
    file = durable(bench.tree([dialect], guid=client), path, guid if version == 2 else None)
    expect(file.write(b"kept"))
    drop(file)
    context = c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)
    assert expect(reconnected(bench.tree([dialect], guid=client), file, context).read(4)).buffer == b"kept"


@pytest.mark.case("SMB-RECONNECT-LEVEL", section=V2_AGAIN, kills=("oplock-level-lost",))
def test_a_reconnect_returns_the_oplock(bench, path, client, guid):
    file = durable(bench.tree(guid=client), path, guid)
    drop(file)
    found = reconnected(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
    assert found.message["oplock"] == Oplock.BATCH


@pytest.mark.case("SMB-RECONNECT-LOCK", section=V2_AGAIN, kills=("lock-short",))
def test_the_locks_of_a_durable_handle_are_kept(bench, path, client, guid):
    file = durable(bench.tree(guid=client), path, guid)
    expect(file.lock((0, 10, NOW)))
    drop(file)
    found = reconnected(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
    expect(found.lock((0, 10, Lock.UNLOCK)))


@pytest.mark.case("SMB-RECONNECT-LOCK-HELD", section=V2_AGAIN, kills=("reconnect-locks-free",))
def test_the_locks_of_a_durable_handle_are_held_after_its_reconnect(bench, path, client, guid):
    """Another open does not get the range; one with the key of the lease breaks nothing."""
    file = only_durable(open_leased(bench.tree(guid=client), path, guid, RWH, contexts=[c.durable_v2(guid)]))
    expect(file.lock((0, 10, NOW)))
    drop(file)
    tree = bench.tree(guid=client)
    contexts = (c.lease_v2(guid, RWH), c.reconnect_v2(file.file_id, guid))
    found = reconnected(tree, file, *contexts, oplock=Oplock.LEASE)
    second = open_leased(tree, path, guid, RWH)
    expect(second.lock((5, 1, NOW)), SmbStatus.LOCK_NOT_GRANTED)
    expect(found.lock((0, 10, Lock.UNLOCK)))
    expect(second.lock((5, 1, NOW)))


def lost_with_lease(bench, path, client, guid):
    file = only_durable(open_leased(bench.tree(guid=client), path, guid, RWH, contexts=[c.durable_v2(guid)]))
    drop(file)
    return file


@pytest.mark.case("SMB-RECONNECT-LEASE", section=V2_AGAIN, kills=("reconnect-refused", "lease-key-other"))
def test_a_reconnect_returns_the_lease(bench, path, client, guid):
    file = lost_with_lease(bench, path, client, guid)
    contexts = (c.lease_v2(guid, RWH), c.reconnect_v2(file.file_id, guid))
    found = reconnected(bench.tree(guid=client), file, *contexts, oplock=Oplock.LEASE)
    assert c.decode_lease(found.contexts[c.LEASE]).key == guid


def refused_first(bench, file, client, wrong, right, oplock=Oplock.BATCH):
    """The wrong reconnect is refused, and then the right one succeeds: the handle was there to take."""
    tree = bench.tree(guid=client)
    expect(again(tree, file, *wrong, oplock=oplock), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(tree, file, *right, oplock=oplock)


@pytest.mark.case(
    "SMB-RECONNECT-GUID",
    section=V2_AGAIN,
    kills=("durable-any-guid", "accepts-create", "create-guid-not-compared"),
)
def test_a_reconnect_with_another_create_guid_is_not_found(bench, path, client, guid):
    file = durable(bench.tree(guid=client), path, guid)
    drop(file)
    wrong = [c.reconnect_v2(file.file_id, bytes(16))]
    right = [c.reconnect_v2(file.file_id, guid)]
    refused_first(bench, file, client, wrong, right)


@pytest.mark.case("SMB-RECONNECT-KEY", section=V2_AGAIN, kills=("accepts-create",))
def test_a_reconnect_with_another_lease_key_is_not_found(bench, path, client, guid):
    file = lost_with_lease(bench, path, client, guid)
    wrong = [c.lease_v2(bytes(16), RWH), c.reconnect_v2(file.file_id, guid)]
    right = [c.lease_v2(guid, RWH), c.reconnect_v2(file.file_id, guid)]
    refused_first(bench, file, client, wrong, right, oplock=Oplock.LEASE)


@pytest.mark.case("SMB-RECONNECT-CLIENT", section=V2_AGAIN, kills=("accepts-create",))
def test_a_reconnect_of_another_client_with_a_lease_is_not_found(bench, path, client, guid):
    file = lost_with_lease(bench, path, client, guid)
    right = [c.lease_v2(guid, RWH), c.reconnect_v2(file.file_id, guid)]
    expect(again(bench.tree(), file, *right, oplock=Oplock.LEASE), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(bench.tree(guid=client), file, *right, oplock=Oplock.LEASE)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-ID", 1, kills=REFUSED, section=V1_AGAIN),
        case("SMB-RECONNECT-V2-ID", 2, kills=REFUSED, section=V2_AGAIN),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_a_reconnect_of_an_unknown_handle_is_not_found(tree, written, guid, version):
    context = c.reconnect_v1(b"\x77" * 16) if version == 1 else c.reconnect_v2(b"\x77" * 16, guid)
    message = tree.create(written(), oplock=Oplock.BATCH, contexts=[context], disposition=Disposition.OPEN)
    expect(message, SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-CLOSED", 1, kills=REFUSED, section=V1_AGAIN),
        case("SMB-RECONNECT-V2-CLOSED", 2, kills=REFUSED, section=V2_AGAIN),
    ],
)
def test_a_closed_handle_is_not_taken_over(tree, path, guid, version):
    file = durable(tree, path, guid if version == 2 else None)
    expect(file.close())
    context = c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)
    expect(again(tree, file, context), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-CLOSED-LOST", 1, kills=("closed-stays-durable",), section=V1_AGAIN),
        case("SMB-RECONNECT-V2-CLOSED-LOST", 2, kills=("closed-stays-durable",), section=V2_AGAIN),
    ],
)
def test_a_closed_handle_is_not_taken_over_after_a_lost_connection(bench, path, client, guid, version):
    """CLOSE ends the handle, whether the connection is lost later or not."""
    file = durable(bench.tree(guid=client), path, guid if version == 2 else None)
    expect(file.close())
    drop(file)
    context = c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)
    tree = bench.tree(guid=client)
    for _ in range(3):  # a server may take a moment to notice the lost connection
        expect(again(tree, file, context), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-OPEN", 1, kills=REFUSED, section=V1_AGAIN),
        case("SMB-RECONNECT-V2-OPEN", 2, kills=REFUSED, section=V2_AGAIN),
    ],
)
def test_a_handle_that_is_connected_is_not_taken_over(bench, tree, path, guid, version):
    file = durable(tree, path, guid if version == 2 else None)
    context = c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)
    expect(again(bench.tree(), file, context), SmbStatus.OBJECT_NAME_NOT_FOUND)
    expect(file.read(1), SmbStatus.END_OF_FILE)


@pytest.mark.case("SMB-RECONNECT-CONFLICT", section="MS-SMB2 3.3.4.6", kills=("accepts-create",))
def test_a_disconnected_handle_gives_way_to_another_open(bench, path, client, guid):
    file = durable(bench.tree(guid=client), path, guid)
    drop(file)
    other = bench.tree()
    other.open(path, access=WRITE, disposition=Disposition.OPEN)
    message = again(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
    expect(message, SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case("SMB-RECONNECT-PLAIN", section="MS-SMB2 3.3.7.1", kills=("status-success-lost",))
def test_a_handle_that_is_not_durable_is_closed_with_its_connection(bench, path):
    file = bench.tree().open(path, share=SmbShare.NONE)
    drop(file)
    other = bench.tree()
    opened = lambda: other.create(path, access=READ, disposition=Disposition.OPEN).status == 0  # noqa: E731
    wait_until(
        opened, other.session.connection.deadline, "the close of a lost handle", error=RemoteProtocolError
    )


# Replays of CREATE


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-REPLAY-{dialect:x}", dialect, kills=("replay-ignored", "file-id-changes"))
        for dialect in SMB3
    ],
)
def test_a_replayed_create_returns_the_same_open(bench, path, guid, dialect):
    tree = bench.tree([dialect])
    file = durable(tree, path, guid)
    encoded = create_request(path, oplock=Oplock.BATCH, contexts=[c.durable_v2(guid)])
    message = expect(tree.call(encoded, over={"header_flags": Flags.REPLAY}))
    assert message["file_id"] == file.file_id


@pytest.mark.case("SMB-REPLAY-FLAG", kills=("accepts-create", "status-create", "replay-always"))
def test_a_create_guid_in_use_without_the_replay_flag_is_a_duplicate(tree, path, guid):
    durable(tree, path, guid)
    message = tree.create(path, oplock=Oplock.BATCH, contexts=[c.durable_v2(guid)])
    expect(message, SmbStatus.DUPLICATE_OBJECTID)
