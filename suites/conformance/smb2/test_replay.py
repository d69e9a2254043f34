"""Durable reconnects, replays and lock sequences, also on a second channel (MS-SMB2 3.3.5.9, 3.3.5.14)."""

from __future__ import annotations

import os
import struct
import time

import pytest

from storagetest.suites.conformance.smb2.handles import (
    again,
    bind,
    drop,
    durable,
    multichannel,
    on,
    only_durable,
    reconnected,
)
from storagetest.suites.conformance.smb2.support import NO_FSCTL, READ, SMB3, case
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.caching import open_leased
from storagetest.wire.smb2.client import create_request
from storagetest.wire.smb2.codes import (
    Dialect,
    Disposition,
    FileInfo,
    Flags,
    Fsctl,
    Lock,
    Oplock,
    Options,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9.12", level="MUST")]

V1, V1_AGAIN = "MS-SMB2 3.3.5.9.6", "MS-SMB2 3.3.5.9.7"
V2, V2_AGAIN = "MS-SMB2 3.3.5.9.10", "MS-SMB2 3.3.5.9.12"
RWH = 7
NOW = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY
REFUSED = ("accepts-create", "status-create")
LOCKED = ("accepts-lock", "status-lock")


@pytest.fixture
def guid():
    """The create GUID of the case."""
    return os.urandom(16)


@pytest.fixture
def client():
    """The client GUID of the case, which its connections share."""
    return os.urandom(16)


def opened(bench, path, client, guid, version, *, leased):
    """Open a file durably in the dialect of ``version``, with a lease or a batch oplock, and lose it."""
    tree = bench.tree([Dialect.SMB_2_1 if version == 1 else Dialect.SMB_3_1_1], guid=client)
    context = c.durable_v1() if version == 1 else c.durable_v2(guid)
    if leased:
        return drop(only_durable(open_leased(tree, path, guid, RWH, version=version, contexts=[context])))
    return drop(only_durable(tree.open(path, oplock=Oplock.BATCH, contexts=[context])))


def tree_of(bench, client, version):
    """Return a tree of the client in the dialect of ``version``."""
    return bench.tree([Dialect.SMB_2_1 if version == 1 else Dialect.SMB_3_1_1], guid=client)


def back(file, guid, version):
    """Return the context of a reconnect."""
    return c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)


def lease(key, version):
    return c.lease_v1(key, RWH) if version == 1 else c.lease_v2(key, RWH)


# Reconnects


