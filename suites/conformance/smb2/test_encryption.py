"""Encryption: messages that do not decrypt, and shares that require it (MS-SMB2 3.3.5.2.1.1, 3.3.5.2.11)."""

from __future__ import annotations

import os

import pytest

from storagetest.suites.conformance.smb2.support import SMB3, case
from storagetest.wire.smb2 import crypto
from storagetest.wire.smb2.client import create_request
from storagetest.wire.smb2.codes import SHARE_ENCRYPT_DATA, Dialect, SmbCommand, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.2.1.1", level="MUST")]


def sealed(session, message, *, number=None):
    """Return ``message`` encrypted with the keys of ``session``, as that of session ``number``."""
    channel = session.channel
    number = channel.session_id if number is None else number
    nonce = os.urandom(crypto.nonce_size(channel.cipher))
    return crypto.encrypt(message, channel.keys.encrypt, channel.cipher, number, nonce)


def echo(session, **over):
    """Return an ECHO of ``session`` with its next message id."""
    connection = session.connection
    values = {"message_id": connection.next_id, "session_id": session.channel.session_id, "credits": 1}
    connection.next_id += 1
    return request(SmbCommand.ECHO).override(**{**values, **over}).data


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


FAULTS = {
    "TAG": lambda session: flipped(sealed(session, echo(session)), 5),
    "DATA": lambda session: flipped(sealed(session, echo(session)), 60),
    "NONCE": lambda session: flipped(sealed(session, echo(session)), 21),
    "FLAGS": lambda session: flipped(sealed(session, echo(session)), 42),
    "SIZE": lambda session: flipped(sealed(session, echo(session)), 36),
    "SESSION": lambda session: sealed(session, echo(session), number=session.channel.session_id ^ 0x5A5A),
    "SHORT": lambda session: sealed(session, echo(session))[: crypto.TRANSFORM_SIZE],
    "NOTHING": lambda session: sealed(session, b""),
    "ID": lambda session: sealed(session, b"\xffSMB" + echo(session)[4:]),
    "NESTED": lambda session: sealed(session, sealed(session, echo(session))),
}
"""Encrypted messages that are not valid, by the name of the case."""


@pytest.mark.parametrize(
    ("dialect", "fault"),
    [
        case(f"SMB-ENC-FAULT-{name}-{dialect:x}", dialect, fault, kills=("close-hidden",))
        for name, fault in FAULTS.items()
        for dialect in (SMB3[0], SMB3[2])
    ],
)
def test_an_encrypted_message_that_is_not_valid_ends_the_connection(bench, dialect, fault):
    session = bench.session([dialect], encrypts=True)
    session.connection.send_raw(fault(session))
    assert session.connection.closed(), "the connection is still open"


def compound(session):
    """Return two ECHOs, the first one of another session than that which encrypts both."""
    other = session.channel.session_id ^ 0x5A5A
    first = echo(session, session_id=other)
    padded = first[:20] + (72).to_bytes(4, "little") + first[24:] + bytes(4)
    return sealed(session, padded + echo(session))


@pytest.mark.case(
    "SMB-ENC-COMPOUND", section="MS-SMB2 3.3.5.2.7", no_mutant_reason="smbd breaks this rule itself"
)
def test_an_encrypted_compound_of_another_session_ends_the_connection(bench):
    session = bench.session([Dialect.SMB_3_1_1], encrypts=True)
    if session.connection.granted < 2:
        pytest.skip("the server grants one credit")
    ids = (session.connection.next_id, session.connection.next_id + 1)
    session.connection.expect_responses(*ids, command=SmbCommand.ECHO)
    session.connection.send_raw(compound(session))
    assert session.connection.closed(), "the connection is still open"


# Shares that require encryption

SEALED = pytest.mark.case(section="MS-SMB2 3.3.5.2.11")


def sealed_tree(bench, dialect):
    """Return a tree whose share requires encryption; skip if it does not."""
    tree = bench.tree([dialect])
    if not tree.message["share_flags"] & SHARE_ENCRYPT_DATA:
        pytest.skip("the share does not require encryption")
    return tree


@SEALED
@pytest.mark.parametrize(
    "dialect",
    [
        case(
            f"SMB-SEALED-CLEAR-{one:x}",
            one,
            no_mutant_reason="smbd encrypts the error, which a proxy cannot change",
        )
        for one in SMB3
    ],
)
def test_a_request_in_clear_is_denied_on_a_share_that_requires_encryption(bench, path, dialect):
    tree = sealed_tree(bench, dialect)
    tree.session.channel.encrypts = False  # what the client accepts, too: the error may be in clear
    expect(tree.call(create_request(path), encrypt=False), SmbStatus.ACCESS_DENIED)


@SEALED
@pytest.mark.parametrize(
    "dialect", [case(f"SMB-SEALED-{one:x}", one, kills=("sealed-encryption-spoiled",)) for one in SMB3]
)
@pytest.mark.case(section="MS-SMB2 3.3.4.1.4")
def test_what_is_on_a_share_that_requires_encryption_is_encrypted(bench, path, dialect):
    file = sealed_tree(bench, dialect).open(path)
    expect(file.write(b"sealed"))
    assert expect(file.read(6)).buffer == b"sealed"


@SEALED
@pytest.mark.case("SMB-SEALED-21", section="MS-SMB2 3.3.5.7", kills=("sealed-accepts-tree-connect",))
def test_a_client_without_encryption_gets_no_tree_of_a_share_that_requires_it(bench, endpoint):
    sealed_tree(bench, Dialect.SMB_3_1_1)
    expect(bench.session([Dialect.SMB_2_1]).connect_tree(endpoint.share), SmbStatus.ACCESS_DENIED)
