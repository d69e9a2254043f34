"""One proxied connection of RPC for a mutant: records cut apart, calls remembered, results decoded and encoded.

A mutant is a function of one of these kinds:

- ``reply(talk, call, result)`` returns the result of a procedure that the client sees;
- ``request(talk, call)`` returns the argument that the server sees: a server that ignores a field;
- ``message(talk, call, data)`` returns the bytes of the whole reply message, or None for no reply;
- ``inbound(talk, data)`` returns the bytes of a whole record that the server receives, or None: it gets none;
- ``framing(data)`` returns the record of a reply message.

Connections that arrange what a case needs (:data:`ARRANGES`) are left alone, unless it is ``everywhere``.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mutant_row import cells
from proxy import Rewrite
from rpc_records import body_of

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs3.harness import ARRANGES
from storagetest.wire.rpc.describe import PROGRAMS
from storagetest.wire.rpc.message import decode_message, encode_reply
from storagetest.wire.rpc.record import frame
from storagetest.wire.rpc.types import accept_stat, accepted_reply, call_body
from storagetest.wire.xdr import codecs, encode

MUTANTS: dict[str, Nfs3Mutant] = {}


@dataclass(frozen=True)
class Call:
    """A call with its decoded argument; ``program`` and ``name`` are "" if they are not known."""

    xid: int
    program: str
    name: str
    argument: Any
    procedure: codecs.Procedure


UNKNOWN = codecs.Procedure(0, "", codecs.VOID, codecs.VOID)
"""That of a call which names no known one, or whose argument cannot be decoded."""


@dataclass
class Nfs3Mutant:
    name: str
    section: str
    description: str
    procedures: tuple[str, ...]
    reply: Callable[[ProxyConnection, Call, Any], Any] | None = None
    request: Callable[[ProxyConnection, Call], Any] | None = None
    message: Callable[[ProxyConnection, Call, bytes], bytes | None] | None = None
    inbound: Callable[[ProxyConnection, bytes], bytes | None] | None = None
    framing: Callable[[bytes], bytes] | None = None
    kind: str | None = None
    everywhere: bool = False
    shared: dict[str, Any] = field(default_factory=dict)

    def rewrites(self) -> Callable[[], ProxyConnection]:
        """Return what makes the talk of each connection; they share what the mutant remembers."""
        shared: dict[str, Any] = {}
        return lambda: ProxyConnection(self, shared)


def mutant(row: str, *procedures: str, part: str = "reply") -> Callable[[Any], Any]:
    """Register a mutant of ``procedures`` ("LOOKUP", "MOUNT_V3 MNT"; none: all)."""
    name, *words = cells(row)

    def register(function: Any) -> Any:
        assert name not in MUTANTS, name
        MUTANTS[name] = Nfs3Mutant(name, *words, procedures, **{part: function})
        return function

    return register


class ProxyConnection(Rewrite):
    """A connection. ``memory`` is its own, ``shared`` that of all connections of the mutant."""

    def __init__(self, mutant: Nfs3Mutant, shared: dict[str, Any]) -> None:
        self.mutant = mutant
        self.shared = shared
        self.memory: dict[str, Any] = {}
        self.calls: dict[int, Call] = {}

    def to_target(self, pdu: bytes) -> list[bytes]:
        call, header = _call(body_of(pdu), everywhere=self.mutant.everywhere)
        if call is None:
            return [pdu]
        self.calls[call.xid] = call
        if self.mutant.inbound is not None and self._concerns(call):
            changed = self.mutant.inbound(self, pdu)
            return [] if changed is None else [changed]
        if self.mutant.request is None or not header or not self._concerns(call):
            return [pdu]
        changed = self.mutant.request(self, call)
        if changed == call.argument:
            return [pdu]
        return [frame(header + encode(call.procedure.argument, changed).data)]

    def to_host(self, pdu: bytes) -> list[bytes]:
        data = body_of(pdu)
        call = self.calls.get(int.from_bytes(data[:4], "big"))
        if call is None or not self._concerns(call):
            return [pdu]
        if self.mutant.framing is not None:
            return [self.mutant.framing(data)]
        if self.mutant.message is not None:
            changed = self.mutant.message(self, call, data)
            return [] if changed is None else [frame(changed)]
        if self.mutant.reply is None or call.procedure is UNKNOWN:
            return [pdu]
        try:
            message, source = decode_message(data)
            body = message.body.value
            if not isinstance(body.value, accepted_reply) or body.value.reply.stat != accept_stat.SUCCESS:
                return [pdu]
            result = call.procedure.result.unpack(source)
        except RemoteProtocolError:
            return [pdu]
        changed = self.mutant.reply(self, call, result)
        return [pdu] if changed == result else [frame(encode_reply(call.xid, call.procedure, changed).data)]

    def changed(self, given: bytes, out: list[bytes]) -> bool:
        return b"".join(out) != given

    def _concerns(self, call: Call) -> bool:
        names = self.mutant.procedures
        return not names or call.name in names or f"{call.program} {call.name}" in names


def _call(data: bytes, *, everywhere: bool) -> tuple[Call | None, bytes]:
    """Return the call, or None if it is none that a mutant knows, and the bytes before its argument."""
    try:
        message, source = decode_message(data)
        body = message.body.value
        program = PROGRAMS.get((body.prog, body.vers)) if isinstance(body, call_body) else None
        procedure = program.procedures.get(body.proc) if program else None
        if not isinstance(body, call_body) or (ARRANGES in body.cred.body and not everywhere):
            return None, b""
    except RemoteProtocolError:
        return Call(int.from_bytes(data[:4], "big"), "", "", None, UNKNOWN), b""
    if program is None or procedure is None:
        return Call(message.xid, program.name if program else "", "", None, UNKNOWN), b""
    try:
        header = data[: source.offset]
        argument = procedure.argument.unpack(source)
        source.finish("the argument")
    except RemoteProtocolError:
        return Call(message.xid, program.name, procedure.name, None, UNKNOWN), b""
    return Call(message.xid, program.name, procedure.name, argument, procedure), header


# What mutants are written with


def put(value: Any, path: str, new: Any) -> Any:
    """Return ``value`` with the field at ``path`` replaced; a callable ``new`` is given the old value."""
    name, _, rest = path.partition(".")
    old = getattr(value, name)
    if old is None and rest:
        return value
    return replace(value, **{name: put(old, rest, new) if rest else new(old) if callable(new) else new})


def blank(codec: Any) -> Any:
    """Return the simplest value of a codec."""
    match codec:
        case codecs.Integer():
            return 0
        case codecs.Enumeration(kind):
            return next(iter(kind))
        case codecs.Opaque(size):
            return bytes(size)
        case codecs.VarOpaque():
            return b""
        case codecs.VarArray() | codecs.LinkedList():
            return ()
        case codecs.Optional():
            return None
    if codec is codecs.BOOL:
        return False
    if codec is codecs.VOID:
        return None
    if issubclass(codec, codecs.Union):
        chosen, arm = next(iter(codec.ARMS.items()))
        return codec(chosen, blank(arm))
    return codec(*(blank(one) for _, one in codec.FIELDS))


def with_status(result: Any, status: int) -> Any:
    """Return a result with another status, and the simplest value that it can have."""
    kind = type(result)
    arm = kind.ARMS.get(status, kind.DEFAULT)
    return kind(status, blank(arm))


def sets(row: str, procedure: str, path: str, new: Any) -> None:
    """A mutant that sets a field of every successful result."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        return put(result, f"value.{path}", new) if not result.status else result

    mutant(row, procedure)(change)


def answers(row: str, procedure: str, status: Any, instead: Any) -> None:
    """A mutant whose server ends a call with ``instead`` of ``status``."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        return with_status(result, instead) if result.status == status else result

    mutant(row, procedure)(change)


def ignores(row: str, procedure: str, path: str, new: Any) -> None:
    """A mutant whose server sees another value of a field in each argument."""
    mutant(row, procedure, part="request")(lambda talk, call: put(call.argument, path, new))


def many(rows: Sequence[tuple[Any, ...]], make: Callable[..., None]) -> None:
    """Register several mutants of one kind."""
    for row in rows:
        make(*row)
