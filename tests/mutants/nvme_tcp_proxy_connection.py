"""A rewrite that understands NVMe/TCP: it follows the connection, and one rule of a mutant's changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from proxy import Rewrite, Splitter

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.codes import FABRICS, Fctype
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp import pdu as pdus
from storagetest.wire.nvme_tcp.stream import NEED_DATA, Digests, Stream, StreamRole, make_splitter

Item = bytes | pdus.Pdu
Rule = Callable[["ProxyConnection", pdus.DecodedPdu], Iterable[Item] | None]
"""What goes on instead of a PDU; None: the PDU itself."""


class Delivered(bytes):
    """A PDU as it has come: in how many parts, and whether its first one came together with another PDU."""

    parts: int = 1
    joined: bool = False


def splitter(from_target: bool) -> Splitter:
    """Cut either direction; framing is the same. The PDUs are :class:`Delivered`."""
    split, begun, parts, joined = make_splitter(), 0, 0, False

    def delivered(data: bytes) -> list[bytes]:
        """``begun``: bytes of the PDU that is not complete yet, which have come in ``parts``."""
        nonlocal begun, parts, joined
        out = []
        left = begun + len(data)
        for pdu in split(data):
            one = Delivered(pdu)
            one.parts, one.joined = parts + 1, joined
            out.append(one)
            left -= len(pdu)
            parts, joined = 0, True
        begun = left
        parts, joined = (parts + 1 if left else 0), joined and bool(left)
        return list(out)

    return delivered


@dataclass
class ProxyConnection(Rewrite):
    """``of_target`` and ``of_host`` are asked about every PDU; ``bad`` about host PDUs that break a rule.

    ``commands`` are those outstanding, by CID; ``r2ts`` those unanswered, by TTAG; ``memory`` is the rule's.
    """

    of_target: Rule | None = None
    of_host: Rule | None = None
    bad: Callable[[ProxyConnection, bytes, pdus.PduError], Iterable[bytes]] | None = None
    digests: Digests = field(default_factory=Digests)
    icreq: pdus.ICReq = field(default_factory=pdus.ICReq)
    icresp: pdus.ICResp = field(default_factory=pdus.ICResp)
    commands: dict[int, Command] = field(default_factory=dict)
    r2ts: dict[int, pdus.R2T] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    qid: int = 0
    arrived: Delivered = field(default_factory=Delivered)  # the PDU of the host that the rule is asked about

    def __post_init__(self) -> None:
        self._judge = Stream(StreamRole.CONTROLLER, limit=1 << 20)

    def to_target(self, pdu: bytes) -> Iterable[bytes]:
        if isinstance(pdu, Delivered):
            self.arrived = pdu
        if self.bad is not None:
            self._judge.digests = self.digests if self.memory.get("ready") else None
            self._judge.receive_data(pdu)
            try:
                while self._judge.next_event() is not NEED_DATA:
                    pass
            except pdus.PduError as error:
                state, self._judge = self._judge.state, Stream(StreamRole.CONTROLLER, limit=1 << 20)
                self._judge.state = state
                return list(self.bad(self, pdu, error))
        try:
            received = pdus.decode(pdu)
        except pdus.PduError:
            return (pdu,)
        self._follow_host(received)
        return self._items(self.of_host, received, alignment=self.icresp.cpda)

    def to_host(self, pdu: bytes) -> Iterable[bytes]:
        try:
            received = pdus.decode(pdu)
        except pdus.PduError:
            return (pdu,)
        if isinstance(received.pdu, pdus.ICResp):
            self.icresp = received.pdu
            self.digests = Digests(
                self.icreq.header_digest and received.pdu.header_digest,
                self.icreq.data_digest and received.pdu.data_digest,
            )
            self.memory["ready"] = True
        elif isinstance(received.pdu, pdus.R2T):
            self.r2ts[received.pdu.ttag] = received.pdu
        out = self._items(self.of_target, received, alignment=self.icreq.hpda)
        if isinstance(received.pdu, pdus.CapsuleResp):
            self.commands.pop(Cqe.decode(received.pdu.cqe).cid, None)
        return out

    def _follow_host(self, received: pdus.DecodedPdu) -> None:
        match received.pdu:
            case pdus.ICReq() as icreq:
                self.icreq = icreq
            case pdus.CapsuleCmd(sqe):
                command = Command.decode(sqe)
                self.commands[command.cid] = command
                if command.opcode == FABRICS and command.nsid & 0xFF == Fctype.CONNECT:
                    self.qid = command.cdw10 >> 16
            case pdus.H2CData(ttag=ttag, last=True):
                self.memory["last ttag"] = ttag
                self.r2ts.pop(ttag, None)

    def _items(self, rule: Rule | None, received: pdus.DecodedPdu, *, alignment: int) -> list[bytes]:
        try:
            items = rule(self, received) if rule else None
        except RemoteProtocolError:
            items = None
        if items is None:
            return [received.raw]
        return [item if isinstance(item, bytes) else self.encode(item, alignment) for item in items]

    def encode(self, pdu: pdus.Pdu, alignment: int = 0) -> bytes:
        """Return the bytes with the connection's digests."""
        return pdus.encode(
            pdu, header_digest=self.digests.header, data_digest=self.digests.data, alignment=alignment
        )

    def reply(self, cqe: Cqe) -> None:
        """Answer the host in the target's place."""
        self.commands.pop(cqe.cid, None)
        self.send_to_host(self.encode(pdus.CapsuleResp(cqe.encode())))

    def command_of(self, received: pdus.DecodedPdu) -> Command | None:
        """Return the command that a response or data belongs to."""
        match received.pdu:
            case pdus.CapsuleResp(raw):
                return self.commands.get(Cqe.decode(raw).cid)
            case pdus.C2HData(cccid=cid) | pdus.R2T(cccid=cid) | pdus.H2CData(cccid=cid):
                return self.commands.get(cid)
        return None
