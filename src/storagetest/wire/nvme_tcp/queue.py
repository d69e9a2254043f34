"""One NVMe/TCP connection and its queue, from the host's side: send PDUs, run commands, check the controller.

:meth:`Queue.run` follows the standard and checks the controller; a broken rule raises
:class:`~storagetest.errors.RemoteProtocolError` with its section. :meth:`Queue.send` (with an override after
encoding) and :meth:`Queue.send_raw` break rules on purpose, and :meth:`Queue.wait_for_close` returns the
controller's reaction.

Rules that are always checked:

- R2T (3.3.2.2, 3.6.2.10): of a command that is outstanding and has data for it; each begins at the end of the
  last one; inside the transfer; never of zero bytes. (MAXR2T can be checked only by a host that sends no
  data; a case does so.)
- C2HData (3.3.2.1, 3.6.2.9): of a command that is outstanding; each begins at the end of the last one; inside
  the transfer; LAST_PDU on the last and on none before; SUCCESS only with LAST_PDU. (SUCCESS requires a
  controller that supports disabling SQ flow control, which one command does not show; a case checks it.)
- CapsuleResp (3.6.2.7): of a command that is outstanding, once.
- Reserved fields of every PDU are noted in :attr:`Queue.faults`, because no command fails of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.nvme.command import Command, Cqe, in_capsule, transport_sgl
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    H2CData,
    ICReq,
    ICResp,
    Pdu,
    PduError,
    encode,
)
from storagetest.wire.nvme_tcp.reserved import completion_faults, pdu_faults
from storagetest.wire.nvme_tcp.stream import Digests, EndOfStream, NeedData, Stream, StreamRole
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

TRANSFER = 6.0
"""Timeout of a command with its transfers, as a multiple of the deadline of one response (chosen)."""
ADMIN_IN_CAPSULE = 8192
"""Bytes of in-capsule data that every controller accepts on the admin queue (3.3.1)."""

Override = Callable[[bytes], bytes]
"""Returns a changed copy of an encoded PDU."""


class Terminated(RemoteProtocolError):  # what happened, in the case's words
    """The controller sent a C2HTermReq instead of a response."""

    def __init__(self, message: str, pdu: C2HTermReq) -> None:
        super().__init__(message)
        self.pdu = pdu


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: its queue entry, the data it returned, and its PDUs in order."""

    cqe: Cqe
    data: bytes
    pdus: tuple[DecodedPdu, ...]

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.cqe.ok

    @property
    def status(self) -> int:
        """Status code type << 8 | status code."""
        return self.cqe.status

    def pdus_of(self, kind: type) -> list[DecodedPdu]:
        """Return the PDUs of one class."""
        return [received for received in self.pdus if isinstance(received.pdu, kind)]


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """How a controller ended a connection: ``term`` if it sent a C2HTermReq, and how it closed.

    ``closed`` is None if it had not closed yet; ``before`` are the PDUs that came first.
    """

    term: DecodedPdu | None
    closed: str | None
    before: tuple[DecodedPdu, ...] = ()

    @property
    def request(self) -> C2HTermReq | None:
        """The C2HTermReq itself."""
        return self.term.pdu if self.term and isinstance(self.term.pdu, C2HTermReq) else None

    @property
    def ended(self) -> bool:
        """Whether the controller has ended this connection."""
        return self.term is not None or self.closed is not None

    def __str__(self) -> str:
        term = (
            f"C2HTermReq FES {self.request.fes:02x}h FEI {self.request.fei:#x}"
            if self.request
            else "no C2HTermReq"
        )
        shut = f"closed ({self.closed})" if self.closed else "not closed"
        others = "".join(f", {type(received.pdu).__name__}" for received in self.before)
        return f"{term}, {shut}" + (f", after{others[1:]}" if others else "")


@dataclass
class _Transfer:
    """A command that is outstanding."""

    command: Command
    to_send: bytes
    expected: int
    requested: int = 0  # bytes, by R2T
    got: bytearray = field(default_factory=bytearray)
    last_seen: bool = False
    pdus: list[DecodedPdu] = field(default_factory=list)
    cqe: Cqe | None = None


