"""RPCSEC_GSS version 1 (RFC 2203): calls and replies with checksums, with integrity and with privacy.

:func:`create_context` exchanges the tokens of GSS-API on a connection and returns a :class:`GssContext`. That
is the ``security`` of an :class:`~storagetest.wire.rpc.client.RpcConnection`. One context serves several
connections: its sequence numbers are those of all of them.

Invariants:

1. Each call that :meth:`GssContext.encode_call` makes has a sequence number of its own, unless the caller
   names one.
2. :meth:`GssContext.decode_reply` returns a result only if its verifier is the checksum of the sequence
   number of its call, and if its body was protected by the call's service. Otherwise it raises
   RemoteProtocolError.
3. The tokens and checksums are those of a :class:`Mechanism`; nothing here imports a library of GSS-API.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Protocol

from storagetest.errors import RemoteProtocolError
from storagetest.wire.rpc.client import RpcConnection, RpcError, next_xid
from storagetest.wire.rpc.gss_types import (
    RPCSEC_GSS_VERS_1,
    rpc_gss_cred,
    rpc_gss_init_arg,
    rpc_gss_init_res,
    rpc_gss_integ_data,
    rpc_gss_priv_data,
    rpc_gss_proc_t,
    rpc_gss_service_t,
)
from storagetest.wire.rpc.message import AUTH_NONE, Reply, decode_message, encode_call
from storagetest.wire.rpc.types import accept_stat, accepted_reply, auth_flavor, opaque_auth, reply_body
from storagetest.wire.xdr import Encoded, Procedure, Program, Unpacker, decode, encode

GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED = 0, 1
"""Major statuses of a context's creation (RFC 2203 Appendix A)."""

NONE, INTEGRITY, PRIVACY = (
    rpc_gss_service_t.rpc_gss_svc_none,
    rpc_gss_service_t.rpc_gss_svc_integrity,
    rpc_gss_service_t.rpc_gss_svc_privacy,
)

_ROUNDS = 10
"""Most exchanges of tokens of one context (chosen); Kerberos needs one."""


class Mechanism(Protocol):
    """One side of a context of GSS-API. Each method raises RemoteProtocolError for what the peer sent."""

    @property
    def is_complete(self) -> bool:
        """Whether all tokens were exchanged."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the peer (b"" before the first), and return the next one, or b""."""

    def mic(self, data: bytes) -> bytes:
        """Return the checksum of ``data``."""

    def verify(self, data: bytes, mic: bytes) -> None:
        """Check a checksum of the peer."""

    def wrap(self, data: bytes) -> bytes:
        """Return ``data``, encrypted and with a checksum."""

    def unwrap(self, data: bytes) -> bytes:
        """Return what the peer encrypted; data with a checksum alone are an error, too."""


@dataclass
class GssContext:
    """An established context: its handle, the size of the sequence window, and the service of its calls."""

    mechanism: Mechanism
    handle: bytes
    window: int
    service: int = NONE
    sequence: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)

    def using(self, service: int) -> GssContext:
        """Return the same context with another service for its calls."""
        return GssContext(self.mechanism, self.handle, self.window, service, self.sequence, self._sent)

    def encode_call(
        self,
        program: Program,
        procedure: Procedure,
        argument: Any = None,  # noqa: ANN401  # of the procedure's type
        *,
        xid: int | None = None,
        seq: int | None = None,
        inner: int | None = None,
        proc: int = rpc_gss_proc_t.RPCSEC_GSS_DATA,
        version: int = RPCSEC_GSS_VERS_1,
        handle: bytes | None = None,
        service: int | None = None,
    ) -> Encoded:
        """Return a call of this context with a valid verifier, whatever the fields of its credential are.

        ``inner`` is the sequence number in a protected body, if it is not that of the credential. The fields
        ``body.value.verf.body``, ``databody_integ``, ``checksum`` and ``databody_priv`` can be overridden.
        """
        chosen = self.service if service is None else service
        number = next(self.sequence) if seq is None else seq
        made = next_xid() if xid is None else xid
        cred = credential(proc, number, chosen, self.handle if handle is None else handle, version=version)
        self._sent[made] = (number, chosen)
        header = self._header(program, procedure, made, cred)
        body = encode(procedure.argument, argument)
        return header + self._protected(body, number if inner is None else inner, chosen)

    def knows(self, xid: int) -> bool:
        """Whether a call with this xid was made by this context."""
        return xid in self._sent

    def decode_reply(self, record: bytes, procedure: Procedure) -> Reply:
        """Return the reply to a call of this context. Raises RemoteProtocolError (invariant 2)."""
        message, source = decode_message(record)
        body = message.body.value
        if not isinstance(body, reply_body):
            raise RemoteProtocolError(f"RFC 5531 9: a call where a reply is due: {message}")
        reply = Reply(message.xid, body, raw=record)
        if not isinstance(body.value, accepted_reply):
            return reply
        seq, service = self._sent[message.xid]
        check_verifier(self.mechanism, body.value.verf, seq)
        rest = source
        if reply.accepted == accept_stat.SUCCESS:
            rest = Unpacker(self._revealed(source, seq, service))
        result = procedure.result.unpack(rest) if reply.accepted == accept_stat.SUCCESS else None
        rest.finish(f"the reply to {procedure.name}")
        return Reply(message.xid, body, result, tuple(source.faults + rest.faults), record)

    def _header(self, program: Program, procedure: Procedure, xid: int, cred: opaque_auth) -> Encoded:
        plain = Procedure(procedure.number, procedure.name, _NOTHING, _NOTHING)
        unsigned = encode_call(program, plain, None, xid=xid, cred=cred)
        end = unsigned.spans["body.value.cred"][1]
        mic = self.mechanism.mic(unsigned.data[:end])  # 5.3.1: from the xid up to the credential
        verf = opaque_auth(auth_flavor.RPCSEC_GSS, mic)
        return encode_call(program, plain, None, xid=xid, cred=cred, verf=verf)

    def _protected(self, body: Encoded, seq: int, service: int) -> Encoded:
        data = seq.to_bytes(4, "big") + body.data
        if service == INTEGRITY:
            return rpc_gss_integ_data(data, self.mechanism.mic(data)).encode()
        if service == PRIVACY:
            return rpc_gss_priv_data(self.mechanism.wrap(data)).encode()
        return body

    def _revealed(self, source: Unpacker, seq: int, service: int) -> bytes:
        if service == INTEGRITY:
            found = rpc_gss_integ_data.unpack(source)
            self.mechanism.verify(found.databody_integ, found.checksum)
            data = found.databody_integ
        elif service == PRIVACY:
            data = self.mechanism.unwrap(rpc_gss_priv_data.unpack(source).databody_priv)
        else:
            return source.take(source.remaining, "result")
        source.finish("the protected body")
        if data[:4] != seq.to_bytes(4, "big"):
            raise RemoteProtocolError(
                f"RFC 2203 5.3.2.2: the body of a reply has the sequence number {data[:4].hex()}, not {seq}"
            )
        return data[4:]


