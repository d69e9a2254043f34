"""RPCSEC_GSS: calls and replies by a mechanism of HMAC, and by Kerberos with a server and a KDC."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

import kdc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_nfs import EXPORT, SecureNfs

from storagetest.errors import RemoteProtocolError, StoragetestError
from storagetest.wire.ladder import ladder
from storagetest.wire.nfs4.client import Nfs4Client, ok
from storagetest.wire.nfs4.operations import GETFH, PUTROOTFH, lookup
from storagetest.wire.nfs4.types import NFS_V4, COMPOUND4args, COMPOUND4res, nfsstat4
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.describe import make_decoder
from storagetest.wire.rpc.gss import (
    INTEGRITY,
    NONE,
    PRIVACY,
    GssContext,
    create_context,
    decode_credential,
)
from storagetest.wire.rpc.gss_types import rpc_gss_integ_data, rpc_gss_priv_data
from storagetest.wire.rpc.kerberos import KerberosMechanism
from storagetest.wire.rpc.message import AUTH_NONE, decode_message
from storagetest.wire.rpc.record import frame
from storagetest.wire.rpc.types import (
    accept_stat,
    accepted_data,
    accepted_reply,
    auth_flavor,
    auth_stat,
    msg_type,
    opaque_auth,
    reject_stat,
    rejected_reply,
    reply_body,
    reply_stat,
    rpc_body,
    rpc_msg,
)
from storagetest.wire.tcp import Chunk, RecordedConnection
from storagetest.wire.xdr import decode, encode

COMPOUND = NFS_V4.procedure("COMPOUND")
LOOK = COMPOUND4args(b"tag", 0, (PUTROOTFH,))
RESULT = COMPOUND4res(nfsstat4.NFS4_OK, b"tag", ())


class Hmac:
    """A mechanism that both sides have: HMAC for checksums, XOR for privacy."""

    is_complete = True

    def step(self, token: bytes) -> bytes:
        return b""

    def mic(self, data: bytes) -> bytes:
        return hmac.digest(b"key", data, hashlib.sha256)

    def verify(self, data: bytes, mic: bytes) -> None:
        if not hmac.compare_digest(self.mic(data), mic):
            raise RemoteProtocolError("wrong checksum")

    def wrap(self, data: bytes) -> bytes:
        return self.mic(data) + bytes(one ^ 0x55 for one in data)

    def unwrap(self, data: bytes) -> bytes:
        found = bytes(one ^ 0x55 for one in data[32:])
        self.verify(found, data[:32])
        return found


@pytest.fixture
def context() -> GssContext:
    return GssContext(Hmac(), b"handle", 32)


def reply_of(xid: int, verf: opaque_auth, body: bytes, status: accept_stat = accept_stat.SUCCESS) -> bytes:
    accepted = reply_body(reply_stat.MSG_ACCEPTED, accepted_reply(verf, accepted_data(status)))
    return rpc_msg(xid, rpc_body(msg_type.REPLY, accepted)).encode().data + body


def signed(number: int) -> opaque_auth:
    return opaque_auth(auth_flavor.RPCSEC_GSS, Hmac().mic(number.to_bytes(4, "big")))


def protect(service: int, seq: int) -> bytes:
    data = seq.to_bytes(4, "big") + encode(COMPOUND4res, RESULT).data
    if service == INTEGRITY:
        return rpc_gss_integ_data(data, Hmac().mic(data)).encode().data
    if service == PRIVACY:
        return rpc_gss_priv_data(Hmac().wrap(data)).encode().data
    return data[4:]


@pytest.mark.parametrize("service", [NONE, INTEGRITY, PRIVACY])
def test_a_call_has_a_credential_a_checksum_of_its_header_and_its_argument(
    context: GssContext, service: int
) -> None:
    made = context.using(service).encode_call(NFS_V4, COMPOUND, LOOK, xid=7)
    message, source = decode_message(made.data)
    body = message.body.value
    cred = decode_credential(body.cred)
    assert (cred.version, cred.gss_proc, cred.seq_num, cred.service, cred.handle) == (
        1,
        0,
        1,
        service,
        b"handle",
    )
    Hmac().verify(made.data[: made.spans["body.value.cred"][1]], body.verf.body)
    rest = source.take(source.remaining, "argument")
    data = {
        NONE: lambda: bytes([0, 0, 0, 1]) + rest,
        INTEGRITY: lambda: decode(rpc_gss_integ_data, rest).databody_integ,
        PRIVACY: lambda: Hmac().unwrap(decode(rpc_gss_priv_data, rest).databody_priv),
    }[service]()
    assert data[:4] == bytes([0, 0, 0, 1])
    assert decode(COMPOUND4args, data[4:]) == LOOK


def test_each_call_has_the_next_sequence_number_also_with_another_service(context: GssContext) -> None:
    made = [
        context.encode_call(NFS_V4, COMPOUND, LOOK),
        context.using(PRIVACY).encode_call(NFS_V4, COMPOUND, LOOK),
        context.encode_call(NFS_V4, COMPOUND, LOOK),
    ]
    numbers = [decode_credential(decode_message(one.data)[0].body.value.cred).seq_num for one in made]
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("service", [NONE, INTEGRITY, PRIVACY])
def test_a_reply_is_decoded_with_the_service_of_its_call(context: GssContext, service: int) -> None:
    context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7, seq=5, service=service)
    reply = context.decode_reply(reply_of(7, signed(5), protect(service, 5)), COMPOUND)
    assert reply.result == RESULT


@pytest.mark.parametrize(
    ("service", "verf", "body", "message"),
    [
        (NONE, signed(6), protect(NONE, 5), "no checksum of 5"),
        (NONE, AUTH_NONE, protect(NONE, 5), "has flavor 0, not RPCSEC_GSS"),
        (NONE, signed(5), protect(NONE, 5) + bytes(4), "4 bytes follow the reply"),
        (INTEGRITY, signed(5), protect(INTEGRITY, 6), "sequence number 00000006, not 5"),
        (INTEGRITY, signed(5), protect(INTEGRITY, 5) + bytes(4), "4 bytes follow the protected body"),
        (INTEGRITY, signed(5), protect(INTEGRITY, 5)[:-4] + b"xxxx", "wrong checksum"),
        (INTEGRITY, signed(5), protect(NONE, 5), "bytes are announced|wrong checksum|bytes follow"),
        (PRIVACY, signed(5), protect(PRIVACY, 6), "sequence number 00000006, not 5"),
        (PRIVACY, signed(5), protect(INTEGRITY, 5), "wrong checksum"),
    ],
)
def test_a_reply_with_another_protection_is_the_servers_fault(
    context: GssContext, service: int, verf: opaque_auth, body: bytes, message: str
) -> None:
    context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7, seq=5, service=service)
    with pytest.raises(RemoteProtocolError, match=message):
        context.decode_reply(reply_of(7, verf, body), COMPOUND)


def test_a_denied_call_needs_no_verifier(context: GssContext) -> None:
    context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7)
    denied = rejected_reply(reject_stat.AUTH_ERROR, auth_stat.RPCSEC_GSS_CREDPROBLEM)
    record = rpc_msg(7, rpc_body(msg_type.REPLY, reply_body(reply_stat.MSG_DENIED, denied))).encode().data
    assert context.decode_reply(record, COMPOUND).status == "AUTH_ERROR RPCSEC_GSS_CREDPROBLEM"


def test_an_error_has_the_verifier_and_no_protected_body(context: GssContext) -> None:
    context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7, seq=5, service=PRIVACY)
    record = reply_of(7, signed(5), b"", accept_stat.GARBAGE_ARGS)
    assert context.decode_reply(record, COMPOUND).accepted == accept_stat.GARBAGE_ARGS


@given(st.binary(max_size=200))
def test_the_decoder_is_total(data: bytes) -> None:
    context = GssContext(Hmac(), b"handle", 32, PRIVACY)
    context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7, seq=5)
    for record in (data, reply_of(7, signed(5), data)):
        try:
            context.decode_reply(record, COMPOUND)
        except (RemoteProtocolError, KeyError) as error:  # KeyError: another xid, which the connection finds
            assert not isinstance(error, KeyError) or record is data


def test_a_ladder_shows_the_credential(context: GssContext) -> None:
    call = context.encode_call(NFS_V4, COMPOUND, LOOK, xid=7, service=PRIVACY)
    text = ladder([Chunk(0.0, outgoing=True, data=frame(call.data))], make_decoder(), title="x")
    assert "RPCSEC_GSS_DATA version=1 seq=1 privacy" in text


# With Kerberos


@pytest.fixture(scope="module")
def realm() -> Iterator[kdc.Kdc]:
    if reason := kdc.why_not():
        pytest.skip(reason)
    with kdc.realm() as made:
        yield made


@pytest.fixture
def rpc(realm: kdc.Kdc) -> Iterator[RpcConnection]:
    with (
        SecureNfs() as server,
        RecordedConnection.connect("127.0.0.1", server.port, deadline=60) as link,
    ):
        yield RpcConnection(link, NFS_V4, deadline=60)


@pytest.mark.parametrize(("service", "allowed"), [(NONE, False), (INTEGRITY, True), (PRIVACY, True)])
def test_a_context_of_kerberos_carries_calls(rpc: RpcConnection, service: int, allowed: bool) -> None:
    rpc.security = create_context(rpc, KerberosMechanism.initiate("nfs@localhost"), service=service)
    nfs = Nfs4Client(rpc, 0)
    ok(nfs.compound(PUTROOTFH, GETFH))
    done = nfs.compound(PUTROOTFH, lookup(EXPORT[1:].encode()))
    assert done.status == (nfsstat4.NFS4_OK if allowed else nfsstat4.NFS4ERR_WRONGSEC)
    sent = b"".join(chunk.data for chunk in rpc.link.transcript if chunk.outgoing)
    assert (EXPORT[1:].encode() in sent) == (service != PRIVACY), "privacy hides the name"


def test_a_service_without_a_key_is_an_error_of_the_setup(rpc: RpcConnection) -> None:
    with pytest.raises(StoragetestError, match="no Kerberos ticket for the server"):
        create_context(rpc, KerberosMechanism.initiate("nfs@elsewhere"))


def test_a_client_without_tickets_is_an_error_of_the_setup(
    realm: kdc.Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.where / 'absent'}")
    with pytest.raises(StoragetestError, match="no Kerberos credentials"):
        KerberosMechanism.initiate("nfs@localhost")