@pytest.mark.parametrize(
    ("version", "key"),
    [
        case("SMB-RECONNECT-V1-KEY", 1, bytes(16), kills=("accepts-create",), section=V1_AGAIN),
        case("SMB-RECONNECT-V1-LEASELESS", 1, None, kills=("accepts-create",), section=V1_AGAIN),
        case("SMB-RECONNECT-V2-LEASELESS", 2, None, kills=("accepts-create",), section=V2_AGAIN),
    ],
)
def test_a_reconnect_without_the_lease_of_the_open_is_not_found(bench, path, client, guid, version, key):
    file = opened(bench, path, client, guid, version, leased=True)
    tree = tree_of(bench, client, version)
    wrong = [back(file, guid, version), *([lease(key, version)] if key else [])]
    oplock = Oplock.LEASE if key else Oplock.BATCH
    expect(again(tree, file, *wrong, oplock=oplock), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(tree, file, lease(guid, version), back(file, guid, version), oplock=Oplock.LEASE)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-LEASED", 1, kills=("accepts-create",), section=V1_AGAIN),
        case("SMB-RECONNECT-V2-LEASED", 2, kills=("accepts-create",), section=V2_AGAIN),
    ],
)
def test_a_reconnect_with_a_lease_of_an_open_without_one_is_not_found(bench, path, client, guid, version):
    file = opened(bench, path, client, guid, version, leased=False)
    tree = tree_of(bench, client, version)
    wrong = [lease(guid, version), back(file, guid, version)]
    expect(again(tree, file, *wrong, oplock=Oplock.LEASE), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(tree, file, back(file, guid, version))


@pytest.mark.case("SMB-RECONNECT-V1-CLIENT", section=V1_AGAIN, kills=("accepts-create",))
def test_a_reconnect_of_another_client_with_a_lease_is_not_found(bench, path, client, guid):
    file = opened(bench, path, client, guid, 1, leased=True)
    right = [lease(guid, 1), back(file, guid, 1)]
    other = tree_of(bench, b"", 1)
    expect(again(other, file, *right, oplock=Oplock.LEASE), SmbStatus.OBJECT_NAME_NOT_FOUND)
    reconnected(tree_of(bench, client, 1), file, *right, oplock=Oplock.LEASE)


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-RECONNECT-V1-NAME", 1, kills=REFUSED, section=V1_AGAIN),
        case("SMB-RECONNECT-V2-NAME", 2, kills=REFUSED, section=V2_AGAIN),
    ],
)
def test_a_reconnect_of_a_lease_with_another_name_is_an_invalid_parameter(bench, path, client, guid, version):
    file = opened(bench, path, client, guid, version, leased=True)
    tree = tree_of(bench, client, version)
    right = [lease(guid, version), back(file, guid, version)]
    expect(tree.open(f"{path}-other").close())
    message = tree.create(f"{path}-other", oplock=Oplock.LEASE, contexts=right, disposition=Disposition.OPEN)
    expect(message, SmbStatus.INVALID_PARAMETER)
    reconnected(tree, file, *right, oplock=Oplock.LEASE)


@pytest.mark.case("SMB-RECONNECT-V1-BOTH", section=V1_AGAIN, kills=("reconnect-refused",))
def test_a_request_along_with_a_reconnect_of_the_first_version_is_ignored(bench, path, client, guid):
    file = opened(bench, path, client, guid, 1, leased=False)
    tree = tree_of(bench, client, 1)
    found = reconnected(tree, file, c.durable_v1(), back(file, guid, 1))
    assert found.file_id[:8] == file.file_id[:8]


@pytest.mark.parametrize(
    "more",
    [
        case("SMB-RECONNECT-V1-WITH-V2", c.durable_v2(b"\x55" * 16), kills=REFUSED),
        case("SMB-RECONNECT-V1-WITH-V2-AGAIN", c.reconnect_v2(bytes(16), b"\x55" * 16), kills=REFUSED),
    ],
)
@pytest.mark.case(section=V1_AGAIN, level="SHOULD")
def test_a_reconnect_of_the_first_version_with_one_of_the_second_is_refused(tree, path, more):
    expect(tree.open(path).close())
    message = tree.create(
        path,
        oplock=Oplock.BATCH,
        contexts=[c.reconnect_v1(b"\x77" * 16), more],
        disposition=Disposition.OPEN,
    )
    expect(message, SmbStatus.INVALID_PARAMETER)


# Timeouts


@pytest.mark.case("SMB-DURABLE-TIMEOUT-ASKED", section=V2, level="SHOULD", kills=("durable-timeout-other",))
def test_the_timeout_is_the_one_that_was_requested(tree, path, guid):
    file = durable(tree, path, guid, timeout=77_000)
    assert struct.unpack("<II", file.contexts[c.DURABLE_V2])[0] == 77_000


