"""Sessions: set-up, failed re-authentication, bindings that are refused (MS-SMB2 3.3.5.5, 3.3.5.7)."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import pytest

from storagetest.suites.conformance.smb2.handles import multichannel, second_channel
from storagetest.suites.conformance.smb2.support import case, skip_if_encrypted, skip_if_guest
from storagetest.wire.smb2 import crypto
from storagetest.wire.smb2.client import SmbSession, ioctl_request, security_context
from storagetest.wire.smb2.codes import (
    NO_FILE,
    SESSION_BINDING,
    Cipher,
    Dialect,
    Disposition,
    Fsctl,
    Options,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import default_contexts
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.5", level="MUST")]

ECHO = request(SmbCommand.ECHO)
NOT_SET_UP = ("accepts-session-setup",)


@pytest.fixture
def client():
    """The client GUID of the case, which its connections share."""
    return os.urandom(16)


def in_progress(bench, dialect):
    """Send the first SESSION_SETUP of a session; return the session, which is not set up."""
    connection = bench.connect()
    connection.negotiate([dialect])
    session = bench.unauthenticated(connection)
    token = security_context(session.account, session.server).step()
    message = connection.call(request(SmbCommand.SESSION_SETUP, token or b"", security_mode=1))
    expect(message, SmbStatus.MORE_PROCESSING_REQUIRED)
    session.channel.session_id = int(message["session_id"])
    return session


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-SES-PROGRESS-21", Dialect.SMB_2_1, kills=("accepts-tree-connect",)),
        case("SMB-SES-PROGRESS-302", Dialect.SMB_3_0_2, kills=("accepts-tree-connect",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.9")
def test_a_session_in_progress_executes_no_request(bench, endpoint, dialect):
    session = in_progress(bench, dialect)
    with suppress(PeerClosed):
        message = session.connect_tree(endpoint.share, sign=False)
        assert message.status, "a tree is connected in a session that is not authenticated"


@pytest.mark.case("SMB-SES-TOKENS", section="MS-SMB2 3.3.5.5.3", kills=("setup-token-zeroed",))
def test_the_tokens_of_a_setup_are_those_of_the_mechanism(bench):
    """The client's mechanism reads each token, and an integrity code if there is one (RFC 4178 5)."""
    connection = bench.connect()
    connection.negotiate([Dialect.SMB_2_1])
    final = bench.unauthenticated(connection).attempt()
    expect(final)
    assert final["session_id"], "a session that is set up has the id 0"


@pytest.mark.case("SMB-SES-GARBAGE", section="MS-SMB2 3.3.5.5.3", kills=NOT_SET_UP)
def test_a_token_of_no_mechanism_is_refused(bench):
    connection = bench.connect()
    connection.negotiate()
    message = connection.call(request(SmbCommand.SESSION_SETUP, b"\x77" * 64, security_mode=1))
    assert message.status not in (SmbStatus.SUCCESS, SmbStatus.MORE_PROCESSING_REQUIRED)


