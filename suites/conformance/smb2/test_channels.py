"""Channels of a session, channel sequences, re-authentication, credits (MS-SMB2 3.3.5.2, 3.3.5.5)."""

from __future__ import annotations

import os

import pytest

from storagetest.suites.conformance.smb2.handles import bind, multichannel, second_channel, with_credits
from storagetest.suites.conformance.smb2.support import SMB3, case
from storagetest.wire.smb2.client import SmbFile
from storagetest.wire.smb2.codes import (
    SESSION_BINDING,
    SIGNING_REQUIRED,
    Capability,
    Dialect,
    FileInfo,
    Flags,
    Fsctl,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import DIALECTS
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.5.2", level="MUST")]

ECHO = request(SmbCommand.ECHO)
BINDS = ("accepts-session-setup",)


@pytest.fixture
def client():
    """The client GUID of the case, which its connections share."""
    return os.urandom(16)


@pytest.mark.parametrize(
    "dialect",
    [case(f"SMB-BIND-{dialect:x}", dialect, kills=("read-data-changed",)) for dialect in SMB3],
)
def test_a_bound_connection_uses_the_sessions_files(bench, client, path, dialect):
    tree = multichannel(bench, client, dialect)
    file = tree.open(path)
    expect(file.write(b"shared"))
    bound = SmbFile(bind(bench, tree, client, dialect), path, file.file_id, file.message)
    assert expect(bound.read(6)).buffer == b"shared"


@pytest.mark.case("SMB-BIND-LOSS", section="MS-SMB2 3.3.7.1", kills=("read-data-changed",))
def test_a_session_lives_as_long_as_one_of_its_connections(bench, client, path):
    tree = multichannel(bench, client)
    file = tree.open(path)
    expect(file.write(b"shared"))
    bound = SmbFile(bind(bench, tree, client), path, file.file_id, file.message)
    tree.session.connection.close()
    assert expect(bound.read(6)).buffer == b"shared"


@pytest.mark.case("SMB-BIND-UNSIGNED", kills=(*BINDS, "status-session-setup"))
def test_a_binding_that_is_not_signed_is_an_invalid_parameter(bench, client):
    tree = multichannel(bench, client)
    session = second_channel(bench, tree.session, client, Dialect.SMB_3_1_1)
    expect(session.attempt(flags=SESSION_BINDING), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-BIND-UNKNOWN", kills=BINDS)
def test_a_binding_of_an_unknown_session_is_a_deleted_session(bench, client):
    tree = multichannel(bench, client)
    session = second_channel(bench, tree.session, client, Dialect.SMB_3_1_1)
    session.channel.session_id ^= 0x5A5A
    expect(session.attempt(flags=SESSION_BINDING, sign=True), SmbStatus.USER_SESSION_DELETED)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        case("SMB-BIND-302-30", Dialect.SMB_3_0_2, Dialect.SMB_3_0, kills=BINDS),
        case("SMB-BIND-30-302", Dialect.SMB_3_0, Dialect.SMB_3_0_2, kills=BINDS),
        case("SMB-BIND-30-21", Dialect.SMB_3_0, Dialect.SMB_2_1, kills=BINDS, level="SHOULD"),
        case("SMB-BIND-21-21", Dialect.SMB_2_1, Dialect.SMB_2_1, kills=BINDS, level="SHOULD"),
    ],
)
def test_a_binding_in_another_dialect_is_refused(bench, client, first, second):
    held = bench.session([first], guid=client)
    capabilities = held.connection.settled.capabilities
    if second in SMB3 and not capabilities & Capability.MULTI_CHANNEL:
        pytest.skip("the server has no multichannel")
    session = second_channel(bench, held, client, second)
    message = session.attempt(flags=SESSION_BINDING, sign=True)
    # 3.3.5.5 names the first for two dialects of the family 3.x, the second for others; servers that sign in
    # another way in the two dialects find that out first, and end with the third.
    expect(
        message,
        SmbStatus.INVALID_PARAMETER,
        SmbStatus.REQUEST_NOT_ACCEPTED,
        SmbStatus.REQUEST_OUT_OF_SEQUENCE,
    )