class _Nothing:
    def pack(self, value: Any, out: Any) -> None:  # noqa: ANN401
        """Append nothing: the body follows the header."""

    def unpack(self, source: Unpacker) -> None:
        """Read nothing."""


_NOTHING = _Nothing()


def credential(
    proc: int, seq: int, service: int, handle: bytes, *, version: int = RPCSEC_GSS_VERS_1
) -> opaque_auth:
    """Return a credential of RPCSEC_GSS (RFC 2203 5)."""
    body = rpc_gss_cred(version, proc, seq, service, handle).encode().data
    return opaque_auth(auth_flavor.RPCSEC_GSS, body)


def check_verifier(mechanism: Mechanism, verf: opaque_auth, number: int) -> None:
    """Check the verifier of an accepted reply: the checksum of ``number`` (RFC 2203 5.2.3.1, 5.3.3.2).

    Raises RemoteProtocolError.
    """
    if verf.flavor != auth_flavor.RPCSEC_GSS:
        raise RemoteProtocolError(
            f"RFC 2203 5.3.3.2: the verifier of an accepted reply has flavor {verf.flavor}, not RPCSEC_GSS"
        )
    try:
        mechanism.verify(number.to_bytes(4, "big"), verf.body)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(
            f"RFC 2203 5.3.3.2: the verifier of a reply is no checksum of {number}: {error}"
        ) from None


def init_procedure(procedure: Procedure) -> Procedure:
    """Return the procedure that a context's creation overloads, with its argument and result (5.2.2)."""
    return Procedure(procedure.number, procedure.name, rpc_gss_init_arg, rpc_gss_init_res)


def send_token(
    rpc: RpcConnection,
    token: bytes,
    *,
    handle: bytes = b"",
    proc: int = rpc_gss_proc_t.RPCSEC_GSS_INIT,
    version: int = RPCSEC_GSS_VERS_1,
    procedure: str = "NULL",
) -> Reply:
    """Send one token of a context's creation, and return the reply, whatever it is (5.2.2)."""
    called = init_procedure(rpc.procedure(procedure))
    cred = credential(proc, 0, NONE, handle, version=version)
    call = encode_call(
        rpc.program, called, rpc_gss_init_arg(token), xid=next_xid(), cred=cred, verf=AUTH_NONE
    )
    return rpc.receive(rpc.send(called, call))


def create_context(rpc: RpcConnection, mechanism: Mechanism, *, service: int = NONE) -> GssContext:
    """Create a context on ``rpc`` (5.2). Raises RpcError or RemoteProtocolError if the server refuses."""
    token, handle, proc = mechanism.step(b""), b"", rpc_gss_proc_t.RPCSEC_GSS_INIT
    for _ in range(_ROUNDS):
        reply = send_token(rpc, token, handle=handle, proc=proc)
        result = reply.result
        if reply.accepted != accept_stat.SUCCESS:
            raise RpcError("the creation of a GSS context", reply)
        if result.gss_major not in (GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED):
            raise RemoteProtocolError(
                f"RFC 2203 5.2.3.2: the server refuses the context: gss_major {result.gss_major:#x}, "
                f"gss_minor {result.gss_minor:#x}"
            )
        if not mechanism.is_complete:
            token = mechanism.step(result.gss_token)
        if result.gss_major == GSS_S_COMPLETE:
            return _completed(reply, mechanism, service)
        handle, proc = result.handle, rpc_gss_proc_t.RPCSEC_GSS_CONTINUE_INIT
    raise RemoteProtocolError(f"RFC 2203 5.2: no context after {_ROUNDS} tokens")


def _completed(reply: Reply, mechanism: Mechanism, service: int) -> GssContext:
    if not mechanism.is_complete:
        raise RemoteProtocolError("RFC 2203 5.2.3.1: the server's context is complete, the client's is not")
    accepted = reply.body.value
    assert isinstance(accepted, accepted_reply)
    check_verifier(mechanism, accepted.verf, reply.result.seq_window)
    return GssContext(mechanism, reply.result.handle, reply.result.seq_window, service)


def decode_credential(cred: opaque_auth) -> rpc_gss_cred:
    """Return the body of a credential. Raises RemoteProtocolError."""
    found: rpc_gss_cred = decode(rpc_gss_cred, cred.body)
    return found