class Queue:
    """A connection after its ICResp. Create it with :meth:`open`."""

    def __init__(self, link: RecordedConnection, icreq: ICReq, *, deadline: float) -> None:
        self.link = link
        self.icreq = icreq
        self.deadline = deadline
        self.close_timeout = deadline
        """Seconds that :meth:`wait_for_close` waits."""
        self.stream = Stream(StreamRole.HOST)
        self.stream.alignment = icreq.hpda
        self.icresp = ICResp()
        self.qid = 0
        self.sqsize: int | None = None
        """Entries of the submission queue, zero's based, after its Connect."""
        self.faults: list[str] = []
        """A sentence for each reserved field that the controller has set, in any PDU (:mod:`.reserved`)."""
        self.in_capsule_limit = ADMIN_IN_CAPSULE
        self.sq_flow_control = True
        self._cids = 0
        self._open: dict[int, _Transfer] = {}

    @classmethod
    def open(cls, link: RecordedConnection, icreq: ICReq | None = None, *, deadline: float = 10.0) -> Queue:
        """Send ``icreq`` and receive the ICResp. ``deadline`` in seconds, also for later responses."""
        queue = cls(link, icreq or ICReq(), deadline=deadline)
        queue.link.send(encode(queue.icreq))
        received = queue.receive()
        if isinstance(received.pdu, C2HTermReq):
            raise queue.terminated_error(received.pdu)
        assert isinstance(received.pdu, ICResp)  # the stream's table lets nothing else through
        queue.apply_icresp(received.pdu)
        return queue

    def apply_icresp(self, icresp: ICResp) -> None:
        """Use the parameters of ``icresp`` from here on (3.3.1.1)."""
        self.icresp = icresp
        self.stream.digests = Digests(
            header=icresp.header_digest and self.icreq.header_digest,
            data=icresp.data_digest and self.icreq.data_digest,
        )

    @property
    def digests(self) -> Digests:
        """The digests in use."""
        return self.stream.digests or Digests()

    # Sending

    def encode(self, pdu: Pdu) -> bytes:
        """Return the bytes of ``pdu`` with the digests and the alignment that were negotiated."""
        return encode(
            pdu, header_digest=self.digests.header, data_digest=self.digests.data, alignment=self.icresp.cpda
        )

    def send(self, pdu: Pdu, *, override: Override | None = None) -> bytes:
        """Send ``pdu``, changed by ``override`` after encoding; return the sent bytes."""
        raw = self.encode(pdu)
        raw = override(raw) if override else raw
        self.send_raw(raw)
        return raw

    def send_raw(self, raw: bytes) -> None:
        """Send bytes as they are."""
        self.link.send(raw, deadline=self.deadline)

    def next_cid(self) -> int:
        """Return a command identifier that is not outstanding."""
        while True:
            self._cids = self._cids % 0xFFFE + 1
            if self._cids not in self._open:
                return self._cids

    def submit(
        self,
        command: Command,
        *,
        data: bytes = b"",
        reads: int = 0,
        inside: bool | None = None,
        dptr: bytes | None = None,
        override: Override | None = None,
    ) -> int:
        """Send a command and return its CID (a new one, unless the command has one).

        ``data`` is sent in the capsule if it fits, or as ``inside`` requests. ``reads`` is the expected
        length of returned data in bytes. ``dptr`` overrides the SGL that follows from these.
        """
        cid = command.cid or self.next_cid()
        inside = len(data) <= self.in_capsule_limit if inside is None else inside
        pointer = command.dptr
        if data and inside:
            pointer = in_capsule(len(data))
        elif data or reads:
            pointer = transport_sgl(len(data) or reads)
        command = replace(command, cid=cid, dptr=pointer if dptr is None else dptr)
        self._open[cid] = _Transfer(command, to_send=b"" if inside else data, expected=reads)
        self.send(CapsuleCmd(command.encode(), data if inside else b""), override=override)
        return cid

    # Receiving

    def receive(self, *, deadline: float | None = None) -> DecodedPdu:
        """Return the controller's next PDU. Raises PeerClosed, PduError, or ResponseTimeout."""
        until = time.monotonic() + (self.deadline if deadline is None else deadline)
        while True:
            event = self.stream.next_event()
            if isinstance(event, DecodedPdu):
                self._look_at(event)
                return event
            if isinstance(event, EndOfStream):
                unfinished = f"; unfinished: {hex_short(event.leftover)}" if event.leftover else ""
                raise PeerClosed(
                    f"{self.link.peer}: closed ({self.link.closed_how}) before a response; "
                    f"last sent: {hex_short(self.link.last(outgoing=True))}{unfinished}"
                )
            assert isinstance(event, NeedData)
            self.stream.receive_data(self.link.receive(deadline=until - time.monotonic()))

    def wait(self, cid: int, *, deadline: float | None = None) -> CommandResult:
        """Carry out transfers until command ``cid`` is complete. Also handles the PDUs of other commands.

        ``deadline`` in seconds is for all of them. Without it, each PDU comes within the queue's deadline,
        and the last one within :data:`TRANSFER` times as long: a busy controller may ask for many parts.
        """
        until = time.monotonic() + (self.deadline * TRANSFER if deadline is None else deadline)
        while True:
            transfer = self._open[cid]
            if transfer.cqe is not None:
                del self._open[cid]
                return CommandResult(transfer.cqe, bytes(transfer.got), tuple(transfer.pdus))
            left = max(until - time.monotonic(), 0.001)
            self._handle(self.receive(deadline=min(left, self.deadline) if deadline is None else left))

    def status_of(self, cid: int) -> int | None:
        """Return the status of a command whose completion has come, None while it is outstanding."""
        transfer = self._open[cid]
        return None if transfer.cqe is None else transfer.cqe.status

    def run(
        self, command: Command, *, data: bytes = b"", reads: int = 0, inside: bool | None = None
    ) -> CommandResult:
        """Submit a command and wait for its completion."""
        return self.wait(self.submit(command, data=data, reads=reads, inside=inside))

    def what_follows(self, *, deadline: float) -> str:
        """Return what comes after a C2HTermReq within ``deadline`` seconds; "" for nothing, or the close.

        Bytes that are no PDU count as well.
        """
        try:
            received = self.receive(deadline=deadline)
        except (PeerClosed, ResponseTimeout):
            left = self.stream.unfinished
            return f"{left} bytes of no PDU" if left else ""
        except PduError as error:  # the stream's table lets no PDU through
            return str(error)
        return type(received.pdu).__name__

    def wait_for_close(self, *, deadline: float | None = None) -> ConnectionEnd:
        """Wait for the controller to end the connection, with a C2HTermReq or without."""
        until = time.monotonic() + (self.close_timeout if deadline is None else deadline)
        before: list[DecodedPdu] = []
        while True:
            try:
                received = self.receive(deadline=max(until - time.monotonic(), 0.001))
            except PeerClosed:
                return ConnectionEnd(None, self.link.closed_how, tuple(before))
            except ResponseTimeout:
                return ConnectionEnd(None, None, tuple(before))
            if isinstance(received.pdu, C2HTermReq):
                return ConnectionEnd(received, self.link.closed_how, tuple(before))
            before.append(received)

    def terminated_error(self, term: C2HTermReq) -> Terminated:
        """Return the error for a C2HTermReq instead of a response."""
        return Terminated(
            f"{self.link.peer}: C2HTermReq FES {term.fes:02x}h FEI {term.fei:#x} instead of a response; "
            f"it carries {hex_short(term.data)}",
            term,
        )

    def forget(self, cid: int) -> None:
        """Expect no more PDUs of command ``cid``."""
        self._open.pop(cid, None)

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self.link.close()

    # Checks of the controller's PDUs

    def _look_at(self, received: DecodedPdu) -> None:
        """Note what is set in a reserved field of a PDU or of its completion queue entry."""
        self.faults += pdu_faults(received)
        if isinstance(received.pdu, CapsuleResp):
            cqe = Cqe.decode(received.pdu.cqe)
            transfer = self._open.get(cqe.cid)
            command = transfer.command if transfer else None
            size = self.sqsize if self.sq_flow_control else None
            self.faults += completion_faults(cqe, command, qid=self.qid, sqsize=size)

    def _handle(self, received: DecodedPdu) -> None:
        match received.pdu:
            case CapsuleResp(raw):
                self._handle_response(Cqe.decode(raw), received)
            case C2HData() as data:
                self._handle_data(data, received)
            case R2T() as r2t:
                self._handle_r2t(r2t, received)
            case C2HTermReq() as term:
                raise self.terminated_error(term)
            case _:
                raise RemoteProtocolError(f"{received.pdu!r:.80} is no response: {hex_short(received.raw)}")

    def _transfer(self, cid: int, received: DecodedPdu) -> _Transfer:
        transfer = self._open.get(cid)
        name = type(received.pdu).__name__
        if transfer is None or transfer.cqe is not None:
            raise _broken(f"{name} of command {cid}, which is not outstanding", "3.6.2.7", received)
        transfer.pdus.append(received)
        return transfer

    def _handle_response(self, cqe: Cqe, received: DecodedPdu) -> None:
        transfer = self._transfer(cqe.cid, received)
        if cqe.ok and transfer.got and not transfer.last_seen:
            raise _broken(f"command {cqe.cid} is done, but no C2HData had LAST_PDU", "3.3.2.1", received)
        if cqe.ok and transfer.requested < len(transfer.to_send):
            total = len(transfer.to_send)
            reason = f"command {cqe.cid} is done; {transfer.requested} of {total} bytes were requested"
            raise _broken(reason, "3.3.2.2", received)
        transfer.cqe = cqe

    def _handle_data(self, pdu: C2HData, received: DecodedPdu) -> None:
        transfer = self._transfer(pdu.cccid, received)
        at, end = len(transfer.got), pdu.offset + len(pdu.data)
        if received.data_digest_ok is False:
            raise _broken("C2HData whose DDGST is wrong", "3.3.1.1", received)
        if transfer.last_seen:
            raise _broken("C2HData after the one with LAST_PDU", "3.3.2.1", received)
        if pdu.offset != at:
            raise _broken(f"C2HData at {pdu.offset}, but the last one ended at {at}", "3.3.2.1", received)
        if end > transfer.expected:
            raise _broken(
                f"C2HData up to {end} of a transfer of {transfer.expected} bytes", "3.3.2.1", received
            )
        transfer.got += pdu.data
        transfer.last_seen = pdu.last
        if pdu.success and not pdu.last:
            raise _broken("C2HData with SUCCESS but without LAST_PDU", "3.3.2.1", received)
        if pdu.success:
            transfer.cqe = Cqe(pdu.cccid)

    def _handle_r2t(self, r2t: R2T, received: DecodedPdu) -> None:
        transfer = self._transfer(r2t.cccid, received)
        end = r2t.offset + r2t.length
        if r2t.offset != transfer.requested:
            raise _broken(
                f"R2T at {r2t.offset}, but the last one ended at {transfer.requested}", "3.3.2.2", received
            )
        if not r2t.length or end > len(transfer.to_send):
            raise _broken(
                f"R2T for {r2t.length} bytes up to {end} of {len(transfer.to_send)}", "3.3.2.2", received
            )
        transfer.requested = end
        for pdu in self.split_data(r2t, transfer.to_send[r2t.offset : end]):
            self.send(pdu)

    def split_data(self, r2t: R2T, data: bytes) -> list[H2CData]:
        """Return the H2CData PDUs for ``r2t``: none over MAXH2CDATA, the last with LAST_PDU."""
        step = max(self.icresp.maxh2cdata, 4)
        return [
            H2CData(r2t.cccid, r2t.ttag, r2t.offset + at, data[at : at + step], last=at + step >= len(data))
            for at in range(0, len(data), step)
        ]


def _broken(violation: str, section: str, received: DecodedPdu) -> RemoteProtocolError:
    return RemoteProtocolError(f"{violation} (NVMe/TCP {section}): {hex_short(received.raw)}")
