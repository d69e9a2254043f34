"""The SMB2 client against smbd on loopback: every dialect, signed and encrypted, and what is refused."""

from collections.abc import Iterator

import pytest
from smbd import SEALED, SHARE, Smbd, is_installed, smbd

from storagetest.errors import AttachError, RemoteProtocolError
from storagetest.wire.ladder import ladder
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import Account, SmbSession, validate_negotiate
from storagetest.wire.smb2.codes import Cipher, Dialect, Signing, SmbCommand, SmbStatus
from storagetest.wire.smb2.connection import (
    DIALECTS,
    DialectNotOffered,
    GuestSession,
    SmbConnection,
    default_contexts,
)
from storagetest.wire.smb2.ladder import make_decoder
from storagetest.wire.smb2.message import request
from storagetest.wire.tcp import RecordedConnection

pytestmark = pytest.mark.skipif(not is_installed(), reason="smbd is not installed (script/setup installs it)")


@pytest.fixture(scope="module")
def server() -> Iterator[Smbd]:
    with smbd() as running:
        yield running


@pytest.fixture
def connect(server):
    made = []

    def connection() -> SmbConnection:
        link = RecordedConnection.connect(server.address, server.port, deadline=30)
        made.append(SmbConnection(link, 30))
        return made[-1]

    yield connection
    for each in made:
        each.close()
    print(server.log.read_text()[-2000:])  # pytest shows it where the test fails


def test_a_dialect_that_was_not_offered_is_a_fault_of_its_own(connect):
    connection = connect()
    message = connection.call(connection.negotiate_request([Dialect.SMB_2_1]))
    connection.offered = (Dialect.SMB_3_1_1,)
    with pytest.raises(DialectNotOffered, match="0x0210, which was not offered"):
        connection.settle(message)


def log_on(connection: SmbConnection, server: Smbd, *, password: str = "", **more: bool) -> SmbSession:
    account = Account(server.username, password or server.password)
    return SmbSession(connection, account, server.address).setup(**more)


def test_a_session_of_a_guest_is_used_without_a_signature():
    with smbd(guests=True) as server:
        connection = SmbConnection(RecordedConnection.connect(server.address, server.port, deadline=30), 30)
        connection.negotiate([Dialect.SMB_3_1_1])
        account = Account("storagetest-guest", "any password")
        session = SmbSession(connection, account, server.address).setup()
        assert session.tree(SHARE).open("guest").write(b"data").status == SmbStatus.SUCCESS
        for protection in ({"sign": True}, {"encrypt": True}):
            with pytest.raises(GuestSession, match="logs the account on as a guest"):
                session.call(request(SmbCommand.ECHO), **protection)
        with pytest.raises(GuestSession):
            SmbSession(connection, account, server.address).setup(signs=True)
        connection.close()


@pytest.mark.parametrize("protection", ["plain", "signs", "encrypts"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_file_is_written_and_read_in_every_dialect(connect, server, dialect, protection):
    if protection == "encrypts" and dialect < Dialect.SMB_3_0:
        pytest.skip("dialects before 3.0 have no encryption")
    connection = connect()
    assert connection.negotiate([dialect]).dialect == dialect
    session = log_on(connection, server, **({} if protection == "plain" else {protection: True}))
    file = session.tree(SHARE).open(f"{dialect:x}-{protection}")
    assert file.write(b"hello").status == SmbStatus.SUCCESS
    assert file.read(100).buffer == b"hello"
    assert file.delete_on_close().status == SmbStatus.SUCCESS
    assert file.close().status == SmbStatus.SUCCESS
    assert session.logoff().status == SmbStatus.SUCCESS
    assert not list(server.path.iterdir())


@pytest.mark.parametrize("dialect", [Dialect.SMB_2_0_2, Dialect.SMB_2_1])
def test_encryption_that_a_dialect_does_not_have_is_a_fault_of_the_server(connect, server, dialect):
    connection = connect()
    connection.negotiate([dialect])
    session = log_on(connection, server, encrypts=True)  # as after SMB2_SESSION_FLAG_ENCRYPT_DATA
    with pytest.raises(RemoteProtocolError, match=f"requires encryption .* dialect {dialect:#x} .* no keys"):
        session.tree(SHARE)


@pytest.mark.parametrize("cipher", Cipher)
def test_every_cipher_reads_an_encrypted_share(connect, server, cipher):
    connection = connect()
    connection.negotiate([Dialect.SMB_3_1_1], contexts=default_contexts(ciphers=[cipher]))
    if connection.settled.cipher != cipher:
        pytest.skip("smbd does not offer this cipher")
    file = log_on(connection, server).tree(SEALED).open(cipher.name)
    assert file.write(b"x" * 5000).status == 0
    assert file.read(5000).buffer == b"x" * 5000
    assert "encrypted," in ladder(connection.link.transcript, make_decoder())


@pytest.mark.parametrize("signing", Signing)
def test_every_signing_algorithm(connect, server, signing):
    connection = connect()
    connection.negotiate([Dialect.SMB_3_1_1], contexts=default_contexts(signings=[signing]))
    assert connection.settled.signing == signing
    assert log_on(connection, server, signs=True).tree(SHARE).open("signed").close().status == 0


def test_a_wrong_password_is_one_sentence(connect, server):
    connection = connect()
    connection.negotiate()
    with pytest.raises(AttachError, match=r"refuses the user .*: STATUS_LOGON_FAILURE"):
        log_on(connection, server, password="wrong")


def test_a_share_that_is_not_there_is_one_sentence(connect, server):
    connection = connect()
    connection.negotiate()
    with pytest.raises(AttachError, match="refuses the share 'none': STATUS_BAD_NETWORK_NAME"):
        log_on(connection, server).tree("none")


def test_negotiation_is_validated(connect, server):
    connection = connect()
    connection.negotiate([Dialect.SMB_3_0])
    message = validate_negotiate(log_on(connection, server).tree(SHARE))
    assert message.status == 0
    assert message.buffer[22:24] == b"\x00\x03"


def test_a_response_with_a_wrong_signature_is_the_servers_fault(connect, server):
    connection = connect()
    connection.negotiate()
    session = log_on(connection, server, signs=True)
    tree = session.tree(SHARE)
    mid = tree.send(request(SmbCommand.ECHO))[0]
    session.channel.keys = session.channel.keys.__class__(b"another key, yes")
    with pytest.raises(RemoteProtocolError, match="the signature is wrong"):
        tree.receive(mid)


def test_a_lease_and_maximal_access_are_granted(connect, server):
    connection = connect()
    connection.negotiate()
    tree = log_on(connection, server).tree(SHARE)
    file = tree.open("leased", oplock=0xFF, contexts=[(c.MAXIMAL_ACCESS, b""), c.lease_v2(b"k" * 16, 7)])
    assert c.decode_lease(file.contexts[c.LEASE]).state == 7
    assert len(file.contexts[c.MAXIMAL_ACCESS]) == 8
