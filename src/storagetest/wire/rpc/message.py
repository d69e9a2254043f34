"""RPC messages (RFC 5531 9): build calls whose every field can be overridden, and read calls and replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.rpc.types import (
    RPC_VERSION,
    accept_stat,
    accepted_data,
    accepted_reply,
    auth_flavor,
    authsys_parms,
    call_body,
    mismatch_info,
    msg_type,
    opaque_auth,
    rejected_reply,
    reply_body,
    reply_stat,
    rpc_body,
    rpc_msg,
)
from storagetest.wire.xdr import Encoded, Procedure, Program, Unpacker, encode

AUTH_NONE = opaque_auth(auth_flavor.AUTH_NONE, b"")
"""No authentication (RFC 5531 10.1)."""


def auth_sys(
    uid: int = 0, gid: int = 0, gids: Sequence[int] = (), *, machine: bytes = b"storagetest"
) -> opaque_auth:
    """Return a credential of system authentication (RFC 5531 Appendix A)."""
    body = authsys_parms(0, machine, uid, gid, tuple(gids)).encode().data
    return opaque_auth(auth_flavor.AUTH_SYS, body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: its header, its result (None unless the call succeeded), and faults of its encoding."""

    xid: int
    body: reply_body
    result: Any = None
    faults: tuple[str, ...] = ()
    raw: bytes = b""

    @property
    def accepted(self) -> accept_stat | None:
        """How the accepted call ended; None if it was denied."""
        value = self.body.value
        return value.reply.stat if isinstance(value, accepted_reply) else None

    @property
    def mismatch(self) -> mismatch_info | None:
        """The versions that the server has, of the program or of RPC, if it refused that of the call."""
        value = self.body.value
        data = value.reply.value if isinstance(value, accepted_reply) else value.value
        return data if isinstance(data, mismatch_info) else None

    @property
    def status(self) -> str:
        """The name of the outcome: of ``accept_stat``, or of ``reject_stat`` and ``auth_stat``."""
        value = self.body.value
        if isinstance(value, accepted_reply):
            return value.reply.stat.name
        why = "" if isinstance(value.value, mismatch_info) else f" {value.value.name}"
        return f"{value.stat.name}{why}"


def encode_call(
    program: Program,
    procedure: Procedure,
    argument: Any = None,  # noqa: ANN401  # of the procedure's type
    *,
    xid: int,
    cred: opaque_auth = AUTH_NONE,
    verf: opaque_auth = AUTH_NONE,
) -> Encoded:
    """Return a call. Its fields are ``xid``, ``body.value.rpcvers`` …, and those of the argument."""
    body = call_body(RPC_VERSION, program.number, program.version, procedure.number, cred, verf)
    header = rpc_msg(xid, rpc_body(msg_type.CALL, body)).encode()
    return header + encode(procedure.argument, argument)


def encode_reply(xid: int, procedure: Procedure, result: Any) -> Encoded:  # noqa: ANN401  # likewise
    """Return the reply of a server to a call that succeeded."""
    return encode_status(xid, accepted_data(accept_stat.SUCCESS)) + encode(procedure.result, result)


def encode_status(xid: int, data: accepted_data | rejected_reply) -> Encoded:
    """Return a reply without a result: an accepted call that failed, or a denied one."""
    if isinstance(data, accepted_data):
        body = reply_body(reply_stat.MSG_ACCEPTED, accepted_reply(AUTH_NONE, data))
    else:
        body = reply_body(reply_stat.MSG_DENIED, data)
    return rpc_msg(xid, rpc_body(msg_type.REPLY, body)).encode()


def decode_message(record: bytes) -> tuple[rpc_msg, Unpacker]:
    """Return the header of a record's message, and the rest. Raises RemoteProtocolError."""
    source = Unpacker(record)
    return rpc_msg.unpack(source), source


def decode_reply(record: bytes, procedure: Procedure) -> Reply:
    """Return the reply to a call of ``procedure``. Raises RemoteProtocolError if it cannot be decoded."""
    message, source = decode_message(record)
    if not isinstance(message.body.value, reply_body):
        raise RemoteProtocolError(f"RFC 5531 9: a call where a reply is due: {message}")
    reply = Reply(message.xid, message.body.value)
    result = procedure.result.unpack(source) if reply.accepted == accept_stat.SUCCESS else None
    source.finish(f"the reply to {procedure.name}")
    return Reply(message.xid, message.body.value, result, tuple(source.faults), record)