@pytest.mark.case("SMB-DURABLE-EXPIRED", section="MS-SMB2 3.3.6.2", kills=("durable-timeout-ignored",))
def test_a_durable_handle_is_closed_after_its_timeout(bench, path, client, guid):
    file = durable(bench.tree(guid=client), path, guid, timeout=500)
    granted = struct.unpack("<II", file.contexts[c.DURABLE_V2])[0]
    if granted > 2_000:
        pytest.skip(f"the server keeps the handle for {granted} ms")
    for waits in (1, 2, 4, 8):
        drop(file)
        time.sleep(granted / 1000 * waits)  # the server ends the handle by its own clock
        message = again(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
        if message.status:
            break
        file = reconnected(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
    expect(message, SmbStatus.OBJECT_NAME_NOT_FOUND)


# Directories


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-DURABLE-V1-DIRECTORY", 1, kills=("durable-directory",), section=V1),
        case("SMB-DURABLE-V2-DIRECTORY", 2, kills=("durable-directory",), section=V2),
    ],
)
def test_an_open_of_a_directory_is_not_durable(tree, directory, guid, version):
    context = c.durable_v1() if version == 1 else c.durable_v2(guid)
    contexts = [context, c.lease_v2(guid, 3), (c.MAXIMAL_ACCESS, b"")]
    found = tree.open(
        directory, access=READ, oplock=Oplock.LEASE, options=Options.DIRECTORY_FILE, contexts=contexts
    )
    assert not {c.DURABLE, c.DURABLE_V2} & set(found.contexts)


# Replays of CREATE

REPLAY = {"header_flags": Flags.REPLAY}


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-REPLAY-CHANNEL-{one:x}", one, kills=("replay-ignored", "file-id-changes"), section=V2)
        for one in SMB3
    ],
)
def test_a_create_is_replayed_on_a_second_channel(bench, path, client, guid, dialect):
    tree = multichannel(bench, client, dialect)
    file = durable(tree, path, guid)
    second = bind(bench, tree, client, dialect)
    encoded = create_request(path, oplock=Oplock.BATCH, contexts=[c.durable_v2(guid)])
    message = expect(second.call(encoded, over=REPLAY))
    assert message["file_id"] == file.file_id


@pytest.mark.case("SMB-REPLAY-LEASE", section=V2, kills=("replay-ignored", "file-id-changes"))
def test_a_replayed_create_with_its_lease_returns_the_same_open(tree, path, guid):
    contexts = [c.lease_v2(guid, RWH), c.durable_v2(guid)]
    file = only_durable(tree.open(path, oplock=Oplock.LEASE, contexts=contexts))
    encoded = create_request(path, oplock=Oplock.LEASE, contexts=contexts)
    assert expect(tree.call(encoded, over=REPLAY))["file_id"] == file.file_id


@pytest.mark.case("SMB-REPLAY-LEASE-KEY", section=V2, kills=REFUSED)
def test_a_replayed_create_with_another_lease_key_is_denied(tree, path, guid):
    file = only_durable(open_leased(tree, path, guid, RWH, contexts=[c.durable_v2(guid)]))
    contexts = [c.durable_v2(guid), c.lease_v2(b"\x66" * 16, RWH)]
    encoded = create_request(path, oplock=Oplock.LEASE, contexts=contexts)
    expect(tree.call(encoded, over=REPLAY), SmbStatus.ACCESS_DENIED)
    expect(file.write(b"still open"))


# Replays of changes on a second channel

CHANNELS = pytest.mark.case(section="MS-SMB2 3.3.5.2.10")
CHANGES = {
    "WRITE": lambda file, **more: file.write(b"again", **more),
    "SET": lambda file, **more: file.set(FileInfo.END_OF_FILE, struct.pack("<Q", 5), **more),
    "IOCTL": lambda file, **more: file.ioctl(Fsctl.SET_SPARSE, b"\1", **more),
}
HIDES = {"WRITE": "accepts-write", "SET": "accepts-set-info", "IOCTL": "accepts-ioctl"}


def change(file, name):
    """Make a change without a replay; skip if the share has no such one (MS-SMB2 3.3.5.15)."""
    message = CHANGES[name](file)
    if name == "IOCTL" and message.status in NO_FSCTL:
        pytest.skip(f"the share has no sparse files: {SmbStatus.name_of(message.status)}")
    expect(message)


