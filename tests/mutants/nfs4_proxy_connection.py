"""One proxied connection of NFSv4 for a mutant: records cut apart, COMPOUNDs decoded, changed and encoded.

A mutant is a function of one of these kinds:

- ``result(talk, argument, result)`` returns the result of an operation that the client sees; both are the
  values of ``nfs_argop4`` and ``nfs_resop4``;
- ``compound(talk, arguments, results)`` returns the whole COMPOUND4res that the client sees;
- ``request(talk, arguments)`` returns the COMPOUND4args that the server sees;
- ``callback(talk, arguments)`` returns the CB_COMPOUND4args that the client sees, or None for no callback.

After a change of a result the status of the COMPOUND is that of the last one, as the standard requires.
Connections that arrange what a case needs (:data:`ARRANGES`) are left alone, unless it is ``everywhere``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mutant_row import cells
from proxy import Rewrite
from rpc_records import body_of

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.client import status_of
from storagetest.wire.nfs4.harness import ARRANGES
from storagetest.wire.nfs4.types import (
    NFS_CB,
    NFS_V4,
    CB_COMPOUND4args,
    COMPOUND4args,
    COMPOUND4res,
    nfs_opnum4,
    nfsstat4,
)
from storagetest.wire.rpc.message import decode_message, encode_reply
from storagetest.wire.rpc.record import frame
from storagetest.wire.rpc.types import accept_stat, accepted_reply, call_body
from storagetest.wire.xdr import Union, encode

MUTANTS: dict[str, Nfs4Mutant] = {}
COMPOUND = NFS_V4.procedure("COMPOUND")
CB_COMPOUND = NFS_CB.procedure("CB_COMPOUND")


@dataclass
class Nfs4Mutant:
    name: str
    section: str
    description: str
    operations: tuple[str, ...]
    result: Callable[[Nfs4ProxyConnection, Any, Any], Any] | None = None
    compound: Callable[[Nfs4ProxyConnection, COMPOUND4args, COMPOUND4res], COMPOUND4res] | None = None
    request: Callable[[Nfs4ProxyConnection, COMPOUND4args], COMPOUND4args] | None = None
    callback: Callable[[Nfs4ProxyConnection, CB_COMPOUND4args], CB_COMPOUND4args | None] | None = None
    kind: str | None = None
    everywhere: bool = False
    shared: dict[str, Any] = field(default_factory=dict)

    def rewrites(self) -> Callable[[], Nfs4ProxyConnection]:
        """Return what makes the talk of each connection; they share what the mutant remembers."""
        shared: dict[str, Any] = {}
        return lambda: Nfs4ProxyConnection(self, shared)


def mutant(row: str, *operations: str, part: str = "result") -> Callable[[Any], Any]:
    """Register a mutant of ``operations`` (none: all)."""
    name, *words = cells(row)

    def register(function: Any) -> Any:
        assert name not in MUTANTS, name
        MUTANTS[name] = Nfs4Mutant(name, *words, operations, **{part: function})
        return function

    return register


class Nfs4ProxyConnection(Rewrite):
    """A connection. ``memory`` is its own, ``shared`` that of all connections of the mutant."""

    def __init__(self, mutant: Nfs4Mutant, shared: dict[str, Any]) -> None:
        self.mutant = mutant
        self.shared = shared
        self.memory: dict[str, Any] = {}
        self.calls: dict[int, COMPOUND4args] = {}

    def to_target(self, pdu: bytes) -> list[bytes]:
        try:
            message, source = decode_message(body_of(pdu))
            body = message.body.value
            if not isinstance(body, call_body) or body.proc != COMPOUND.number:
                return [pdu]
            if ARRANGES in body.cred.body and not self.mutant.everywhere:
                return [pdu]
            header = source.data[: source.offset]
        except RemoteProtocolError:
            return [pdu]
        try:
            arguments = COMPOUND4args.unpack(source)
        except RemoteProtocolError:  # an operation that is not defined
            self.calls[message.xid] = COMPOUND4args(b"", 0, ())
            return [pdu]
        self.calls[message.xid] = arguments
        if self.mutant.request is None:
            return [pdu]
        changed = self.mutant.request(self, arguments)
        return [pdu] if changed == arguments else [frame(header + encode(COMPOUND4args, changed).data)]

    def to_host(self, pdu: bytes) -> list[bytes]:
        data = body_of(pdu)
        arguments = self.calls.pop(int.from_bytes(data[:4], "big"), None)
        if self.mutant.callback is not None:
            return self._called(pdu, data)
        if arguments is None:
            return [pdu]
        try:
            message, source = decode_message(data)
            body = message.body.value.value
            if not isinstance(body, accepted_reply) or body.reply.stat != accept_stat.SUCCESS:
                return [pdu]
            results = COMPOUND4res.unpack(source)
        except RemoteProtocolError:
            return [pdu]
        changed = self._changed(arguments, results)
        if changed == results:
            return [pdu]
        return [frame(encode_reply(message.xid, COMPOUND, changed).data)]

    def _called(self, pdu: bytes, data: bytes) -> list[bytes]:
        try:
            message, source = decode_message(data)
            body = message.body.value
            if not isinstance(body, call_body) or body.proc != CB_COMPOUND.number:
                return [pdu]
            header = source.data[: source.offset]
            given = CB_COMPOUND4args.unpack(source)
        except RemoteProtocolError:
            return [pdu]
        assert self.mutant.callback is not None
        changed = self.mutant.callback(self, given)
        if changed is None:
            return []
        return [pdu] if changed == given else [frame(header + encode(CB_COMPOUND4args, changed).data)]

    def _changed(self, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        if self.mutant.compound is not None:
            return self.mutant.compound(self, arguments, results)
        if self.mutant.result is None:
            return results
        out = []
        for one, given in zip(results.resarray, (*arguments.argarray, *results.resarray), strict=False):
            name = one.resop.name.removeprefix("OP_")
            concerned = not self.mutant.operations or name in self.mutant.operations
            value = self.mutant.result(self, given.value, one.value) if concerned else one.value
            out.append(replace(one, value=value))
            if status_of(out[-1]) != nfsstat4.NFS4_OK:
                break
        if tuple(out) == results.resarray:
            return results
        return replace(results, status=status_of(out[-1]), resarray=tuple(out))


def put(value: Any, path: str, new: Any) -> Any:
    """Return ``value`` with the field at ``path`` replaced; a callable ``new`` is given the old value.

    A field that is None, because the operation failed, remains.
    """
    name, _, rest = path.partition(".")
    old = getattr(value, name)
    if old is None and (rest or name == "value"):
        return value
    return replace(value, **{name: put(old, rest, new) if rest else new(old) if callable(new) else new})


def failed(result: Any, status: nfsstat4) -> Any:
    """Return the result of the same operation with another status than NFS4_OK."""
    if isinstance(result, Union):
        made: Any = type(result)
        return made(status)
    return replace(result, **{type(result).FIELDS[0][0]: status})


def of(result: Any) -> nfsstat4:
    """Return the status of an operation's result."""
    name = result.DISCRIMINANT[0] if isinstance(result, Union) else result.FIELDS[0][0]
    found: nfsstat4 = getattr(result, name)
    return found


def wrong_error(row: str, operations: str, *statuses: str) -> None:
    """Register a mutant that ends ``operations`` with NFS4ERR_SERVERFAULT instead of one of ``statuses``."""
    wanted = {nfsstat4[f"NFS4ERR_{one}"] for one in statuses}

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        return failed(result, nfsstat4.NFS4ERR_SERVERFAULT) if of(result) in wanted else result

    mutant(row, *operations.split())(change)


def refuses(row: str, operations: str) -> None:
    """Register a mutant that ends ``operations`` with NFS4ERR_SERVERFAULT instead of NFS4_OK."""

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        return failed(result, nfsstat4.NFS4ERR_SERVERFAULT) if of(result) == nfsstat4.NFS4_OK else result

    mutant(row, *operations.split())(change)


def field_of(row: str, operation: str, path: str, new: Any) -> None:
    """Register a mutant that replaces one field of the result of a successful ``operation``."""

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        return put(result, path, new) if of(result) == nfsstat4.NFS4_OK else result

    mutant(row, operation)(change)


def opname(one: Any) -> str:
    """Return the name of an operation or a result without OP\\_."""
    found: nfs_opnum4 = getattr(one, "argop", None) or one.resop
    return found.name.removeprefix("OP_")
