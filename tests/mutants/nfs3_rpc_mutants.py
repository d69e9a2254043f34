"""Broken rules of RPC and XDR (RFC 5531, RFC 4506)."""

# ruff: noqa: E501  # a mutant is a row of a table

from nfs3_proxy_connection import Call, ProxyConnection, mutant

from storagetest.wire.rpc.message import decode_message, encode_reply, encode_status
from storagetest.wire.rpc.record import LAST, RecordReceiver, fragment, frame
from storagetest.wire.rpc.types import (
    accept_stat,
    accepted_data,
    accepted_reply,
    auth_stat,
    call_body,
    mismatch_info,
    msg_type,
    opaque_auth,
    reject_stat,
    rejected_reply,
    reply_body,
    rpc_body,
    rpc_msg,
)


def body_of(data: bytes) -> accepted_reply | rejected_reply:
    message, _ = decode_message(data)
    assert isinstance(message.body.value, reply_body)
    return message.body.value.value


def stat_of(data: bytes) -> accept_stat | None:
    body = body_of(data)
    return body.reply.stat if isinstance(body, accepted_reply) else None


def succeeded(call: Call) -> bytes:
    return encode_status(call.xid, accepted_data(accept_stat.SUCCESS)).data


@mutant("rpc-null-fails | RFC 5531 12.1 | NULL ends with SYSTEM_ERR", "NULL", part="message")
def null_fails(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return encode_status(call.xid, accepted_data(accept_stat.SYSTEM_ERR)).data


@mutant("rpc-xid | RFC 5531 9 | a reply has another xid than its call", part="message")
def other_xid(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return ((call.xid + 1) & 0xFFFFFFFF).to_bytes(4, "big") + data[4:]


@mutant("rpc-one-outstanding | RFC 5531 9 | every eighth call of a connection has no reply", part="message")
def forgets_some(talk: ProxyConnection, call: Call, data: bytes) -> bytes | None:
    talk.memory["calls"] = talk.memory.get("calls", 0) + 1
    return None if talk.memory["calls"] % 8 == 0 else data


VERSION = slice(12, 16)
"""Where a call's RPC version is in a record of one fragment."""
TWO = (2).to_bytes(4, "big")


@mutant("rpc-version-accepted | RFC 5531 9 | a call of another RPC version is executed", part="inbound")
def version_accepted(talk: ProxyConnection, pdu: bytes) -> bytes:
    return pdu[: VERSION.start] + TWO + pdu[VERSION.stop :]


@mutant("rpc-version-range | RFC 5531 9 | RPC_MISMATCH states versions 1 to 3", part="inbound")
def version_range(talk: ProxyConnection, pdu: bytes) -> bytes | None:
    if pdu[VERSION] == TWO:
        return pdu
    denied = rejected_reply(reject_stat.RPC_MISMATCH, mismatch_info(1, 3))
    talk.send_to_host(frame(encode_status(int.from_bytes(pdu[4:8], "big"), denied).data))
    return None


def accepts(row: str, stat: accept_stat) -> None:
    mutant(row, part="message")(lambda talk, call, data: succeeded(call) if stat_of(data) == stat else data)


accepts("rpc-program-accepted | RFC 5531 9 | a call of an unknown program succeeds", accept_stat.PROG_UNAVAIL)
accepts(
    "rpc-program-version-accepted | RFC 5531 9 | a call of an unknown version succeeds",
    accept_stat.PROG_MISMATCH,
)
accepts(
    "rpc-procedure-accepted | RFC 5531 9 | a call of an unknown procedure succeeds", accept_stat.PROC_UNAVAIL
)


@mutant(
    "rpc-program-version-range | RFC 5531 9 | PROG_MISMATCH states versions without those that the server has",
    part="message",
)
def program_version_range(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    if stat_of(data) != accept_stat.PROG_MISMATCH:
        return data
    return encode_status(call.xid, accepted_data(accept_stat.PROG_MISMATCH, mismatch_info(7, 9))).data


@mutant("rpc-reply-is-call | RFC 5531 9 | a reply is of type CALL", "GETATTR", part="message")
def reply_is_call(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    none = opaque_auth(0, b"")
    return rpc_msg(call.xid, rpc_body(msg_type.CALL, call_body(2, 1, 1, 1, none, none))).encode().data


@mutant("rpc-reply-longer | RFC 5531 9 | four bytes follow a result", "GETATTR", part="message")
def reply_longer(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return data + bytes(4)


@mutant("rpc-reply-shorter | RFC 5531 9 | a result lacks its last four bytes", "GETATTR", part="message")
def reply_shorter(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return data[:-4]


@mutant("xdr-padding | RFC 4506 4.10 | padding is not zero", "READLINK", part="message")
def padding(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return data[:-1] + b"\x7f"


@mutant("xdr-boolean | RFC 4506 4.4 | TRUE is encoded as 255", "READ", part="message")
def boolean(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    at = len(data) - 12  # eof, length, one byte with padding
    return data[:at] + (255).to_bytes(4, "big") + data[at + 4 :]


@mutant(
    "rpc-garbage-accepted | RFC 5531 9 | a call whose argument cannot be decoded ends with SYSTEM_ERR",
    part="message",
)
def garbage_accepted(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    if stat_of(data) != accept_stat.GARBAGE_ARGS:
        return data
    return encode_status(call.xid, accepted_data(accept_stat.SYSTEM_ERR)).data


@mutant(
    "rpc-garbage-ends | RFC 5531 9 | after an argument that cannot be decoded no call is answered",
    part="message",
)
def garbage_ends(talk: ProxyConnection, call: Call, data: bytes) -> bytes | None:
    if stat_of(data) == accept_stat.GARBAGE_ARGS:
        talk.memory["over"] = True
        return data
    return None if talk.memory.get("over") else data


@mutant("rpc-fragments | RFC 5531 11 | a call in several fragments is not executed", part="inbound")
def fragments(talk: ProxyConnection, pdu: bytes) -> bytes | None:
    receiver = RecordReceiver()
    receiver.receive_data(pdu)
    record = receiver.next_event()
    return pdu if record == "need data" or len(record.fragments) == 1 else None


@mutant("rpc-reply-unmarked | RFC 5531 11 | the last fragment of a reply is not marked", part="framing")
def unmarked(data: bytes) -> bytes:
    return fragment(data, last=False)


@mutant(
    "rpc-reply-length | RFC 5531 11 | a reply's fragment is four bytes longer than its header states",
    part="framing",
)
def short_header(data: bytes) -> bytes:
    return ((len(data) - 4) | LAST).to_bytes(4, "big") + data


@mutant("rpc-auth-16 | RFC 5531 A | a credential of the greatest legal size is denied", part="message")
def credential_denied(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return encode_status(call.xid, rejected_reply(reject_stat.AUTH_ERROR, auth_stat.AUTH_BADCRED)).data


@mutant(
    "rpc-auth-accepted | RFC 5531 8.2 | a call with a credential that is none is executed", part="message"
)
def credential_accepted(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    if not isinstance(body_of(data), rejected_reply):
        return data
    from nfs3_proxy_connection import blank

    return (
        encode_reply(call.xid, call.procedure, blank(call.procedure.result)).data
        if call.name
        else succeeded(call)
    )


@mutant("rpc-auth-verifier | RFC 5531 A | the verifier of a reply is of AUTH_SYS", "GETATTR", part="message")
def verifier(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    return data[:12] + (1).to_bytes(4, "big") + data[16:]


@mutant(
    "rpc-auth-remembered | RFC 5531 8.2 | a connection keeps the credential of its first call", part="inbound"
)
def remembered(talk: ProxyConnection, pdu: bytes) -> bytes:
    message, source = decode_message(pdu[4:])
    body = message.body.value
    assert isinstance(body, call_body)
    cred = talk.memory.setdefault("cred", body.cred)
    head = rpc_msg(
        message.xid, rpc_body(msg_type.CALL, call_body(2, body.prog, body.vers, body.proc, cred, body.verf))
    )
    return fragment(head.encode().data + source.take(source.remaining, "argument"))


@mutant(
    "rpc-no-reply-cache | RFC 1813 4.5 | a request that is sent again is executed again",
    "REMOVE",
    part="message",
)
def executed_again(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    from nfs3_proxy_connection import with_status

    from storagetest.wire.nfs3.types import REMOVE3res, nfsstat3

    seen = talk.shared.setdefault("seen", set())
    if call.xid not in seen:
        seen.add(call.xid)
        return data
    result = with_status(REMOVE3res(nfsstat3.NFS3_OK, None), nfsstat3.NFS3ERR_NOENT)  # type: ignore[arg-type]
    return encode_reply(call.xid, call.procedure, result).data
