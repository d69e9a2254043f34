"""RPC decoder for :func:`storagetest.wire.ladder.ladder`: calls and replies by name, with their values.

A program that is in ``PROGRAMS`` is shown with its procedures and values; another by its numbers. An argument
that is a list of operations has a line for each of them. Of a call with RPCSEC_GSS the credential is shown:
its body may be encrypted.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import IntEnum

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.ladder import Decoder, Rung
from storagetest.wire.nfs3.mount import MOUNT_V3
from storagetest.wire.nfs3.nlm import NLM4_VERS
from storagetest.wire.nfs3.nsm import SM_VERS
from storagetest.wire.nfs3.types import NFS_V3
from storagetest.wire.nfs4.types import NFS_CB, NFS_V4
from storagetest.wire.rpc.gss_types import rpc_gss_cred, rpc_gss_proc_t, rpc_gss_service_t
from storagetest.wire.rpc.message import decode_message
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord
from storagetest.wire.rpc.rpcbind import PMAP_VERS, RPCBVERS
from storagetest.wire.rpc.types import (
    accept_stat,
    accepted_reply,
    auth_flavor,
    call_body,
    opaque_auth,
    reply_body,
)
from storagetest.wire.xdr import Procedure, Program, Unpacker, decode

PROGRAMS: dict[tuple[int, int], Program] = {
    (program.number, program.version): program
    for program in (NFS_V3, NFS_V4, NFS_CB, MOUNT_V3, NLM4_VERS, SM_VERS, PMAP_VERS, RPCBVERS)
}
_WIDTH = 400
_DESTROY = rpc_gss_proc_t.RPCSEC_GSS_DESTROY


def make_decoder() -> Decoder:
    """Return a decoder for one connection; calls can go in both directions."""
    streams = {True: RecordReceiver(), False: RecordReceiver()}
    calls: dict[tuple[bool, int], Procedure | None] = {}

    def decoder(outgoing: bool, data: bytes) -> list[Rung]:
        stream = streams[outgoing]
        stream.receive_data(data)
        rungs: list[Rung] = []
        while isinstance(record := stream.next_event(), RpcRecord):
            try:
                rungs.append(_rung(outgoing, record, calls))
            except RemoteProtocolError as error:
                rungs.append((f"{len(record.data)} bytes: {error}", [hex_short(record.data)]))
        return rungs

    return decoder


def _rung(outgoing: bool, record: RpcRecord, calls: dict[tuple[bool, int], Procedure | None]) -> Rung:
    message, source = decode_message(record.data)
    body = message.body.value
    marks = "" if len(record.fragments) == 1 else f" in fragments of {', '.join(map(str, record.fragments))}"
    if isinstance(body, call_body):
        program = PROGRAMS.get((body.prog, body.vers))
        procedure = program.procedures.get(body.proc) if program else None
        calls[outgoing, message.xid] = procedure
        of = program.name if program else f"{body.prog}.{body.vers}"
        name = procedure.name if procedure else str(body.proc)
        if body.cred.flavor == auth_flavor.RPCSEC_GSS:
            marks += f" {_credential(body.cred)}"
            calls[outgoing, message.xid] = None
            return f"CALL {message.xid:08x} {of} {name}{marks}", _values(None, source)
        return f"CALL {message.xid:08x} {of} {name}{marks}", _values(procedure and procedure.argument, source)
    procedure = calls.get((not outgoing, message.xid))
    name = procedure.name if procedure else ""
    status, details = _reply(body, procedure, source)
    return f"REPLY {message.xid:08x} {name} {status}{marks}", details


def _credential(cred: opaque_auth) -> str:
    """Return a credential of RPCSEC_GSS in short (RFC 2203 5)."""
    try:
        found = decode(rpc_gss_cred, cred.body)
    except RemoteProtocolError as error:
        return f"RPCSEC_GSS: {error}"
    proc = rpc_gss_proc_t(found.gss_proc).name if found.gss_proc <= _DESTROY else f"gss_proc {found.gss_proc}"
    names = {one.value: one.name.removeprefix("rpc_gss_svc_") for one in rpc_gss_service_t}
    service = names.get(found.service, f"service {found.service}")
    return f"{proc} version={found.version} seq={found.seq_num} {service} handle={hex_short(found.handle)}"


def _reply(body: reply_body, procedure: Procedure | None, source: Unpacker) -> tuple[str, list[str]]:
    value = body.value
    if not isinstance(value, accepted_reply):
        return f"{value.stat.name} {value.value}", []
    if value.reply.stat != accept_stat.SUCCESS:
        return f"{value.reply.stat.name} {value.reply.value or ''}", []
    return "", _values(procedure and procedure.result, source)


def _values(codec: object, source: Unpacker) -> list[str]:
    unpack = getattr(codec, "unpack", None)
    if unpack is None:
        return [hex_short(source.take(source.remaining, "data"))] if source.remaining else []
    start = source.offset
    try:
        value = unpack(source)
        source.finish("the message")
    except RemoteProtocolError as error:
        return [str(error), hex_short(source.data[start:])]
    if value is None:
        return []
    if not is_dataclass(value):
        return [text(value)]
    lines: list[str] = []
    for one in fields(value):
        part = getattr(value, one.name)
        if isinstance(part, tuple):
            lines += [f"{one.name}[{at}]={text(each)}" for at, each in enumerate(part)]
        elif part is not None:
            lines.append(f"{one.name}={text(part)}")
    return lines


def text(value: object) -> str:
    """Return one line for a value: fields of structures by name, and bytes as text or in hexadecimal."""
    line = _text(value)
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"


def _text(value: object) -> str:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, bytes):
        shown = value[:64]
        return repr(shown)[1:] if shown.isascii() and shown.decode().isprintable() else hex_short(shown)
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(one) for one in value[:16]) + (", …]" if len(value) > 16 else "]")
    if is_dataclass(value):
        return "{" + " ".join(f"{one.name}={_text(getattr(value, one.name))}" for one in fields(value)) + "}"
    return str(value)
