"""A small NVMe/TCP controller, written from the standard (NVMe/TCP 1.0; NVM Express Base 2.3).

It has one thread for each connection. It shares only the codecs with the suite (``wire.nvme_tcp.pdu`` and
``.stream``). As a program it serves until interrupted: ``python nvme_tcp_server.py [PORT]``.
"""

# ruff: noqa: C901, PLR0912, TRY301  # a rule of the standard is an `if` and a `raise`, side by side

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import threading
from dataclasses import dataclass, field, replace

from nvme_fused import compare_and_write
from nvme_namespace import Answer, CommandFailed, ControllerConfig, is_read, is_write
from nvme_subsystem import EVENTS, Controller, Subsystem

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp import pdu as pdus
from storagetest.wire.nvme_tcp.stream import Digests, EndOfStream, NeedData, Stream, StreamRole

NQN = "nqn.2024-01.example:second"
ADMIN_IN_CAPSULE = 8192
REFUSED, FIRST, SECOND = range(3)
"""FUSE of a command (Base 4.1.1); the key of a first half that was refused."""
ADMIN_SQSIZE = 4095
"""Largest SQSIZE of an admin queue, which CAP.MQES does not limit (Base 3.1.4.1)."""


@dataclass
class Transfer:
    """A command whose data is being transferred: one R2T at a time, or as many as MAXR2T allows."""

    command: Command
    length: int
    ttag: int
    asked: int = 0  # bytes asked for so far
    ends: dict[int, int] = field(default_factory=dict)  # TTAG of each outstanding R2T → where its data end
    got: bytearray = field(default_factory=bytearray)
    damaged: bool = False