@pytest.mark.case("SMB-BIND-INTERFACES", section="MS-SMB2 2.2.32.5, 3.3.5.15.11", kills=("interfaces-cut",))
def test_the_network_interfaces_are_listed(bench, client):
    tree = multichannel(bench, client)
    file_id = b"\xff" * 16
    data = expect(SmbFile(tree, "", file_id, tree.message).ioctl(Fsctl.QUERY_NETWORK_INTERFACE_INFO)).buffer
    assert data
    assert not len(data) % 8
    while data:
        step = int.from_bytes(data[:4], "little")
        assert len(data) >= 152
        assert int.from_bytes(data[24:26], "little") in (2, 23)  # InterNetwork, InterNetworkV6 (2.2.32.5.1)
        data = data[step:] if step else b""


# Channel sequences

SEQUENCE = pytest.mark.case(section="MS-SMB2 3.3.5.2.10")


def sequenced(number, **more):
    """Return the override of a request's ChannelSequence, which is in the field of the status (2.2.1.2)."""
    return {"over": {"status": number, **more}}


STALE = {"WRITE": "accepts-write", "SET": "accepts-set-info", "IOCTL": "accepts-ioctl"}
"""The commands that are refused, and the mutant that hides it."""


@SEQUENCE
@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        case(
            f"SMB-SEQUENCE-{name}-{dialect:x}",
            dialect,
            name,
            kills=("sequence-ignored", STALE[name]),
            builds_on=("SMB-SEQUENCE-WRITE-300",) if (name, dialect) != ("WRITE", 0x300) else (),
        )
        for dialect in SMB3
        for name in STALE
    ],
)  # fmt: skip
def test_a_change_with_an_old_channel_sequence_is_not_available(bench, path, dialect, call):
    file = bench.tree([dialect]).open(path)
    expect(file.write(b"new", **sequenced(5)))
    stale(file, call, 4)


def stale(file, call, number):
    """Expect that a request is refused for its channel sequence."""
    if call == "WRITE":
        message = file.write(b"x", **sequenced(number))
    elif call == "SET":
        message = file.set(FileInfo.END_OF_FILE, bytes(8), **sequenced(number))
    else:
        message = file.ioctl(Fsctl.SET_SPARSE, b"\1", **sequenced(number))
    expect(message, SmbStatus.FILE_NOT_AVAILABLE)


@SEQUENCE
@pytest.mark.case(
    "SMB-SEQUENCE-WRAP", kills=("sequence-ignored", "accepts-write"), builds_on=("SMB-SEQUENCE-WRITE-300",)
)
def test_the_difference_of_channel_sequences_is_of_16_bits(bench, path):
    file = bench.tree([Dialect.SMB_3_1_1]).open(path)
    expect(file.write(b"new", **sequenced(0x7FFF)))
    expect(file.write(b"new", **sequenced(0xFFFE)))
    expect(file.write(b"new", **sequenced(0x0001)))  # newer than FFFEh
    stale(file, "WRITE", 0xFFFE)


@SEQUENCE
@pytest.mark.case("SMB-SEQUENCE-READ", kills=("status-success-lost",))
def test_a_read_with_an_old_channel_sequence_is_answered(bench, path):
    file = bench.tree([Dialect.SMB_3_1_1]).open(path)
    expect(file.write(b"new", **sequenced(5)))
    expect(file.read(3, **sequenced(4)))


@SEQUENCE
@pytest.mark.case("SMB-SEQUENCE-2", kills=("status-success-lost",))
def test_dialect_2_1_has_no_channel_sequence(bench, path):
    file = bench.tree([Dialect.SMB_2_1]).open(path)
    expect(file.write(b"new", **sequenced(5)))
    expect(file.write(b"new", **sequenced(4)))


@SEQUENCE
@pytest.mark.case("SMB-SEQUENCE-REPLAY", kills=("status-success-lost",))
def test_a_replayed_write_of_the_same_channel_sequence_is_executed(bench, path):
    file = bench.tree([Dialect.SMB_3_1_1]).open(path)
    expect(file.write(b"new", **sequenced(5)))
    expect(file.write(b"new", **sequenced(5, header_flags=Flags.REPLAY)))


# Re-authentication

AGAIN = pytest.mark.case(section="MS-SMB2 3.3.5.5.3")


