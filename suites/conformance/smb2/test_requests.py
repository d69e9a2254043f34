"""Requests that are not well-formed, headers of responses, rules of IOCTL (MS-SMB2 3.3.4, 3.3.5.2)."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import WRITE, case, chunks, resume_key
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import create_request, ioctl_request
from storagetest.wire.smb2.codes import (
    NO_FILE,
    OWNER_SECURITY,
    Capability,
    Dialect,
    Disposition,
    Fsctl,
    InfoType,
    Lock,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import CAPABILITIES, DIALECTS
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.2.6", level="MUST")]

ECHO = request(SmbCommand.ECHO)
NOT_MADE = ("accepts-create", "status-create")
STOPS = ("close-hidden",)


def ends(connection, data):
    """Expect that the server ends the connection after a frame with ``data``."""
    connection.send_raw(data)
    assert connection.closed(), "the connection is still open"


@pytest.mark.parametrize(
    "data",
    [
        case("SMB-MSG-SHORT", ECHO.data[:60], kills=STOPS),
        case("SMB-MSG-PROTOCOL", b"\xf0SMB" + ECHO.data[4:], section="MS-SMB2 3.3.5.2.1", kills=STOPS),
        case("SMB-MSG-NOTHING", b"", kills=STOPS),
    ],
)
def test_what_is_no_message_ends_the_connection(session, data):
    ends(session.connection, data)


@pytest.mark.case("SMB-MSG-COMMAND", no_mutant_reason="smbd breaks this rule itself")
def test_an_unknown_command_ends_the_connection(session):
    connection = session.connection
    over = {"command": 0x55, "message_id": connection.next_id, "session_id": session.channel.session_id}
    ends(connection, ECHO.override(**over).data)


@pytest.mark.case("SMB-MSG-FIRST", section="MS-SMB2 3.3.5.2.2", kills=STOPS)
def test_a_request_before_negotiate_ends_the_connection(bench):
    ends(bench.connect(), request(SmbCommand.SESSION_SETUP, b"token").data)


# The negotiation of SMB 1 clients


def multi_protocol(*dialects):
    """Return SMB_COM_NEGOTIATE with dialect strings (1.7, 3.2.4.2.2.1; MS-CIFS 2.2.4.52.1)."""
    strings = b"".join(b"\2" + each.encode("ascii") + b"\0" for each in dialects)
    header = b"\xffSMB\x72" + bytes(4) + b"\x18" + struct.pack("<H", 0xC853) + bytes(12)
    header += struct.pack("<HHHH", 0, 0xFFFE, 0, 0)
    return header + b"\0" + struct.pack("<H", len(strings)) + strings


def negotiate_as_smb1(bench, *dialects):
    """Send it; return the connection and the response. Skip if the server answers no SMB 1."""
    connection = bench.connect()
    connection.expect_responses(0, command=SmbCommand.NEGOTIATE)
    connection.send_raw(multi_protocol("NT LM 0.12", *dialects))
    try:
        return connection, connection.receive(0)
    except PeerClosed:
        pytest.skip("the server takes no SMB_COM_NEGOTIATE")


@pytest.mark.parametrize(
    ("dialects", "chosen"),
    [
        case(
            "SMB-MULTI-2FF", ("SMB 2.002", "SMB 2.???"), Dialect.WILDCARD, section="MS-SMB2 3.3.5.3.1",
            kills=("dialect-other",),
        ),
        case(
            "SMB-MULTI-202", ("SMB 2.002",), Dialect.SMB_2_0_2, section="MS-SMB2 3.3.5.3.2",
            kills=("dialect-other",),
        ),
    ],
)  # fmt: skip
def test_a_client_of_smb_1_gets_the_dialect_of_its_strings(bench, dialects, chosen):
    bench.connect().negotiate(DIALECTS[1:] if chosen == Dialect.WILDCARD else [chosen])  # or it is skipped
    _, message = negotiate_as_smb1(bench, *dialects)
    assert expect(message)["dialect"] == chosen


@pytest.mark.case("SMB-MULTI-NEXT", section="MS-SMB2 3.3.5.3.1, 3.3.5.4", kills=("dialect-other",))
def test_a_client_of_smb_1_negotiates_a_second_time(bench):
    connection, message = negotiate_as_smb1(bench, "SMB 2.???")
    expect(message)
    connection.next_id = 1
    assert connection.negotiate([Dialect.SMB_3_0_2]).dialect == Dialect.SMB_3_0_2


# Capabilities

CAPABILITIES_OF = pytest.mark.case(section="MS-SMB2 3.3.5.4")


@CAPABILITIES_OF
@pytest.mark.case("SMB-NEG-CAP-21", kills=("capabilities-of-3-in-2",))
def test_dialect_2_1_has_no_capability_of_3(bench):
    found = bench.connect().negotiate([Dialect.SMB_2_1]).capabilities
    assert not found & ~(Capability.DFS | Capability.LEASING | Capability.LARGE_MTU)


@CAPABILITIES_OF
@pytest.mark.case("SMB-NEG-CAP-ENCRYPTION", kills=("capabilities-of-3-in-2",))
def test_a_client_without_encryption_gets_no_capability_of_it(bench):
    mine = CAPABILITIES & ~Capability.ENCRYPTION
    found = bench.connect().negotiate([Dialect.SMB_3_0], capabilities=mine).capabilities
    assert not found & Capability.ENCRYPTION


# Headers of responses

HEADERS = pytest.mark.case(section="MS-SMB2 3.3.4.3")


@HEADERS
@pytest.mark.case("SMB-HDR-IDS", kills=("session-id-other", "tree-id-other"))
def test_a_response_has_the_ids_of_its_request(tree, path):
    message = expect(tree.create(path))
    assert (message["session_id"], message["tree_id"]) == (tree.session.channel.session_id, tree.tree_id)


@HEADERS
@pytest.mark.case(
    "SMB-HDR-ASYNC", section="MS-SMB2 3.3.4.2, 3.3.4.4", kills=("async-id-zero", "async-id-other")
)
def test_an_asynchronous_response_has_the_id_of_its_interim_response(tree, other, written):
    name = written()
    holder, first, second = tree.open(name), other.open(name), other.open(name)
    expect(holder.lock((0, 5, Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY)))
    with_credits(other, 2)
    ids = [other.send(each.lock_request((0, 5, Lock.SHARED)))[0] for each in (first, second)]
    interim = [other.session.connection.receive_interim(mid) for mid in ids]
    if None in interim:
        pytest.skip("the server answers a lock that waits synchronously")
    numbers = [each["async_id"] for each in interim]
    assert 0 not in numbers
    assert numbers[0] != numbers[1]
    for mid in ids:
        other.session.connection.cancel(mid, channel=other.session.channel, tree=other.tree_id)
    assert [expect(other.receive(mid), SmbStatus.CANCELLED)["async_id"] for mid in ids] == numbers


@pytest.mark.case("SMB-ERROR-SIZE", section="MS-SMB2 2.2.2.2", kills=("needed-size-other",))
def test_a_buffer_that_is_too_small_is_answered_with_the_size(tree, path):
    opened = tree.open(path)
    parts = {"kind": InfoType.SECURITY, "additional": OWNER_SECURITY}
    message = expect(opened.query(0, length=4, **parts), SmbStatus.BUFFER_TOO_SMALL)
    data = message.buffer
    if tree.session.connection.settled.dialect == Dialect.SMB_3_1_1 and message["context_count"]:
        data = data[8:]  # in an error context (2.2.2.1)
    assert int.from_bytes(data, "little") == len(expect(opened.query(0, **parts)).buffer)


# Compounds

RELATED = pytest.mark.case(section="MS-SMB2 3.3.5.2.7.2")


@RELATED
@pytest.mark.case("SMB-COMP-NO-FILE", kills=("accepts-close",))
def test_a_related_request_without_a_file_before_it_is_refused(tree):
    with_credits(tree, 2)
    ids = tree.send(ECHO, request(SmbCommand.CLOSE, file_id=NO_FILE), related=True)
    expect(tree.receive(ids[0]))
    # INVALID_PARAMETER or INVALID_HANDLE, by whether an ECHO counts as of a tree
    assert tree.receive(ids[1]).status, "a file is closed that no request names"


@RELATED
@pytest.mark.case("SMB-COMP-ORDER", kills=("read-data-changed",))
def test_related_requests_are_executed_in_their_order(tree, path):
    with_credits(tree, 3)
    ids = tree.send(
        create_request(path),
        request(SmbCommand.WRITE, b"abc", file_id=NO_FILE),
        request(SmbCommand.READ, length=3, file_id=NO_FILE, padding=80),
        related=True,
    )
    assert expect([tree.receive(mid) for mid in ids][-1]).buffer == b"abc"


@pytest.mark.case(
    "SMB-COMP-UNRELATED-FAILED", section="MS-SMB2 3.3.5.2.7.1", kills=("compound-unrelated-fails",)
)
def test_an_unrelated_request_is_executed_after_one_that_failed(tree, path):
    """Each request of a compound is executed as if it came alone."""
    file = tree.open(path)
    expect(file.write(b"0123456789"))
    with_credits(tree, 3)
    failed, *others = tree.send(
        request(SmbCommand.CLOSE, file_id=b"\x77" * 16),
        request(SmbCommand.READ, length=3, offset=2, file_id=file.file_id, padding=80),
        request(SmbCommand.READ, length=3, offset=5, file_id=file.file_id, padding=80),
    )
    expect(tree.receive(failed), SmbStatus.FILE_CLOSED)
    assert [expect(tree.receive(mid)).buffer for mid in others] == [b"234", b"567"]


# CREATE

CREATES = pytest.mark.case(section="MS-SMB2 3.3.5.9")


@CREATES
@pytest.mark.parametrize(
    "over",
    [
        case("SMB-CRE-NAME-ODD", {"buffer_length": 5}, no_mutant_reason="smbd breaks this rule itself"),
        case("SMB-CRE-NAME-OUTSIDE", {"buffer_length": 0x7000}, kills=NOT_MADE),
        case("SMB-CRE-NAME-INSIDE", {"buffer_offset": 100}, kills=NOT_MADE),
    ],
)
def test_a_name_that_is_not_within_the_request_is_an_invalid_parameter(tree, path, over):
    with suppress(PeerClosed):  # a server may disconnect for a request that is not valid (3.3.5.2.6)
        expect(tree.create(path, over=over), SmbStatus.INVALID_PARAMETER, SmbStatus.OBJECT_NAME_INVALID)


@CREATES
@pytest.mark.case("SMB-CRE-CONTEXT", section="MS-SMB2 2.2.13.2", kills=NOT_MADE)
def test_a_context_that_is_not_within_the_request_is_an_invalid_parameter(tree, path):
    encoded = create_request(path, contexts=[(c.MAXIMAL_ACCESS, b"")])
    with suppress(PeerClosed):
        expect(tree.call(encoded, over={"context_length": 0x7000}), SmbStatus.INVALID_PARAMETER)


@CREATES
@pytest.mark.case("SMB-CRE-CONTEXT-UNKNOWN", section="MS-SMB2 3.3.5.9", kills=("status-success-lost",))
def test_an_unknown_context_is_ignored(tree, path):
    expect(tree.create(path, contexts=[(b"None", b"data")]))


@CREATES
@pytest.mark.case(
    "SMB-CRE-CONTEXT-ORDER",
    section="MS-SMB2 2.2.13.2",
    kills=(
        "maximal-access-second",
        "maximal-access-lost",
    ),
)
def test_contexts_are_in_any_order(tree, path):
    for names in ((c.MAXIMAL_ACCESS, c.ON_DISK_ID), (c.ON_DISK_ID, c.MAXIMAL_ACCESS)):
        found = tree.open(path, contexts=[(name, b"") for name in names]).contexts
        assert c.MAXIMAL_ACCESS in found
        assert struct.unpack("<II", found[c.MAXIMAL_ACCESS])[1]


# READ, WRITE


@pytest.mark.parametrize(
    "command",
    [
        case(
            "SMB-READ-CHANNEL",
            "read",
            section="MS-SMB2 3.3.5.12",
            no_mutant_reason="smbd breaks this rule itself",
        ),
        case(
            "SMB-WRITE-CHANNEL",
            "write",
            section="MS-SMB2 3.3.5.13",
            no_mutant_reason="smbd breaks this rule itself",
        ),
    ],
)
def test_an_unknown_channel_is_an_invalid_parameter(bench, path, command):
    file = bench.tree([Dialect.SMB_3_0_2]).open(path)
    expect(file.write(b"data"))
    message = (
        file.read(4, over={"channel": 9}) if command == "read" else file.write(b"x", over={"channel": 9})
    )
    expect(message, SmbStatus.INVALID_PARAMETER)


# QUERY_INFO, SET_INFO


@pytest.mark.parametrize(
    "command",
    [
        case("SMB-INFO-TYPE", "query", section="MS-SMB2 2.2.37, 3.3.5.2.6", kills=("accepts-query-info",)),
        case("SMB-SET-TYPE", "set", section="MS-SMB2 2.2.39, 3.3.5.2.6", kills=("accepts-set-info",)),
    ],
)  # fmt: skip
def test_an_unknown_type_of_information_is_an_invalid_parameter(tree, path, command):
    file = tree.open(path)
    message = file.query(5, kind=9) if command == "query" else file.set(4, bytes(40), kind=9)
    expect(message, SmbStatus.INVALID_PARAMETER)


# IOCTL

IOCTLS = pytest.mark.case(section="MS-SMB2 3.3.5.15")
REFUSED = ("accepts-ioctl",)


@IOCTLS
@pytest.mark.case("SMB-IOCTL-FLAGS", kills=(*REFUSED, "ioctl-without-fsctl"))
def test_an_ioctl_that_is_no_fsctl_is_not_supported(tree, path):
    message = tree.open(path).ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=32, flags=0)
    expect(message, SmbStatus.NOT_SUPPORTED)


@IOCTLS
@pytest.mark.case("SMB-IOCTL-FILE", kills=REFUSED)
def test_the_interfaces_are_of_no_file(bench):
    tree = bench.tree([Dialect.SMB_3_1_1])
    message = tree.call(ioctl_request(b"\x11" * 16, Fsctl.QUERY_NETWORK_INTERFACE_INFO))
    if message.status in (SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST):
        pytest.skip("the server lists no interfaces")
    expect(message, SmbStatus.INVALID_PARAMETER)


@IOCTLS
@pytest.mark.case("SMB-IOCTL-CLOSED", kills=REFUSED)
def test_a_closed_file_has_no_ioctl(tree, path):
    file = tree.open(path)
    expect(file.close())
    expect(file.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=32), SmbStatus.FILE_CLOSED)


@IOCTLS
@pytest.mark.parametrize(
    "over",
    [
        case("SMB-IOCTL-INSIDE", {"buffer_offset": 70}, kills=REFUSED),
        case("SMB-IOCTL-OUTSIDE", {"buffer_offset": 0x7000}, kills=REFUSED),
        case("SMB-IOCTL-LONG", {"buffer_length": 0x7000}, kills=REFUSED),
    ],
)
def test_input_that_is_not_within_the_request_is_an_invalid_parameter(tree, path, over):
    with suppress(PeerClosed):
        message = tree.open(path).ioctl(Fsctl.SET_SPARSE, b"\1", over=over)
        expect(message, SmbStatus.INVALID_PARAMETER)


@IOCTLS
@pytest.mark.case("SMB-IOCTL-UNKNOWN", section="MS-SMB2 3.3.5.15.8", level="SHOULD", kills=REFUSED)
def test_an_unknown_control_code_is_not_supported(tree, path):
    message = tree.open(path).ioctl(0x0009FFFC)
    expect(message, SmbStatus.INVALID_DEVICE_REQUEST, SmbStatus.NOT_SUPPORTED)


# Server-side copy

COPY = pytest.mark.case(section="MS-SMB2 3.3.5.15.6")


def limits(target, key):
    """Return the most chunks, bytes of a chunk, and bytes of a copy, from the response to a bad request."""
    message = target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(key, (0, 0, 0)), max_output=12)
    return struct.unpack("<III", expect(message, SmbStatus.INVALID_PARAMETER).buffer)


@COPY
@pytest.mark.case("SMB-COPY-COUNT", kills=("copy-accepted",))
def test_more_chunks_than_the_limit_are_an_invalid_parameter(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    key = resume_key(source)
    most = limits(target, key)[0]
    if most > 2000:
        pytest.skip(f"the server copies {most} chunks at once")
    data = chunks(key, *[(0, 0, 1)] * (most + 1))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12), SmbStatus.INVALID_PARAMETER)


@COPY
@pytest.mark.case("SMB-COPY-SIZE", kills=("copy-accepted",))
def test_a_chunk_over_the_limit_is_an_invalid_parameter(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    key = resume_key(source)
    data = chunks(key, (0, 0, limits(target, key)[1] + 1))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12), SmbStatus.INVALID_PARAMETER)


@COPY
@pytest.mark.case("SMB-COPY-SOURCE", kills=("copy-accepted",))
def test_nothing_is_copied_from_a_file_that_may_not_be_read(tree, written, path):
    source = tree.open(written(), access=WRITE, disposition=Disposition.OPEN)
    target = tree.open(f"{path}-copy")
    data = chunks(resume_key(source), (0, 0, 5))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12), SmbStatus.ACCESS_DENIED)


@COPY
@pytest.mark.case("SMB-COPY-TARGET", kills=("copy-accepted",))
def test_a_copy_needs_a_target_that_may_be_read(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy", access=WRITE)
    data = chunks(resume_key(source), (0, 0, 5))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12), SmbStatus.ACCESS_DENIED)


@COPY
@pytest.mark.case("SMB-COPY-WRITE", kills=("copy-count-other",))
def test_a_copy_of_the_second_kind_needs_no_target_that_may_be_read(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy", access=WRITE)
    data = chunks(resume_key(source), (0, 0, 5))
    message = expect(target.ioctl(Fsctl.SRV_COPYCHUNK_WRITE, data, max_output=12))
    assert struct.unpack("<III", message.buffer) == (1, 0, 5)


@COPY
@pytest.mark.case("SMB-COPY-END", kills=("copy-accepted",))
def test_a_chunk_behind_the_end_of_the_source_is_an_invalid_view(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    data = chunks(resume_key(source), (5, 0, 100))
    expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12), SmbStatus.INVALID_VIEW_SIZE)


@COPY
@pytest.mark.case("SMB-COPY-KEY-SHORT", section="MS-SMB2 3.3.5.15.5", kills=REFUSED)
def test_a_buffer_shorter_than_a_resume_key_is_refused(tree, written):
    source = tree.open(written())
    resume_key(source)
    message = source.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=24)
    expect(message, SmbStatus.INVALID_PARAMETER, SmbStatus.BUFFER_TOO_SMALL)


@pytest.mark.case("SMB-SNAPSHOTS-SHORT", section="MS-SMB2 3.3.5.15.1", kills=REFUSED)
def test_a_buffer_shorter_than_a_list_of_versions_is_an_invalid_parameter(tree, written):
    message = tree.open(written()).ioctl(Fsctl.SRV_ENUMERATE_SNAPSHOTS, max_output=8)
    expect(message, SmbStatus.INVALID_PARAMETER, SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST)