class Connection:
    """One TCP connection: a queue."""

    def __init__(self, sock: socket.socket, subsystem: Subsystem, port: int) -> None:
        self.sock = sock
        self.subsystem = subsystem
        self.port = port
        self.traits = subsystem.personality
        self.stream = Stream(StreamRole.CONTROLLER, limit=1 << 20)
        self.icreq = pdus.ICReq()
        self.digests = Digests()
        self.controller: Controller | None = None
        self.qid: int | None = None
        self.sqsize = 0
        self.sqhd = 0
        self.flow_control = True
        self.disconnected = False
        self.transfers: dict[int, Transfer] = {}
        self.waiting: list[int] = []  # CIDs of Asynchronous Event Requests
        self.events: list[int] = []
        self.fused: dict[int, Command] = {}  # the halves of a fused operation that have come, by FUSE
        self.fused_data: dict[int, bytes] = {}
        self.held: list[tuple[list[pdus.C2HData], Cqe | None]] = []  # responses, in the order of the commands
        self._ttag = 0
        self._write = threading.Lock()
        self._holding = threading.Lock()
        self._closing = threading.Lock()

    def serve(self) -> None:
        """Process PDUs until the host closes or breaks a rule."""
        try:
            while self._step():
                pass
        except pdus.PduError as error:
            self._terminate(error)
        except OSError:
            pass
        finally:
            self._leave()

    def _step(self) -> bool:
        event = self.stream.next_event()
        if isinstance(event, EndOfStream):
            return False
        if isinstance(event, NeedData):
            try:
                self.stream.receive_data(self.sock.recv(65536))
            except OSError:
                return False
            return True
        match event.pdu:
            case pdus.ICReq() as icreq:
                self._initialize(icreq, event)
            case pdus.H2CTermReq():
                return False
            case pdus.CapsuleCmd() as capsule:
                self._capsule(capsule, event)
            case pdus.H2CData() as data:
                self._data(data, event)
        return True

    def _send(self, pdu: pdus.Pdu) -> None:
        raw = pdus.encode(
            pdu, header_digest=self.digests.header, data_digest=self.digests.data, alignment=self.icreq.hpda
        )
        with self._write:
            self.sock.sendall(raw)

    def _terminate(self, error: pdus.PduError) -> None:
        """Send a C2HTermReq, then wait until the host closes (3.5)."""
        with contextlib.suppress(OSError):
            length = min(error.raw[2], 128) if len(error.raw) > 2 else 8
            header = error.raw[:length]
            if self.traits.pads_term_data:
                header = header.ljust(length, b"\0")
            self.sock.sendall(pdus.encode(pdus.C2HTermReq(error.fes, error.fei, header)))
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(30)
            while self.sock.recv(65536):
                pass

    def _leave(self) -> None:
        self.drop_connection()
        if self.controller is not None and self.qid is not None and not self.disconnected:
            self.controller.queues.discard(self.qid)
            self.controller.hangups.pop(self.qid, None)
            with contextlib.suppress(ValueError):
                self.controller.notify.remove(self._notify)
                self.controller.cleared.remove(self._cleared)
            if self.qid == 0:
                self.controller.resets.clear()
                self.controller.gone()

    def drop_connection(self) -> None:
        """Close, from any thread."""
        with self._closing:  # so that no thread shuts down a descriptor that is another connection's by now
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()

    # Initialisation (3.1)

    def _initialize(self, icreq: pdus.ICReq, event: pdus.DecodedPdu) -> None:
        if icreq.pfv != 0:
            raise pdus.PduError("PFV", event.raw, fes=pdus.Fes.UNSUPPORTED_PARAMETER, fei=8)
        if icreq.hpda > pdus.HPDA_MAX:
            raise pdus.PduError("HPDA", event.raw, fes=pdus.Fes.INVALID_HEADER_FIELD, fei=10)
        self.icreq = icreq
        traits = self.traits
        header, data = (traits.takes_digests and asked for asked in (icreq.header_digest, icreq.data_digest))
        with self._write:
            self.sock.sendall(pdus.encode(pdus.ICResp(0, traits.cpda, header, data, traits.maxh2cdata)))
        self.digests = self.stream.digests = Digests(header, data)
        self.stream.alignment = traits.cpda

    # Commands

    def _capsule(self, capsule: pdus.CapsuleCmd, event: pdus.DecodedPdu) -> None:
        if self.disconnected:
            return
        command = Command.decode(capsule.sqe)
        self.sqhd = (self.sqhd + 1) % (self.sqsize + 1 or 1)
        if self.controller is not None and self.traits.traffic_keeps_alive:
            self.controller.alive()
        limit = self.traits.in_capsule if self.qid else ADMIN_IN_CAPSULE
        if len(capsule.data) > limit:
            raise pdus.PduError("in-capsule data", event.raw, fes=pdus.Fes.INVALID_HEADER_FIELD, fei=4)
        try:
            if event.data_digest_ok is False:
                raise CommandFailed(StatusCode.TRANSIENT_TRANSPORT_ERROR, dnr=False)
            if command.flags >> 6 == 3 or (command.opcode != FABRICS and command.flags >> 6 != 1):
                # PSDT is 01b (Base 4.1.1), of fabrics commands 0 or 10b
                raise CommandFailed(StatusCode.INVALID_FIELD)
            if self.qid and self.traits.fuses:
                self._pair(command)
            inside = capsule.data
            if is_write(command):
                wanted = self._wanted(command)
                data, later = self._locate(command, inside, wanted)
                if later:
                    self._begin(command, later)
                    return
                self._finish(command, self._execute(command, data))
                return
            answer = self._execute(command, b"")
            if answer is not None and is_read(command) and answer.data:
                if command.dptr[15] != 0x5A:
                    raise CommandFailed(StatusCode.SGL_TYPE_INVALID)
                if int.from_bytes(command.dptr[8:12], "little") < len(answer.data):
                    raise CommandFailed(StatusCode.DATA_SGL_LENGTH_INVALID)
            self._finish(command, answer)
            if self.disconnected:
                self._disconnect()
        except CommandFailed as refused:
            self._refuse(command, refused)

    def _disconnect(self) -> None:
        """Delete the queue: the response to Disconnect was its last entry (6.4). The host closes, too."""
        assert self.controller is not None
        assert self.qid is not None
        self._release()
        self.controller.queues.discard(self.qid)
        self.controller.hangups.pop(self.qid, None)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _wanted(self, command: Command) -> int:
        """Return the bytes that the host sends with the command."""
        if command.opcode == FABRICS:
            return 1024 if command.nsid & 0xFF == Fctype.CONNECT else 0
        if self.qid and self.controller:
            return self.controller.transfer_length(command) or 0
        behavior = command.opcode == Admin.SET_FEATURES and command.cdw10 & 0xFF == Feature.HOST_BEHAVIOR
        return 512 if behavior else 0

    def _locate(self, command: Command, inside: bytes, wanted: int) -> tuple[bytes, int]:
        """Return (data in the capsule, bytes still to be transferred) of a command, by its SGL (3.3.2)."""
        if not wanted:
            return b"", 0
        offset, length = (
            int.from_bytes(command.dptr[:8], "little"),
            int.from_bytes(command.dptr[8:12], "little"),
        )
        if command.dptr[15] not in (0x01, 0x5A):
            raise CommandFailed(StatusCode.SGL_TYPE_INVALID)
        if length != wanted:
            raise CommandFailed(StatusCode.DATA_SGL_LENGTH_INVALID)
        if command.dptr[15] == 0x5A:
            return b"", length
        if offset > len(inside) or (offset and not self.traits.capsule_offsets):
            raise CommandFailed(StatusCode.SGL_OFFSET_INVALID)
        if offset + length > len(inside):
            raise CommandFailed(StatusCode.DATA_SGL_LENGTH_INVALID)
        return inside[offset : offset + length], 0

    def _execute(self, command: Command, data: bytes) -> Answer | None:
        """Run a command; None if it stays outstanding."""
        if command.opcode == FABRICS:
            return self._fabrics(command, data)
        if self.controller is None:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        if self.qid:
            if is_read(command):
                length = self.controller.transfer_length(command) or 0
                if command.dptr[15] != 0x5A:
                    raise CommandFailed(StatusCode.SGL_TYPE_INVALID)
                if int.from_bytes(command.dptr[8:12], "little") != length:
                    raise CommandFailed(StatusCode.DATA_SGL_LENGTH_INVALID)
            if command.flags & 3 and self.traits.fuses:
                return self._fuse(command, data)
            return self.controller.io(command, data)
        if command.opcode not in (Admin.ASYNCHRONOUS_EVENT_REQUEST, Admin.ABORT):
            return self.controller.admin(command, data)
        if not self.controller.processes:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        return self._abort(command) if command.opcode == Admin.ABORT else self._wait_for_event(command)

    # Fused operations (Base 3.4.2): Compare and Write of the same blocks, next to each other in the queue

    def _pair(self, command: Command) -> None:
        """Abort a half without the other (4.2.3.1: Command Aborted due to Missing Fused Command)."""
        kind, waits = command.flags & 3, FIRST in self.fused and SECOND not in self.fused
        if kind == FIRST | SECOND:
            raise CommandFailed(StatusCode.INVALID_FIELD)  # a reserved value (1.4.1.6)
        if waits and kind != SECOND:
            self._abort_first(StatusCode.ABORTED_MISSING_FUSED)
        failed = self.fused.pop(REFUSED, None)
        if kind == SECOND and not waits:
            aborted = StatusCode.ABORTED_FAILED_FUSED if failed else StatusCode.ABORTED_MISSING_FUSED
            raise CommandFailed(aborted)
        if kind:
            self.fused[kind] = command

    def _abort_first(self, status: int) -> None:
        """Complete the first half, and forget both."""
        cid = self.fused[FIRST].cid
        self.fused, self.fused_data = {}, {}
        self.transfers = {ttag: one for ttag, one in self.transfers.items() if one.command.cid != cid}
        self._complete(Cqe(cid, status))

    def _fuse(self, command: Command, data: bytes) -> None:
        """Carry out both halves once the data of both are there."""
        assert self.controller is not None
        self.fused_data[command.flags & 3] = data
        if len(self.fused_data) < 2:
            return
        statuses = compare_and_write(self.controller, self.fused, self.fused_data)
        halves, self.fused, self.fused_data = self.fused, {}, {}
        for kind, status in statuses.items():
            self._complete(Cqe(halves[kind].cid, status))

    def _begin(self, command: Command, length: int) -> None:
        if self.qid and len({one.command.cid for one in self.transfers.values()}) >= self.sqsize:
            raise pdus.PduError("more commands than the queue has room for", b"", fes=pdus.Fes.SEQUENCE_ERROR)
        self._ttag = self._ttag % 0xFFFE + 1
        self._ask(Transfer(command, length, self._ttag))

    def _ask(self, transfer: Transfer) -> None:
        """Send an R2T, and others while the host allows it (MAXR2T, 3.3.2.2)."""
        most = self.icreq.maxr2t + 1 if self.traits.several_r2ts else 1
        while transfer.asked < transfer.length and len(transfer.ends) < most:
            if transfer.ends:  # each outstanding R2T has a TTAG of its own
                self._ttag = transfer.ttag = self._ttag % 0xFFFE + 1
            at = transfer.asked
            piece = min(self.traits.r2t_size(at), transfer.length - at)
            transfer.asked += piece
            transfer.ends[transfer.ttag] = transfer.asked
            self.transfers[transfer.ttag] = transfer
            self._send(pdus.R2T(transfer.command.cid, transfer.ttag, at, piece))

    def _data(self, pdu: pdus.H2CData, event: pdus.DecodedPdu) -> None:
        """Receive data by the rules of 3.3.2.2."""
        transfer = self.transfers.get(pdu.ttag)
        if transfer is None:
            fes = self.traits.unknown_ttag
            raise pdus.PduError("TTAG", event.raw, fes=fes, fei=0 if fes == pdus.Fes.SEQUENCE_ERROR else 10)
        if transfer.command.cid != pdu.cccid:
            raise pdus.PduError("CCCID", event.raw, fes=pdus.Fes.INVALID_HEADER_FIELD, fei=8)
        if len(pdu.data) > self.traits.maxh2cdata:
            raise pdus.PduError("DATAL", event.raw, fes=pdus.Fes.LIMIT_EXCEEDED)
        end, asked = pdu.offset + len(pdu.data), transfer.ends[pdu.ttag]
        if end > asked:
            raise pdus.PduError("beyond the R2T", event.raw, fes=pdus.Fes.OUT_OF_RANGE)
        if pdu.offset != len(transfer.got):
            raise pdus.PduError("DATAO", event.raw, fes=pdus.Fes.SEQUENCE_ERROR)
        if pdu.last != (end == asked):
            raise pdus.PduError("LAST_PDU", event.raw, fes=pdus.Fes.INVALID_HEADER_FIELD, fei=1)
        transfer.got += pdu.data
        transfer.damaged |= event.data_digest_ok is False
        if end == asked:
            del self.transfers[pdu.ttag], transfer.ends[pdu.ttag]
        if len(transfer.got) == transfer.length:
            try:
                if transfer.damaged:
                    raise CommandFailed(StatusCode.TRANSIENT_TRANSPORT_ERROR, dnr=False)
                self._finish(transfer.command, self._execute(transfer.command, bytes(transfer.got)))
            except CommandFailed as refused:
                self._refuse(transfer.command, refused)
        elif end == asked:
            self._ask(transfer)

    def _finish(self, command: Command, answer: Answer | None) -> None:
        if answer is None:
            return
        success = bool(
            answer.data
            and not self.flow_control
            and self.traits.success_flag
            and not answer.result
            and (self.qid or self.traits.success_of_admin)
        )
        pieces = []
        for at in range(0, len(answer.data), self.traits.read_piece):
            piece = answer.data[at : at + self.traits.read_piece]
            last = at + len(piece) == len(answer.data)
            pieces.append(pdus.C2HData(command.cid, at, piece, last, success and last))
        self._respond(pieces, None if success else Cqe(command.cid, result=answer.result))

    def _refuse(self, command: Command, refused: CommandFailed) -> None:
        connect = command.opcode == FABRICS and command.nsid & 0xFF == Fctype.CONNECT
        if self.controller is not None and self.qid is not None and not connect:  # 6.3: no entry for Connect
            self.controller.log_error(self.qid, command, refused.status)
        self._complete(Cqe(command.cid, refused.status, refused.result, dnr=refused.dnr))
        if self.fused.get(FIRST) is command:
            self.fused, self.fused_data = {REFUSED: command}, {}
        elif self.fused.get(SECOND) is command:
            self._abort_first(StatusCode.ABORTED_FAILED_FUSED)

    def _complete(self, cqe: Cqe) -> None:
        self._respond([], cqe)

    def _respond(self, pieces: list[pdus.C2HData], cqe: Cqe | None) -> None:
        """Send a response now, or with those of other commands (``held_for``)."""
        held_for = self.traits.held_for if self.qid else self.traits.admin_held_for
        if not held_for:
            self._send_response(pieces, cqe)
            return
        with self._holding:
            self.held.append((pieces, cqe))
            if len(self.held) == 1:
                timer = threading.Timer(held_for, self._release)
                timer.daemon = True
                timer.start()

    def _release(self) -> None:
        """Send the held responses: the data by turns, and the newest command's completion first (3.3.2.1)."""
        with self._holding, contextlib.suppress(OSError):
            held, self.held = self.held[::-1], []
            for turn in itertools.zip_longest(*(pieces[:-1] for pieces, _ in held)):
                for piece in filter(None, turn):
                    self._send(piece)
            for pieces, cqe in held:
                self._send_response(pieces[-1:], cqe)

    def _send_response(self, pieces: list[pdus.C2HData], cqe: Cqe | None) -> None:
        for piece in pieces:
            self._send(piece)
        if cqe is not None:
            sqhd = self.sqhd if self.flow_control else 0xFFFF
            self._send(pdus.CapsuleResp(replace(cqe, sqhd=sqhd).encode()))

    # Fabrics commands (Base 6)

    def _fabrics(self, command: Command, data: bytes) -> Answer:
        fctype = command.nsid & 0xFF
        if fctype == Fctype.CONNECT:
            return self._connect(command, data)
        if self.controller is None:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        if fctype in (Fctype.PROPERTY_GET, Fctype.PROPERTY_SET):
            if self.qid:
                raise CommandFailed(StatusCode.INVALID_FIELD)
            run = (
                self.controller.property_get
                if fctype == Fctype.PROPERTY_GET
                else self.controller.property_set
            )
            return run(command)
        if fctype == Fctype.DISCONNECT:
            if command.cdw10 & 0xFFFF:
                raise CommandFailed(StatusCode.CONNECT_INCOMPATIBLE_FORMAT)
            if not self.qid:
                raise CommandFailed(StatusCode.DISCONNECT_INVALID_QUEUE_TYPE)
            self.disconnected = True
            return Answer()
        raise CommandFailed(StatusCode.INVALID_FIELD)  # Base 4.1.2

    def _connect(self, command: Command, raw: bytes) -> Answer:
        """Connect (6.3). The result of a refusal identifies the field: IPO, and IATTR in bit 16."""
        recfmt, qid = command.cdw10 & 0xFFFF, command.cdw10 >> 16
        sqsize, cattr = command.cdw11 & 0xFFFF, command.cdw11 >> 16 & 0xFF
        if recfmt:
            raise CommandFailed(StatusCode.CONNECT_INCOMPATIBLE_FORMAT)
        if self.controller is not None:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        if not 1 <= sqsize <= (self.traits.mqes if qid else ADMIN_SQSIZE):
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=44)
        if qid > self.traits.max_qid:
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=42)
        data = ConnectData.decode(raw)
        if raw[256:512].find(b"\0") < 1 or raw[512:768].find(b"\0") < 1:
            at = 256 if raw[256:512].find(b"\0") < 1 else 512
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=at | 1 << 16)
        if data.subnqn not in (self.subsystem.nqn, DISCOVERY_NQN) or (data.subnqn == DISCOVERY_NQN and qid):
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=256 | 1 << 16)
        with self.subsystem.lock:
            controller = self._admit(data, command.cdw12) if qid == 0 else self._join(data, qid)
        self.controller, self.qid, self.sqsize, self.sqhd = controller, qid, sqsize, 1
        self.flow_control = not (cattr & 4 and self.traits.disable_flow_control)
        controller.queues.add(qid)
        if qid:
            controller.hangups[qid] = self.drop_connection
        if qid == 0:
            controller.port = self.port
            controller.notify.append(self._notify)
            controller.cleared.append(self._cleared)
            controller.resets.append(self._reset)
            controller.alive()
        return Answer(result=controller.cntlid)

    def _admit(self, data: ConnectData, kato: int) -> Controller:
        discovery = data.subnqn == DISCOVERY_NQN
        if data.cntlid != (0xFFFE if self.traits.static and not discovery else 0xFFFF):
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=16 | 1 << 16)
        if not kato and not discovery:
            raise CommandFailed(
                StatusCode.KEEP_ALIVE_INVALID
            )  # the timer is not disabled over TCP (Base 3.9.1)
        return self.subsystem.admit(data, kato, self.drop_connection)

    def _join(self, data: ConnectData, qid: int) -> Controller:
        controller = self.subsystem.controllers.get(data.cntlid)
        if controller is None or controller.discovery:
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=16 | 1 << 16)
        if controller.hostnqn != data.hostnqn and not self.traits.joins_any_host:
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=512 | 1 << 16)
        if data.hostid not in (controller.hostid, bytes(16)) and not self.traits.joins_any_host:
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS, result=0 | 1 << 16)
        if not controller.csts & 1:
            raise CommandFailed(StatusCode.CONNECT_INVALID_PARAMETERS)
        if qid in controller.queues:
            raise CommandFailed(StatusCode.COMMAND_SEQUENCE_ERROR)
        return controller

    # Events (Base 5.2.2) and Abort (5.2.1)

    def _wait_for_event(self, command: Command) -> Answer | None:
        assert self.controller is not None
        if self.traits.event_at_once and not self.controller.surprised:
            self.controller.surprised = True
            return Answer(result=7 | 0xC0 << 16)  # vendor specific, of log page C0h
        for event in self.events:
            if event & 7 not in self.controller.reported:
                self.controller.reported.add(event & 7)
                self.events.remove(event)
                return Answer(result=event)
        if len(self.waiting) > self.traits.aerl:
            raise CommandFailed(StatusCode.AER_LIMIT_EXCEEDED)
        self.waiting.append(command.cid)
        return None

    def _reset(self) -> None:
        """Forget the outstanding requests: a controller reset aborts every command (3.7.2)."""
        self.waiting.clear()
        self.events.clear()

    def _notify(self, event: int) -> bool:
        """Complete a request with ``event``, or keep it: a type that was reported is masked (5.2.2)."""
        assert self.controller is not None
        if not self.waiting or event & 7 in self.controller.reported:
            self.events.append(event)
            return False
        self.controller.reported.add(event & 7)
        self._complete(Cqe(self.waiting.pop(0), result=event))
        return True

    def _cleared(self, kind: int) -> None:
        """Report an event that came while its type was masked, if its log page has entries left."""
        assert self.controller is not None
        held = [event for event in self.events if event & 7 == kind]
        self.events = [event for event in self.events if event & 7 != kind]
        if held and kind == EVENTS[LogPage.RESERVATION_NOTIFICATION] and self.controller.notices:
            self._notify(held[0])

    def _abort(self, command: Command) -> Answer:
        sqid, cid = command.cdw10 & 0xFFFF, command.cdw10 >> 16
        if sqid == 0 and cid in self.waiting and self.traits.aborts:
            self.waiting.remove(cid)
            self._complete(Cqe(cid, StatusCode.ABORTED_BY_REQUEST))
            return Answer(result=0)
        return Answer(result=1)


class Server:
    """A context manager that listens on loopback."""

    def __init__(self, *, nqn: str = NQN, personality: ControllerConfig | None = None, port: int = 0) -> None:
        self.subsystem = Subsystem(nqn, personality=personality)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[Connection] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Server:
        self._threads.append(threading.Thread(target=self._accept, daemon=True))
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self.connections):
            connection.drop_connection()
        for thread in list(self._threads):
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self.subsystem, self.port)
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        except RemoteProtocolError:
            connection.drop_connection()
        finally:
            self.connections.remove(connection)


def main() -> None:
    """Serve until interrupted."""
    with Server(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(server.port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
