"""Persistent handles on a share with continuous availability (MS-SMB2 3.3.5.9.10, .12, 3.3.7.1)."""

from __future__ import annotations

import os
import struct

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.support import SMB3, case
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import SmbFile, create_request
from storagetest.wire.smb2.codes import (
    SHARE_CONTINUOUS_AVAILABILITY,
    Capability,
    Disposition,
    Flags,
    Oplock,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9.10", level="MUST")]

AGAIN = pytest.mark.case(section="MS-SMB2 3.3.5.9.12")
KEPT = c.DURABLE_PERSISTENT
LOST = ("persistent-lost", "persistent-flag-lost")


@pytest.fixture
def guid():
    """The create GUID of the case."""
    return os.urandom(16)


@pytest.fixture
def client():
    """The client GUID of the case, which its connections share."""
    return os.urandom(16)


@pytest.fixture
def connect(bench, client):
    """Return a function that returns a tree of the case's client; skip without persistent handles."""

    def made(dialect=SMB3[-1], **more):
        tree = bench.tree([dialect], **{"guid": client, **more})
        has = tree.session.connection.settled.capabilities & Capability.PERSISTENT_HANDLES
        if not has or not tree.message["capabilities"] & SHARE_CONTINUOUS_AVAILABILITY:
            pytest.skip("the share has no persistent handles")
        return tree

    return made


@pytest.fixture
def persistent(bench, connect):
    """Return a function that opens a file with a persistent handle, which is closed at the end."""
    files = []

    def opened(tree, path, guid, **more):
        files.append((tree.open(path, contexts=[c.durable_v2(guid, flags=KEPT)], **more), guid))
        return files[-1][0]

    yield opened
    bench.close()
    for file, guid in files:
        tree = connect()
        message = again(tree, file, guid)
        if message.status == SmbStatus.SUCCESS:
            SmbFile(tree, file.name, bytes(message["file_id"]), message).close()


def granted(file):
    """Return timeout and flags of the response, which has them (2.2.14.2.12)."""
    assert c.DURABLE_V2 in file.contexts, "the response has no durable handle"
    return struct.unpack("<II", file.contexts[c.DURABLE_V2])


def lost(file):
    """Lose the connection of a file; return the contexts of the right reconnect."""
    file.tree.session.connection.close()
    return file


def again(tree, file, guid, *, file_id=b"", flags=KEPT):
    """Return the response to a reconnect."""
    context = c.reconnect_v2(file_id or file.file_id, guid, flags=flags)
    return tree.create(file.name, contexts=[context], disposition=Disposition.OPEN)


def reconnected(tree, file, guid, **more):
    """Reconnect; a server that has not yet noticed the lost connection refuses at first."""
    got = []

    def is_back():
        got.append(again(tree, file, guid, **more))
        return got[-1].status == SmbStatus.SUCCESS

    deadline = tree.session.connection.deadline
    wait_until(is_back, deadline, "the reconnect of a persistent handle", error=RemoteProtocolError)
    return SmbFile(tree, file.name, bytes(got[-1]["file_id"]), got[-1])


@pytest.mark.parametrize(
    ("dialect", "oplock"),
    [
        case("SMB-PERSIST-GRANT-300", SMB3[0], Oplock.BATCH, kills=LOST),
        case("SMB-PERSIST-GRANT-302", SMB3[1], Oplock.BATCH, kills=LOST),
        case("SMB-PERSIST-GRANT-311", SMB3[2], Oplock.BATCH, kills=LOST),
        case("SMB-PERSIST-GRANT-NONE", SMB3[2], Oplock.NONE, kills=LOST),
    ],
)  # fmt: skip
def test_a_persistent_handle_is_granted_with_any_oplock(connect, persistent, path, guid, dialect, oplock):
    assert granted(persistent(connect(dialect), path, guid, oplock=oplock))[1] & KEPT


@pytest.mark.case("SMB-PERSIST-TIMEOUT", level="SHOULD", kills=("persistent-timeout-zero",))
def test_the_timeout_of_a_persistent_handle_is_not_zero(connect, persistent, path, guid):
    assert granted(persistent(connect(), path, guid))[0] > 0


@pytest.mark.case("SMB-PERSIST-PLAIN", kills=("durable-persistent-set",))
def test_a_share_without_availability_grants_no_persistent_handle(tree, path, guid):
    if tree.message["capabilities"] & SHARE_CONTINUOUS_AVAILABILITY:
        pytest.skip("the share has continuous availability")
    contexts = [c.durable_v2(guid, flags=KEPT)]
    file = tree.open(path, oplock=Oplock.BATCH, contexts=contexts)
    assert not struct.unpack("<II", file.contexts.get(c.DURABLE_V2, bytes(8)))[1] & KEPT


@AGAIN
@pytest.mark.parametrize(
    "dialect", [case(f"SMB-PERSIST-AGAIN-{one:x}", one, kills=("persistent-refused",)) for one in SMB3]
)
def test_a_persistent_handle_is_taken_over_after_a_lost_connection(connect, persistent, path, guid, dialect):
    file = persistent(connect(dialect), path, guid)
    expect(file.write(b"kept"))
    found = reconnected(connect(dialect), lost(file), guid)
    assert expect(found.read(4)).buffer == b"kept"


@AGAIN
@pytest.mark.case("SMB-PERSIST-BY-GUID", kills=("persistent-guid-unknown",))
def test_a_persistent_handle_is_found_by_its_create_guid(connect, persistent, path, guid):
    file = lost(persistent(connect(), path, guid))
    assert reconnected(connect(), file, guid, file_id=b"\x77" * 16).file_id[:8] == file.file_id[:8]


@AGAIN
@pytest.mark.case("SMB-PERSIST-FLAG", kills=("persistent-flag-ignored", "kit-accepts-create"))
def test_a_reconnect_without_the_persistent_flag_is_not_found(connect, persistent, path, guid):
    file = lost(persistent(connect(), path, guid))
    expect(again(connect(), file, guid, flags=0), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(connect(), file, guid)


@AGAIN
@pytest.mark.case("SMB-PERSIST-GUID", kills=("persistent-guid-not-compared", "kit-accepts-create"))
def test_a_reconnect_with_another_create_guid_is_not_found(connect, persistent, path, guid):
    file = lost(persistent(connect(), path, guid))
    expect(again(connect(), file, bytes(16)), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(connect(), file, guid)


@AGAIN
@pytest.mark.case("SMB-PERSIST-CLOSED", kills=("kit-accepts-create", "kit-status-create"))
def test_a_closed_persistent_handle_is_not_taken_over(connect, persistent, path, guid):
    tree = connect()
    file = persistent(tree, path, guid)
    expect(file.close())
    expect(again(tree, file, guid), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case(
    "SMB-PERSIST-HELD",
    section="MS-SMB2 3.3.5.9",
    level="SHOULD",
    kills=("kit-accepts-create", "kit-status-create"),
)
def test_a_file_with_a_lost_persistent_handle_is_not_available(connect, persistent, path, guid):
    file = lost(persistent(connect(), path, guid))
    other = connect(guid=os.urandom(16))
    wait_until(
        lambda: other.create(path).status == SmbStatus.FILE_NOT_AVAILABLE,
        other.session.connection.deadline,
        "STATUS_FILE_NOT_AVAILABLE for an open of a file with a lost persistent handle",
        error=RemoteProtocolError,
    )
    reconnected(connect(), file, guid)


@pytest.mark.case("SMB-PERSIST-REPLAY", kills=("persistent-replay-ignored",))
def test_a_replayed_create_returns_the_same_persistent_handle(connect, persistent, path, guid):
    tree = connect()
    file = persistent(tree, path, guid)
    expect(file.write(b"x"))  # a persistent open stays eligible for a replay (3.3.5.13)
    encoded = create_request(path, contexts=[c.durable_v2(guid, flags=KEPT)])
    message = expect(tree.call(encoded, over={"header_flags": Flags.REPLAY}))
    assert message["file_id"] == file.file_id


@pytest.mark.case("SMB-PERSIST-DUPLICATE", kills=("kit-accepts-create", "kit-status-create"))
def test_a_create_guid_of_a_persistent_handle_is_used_once(connect, persistent, path, guid):
    tree = connect()
    persistent(tree, path, guid)
    message = tree.create(path, contexts=[c.durable_v2(guid, flags=KEPT)])
    expect(message, SmbStatus.DUPLICATE_OBJECTID)