@AGAIN
@pytest.mark.parametrize(
    "dialect",
    [case(f"SMB-REAUTH-{dialect:x}", dialect, kills=("read-data-changed",)) for dialect in DIALECTS],
)
def test_a_session_is_used_after_a_re_authentication(bench, path, dialect):
    tree = bench.tree([dialect])
    file = tree.open(path)
    expect(file.write(b"kept"))
    expect(tree.session.attempt())
    assert expect(file.read(4)).buffer == b"kept"


@AGAIN
@pytest.mark.parametrize(
    "dialect",
    [case(f"SMB-REAUTH-SIGNED-{dialect:x}", dialect, kills=("signature-spoiled",)) for dialect in DIALECTS],
)
def test_the_signing_key_stays_over_a_re_authentication(bench, dialect):
    session = bench.session([dialect], signs=True)
    expect(session.attempt(mode=SIGNING_REQUIRED))
    expect(session.call(ECHO))


@AGAIN
@pytest.mark.parametrize(
    "dialect",
    [
        case(
            f"SMB-REAUTH-ENCRYPTED-{dialect:x}",
            dialect,
            kills=("encryption-spoiled",),
            builds_on=(f"SMB-ENC-0{at}",),
        )
        for at, dialect in enumerate(SMB3, 1)
    ],
)
def test_the_encryption_keys_stay_over_a_re_authentication(bench, dialect):
    session = bench.session([dialect], encrypts=True)
    expect(session.attempt())
    expect(session.call(ECHO))


# Credits

CREDITS = pytest.mark.case(section="MS-SMB2 3.3.5.2.5")


@CREDITS
@pytest.mark.parametrize(
    ("dialect", "size"),
    [
        case(f"SMB-CHARGE-{dialect:x}-{size // 65536}", dialect, size, kills=("read-data-changed",))
        for dialect in DIALECTS[1:]
        for size in (131072, 262144)
    ],
)
def test_a_request_over_64_kib_is_charged_several_credits(bench, path, dialect, size):
    tree = bench.tree([dialect])
    negotiated = tree.session.connection.settled
    if not negotiated.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests in this dialect")
    if negotiated.message["max_read"] < size or negotiated.message["max_write"] < size:
        pytest.skip("the server's largest sizes are less")
    with_credits(tree, size // 65536 + 1)
    file = tree.open(path)
    with_credits(tree, size // 65536 + 1)
    expect(file.write(b"\x5a" * size))
    with_credits(tree, size // 65536 + 1)
    assert expect(file.read(size)).buffer == b"\x5a" * size


@CREDITS
@pytest.mark.parametrize(
    "call",
    [
        case("SMB-CHARGE-WRITE", "write", kills=("accepts-write", "status-write")),
        case("SMB-CHARGE-QUERY", "query", kills=("accepts-query-info", "status-query-info")),
        case("SMB-CHARGE-IOCTL", "ioctl", kills=("accepts-ioctl",)),
    ],
)
def test_a_credit_charge_below_the_size_is_an_invalid_parameter(tree, path, call):
    if not tree.session.connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    file = tree.open(path)
    over = {"credit_charge": 1}
    if call == "write":
        message = file.write(bytes(131072), over=over)
    elif call == "query":
        message = file.query(FileInfo.ALL, length=131072, over=over)
    else:
        message = file.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=131072, over=over)
    expect(message, SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-CRED-04", section="MS-SMB2 3.3.5.2.3", level="SHOULD", kills=("close-hidden",))
def test_a_message_id_that_was_used_ends_the_connection(tree):
    connection = tree.session.connection
    expect(tree.call(ECHO))
    used = connection.next_id - 1
    tree.send(ECHO, over={"message_id": used})
    assert connection.closed(), "the connection is still open"


@pytest.mark.case("SMB-CRED-06", section="MS-SMB2 3.3.5.2.3", kills=("message-id-other",))
def test_granted_message_ids_are_used_in_any_order(tree):
    connection = tree.session.connection
    with_credits(tree, 4)
    first = connection.next_id
    for offset in (2, 0, 3, 1):
        expect(tree.call(ECHO, over={"message_id": first + offset}))
    connection.next_id = first + 4
    expect(tree.call(ECHO))