@pytest.mark.case(
    "SMB-SES-UNKNOWN",
    section="MS-SMB2 3.3.5.5",
    kills=("bind-unknown-session", *NOT_SET_UP, "status-session-setup"),
)
def test_a_set_up_of_an_unknown_session_is_a_deleted_session(bench):
    connection = bench.connect()
    connection.negotiate()
    session = bench.unauthenticated(connection)
    message = session.attempt(over={"session_id": 0x5A5A5A5A})
    expect(message, SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-SES-REAUTH-FAILED", section="MS-SMB2 3.3.5.5.3", kills=("accepts-create",))
def test_a_failed_re_authentication_ends_the_session(tree, path):
    skip_if_encrypted(tree)
    # Once a run: a server may lock an account after a few wrong passwords.
    session = tree.session
    skip_if_guest(session)
    session.account = replace(session.account, password=f"{session.account.password}-wrong")
    expect(session.attempt(), SmbStatus.LOGON_FAILURE)
    expect(tree.create(path), SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-SES-LOGOFF-FILES", section="MS-SMB2 3.3.5.6", kills=("delete-on-close-ignored",))
def test_a_log_off_closes_the_files(tree, other, path):
    tree.open(path, options=Options.DELETE_ON_CLOSE | Options.NON_DIRECTORY_FILE)
    expect(tree.session.logoff())
    expect(other.create(path, disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case("SMB-TREE-FILES", section="MS-SMB2 3.3.5.8", kills=("delete-on-close-ignored",))
def test_a_disconnected_tree_closes_its_files(tree, other, path):
    tree.open(path, options=Options.DELETE_ON_CLOSE | Options.NON_DIRECTORY_FILE)
    expect(tree.disconnect())
    expect(other.create(path, disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case("SMB-TREE-OTHER", section="MS-SMB2 3.3.5.2.11", kills=("accepts-create", "status-create"))
def test_a_tree_of_another_session_is_deleted(tree, other, path, endpoint):
    trees = [other, *(other.session.tree(endpoint.share) for _ in range(3))]
    numbers = [each.tree_id for each in trees if each.tree_id != tree.tree_id]
    expect(tree.create(path, over={"tree_id": numbers[-1]}), SmbStatus.NETWORK_NAME_DELETED)


@pytest.mark.case(
    "SMB-TREE-UNSIGNED", section="MS-SMB2 3.3.5.7", no_mutant_reason="smbd breaks this rule itself"
)
def test_a_tree_connect_of_3_1_1_that_is_not_protected_ends_the_connection(bench, endpoint):
    session = bench.session([Dialect.SMB_3_1_1])
    skip_if_guest(session)
    with pytest.raises(PeerClosed):
        session.connect_tree(endpoint.share, sign=False)


@pytest.mark.case(
    "SMB-TREE-PATH", section="MS-SMB2 3.3.5.7", kills=("accepts-tree-connect", "status-tree-connect")
)
def test_a_path_of_another_form_is_an_invalid_parameter(bench):
    encoded = request(SmbCommand.TREE_CONNECT, "no-path".encode("utf-16-le"))
    message = bench.session([Dialect.SMB_3_0_2]).call(encoded)
    expect(message, SmbStatus.INVALID_PARAMETER, SmbStatus.BAD_NETWORK_NAME)


# Bindings


@pytest.mark.case("SMB-BIND-KEY", kills=NOT_SET_UP)
def test_a_binding_signed_with_another_key_is_refused(bench, client):
    tree = multichannel(bench, client)
    session = second_channel(bench, tree.session, client, Dialect.SMB_3_1_1)
    session.channel.keys = crypto.SmbKeys(b"another key, yes", session.channel.keys.encrypt)
    message = session.attempt(flags=SESSION_BINDING, sign=True)
    expect(message, SmbStatus.ACCESS_DENIED, SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-BIND-TWICE", kills=NOT_SET_UP)
def test_a_session_is_not_bound_to_its_own_connection(bench, client):
    session = multichannel(bench, client).session
    expect(session.attempt(flags=SESSION_BINDING, sign=True), SmbStatus.REQUEST_NOT_ACCEPTED)


@pytest.mark.case("SMB-BIND-CLIENT", level="MAY")
def test_a_binding_of_another_client_is_refused(bench, client):
    tree = multichannel(bench, client)
    session = second_channel(bench, tree.session, os.urandom(16), Dialect.SMB_3_1_1)
    message = session.attempt(flags=SESSION_BINDING, sign=True)
    expect(
        message,
        SmbStatus.USER_SESSION_DELETED,
        SmbStatus.INVALID_PARAMETER,
        SmbStatus.REQUEST_NOT_ACCEPTED,
    )


@pytest.mark.case("SMB-BIND-CIPHER", kills=NOT_SET_UP)
def test_a_binding_with_another_cipher_is_refused(bench, client):
    tree = multichannel(bench, client)
    mine = tree.session.connection.settled.cipher
    another = Cipher.AES_128_CCM if mine != Cipher.AES_128_CCM else Cipher.AES_128_GCM
    connection = bench.connect()
    connection.guid = client
    connection.negotiate([Dialect.SMB_3_1_1], contexts=default_contexts(ciphers=[another]))
    if connection.settled.cipher != another:
        pytest.skip("the server has one cipher")
    held = tree.session
    session = SmbSession(connection, held.account, held.server, channel=replace(held.channel))
    expect(session.attempt(flags=SESSION_BINDING, sign=True), SmbStatus.INVALID_PARAMETER)


# Validation of the negotiation

VALIDATE = pytest.mark.case(section="MS-SMB2 3.3.5.15.12")


@VALIDATE
@pytest.mark.case("SMB-VAL-SHORT", no_mutant_reason="smbd breaks this rule itself")
def test_a_validation_without_room_for_its_response_ends_the_connection(bench):
    tree = bench.tree([Dialect.SMB_3_0])
    connection = tree.session.connection
    data = connection.capabilities.to_bytes(4, "little") + connection.guid
    data += connection.mode.to_bytes(2, "little") + b"\1\0" + int(Dialect.SMB_3_0).to_bytes(2, "little")
    tree.send(ioctl_request(NO_FILE, Fsctl.VALIDATE_NEGOTIATE_INFO, data, max_output=23), sign=True)
    assert connection.closed(), "the connection is still open"


@VALIDATE
@pytest.mark.case("SMB-VAL-FILE", section="MS-SMB2 3.3.5.15", kills=("accepts-ioctl",))
def test_a_validation_is_of_no_file(bench):
    tree = bench.tree([Dialect.SMB_3_0])
    message = tree.call(ioctl_request(b"\x11" * 16, Fsctl.VALIDATE_NEGOTIATE_INFO, bytes(26)), sign=True)
    expect(message, SmbStatus.INVALID_PARAMETER)
