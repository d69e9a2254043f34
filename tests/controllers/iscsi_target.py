"""A small iSCSI target with one logical unit in memory, written from RFC 7143, SPC and SBC.

It makes the legal choices of a :class:`Choices`. It shares the codecs with the suite and nothing else. It has
what its tests need: login without CHAP, NOP, Text, task management, logout, and the commands INQUIRY,
READ CAPACITY(16), TEST UNIT READY, READ and WRITE (10 and 16); if it is thin provisioned, those of
``iscsi_thin_unit.py``. One thread for each connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from iscsi_choices import OWN, Choices
from iscsi_thin_unit import (
    GET_LBA_STATUS,
    LOG_SENSE,
    MAINTENANCE_IN,
    MODE_PARAMETERS_CHANGED,
    MODE_SELECT_6,
    MODE_SENSE_6,
    PORT_DESIGNATORS,
    SERVICE_IN_16,
    TPGS,
    UNMAP,
    VERIFY_16,
    WRITE_SAME_16,
    ScsiError,
    ThinUnit,
    descriptor_sense,
)

from storagetest.wire.iscsi.codes import (
    NO_TAG,
    LoginStatus,
    LogoutResult,
    RejectReason,
    Stage,
    TaskFunction,
    TaskResult,
)
from storagetest.wire.iscsi.connection import NEED_DATA, PduReceiver, ReceivedPdu
from storagetest.wire.iscsi.encoding import Pdu, flat_lun
from storagetest.wire.iscsi.keys import KEYS, OBSOLETE, format_text, negotiated_reply, numeric, parse_text
from storagetest.wire.iscsi.pdu import (
    AsyncMessage,
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    Request,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.scsi.codes import Asc, ScsiStatus, SenseKey
from storagetest.wire.scsi.sense import fixed_sense

IQN = "iqn.2024-01.org.example:sound"
NAA = bytes.fromhex("6001405500000000a000000000000001")
BLOCKS = 4096
RESET = 0x2903
"""BUS DEVICE RESET FUNCTION OCCURRED (SPC-4)."""
ALLOCATION = {
    0x12: slice(3, 5),
    0x03: slice(4, 5),
    MODE_SENSE_6: slice(4, 5),
    SERVICE_IN_16: slice(10, 14),
    LOG_SENSE: slice(7, 9),
    MAINTENANCE_IN: slice(6, 10),
}
"""Where the CDB of a command has its allocation length."""


@dataclass
class Write:
    """A command with data-out: a write to byte ``at``, or what ``execute`` does with the data.

    ``asks`` is its length by its CDB, ``size`` what is transferred of it.
    """

    command: ScsiCommand
    data: bytearray
    size: int
    at: int
    execute: Callable[[bytes], object] | None = None
    parts: list[tuple[int, int]] = field(default_factory=list)  # offset and length of the R2Ts to come
    asks: int = 0
    r2ts: int = 0
    outstanding: int = 0  # sequences of Data-Out that are to come
    asked: dict[int, int] = field(default_factory=dict)  # bytes that are to come, by Target Transfer Tag


@dataclass(eq=False)  # so that one is removed from the list of all while others are
class Connection:
    """One session with one connection."""

    sock: socket.socket
    unit: bytearray
    choices: Choices
    thin: ThinUnit | None = None
    every: list[Connection] = field(default_factory=list)
    attention: int = 0
    cid: int = 0
    stat_sn: int = 1
    exp_cmd_sn: int = 1
    max_recv: int = 8192
    own_recv: int = 262144
    declared: bool = False  # whether the initiator knows own_recv
    first_burst: int = 65536
    max_burst: int = 262144
    r2ts: int = 1
    pdus_in_order: bool = True
    sequences_in_order: bool = True
    writes: dict[int, Write] = field(default_factory=dict)
    aborts: list[tuple[TaskRequest, set[int]]] = field(default_factory=list)
    nop_tag: int = 0
    given: int = NO_TAG  # the target transfer tag of the text that goes on
    ttt: int = 0  # of the last R2T
    late: list[int] = field(default_factory=list)
    waiting: list[Any] = field(default_factory=list)
    cut: bytes = b""  # text of requests with C, whose end has not come yet (6.2)
    rest: bytes = b""  # text of a response that is to come, because it is longer than the initiator takes
    moved_to: str = ""  # the TargetAddress of each login, which is redirected
    commands: int = 0
    stage: int | None = None  # of the login, after the first request
    taken: dict[str, str] = field(default_factory=dict)  # keys that were answered in the login
    header_digest: bool = False
    data_digest: bool = False

    def serve(self) -> None:
        stream = PduReceiver()
        while True:
            event = stream.next_event()
            if isinstance(event, ReceivedPdu):
                if event.frame.header_digest_wrong or event.frame.data_digest_wrong:
                    return  # 7.8: session recovery
                self.waiting.append(event.pdu)
                while (pdu := self.next_served()) is not None:
                    early = self.stat_sn == self.choices.stat_sn and not isinstance(pdu, LoginRequest)
                    if early or len(pdu.data) > self.own_recv or not self.handle(pdu):  # 4.2.4, 13.12
                        return
                stream.header_digest, stream.data_digest = self.header_digest, self.data_digest
            elif event is NEED_DATA:
                data = self.sock.recv(65536)
                if not data:
                    return
                stream.receive_data(data)

    def next_served(self) -> Any:
        """Take the next PDU to handle from those that wait; None if there is none for now."""
        held = self.choices.serial and bool(self.writes)
        pdu = next((one for one in self.waiting if not held or isinstance(one, DataOut)), None)
        if pdu is not None:
            self.waiting.remove(pdu)
        return pdu

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        number = self.exp_cmd_sn
        last = (number + self.free - 1) % 2**32
        parts = replace(pdu, stat_sn=self.stat_sn, exp_cmd_sn=number, max_cmd_sn=last).parts()
        self.sock.sendall(parts.wire(header_digest=self.header_digest, data_digest=self.data_digest))
        self.stat_sn = (self.stat_sn + uses) % 2**32

    def respond(self, pdu: Any, *, uses: bool = True) -> None:
        """Send a PDU of the full feature phase, after what the target sends of its own accord."""
        if self.choices.nops:
            self.nop_tag += 1
            self.send(NopIn(ttt=self.nop_tag if self.nop_tag % 2 else NO_TAG), uses=False)
        if self.choices.event is not None and isinstance(pdu, (ScsiResponse, TaskResponse, NopIn)):
            self.send(AsyncMessage(event=self.choices.event, vendor_code=1))
        if isinstance(pdu, ScsiResponse):  # so late that no ping after the abort meets it
            while self.late:
                self.send(ScsiResponse(itt=self.late.pop()))
        self.given = pdu.ttt if isinstance(pdu, TextResponse) else self.given
        self.send(pdu, uses=uses)

    @property
    def free(self) -> int:
        """The commands that are taken now; a write that waits for data keeps its place."""
        return self.choices.window - len(self.writes)

    def is_outside(self, pdu: Pdu) -> bool:
        """Whether a request is outside of the command window, and is ignored (4.2.2.1); count it if not."""
        if not isinstance(pdu, Request) or pdu.immediate:
            return False
        if (pdu.cmd_sn - self.exp_cmd_sn) % 2**32 >= self.free:
            return True
        self.exp_cmd_sn = (pdu.cmd_sn + 1) % 2**32
        return False

    def handle(self, pdu: Pdu) -> bool:
        if self.is_outside(pdu):
            return True
        match pdu:
            case LoginRequest():
                self.login(pdu)
            case NopOut() if pdu.itt != NO_TAG:
                self.respond(NopIn(itt=pdu.itt, data=pdu.data[: self.max_recv]))
            case NopOut():
                pass
            case TextRequest():
                self.text(pdu)
            case ScsiCommand():
                self.command(pdu)
            case DataOut():
                self.data(pdu)
            case TaskRequest():
                self.task(pdu)
            case LogoutRequest():
                return self.logout(pdu)
            case _:
                self.respond(Reject(reason=5, data=pdu.encode()[:48]))
        return True

    def login(self, pdu: LoginRequest) -> None:
        self.exp_cmd_sn, self.cid = pdu.cmd_sn, pdu.cid
        if self.moved_to:
            data = format_text([("TargetAddress", self.moved_to)])
            self.send(
                LoginResponse(itt=pdu.itt, isid=pdu.isid, status=LoginStatus.MOVED_TEMPORARILY, data=data)
            )
            return
        if self.stage not in (None, pdu.csg):  # 6.3: it changes by T alone
            status = LoginStatus.INITIATOR_ERROR
            self.send(LoginResponse(itt=pdu.itt, isid=pdu.isid, csg=pdu.csg, status=status))
            return
        self.stage = pdu.nsg if pdu.transit else pdu.csg
        if pdu.continues:
            self.cut += pdu.data
            self.send(LoginResponse(itt=pdu.itt, isid=pdu.isid, csg=pdu.csg))
            return
        offered, self.cut = parse_text(self.cut + pdu.data), b""
        own = OWN | {"MaxRecvDataSegmentLength": str(self.choices.segment)}
        own |= {"ErrorRecoveryLevel": str(self.choices.recovery)}
        most = numeric(dict(offered).get("MaxBurstLength", "")) or self.max_burst
        own |= {"MaxOutstandingR2T": str(self.choices.r2ts), "FirstBurstLength": str(min(65536, most))}
        own |= {"InitialR2T": "No", "ImmediateData": "Yes"} if self.choices.unsolicited else {}
        own |= {"HeaderDigest": "CRC32C,None", "DataDigest": "CRC32C,None"} if self.choices.digests else {}
        own |= {"DataPDUInOrder": "No", "DataSequenceInOrder": "No"} if self.choices.disordered else {}
        replies = [
            (name, negotiated_reply(KEYS[name], value, own[name])) for name, value in offered if name in own
        ]
        agreed = {name: number for name, value in replies if (number := numeric(value)) is not None}
        self.max_burst = agreed.get("MaxBurstLength", self.max_burst)
        self.first_burst = agreed.get("FirstBurstLength", self.first_burst)
        self.r2ts = agreed.get("MaxOutstandingR2T", self.r2ts)
        self.pdus_in_order = dict(replies).get("DataPDUInOrder") != "No"
        self.sequences_in_order = dict(replies).get("DataSequenceInOrder") != "No"
        strange = [name for name, _ in offered if name not in OWN and name not in KEYS]
        replies += [(name, "Reject" if name in OBSOLETE else "NotUnderstood") for name in strange]
        self.max_recv = numeric(dict(offered).get("MaxRecvDataSegmentLength", "")) or self.max_recv
        if ("SessionType", "Discovery") not in offered:
            replies.append(("TargetPortalGroupTag", "1"))
        final = pdu.transit and pdu.nsg == Stage.FULL_FEATURE
        self.declared = self.declared or "MaxRecvDataSegmentLength" in dict(replies)
        if final and not self.declared:
            replies.append(("MaxRecvDataSegmentLength", str(self.choices.segment)))
        self.own_recv = self.choices.segment if final else self.own_recv
        self.send(
            LoginResponse(
                itt=pdu.itt, isid=pdu.isid, tsih=int(final), transit=pdu.transit, csg=pdu.csg, nsg=pdu.nsg,
                data=format_text(replies),
            )
        )  # fmt: skip
        self.taken |= dict(replies)
        if final:  # from the next PDU on (13.1)
            self.header_digest = self.taken.get("HeaderDigest") == "CRC32C"
            self.data_digest = self.taken.get("DataDigest") == "CRC32C"

    def text(self, pdu: TextRequest) -> None:
        if pdu.ttt not in (NO_TAG, self.given):  # 11.10.4
            self.respond(Reject(reason=RejectReason.INVALID_PDU_FIELD, data=pdu.encode()[:48]))
            return
        if pdu.continues:
            self.cut += pdu.data
            self.respond(TextResponse(itt=pdu.itt, final=False, ttt=pdu.itt))
            return
        if pdu.ttt != NO_TAG and not pdu.data and self.rest:
            self.text_piece(pdu)
            return
        asked, self.cut = dict(parse_text(self.cut + pdu.data)), b""
        declared = asked.get("MaxRecvDataSegmentLength")
        self.max_recv = numeric(declared or "") or self.max_recv
        own = self.targets() if "SendTargets" in asked else []
        own += [(name, "NotUnderstood") for name in asked if name not in KEYS]
        if declared and self.choices.mirrors:
            self.own_recv = self.max_recv
            own = [("MaxRecvDataSegmentLength", declared)]
        ttt = NO_TAG if pdu.final else pdu.itt  # without F, the initiator goes on (11.11.1)
        if len(data := format_text(own)) > self.max_recv and pdu.final:
            self.rest = data
            self.text_piece(pdu)
            return
        self.respond(TextResponse(itt=pdu.itt, data=data, final=pdu.final, ttt=ttt))

    def text_piece(self, pdu: TextRequest) -> None:
        """Send as much of the text that is left as the initiator takes; it asks for more (6.2)."""
        data, self.rest = self.rest[: self.max_recv], self.rest[self.max_recv :]
        more, ttt = bool(self.rest), pdu.itt if self.rest else NO_TAG
        self.respond(TextResponse(itt=pdu.itt, data=data, final=not more, continues=more, ttt=ttt))

    def targets(self) -> list[tuple[str, str]]:
        """Return what SendTargets lists: without an address, it is that of this connection (appendix C)."""
        host, port = self.sock.getsockname()[:2]
        others = ["[2001:db8::2]:3260,2", "storage.example.org,3", "192.0.2.4:860,3"]
        others += [f"192.0.2.{number}:3260,4" for number in range(5, self.choices.portals + 1)]
        listed = [f"{host}:{port},1", *others][: self.choices.portals]
        return [("TargetName", IQN), *(("TargetAddress", address) for address in listed)]

    def logout(self, pdu: LogoutRequest) -> bool:
        result = LogoutResult.SUCCESS
        if pdu.reason == 2:
            result = LogoutResult.RECOVERY_NOT_SUPPORTED
        elif pdu.reason > 2 or (pdu.reason == 1 and pdu.cid != self.cid):
            result = LogoutResult.CID_NOT_FOUND
        self.send(LogoutResponse(itt=pdu.itt, response=result))
        if result == LogoutResult.SUCCESS and self.choices.closes_last:
            with contextlib.suppress(OSError):
                while self.sock.recv(4096):
                    pass
        return result != LogoutResult.SUCCESS

    # SCSI

    def command(self, pdu: ScsiCommand) -> None:
        opcode, size = pdu.cdb[0], self.choices.block_size
        lba, blocks = struct.unpack_from(">xxQI" if opcode in (0x88, 0x8A) else ">xxIxH", pdu.cdb)
        if self.refuse(pdu, lba + blocks):
            return
        if opcode in (0x2A, 0x8A):
            self.receive(pdu, blocks * size, lba * size)
            return
        if self.thin is not None and opcode in (MODE_SELECT_6, UNMAP, WRITE_SAME_16, VERIFY_16):
            try:
                self.receive(pdu, *self.of_thin(self.thin, pdu.cdb))
            except ScsiError as error:
                self.fail(pdu, error)
            return
        known = {
            0x00: lambda: b"",
            0x12: lambda: self.inquiry(pdu),
            SERVICE_IN_16: lambda: self.service_in(pdu.cdb),
            0x28: lambda: bytes(self.unit[lba * size : (lba + blocks) * size]),
            0x88: lambda: bytes(self.unit[lba * size : (lba + blocks) * size]),
        }
        if self.thin is not None:
            known[MODE_SENSE_6] = lambda: self.thin.mode_sense(pdu.cdb) if self.thin else b""
            known[0x03] = lambda: self.request_sense(pdu.cdb)
            known[LOG_SENSE] = lambda: self.thin.log_sense(pdu.cdb) if self.thin else b""
            known[MAINTENANCE_IN] = lambda: self.thin.maintenance_in(pdu.cdb) if self.thin else b""
        if opcode not in known:
            self.fail(pdu, ScsiError(5, 0x2000))
            return
        try:
            self.answer(pdu, known[opcode]())
        except ScsiError as error:
            self.fail(pdu, error)

    def refuse(self, pdu: ScsiCommand, end: int) -> bool:
        """End a command that is not executed, and return True; ``end`` is the block after a read or write."""
        opcode = pdu.cdb[0]
        self.commands += 1
        if self.choices.busy and self.commands % 2:
            self.respond(ScsiResponse(itt=pdu.itt, status=ScsiStatus.BUSY))
        elif pdu.lun != flat_lun(self.choices.lun) and opcode != 0x12:
            self.fail(pdu, ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED))
        elif self.attention and opcode not in (0x12, 0xA0, 0x03):
            asc, self.attention = self.attention, 0
            self.fail(pdu, ScsiError(SenseKey.UNIT_ATTENTION, asc))
        elif opcode in (0x28, 0x2A, 0x88, 0x8A) and end > BLOCKS:
            self.fail(pdu, ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE))
        else:
            return False
        return True

    def of_thin(self, thin: ThinUnit, cdb: bytes) -> tuple[int, int, Callable[[bytes], object]]:
        """Return the length, the place and the execution of a command with data-out of a thin unit."""
        if cdb[0] in (WRITE_SAME_16, VERIFY_16):
            length, execute = thin.range_command(cdb)
            return length, 0, execute
        if cdb[1] & 1:  # SP, ANCHOR
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        if cdb[0] == MODE_SELECT_6:
            return cdb[4], 0, self.select
        return int.from_bytes(cdb[7:9], "big"), 0, thin.unmap

    def receive(
        self, pdu: ScsiCommand, size: int, at: int, execute: Callable[[bytes], object] | None = None
    ) -> None:
        """Begin a command with data-out; no more is transferred than the initiator expects (11.4.5)."""
        asks, size = size, min(size, pdu.expected_length)
        write = self.writes[pdu.itt] = Write(pdu, bytearray(size), size, at, execute, asks=asks)
        immediate = pdu.data[:size]
        write.data[: len(immediate)], first = immediate, len(immediate)
        if not pdu.final:  # the rest of the first burst follows, unsolicited (4.2.5.2)
            first, write.outstanding = min(self.first_burst, size), 1
        burst = min(self.choices.burst, self.max_burst)
        write.parts = self.ordered(spans(first, size, burst), in_order=self.sequences_in_order)
        self.go_on(write)

    @staticmethod
    def ordered(parts: list[tuple[int, int]], *, in_order: bool) -> list[tuple[int, int]]:
        """Return the parts of a transfer in the order in which this target sends or asks for them."""
        return parts if in_order else parts[::-1]

    def fail(self, pdu: ScsiCommand, error: ScsiError) -> None:
        """End a command in CHECK CONDITION."""
        make = self.thin.sense if self.thin is not None else fixed_sense
        sense = make(error.key, error.asc)
        self.respond(ScsiResponse(itt=pdu.itt, status=2, data=struct.pack(">H", len(sense)) + sense))

    def select(self, data: bytes) -> None:
        """MODE SELECT(6): the values are those of all nexuses, and the others are notified."""
        assert self.thin is not None
        if self.thin.mode_select(data):
            for other in self.every:
                other.attention = MODE_PARAMETERS_CHANGED if other is not self else other.attention

    def service_in(self, cdb: bytes) -> bytes:
        if self.thin is None:
            return struct.pack(">QI", BLOCKS - 1, self.choices.block_size).ljust(32, b"\0")
        return self.thin.lba_status(cdb) if cdb[1] & 0x1F == GET_LBA_STATUS else self.thin.capacity()

    def request_sense(self, cdb: bytes) -> bytes:
        """REQUEST SENSE: the pending unit attention, which it clears, in the format that DESC selects."""
        asc, self.attention = self.attention, 0
        key = SenseKey.UNIT_ATTENTION if asc else SenseKey.NO_SENSE
        return descriptor_sense(key, asc) if cdb[1] & 1 else fixed_sense(key, asc)

    def inquiry(self, pdu: ScsiCommand) -> bytes:
        cdb = pdu.cdb
        if not cdb[1] & 1:
            tpgs = TPGS if self.thin is not None else 0
            kind = 0 if pdu.lun == flat_lun(self.choices.lun) else 0x7F  # no logical unit (SPC-4)
            return bytes((kind, 0, 6, 0x12, 0x1F, tpgs, 0, 2)) + b"SOUND   " + b"a unit in memory" + b"1   "
        pages = {0: bytes([0, 0x83]), 0x83: b"\1\3\0\x10" + NAA}
        if self.thin is not None:
            pages |= {0: bytes([0, 0x83, 0xB0, 0xB2])} | self.thin.pages()
            pages[0x83] += PORT_DESIGNATORS
        if cdb[2] not in pages:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        return struct.pack(">BBH", 0, cdb[2], len(pages[cdb[2]])) + pages[cdb[2]]

    def answer(self, pdu: ScsiCommand, data: bytes) -> None:
        """Send ``data``, cut to what the CDB and the initiator allow, and the status."""
        if (place := ALLOCATION.get(pdu.cdb[0])) is not None:
            data = data[: int.from_bytes(pdu.cdb[place], "big")]
        sent, limit = data[: pdu.expected_length], self.max_recv
        number = 0
        for start, length in self.ordered(
            spans(0, len(sent), self.max_burst), in_order=self.sequences_in_order
        ):
            pieces = self.ordered(spans(start, start + length, limit), in_order=self.pdus_in_order)
            for at, size in pieces:
                self.respond(
                    DataIn(itt=pdu.itt, data_sn=number, buffer_offset=at, data=sent[at : at + size],
                           final=at == pieces[-1][0]),
                    uses=False,
                )  # fmt: skip
                number += 1
        rest = pdu.expected_length - len(data) if pdu.read else 0
        self.respond(
            ScsiResponse(itt=pdu.itt, exp_data_sn=number, underflow=rest > 0, overflow=rest < 0,
                         residual=abs(rest))
        )  # fmt: skip

    def next_ttt(self) -> int:
        """Return the Target Transfer Tag of a new R2T."""
        self.ttt = self.ttt % 0x7FFFFFFF + 1
        return self.ttt

    def ask(self) -> None:
        """Send the R2Ts that may be outstanding."""
        for write in list(self.writes.values()):  # another nexus may reset the unit meanwhile
            aborted = any(write.command.itt in tags for _, tags in self.aborts)
            while write.parts and write.outstanding < self.r2ts and not aborted:
                at, length = write.parts.pop(0)
                write.asked[self.ttt % 0x7FFFFFFF + 1] = length
                self.respond(
                    ReadyToTransfer(
                        itt=write.command.itt, ttt=self.next_ttt(), lun=write.command.lun,
                        r2t_sn=write.r2ts, buffer_offset=at, desired_length=length,
                    ),
                    uses=False,
                )  # fmt: skip
                write.outstanding, write.r2ts = write.outstanding + 1, write.r2ts + 1
            if self.choices.one_write:
                return

    def data(self, pdu: DataOut) -> None:
        write = self.writes.get(pdu.itt)
        if write is None:
            return  # of a write that has failed
        write.data[pdu.buffer_offset : pdu.buffer_offset + len(pdu.data)] = pdu.data
        if pdu.ttt in write.asked:
            write.asked[pdu.ttt] -= len(pdu.data)
        if not pdu.final:
            return
        if write.asked.pop(pdu.ttt, 0) > 0:  # 7.9: data are missing
            raise ConnectionError
        write.outstanding -= 1
        if any(pdu.itt in tags for _, tags in self.aborts):
            self.end_aborted()
            return
        self.go_on(write)

    def go_on(self, write: Write) -> None:
        """End a write whose data are there; ask for what is missing."""
        if not write.parts and not write.outstanding:
            del self.writes[write.command.itt]
            self.end(write)
        self.ask()

    def end(self, write: Write) -> None:
        """Execute a command whose data are there."""
        try:
            if write.execute is not None:
                write.execute(bytes(write.data))
            else:
                self.unit[write.at : write.at + write.size] = write.data
                if self.thin is not None:
                    self.thin.wrote(write.at, write.size)
        except ScsiError as error:
            self.fail(write.command, error)
        else:
            rest = write.command.expected_length - write.asks
            self.respond(
                ScsiResponse(itt=write.command.itt, underflow=rest > 0, overflow=rest < 0, residual=abs(rest))
            )

    # Task management: the response waits for the data that were asked for (4.2.3.3)

    def task(self, pdu: TaskRequest) -> None:
        tags = set(self.writes)
        if pdu.function == TaskFunction.ABORT_TASK:
            tags &= {pdu.referenced_itt}
            if not tags:
                self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.TASK_DOES_NOT_EXIST))
                return
        elif pdu.function != TaskFunction.LOGICAL_UNIT_RESET:
            self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.NOT_SUPPORTED))
            return
        elif pdu.lun != flat_lun(self.choices.lun):
            self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.LUN_DOES_NOT_EXIST))
            return
        if pdu.function == TaskFunction.LOGICAL_UNIT_RESET:
            for other in self.every:
                if other is not self:
                    other.attention = RESET
                    other.writes.clear()
        self.aborts.append((pdu, tags))
        self.end_aborted()

    def end_aborted(self) -> None:
        for abort in list(self.aborts):
            pdu, tags = abort
            if any(self.writes[tag].outstanding for tag in tags if tag in self.writes):
                continue
            self.aborts.remove(abort)
            ended = [tag for tag in tags if self.writes.pop(tag, None)]
            self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.COMPLETE))
            if self.choices.answers_aborted:
                self.late = ended


def spans(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Return offset and length of the parts of a transfer, each of ``most`` bytes at most."""
    return [(at, min(most, end - at)) for at in range(start, end, most)]


class Server:
    """A context manager that listens on loopback."""

    def __init__(self, choices: Choices | None = None) -> None:
        self.choices = choices or Choices()
        self.unit = bytearray(BLOCKS * self.choices.block_size)
        self.thin = ThinUnit(self.unit, self.choices.block_size) if self.choices.thin else None
        self._connections: list[Connection] = []
        self._listeners = [
            socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(1 + self.choices.moved)
        ]
        self._ports = [listener.getsockname()[1] for listener in self._listeners]
        self.port: int = self._ports[-1]
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Server:
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (*self._listeners, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self, listener: socket.socket) -> None:
        moved_to = f"127.0.0.1:{self._ports[0]}" if listener is not self._listeners[0] else ""
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(sock)
                threading.Thread(target=self._serve, args=(sock, moved_to), daemon=True).start()

    def _serve(self, sock: socket.socket, moved_to: str) -> None:
        with sock, contextlib.suppress(OSError):
            made = Connection(
                sock, self.unit, self.choices, self.thin, self._connections, moved_to=moved_to,
                stat_sn=self.choices.stat_sn,
            )  # fmt: skip
            self._connections.append(made)
            try:
                made.serve()
            finally:
                self._connections.remove(made)