def over(number, flags=0):
    """Return the override of ChannelSequence, which is in the field of the status, and of the flags."""
    return {"over": {"status": number, "header_flags": flags}}


@CHANNELS
@pytest.mark.parametrize(
    "name", [case(f"SMB-CHANNEL-REPLAY-{name}", name, kills=("status-success-lost",)) for name in CHANGES]
)
def test_a_change_is_replayed_on_a_second_channel(bench, path, client, name):
    tree = multichannel(bench, client)
    file = tree.open(path)
    change(file, name)
    second = on(bind(bench, tree, client), file)
    expect(CHANGES[name](second, **over(1, Flags.REPLAY)))


@CHANNELS
@pytest.mark.parametrize(
    "name",
    [case(f"SMB-CHANNEL-OLD-{name}", name, kills=("sequence-ignored", HIDES[name])) for name in CHANGES],
)
def test_a_change_of_the_first_channel_is_old_after_one_of_the_second(bench, path, client, name):
    tree = multichannel(bench, client)
    file = tree.open(path)
    change(file, name)
    expect(on(bind(bench, tree, client), file).write(b"newer", **over(1)))
    expect(CHANGES[name](file, **over(0)), SmbStatus.FILE_NOT_AVAILABLE)


@CHANNELS
@pytest.mark.parametrize(
    "name",
    [case(f"SMB-REPLAY-OLD-{name}", name, kills=("sequence-ignored", HIDES[name])) for name in CHANGES],
)
def test_a_replay_with_an_old_channel_sequence_is_not_available(bench, path, name):
    file = bench.tree([Dialect.SMB_3_1_1]).open(path)
    expect(file.write(b"new", **over(5)))
    expect(CHANGES[name](file, **over(4, Flags.REPLAY)), SmbStatus.FILE_NOT_AVAILABLE)


# Lock sequences

LOCKS = pytest.mark.case(section="MS-SMB2 3.3.5.14")
FULL = (0, 10, NOW)
FREE = (0, 10, Lock.UNLOCK)


def sequence(number, index=1):
    """Return LockSequenceNumber and LockSequenceIndex as one field (2.2.26)."""
    return number | index << 4


def lockable(bench, path, client, guid, dialect):
    """Return a durable open, whose locks have sequences in every dialect from 2.1 on."""
    tree = bench.tree([dialect], guid=client)
    return durable(tree, path, guid if dialect >= Dialect.SMB_3_0 else None)


@LOCKS
@pytest.mark.parametrize(
    "dialect",
    [case(f"SMB-LOCKSEQ-{one:x}", one, kills=("lock-sequence-ignored",)) for one in (Dialect.SMB_2_1, *SMB3)],
)
def test_a_replayed_lock_succeeds_and_is_not_executed_again(bench, path, client, guid, dialect):
    file = lockable(bench, path, client, guid, dialect)
    expect(file.lock(FULL, sequence=sequence(3)))
    expect(file.lock(FULL, sequence=sequence(3)))
    expect(file.lock(FREE, sequence=sequence(4)))
    expect(file.lock(FREE), SmbStatus.RANGE_NOT_LOCKED)


@LOCKS
@pytest.mark.case("SMB-LOCKSEQ-UNLOCK", section="MS-SMB2 3.3.5.14.1", kills=("lock-sequence-ignored",))
def test_a_replayed_unlock_succeeds(bench, path, client, guid):
    file = lockable(bench, path, client, guid, Dialect.SMB_3_1_1)
    expect(file.lock(FULL))
    expect(file.lock(FREE, sequence=sequence(7)))
    expect(file.lock(FREE, sequence=sequence(7)))


