"""The proxied connection of the SMB2 mutants, and how they are registered.

A mutant changes responses (``change``), or requests (``request``): a request without a flag is a server that
ignores the flag. A signed or encrypted message passes as it came, except where its protection is what a
mutant breaks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mutant_row import cells
from proxy import Rewrite

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import compression, crypto
from storagetest.wire.smb2.codes import ContextType, Flags, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, decode, response, split_compound
from storagetest.wire.smb2.stream import Frames, frame

Change = Callable[["SmbProxyConnection", SmbMessage], "bytes | None"]


@dataclass
class SmbMutant:
    name: str
    section: str
    description: str
    change: Change
    protected: bool = False
    """Whether it changes signed responses, too."""
    encrypted: bool = False
    keeps_open: bool = False
    kind: str | None = None
    request: Change | None = None
    """Changes requests."""
    compressed: Callable[[bytes], bytes] | None = None
    """Changes compressed responses, as frames."""
    compressed_request: Callable[[bytes], bytes] | None = None

    def rewrites(self) -> Callable[[], SmbProxyConnection]:
        shared: dict[str, Any] = {}
        return lambda: SmbProxyConnection(self, shared)


MUTANTS: dict[str, SmbMutant] = {}


def mutant(row: str, **more: Any) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        name, *words = cells(row)
        assert name not in MUTANTS, name
        MUTANTS[name] = SmbMutant(name, *words, change=change, **more)
        return change

    return register


class SmbProxyConnection(Rewrite):
    """One proxied connection; ``shared`` is that of all connections of the mutant."""

    def __init__(self, mutant: SmbMutant, shared: dict[str, Any]) -> None:
        self.mutant, self.shared = mutant, shared
        self._frames, self._lost = Frames(), False
        self._requests = Frames()
        self.asked: dict[int, SmbMessage] = {}
        """The requests that are not encrypted, by message id."""

    def changed(self, given: bytes, out: list[bytes]) -> bool:
        return False  # noted by to_host: what is given here is no frame but a piece of the stream

    def to_host(self, pdu: bytes) -> list[bytes]:
        if self._lost:
            return [pdu]
        self._frames.receive_data(pdu)
        out = []
        try:
            while (data := self._frames.next_frame()) is not None:
                new = self._frame(data)
                self.acted = self.acted or new != data
                if new:
                    out.append(frame(new))
        except RemoteProtocolError:
            self._lost = True
            out.append(self._frames.pending)
        return out

    def to_target(self, pdu: bytes) -> list[bytes]:
        self._requests.receive_data(pdu)
        out = []
        while (data := self._requests.next_frame()) is not None:
            try:
                new = self._asked(data)
            except RemoteProtocolError:
                new = data  # a case sends what has no form
            self.acted = self.acted or new != data
            if new or not data:
                out.append(frame(new))
        return out

    def _asked(self, data: bytes) -> bytes:
        if data[:4] == crypto.TRANSFORM_ID:
            return data
        if data[:4] == compression.COMPRESSED_ID:
            change = self.mutant.compressed_request
            return change(data) if change else data
        return self._ask(data)

    def _ask(self, data: bytes) -> bytes:
        out = b""
        for part in split_compound(data):
            message = decode(part)
            self.asked[message["message_id"]] = message
            change = self.mutant.request
            out += part if change is None or message.flags & Flags.SIGNED else change(self, message) or b""
        return out

    def passes_close(self, *, from_target: bool) -> bool:
        return not (from_target and self.mutant.keeps_open)

    def _frame(self, data: bytes) -> bytes:
        if data[:4] == crypto.TRANSFORM_ID:
            return data[:-1] + bytes([data[-1] ^ 1]) if self.mutant.encrypted else data
        if data[:4] == compression.COMPRESSED_ID:
            return self.mutant.compressed(data) if self.mutant.compressed else data
        return b"".join(self._message(part) for part in split_compound(data))

    def _message(self, part: bytes) -> bytes:
        message = decode(part)
        if message.flags & Flags.SIGNED and not self.mutant.protected:
            return part
        changed = self.mutant.change(self, message)
        return b"" if changed is None else changed


def same(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return message.raw


def sets(row: str, command: SmbCommand, *, kind: str | None = None, **more: Any) -> None:
    """A mutant that sets fields of the successful responses to ``command``."""

    @mutant(row, kind=kind)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command or message.is_error or message.status:
            return message.raw
        values = {name: value(message) if callable(value) else value for name, value in more.items()}
        return message.encoded().override(**values).data


def asks(row: str, command: SmbCommand, **more: Any) -> None:
    """A mutant that sets fields of the requests of ``command``; a callable gets the request."""

    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command:
            return message.raw
        values = {name: value(message) if callable(value) else value for name, value in more.items()}
        return message.encoded().override(**values).data

    mutant(row, request=change)(same)


def requests(row: str, *, kind: str | None = None) -> Callable[[Change], Change]:
    """Register the function as a mutant that changes requests."""

    def register(change: Change) -> Change:
        mutant(row, request=change, kind=kind)(same)
        return change

    return register


def put(data: bytes, at: int, piece: bytes) -> bytes:
    """Return ``data`` with ``piece`` at ``at``."""
    return data[:at] + piece + data[at + len(piece) :]


def context_at(message: SmbMessage, *names: bytes) -> int:
    """Return where the data of a create context begins in the message, or 0."""
    if message.command != SmbCommand.CREATE or message.is_error:
        return 0
    found = [at for name in names if (at := message.raw.find(name, 64)) > 0]
    return found[0] + 8 if found else 0


def accepts(name: str, command: SmbCommand, section: str, *, kind: str | None = None) -> None:
    """A mutant whose server seems to execute what it refuses."""

    @mutant(
        f"{name} | MS-SMB2 {section} | a {command.name} that is refused seems to succeed",
        protected=True,
        kind=kind,
    )
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command or not message.is_error or message.status == SmbStatus.PENDING:
            return message.raw
        keys = ("credit_charge", "credits", "message_id", "session_id")
        kept = {key: message.header[key] for key in keys}
        return response(command).override(**kept, tree_id=message.header.get("tree_id", 0)).data


def other_status(name: str, command: SmbCommand, section: str, *, kind: str | None = None) -> None:
    """A mutant whose server refuses with another status."""

    @mutant(f"{name} | MS-SMB2 {section} | a {command.name} is refused with STATUS_UNSUCCESSFUL", kind=kind)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command != command or not message.is_error or message.status == SmbStatus.PENDING:
            return message.raw
        return message.encoded().override(status=SmbStatus.UNSUCCESSFUL).data


def negotiate_context_at(message: SmbMessage, kind: ContextType) -> int:
    """Return where the data of a negotiate context begins in a response of 3.1.1, or 0."""
    if message.command != SmbCommand.NEGOTIATE or message.is_error or message["dialect"] != 0x0311:
        return 0
    offset = int(message["context_offset"])
    for _ in range(message["context_count"]):
        found, length = struct.unpack_from("<HH", message.raw, offset)
        if found == kind:
            return offset + 8
        offset += 8 + length + (-length % 8)
    return 0
