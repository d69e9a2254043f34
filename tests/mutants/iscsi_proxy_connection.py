"""One proxied iSCSI connection for a mutant: PDUs cut apart, commands remembered, digests kept right.

A mutant is two functions, ``reply(talk, pdu)`` for what the target sends and ``request(talk, pdu)`` for what the
initiator sends. Each returns what goes on: the PDU itself (then its bytes pass untouched), another PDU, an
encoded one (``Parts``), raw bytes, a list of these, or None for nothing. What cannot be cut passes as it came,
so an honest talk is a wire.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mutant_row import cells
from proxy import Rewrite

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.connection import Frame, Framer
from storagetest.wire.iscsi.encoding import EncodedPdu, Pdu
from storagetest.wire.iscsi.keys import outcome, parse_text
from storagetest.wire.iscsi.pdu import DataOut, LoginRequest, LoginResponse, ScsiCommand, TaskRequest, decode

Out = Any
Change = Callable[["ProxyConnection", Pdu], Out]


def honest(talk: ProxyConnection, pdu: Pdu) -> Out:
    return pdu


@dataclass
class IscsiMutant:
    name: str
    section: str
    description: str
    reply: Change = honest
    request: Change = honest
    kind: str | None = None
    keeps_open: bool = False
    spoil: dict[str, int] = field(default_factory=dict)
    padding: bytes | None = None

    def rewrites(self) -> Callable[[], ProxyConnection]:
        """Return what makes the talk of each connection; they share what the mutant remembers of all."""
        shared: dict[str, Any] = {}
        return lambda: ProxyConnection(self, shared)


MUTANTS: dict[str, IscsiMutant] = {}


def mutant(row: str, **more: Any) -> Callable[[Change], Change]:
    """Register a mutant that changes the target's PDUs."""
    return _registering("reply", row, **more)


def on_request(row: str, **more: Any) -> Callable[[Change], Change]:
    """Register a mutant that changes the initiator's PDUs before the target sees them."""
    return _registering("request", row, **more)


def _registering(direction: str, row: str, **more: Any) -> Callable[[Change], Change]:
    name, *words = cells(row)

    def register(change: Change) -> Change:
        assert name not in MUTANTS, name
        MUTANTS[name] = IscsiMutant(name, *words, **{direction: change}, **more)
        return change

    return register