@LOCKS
@pytest.mark.parametrize(
    ("dialect", "first", "second"),
    [
        case("SMB-LOCKSEQ-NUMBER", Dialect.SMB_3_1_1, sequence(3), sequence(4), kills=LOCKED),
        case("SMB-LOCKSEQ-INDEX", Dialect.SMB_3_1_1, sequence(3), sequence(3, 2), kills=LOCKED),
        case("SMB-LOCKSEQ-ZERO", Dialect.SMB_3_1_1, sequence(3, 0), sequence(3, 0), kills=LOCKED),
        case("SMB-LOCKSEQ-65", Dialect.SMB_3_1_1, sequence(3, 65), sequence(3, 65), kills=LOCKED),
        case("SMB-LOCKSEQ-202", Dialect.SMB_2_0_2, sequence(3), sequence(3), kills=LOCKED),
    ],
)  # fmt: skip
def test_a_lock_of_another_sequence_is_executed(bench, path, client, guid, dialect, first, second):
    file = lockable(bench, path, client, guid, dialect)
    expect(file.lock(FULL, sequence=first))
    expect(file.lock(FULL, sequence=second), SmbStatus.LOCK_NOT_GRANTED)


@LOCKS
@pytest.mark.case("SMB-LOCKSEQ-FAILED", kills=("lock-sequence-of-failure",))
def test_a_lock_that_failed_is_executed_at_its_replay(bench, path):
    tree = bench.tree([Dialect.SMB_3_1_1])
    holder, file = tree.open(path), tree.open(path)
    expect(holder.lock(FULL))
    expect(file.lock(FULL, sequence=sequence(3)), SmbStatus.LOCK_NOT_GRANTED)
    expect(holder.lock(FREE))
    expect(file.lock(FULL, sequence=sequence(3)))
    expect(holder.lock(FULL), SmbStatus.LOCK_NOT_GRANTED)


@LOCKS
@pytest.mark.case("SMB-LOCKSEQ-CHANNEL", kills=("lock-sequence-ignored",))
def test_a_lock_is_replayed_on_a_second_channel(bench, path, client):
    tree = multichannel(bench, client)
    file = tree.open(path)
    expect(file.lock(FULL, sequence=sequence(3)))
    second = on(bind(bench, tree, client), file)
    expect(second.lock(FULL, sequence=sequence(3), over={"status": 1, "header_flags": Flags.REPLAY}))


@LOCKS
@pytest.mark.case("SMB-LOCKSEQ-RECONNECT", kills=("lock-sequence-ignored",))
def test_a_lock_is_replayed_after_a_reconnect(bench, path, client, guid):
    file = lockable(bench, path, client, guid, Dialect.SMB_3_1_1)
    expect(file.lock(FULL, sequence=sequence(3)))
    drop(file)
    found = reconnected(bench.tree(guid=client), file, c.reconnect_v2(file.file_id, guid))
    expect(found.lock(FULL, sequence=sequence(3)))


# Resilient handles


RESILIENT = pytest.mark.case(section="MS-SMB2 3.3.5.15.9")
NOT_RESILIENT = (SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST)


@RESILIENT
@pytest.mark.case("SMB-RESILIENT", kills=("accepts-ioctl",))
def test_resiliency_is_granted_or_not_supported(tree, path):
    file = tree.open(path)
    message = file.ioctl(Fsctl.LMR_REQUEST_RESILIENCY, struct.pack("<II", 1000, 0))
    expect(message, SmbStatus.SUCCESS, *NOT_RESILIENT)
    if not message.status:
        assert (message["control_code"], message["file_id"]) == (Fsctl.LMR_REQUEST_RESILIENCY, file.file_id)


@RESILIENT
@pytest.mark.case("SMB-RESILIENT-SHORT", kills=("accepts-ioctl",))
def test_a_request_of_resiliency_that_is_not_whole_is_refused(tree, path):
    message = tree.open(path).ioctl(Fsctl.LMR_REQUEST_RESILIENCY, b"\1\0\0\0")
    expect(message, SmbStatus.INVALID_PARAMETER, *NOT_RESILIENT)