class ProxyConnection(Rewrite):
    """A connection. ``memory`` is its own, ``shared`` that of all connections of the mutant."""

    def __init__(self, mutant: IscsiMutant, shared: dict[str, Any]) -> None:
        self.mutant = mutant
        self.shared = shared
        self.memory: dict[str, Any] = {}
        self.commands: dict[int, ScsiCommand] = {}
        self.tasks: dict[int, TaskRequest] = {}
        self.login: LoginRequest | None = None
        self.offered: list[tuple[str, str]] = []
        self.replied: list[tuple[str, str]] = []
        self.name = ""
        self.digests = (False, False)
        self.last: Pdu | None = None
        self._in, self._out = Framer(), Framer()
        self._lost = {True: False, False: False}

    @property
    def cdb(self) -> Callable[[Pdu], bytes]:
        return lambda pdu: self.commands[pdu.itt].cdb if pdu.itt in self.commands else b"\xff" * 16

    @property
    def active(self) -> bool:
        """Not on the connection on which the suite asks for the unit's facts."""
        return not self.name.endswith(":facts")

    def to_host(self, chunk: bytes) -> list[bytes]:
        if self._lost[True]:
            return [chunk]
        self._in.receive_data(chunk)
        out: list[bytes] = []
        try:
            while isinstance(frame := self._in.next_frame(), Frame):
                pdu = decode(frame.bhs, frame.ahs, frame.data)
                if isinstance(pdu, LoginResponse):
                    self.replied += parse_text(pdu.data)
                changed = self.mutant.reply(self, pdu) if self.active else pdu
                out += self.encoded(changed, pdu, frame.raw)
                self.last = pdu
                self._after_login(pdu)
        except RemoteProtocolError:
            self._lost[True] = True
            out.append(self._in.pending)
        return out

    def changed(self, given: bytes, out: list[bytes]) -> bool:
        """Noted by :meth:`encoded`: what is given here is no PDU but a piece of the stream."""
        return False

    def to_target(self, chunk: bytes) -> list[bytes]:
        if self._lost[False]:
            return [chunk]
        self._out.receive_data(chunk)
        out: list[bytes] = []
        rewrites = self.mutant.request is not honest and self.active
        try:
            while isinstance(frame := self._out.next_frame(), Frame):
                self._see(frame)
                if rewrites:
                    out += self._changed(frame)
        except RemoteProtocolError:
            self._lost[False] = True
            if rewrites:
                out.append(self._out.pending)
        return out if rewrites else [chunk]

    def passes_close(self, *, from_target: bool) -> bool:
        return not (from_target and self.mutant.keeps_open and self.active)

    def inject_to_initiator(self, *pdus: Pdu | EncodedPdu) -> None:
        """Send something to the initiator, out of turn."""
        for pdu in pdus:
            self.send_to_host(self.wire(pdu))

    def answer(self, request: Any, kind: type[Pdu], **values: Any) -> None:
        """Send the initiator a response to ``request`` with the command window of the target's last PDU."""
        last: Any = self.last
        window = {"exp_cmd_sn": last.exp_cmd_sn, "max_cmd_sn": last.max_cmd_sn}
        self.inject_to_initiator(kind(**{"itt": request.itt, **window, **values}))

    def inject_to_target(self, *pdus: Pdu) -> None:
        """Send something to the target, out of turn."""
        for pdu in pdus:
            self.send_to_target(self.wire(pdu))

    def wire(self, pdu: Pdu | EncodedPdu, **spoil: Any) -> bytes:
        parts = pdu if isinstance(pdu, EncodedPdu) else pdu.parts()
        header, data = self.digests
        return parts.wire(header_digest=header, data_digest=data, **spoil)

    def encoded(self, changed: Out, pdu: Pdu, raw: bytes) -> list[bytes]:
        """Return what goes on, and note whether it is anything else than what came."""
        out = self._encoded(changed, pdu, raw)
        self.acted = self.acted or b"".join(out) != raw
        return out

    def _encoded(self, changed: Out, pdu: Pdu, raw: bytes) -> list[bytes]:
        if changed is None:
            return []
        if isinstance(changed, list):
            return [data for one in changed for data in self._encoded(one, pdu, raw)]
        if isinstance(changed, bytes):
            return [changed]
        if changed is pdu and not self.mutant.spoil and self.mutant.padding is None:
            return [raw]
        more: dict[str, Any] = dict(self.mutant.spoil) if self.active else {}
        if self.mutant.padding is not None and self.active:
            more["padding"] = self.mutant.padding * (-len(changed.data) % 4)
        return [self.wire(changed, **more)]

    def _changed(self, frame: Frame) -> list[bytes]:
        try:
            pdu = decode(frame.bhs, frame.ahs, frame.data)
        except RemoteProtocolError:
            return [frame.raw]
        self.memory["frame"] = frame
        return self.encoded(self.mutant.request(self, pdu), pdu, frame.raw)

    def _see(self, frame: Frame) -> None:
        try:
            pdu = decode(frame.bhs, frame.ahs, frame.data)
        except RemoteProtocolError:
            return
        if isinstance(pdu, ScsiCommand):
            self.commands[pdu.itt] = pdu
        elif isinstance(pdu, TaskRequest):
            self.tasks[pdu.itt] = pdu
        elif isinstance(pdu, LoginRequest):
            self.login = pdu
            try:
                self.offered += parse_text(pdu.data)
            except RemoteProtocolError:
                return
            self.name = dict(self.offered).get("InitiatorName", self.name)

    def _after_login(self, pdu: Pdu) -> None:
        if (
            not isinstance(pdu, LoginResponse)
            or not pdu.transit
            or pdu.nsg != Stage.FULL_FEATURE
            or pdu.status
        ):
            return
        held = outcome(self.offered, self.replied)
        self.digests = (held["HeaderDigest"] == "CRC32C", held["DataDigest"] == "CRC32C")
        for stream in (self._in, self._out):
            stream.header_digest, stream.data_digest = self.digests

    def data_out(self, r2t: Any, data: bytes) -> list[DataOut]:
        """The answer to an R2T, as an initiator would give it."""
        end = r2t.buffer_offset + r2t.desired_length
        piece = data[r2t.buffer_offset : end].ljust(r2t.desired_length, b"\0")
        return [
            DataOut(
                itt=r2t.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, final=at + 8192 >= len(piece),
                buffer_offset=r2t.buffer_offset + at, data=piece[at : at + 8192],
            )
            for number, at in enumerate(range(0, len(piece), 8192))
        ]  # fmt: skip
