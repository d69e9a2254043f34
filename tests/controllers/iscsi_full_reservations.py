"""The reservations of the unit of :mod:`iscsi_full_unit`: persistent ones (SPC-4), and RESERVE(6) (SPC-2)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from iscsi_thin_unit import PORT, ScsiError

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, ScsiStatus, SenseKey

Nexus = tuple[str, bytes]
"""Name and ISID of an initiator (RFC 7143 4.4.3.1)."""

ALWAYS = (
    c.INQUIRY, c.REPORT_LUNS, c.REQUEST_SENSE, c.TEST_UNIT_READY, c.READ_CAPACITY_10, c.READ_CAPACITY_16,
    c.LOG_SENSE, c.REPORT_SUPPORTED_OPERATION_CODES, c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT,
    c.MODE_SENSE_6, c.MODE_SENSE_10, c.REPORT_TASK_MANAGEMENT, c.REPORT_TARGET_PORT_GROUPS,
)  # fmt: skip
"""Commands that no persistent reservation excludes; PERSISTENT RESERVE OUT has rules of its own."""
READERS = (c.READ_6, c.READ_10, c.READ_12, c.READ_16)
VERIFIERS = (c.VERIFY_10, c.VERIFY_12, c.VERIFY_16)
PRE_FETCHES = (c.PRE_FETCH_10, c.PRE_FETCH_16)
READING = (*READERS, *VERIFIERS, *PRE_FETCHES, c.GET_LBA_STATUS)
"""Commands that a write exclusive reservation does not exclude."""
REGISTERING = (PrOut.REGISTER, PrOut.REGISTER_AND_IGNORE_EXISTING_KEY)
PREEMPTING = (PrOut.PREEMPT, PrOut.PREEMPT_AND_ABORT)
TYPED = (PrOut.RESERVE, PrOut.RELEASE, *PREEMPTING)
"""Service actions whose SCOPE and TYPE count; of PREEMPT, if it takes a reservation."""
BASIC_LIST = 24
"""Bytes of the basic parameter list of PERSISTENT RESERVE OUT, and of the head of that of
REGISTER AND MOVE."""
PREEMPTED, RELEASED, UNREGISTERED = 0x2A03, 0x2A04, 0x2A05


class Ended(Exception):  # a status, not an error
    """A command ends in this status without sense data."""

    def __init__(self, status: ScsiStatus) -> None:
        super().__init__(status.name)
        self.status = status


@dataclass(kw_only=True)
class Reservations:
    """``attentions`` and ``registered`` are by nexus; ``holder`` is None without a reservation."""

    attentions: dict[Nexus, list[int]] = field(default_factory=dict)
    registered: dict[Nexus, int] = field(default_factory=dict)
    holder: Nexus | None = None
    type: PrType = PrType.WRITE_EXCLUSIVE
    generation: int = 0
    reserved6: Nexus | None = None
    silent_releases: bool = False
    persists: bool = False  # APTPL is supported
    persistent: bool = False  # APTPL of the last REGISTER
    abort: Callable[[Nexus], None] = lambda nexus: None

    def notify(self, nexuses: Iterable[Nexus], asc: int) -> None:
        for nexus in nexuses:
            self.attentions.setdefault(nexus, []).append(asc)

    def others(self, nexus: Nexus) -> list[Nexus]:
        return [one for one in self.attentions if one != nexus]

    def excludes(self, command: CommandFormat, block: bytes, nexus: Nexus) -> bool:
        """Whether a reservation excludes a command of ``nexus``."""
        if self.reserved6 not in (None, nexus):
            free = (c.INQUIRY, c.REPORT_LUNS, c.REQUEST_SENSE, c.RELEASE_6)
            return command not in free
        if command in (c.RESERVE_6, c.RELEASE_6):
            return bool(self.registered)
        allows = command is c.PREVENT_ALLOW_MEDIUM_REMOVAL and not block[4] & 1
        allows |= command is c.START_STOP_UNIT and block[4] & 0xF1 == 1  # a start
        if self.holder is None or self.holds(nexus) or command in ALWAYS or allows:
            return False
        if self.type.registrants and nexus in self.registered:
            return False
        return self.type.reads_too or command not in READING

    def holds(self, nexus: Nexus) -> bool:
        return nexus == self.holder or (
            self.holder is not None and self.type.all_hold and nexus in self.registered
        )

    def persistent_reserve_in(self, block: bytes, nexus: Nexus) -> bytes:
        head = self.generation.to_bytes(4, "big")
        match block[1] & 0x1F:
            case PrIn.READ_KEYS:
                body = b"".join(key.to_bytes(8, "big") for key in self.registered.values())
            case PrIn.READ_RESERVATION:
                key = 0 if self.holder is None or self.type.all_hold else self.registered[self.holder]
                body = b"" if self.holder is None else struct.pack(">Q5xBxx", key, self.type)
            case PrIn.REPORT_CAPABILITIES:
                flags = bytes((0x0C | self.persists, 0x80 | self.persistent))
                return cut(b"\0\x08" + flags + b"\xea\x01\0\0", block[7:9])
            case PrIn.READ_FULL_STATUS:
                body = b"".join(self.status_of(one) for one in self.registered)
            case _:
                raise invalid_field()
        return cut(head + len(body).to_bytes(4, "big") + body, block[7:9])

    def status_of(self, nexus: Nexus) -> bytes:
        """Return a full status descriptor."""
        name, holds = transport_id(nexus), self.holds(nexus)
        return (
            struct.pack(
                ">Q4xBB4xHI", self.registered[nexus], holds, self.type if holds else 0, PORT, len(name)
            )
            + name
        )

    def reserve_out(self, block: bytes, data: bytes, nexus: Nexus) -> None:
        action, kind = block[1] & 0x1F, block[2] & 0x0F
        self.check_out(action, block, data)
        key, new = struct.unpack_from(">QQ", data)
        if action in REGISTERING:
            if action == PrOut.REGISTER and key != self.registered.get(nexus, 0):
                raise Ended(ScsiStatus.RESERVATION_CONFLICT)
            self.register(nexus, new, data)
            return
        if self.registered.get(nexus) != key:
            raise Ended(ScsiStatus.RESERVATION_CONFLICT)
        match action:
            case PrOut.RESERVE:
                self.reserve(nexus, PrType(kind))
            case PrOut.RELEASE:
                self.release(nexus, PrType(kind))
            case PrOut.CLEAR:
                self.notify((one for one in self.registered if one != nexus), PREEMPTED)
                self.registered, self.holder = {}, None
                self.generation += 1
            case PrOut.REGISTER_AND_MOVE:
                self.move(nexus, new, data)
            case _:
                kind = self.type if self.removes(action, data) else kind
                self.preempt(nexus, PrType(kind), new, abort=action == PrOut.PREEMPT_AND_ABORT)

    def check_out(self, action: int, block: bytes, data: bytes) -> None:
        """Check the fields of PERSISTENT RESERVE OUT that do not depend on the registrations."""
        if action not in set(PrOut):
            raise invalid_field()
        wrong = block[2] >> 4 or block[2] & 0x0F not in set(PrType)
        if action in TYPED and wrong and not self.removes(action, data):
            raise invalid_field()
        if len(data) < BASIC_LIST:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        if action == PrOut.REGISTER_AND_MOVE:
            return
        listed, persists = data[20] & 8, data[20] & 1 and not self.persists
        if (listed and action not in REGISTERING) or (persists and action in REGISTERING):
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        if not listed and len(data) != BASIC_LIST:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)

    def removes(self, action: int, data: bytes) -> bool:
        """Whether a PREEMPT names registrations alone, so that its SCOPE and TYPE are ignored."""
        if action not in PREEMPTING:
            return False
        victim = int.from_bytes(data[8:16], "big")
        if self.holder is None or not victim:
            return bool(victim)
        return self.type.all_hold or self.registered[self.holder] != victim

    def register(self, nexus: Nexus, new: int, data: bytes) -> None:
        others = self.listed(data) if data[20] & 8 else []
        if others and (nexus in self.registered or any(one in self.registered for one in others)):
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        for one in (nexus, *others):
            if new:
                self.registered[one] = new
                self.attentions.setdefault(one, [])
            else:
                self.unregister(one)
        self.persistent = bool(data[20] & 1)
        self.generation += 1

    def forget_reservations(self) -> None:
        """Lose power: RESERVE(6) ends, and so does what APTPL does not keep; PRGENERATION is zero."""
        self.reserved6, self.generation = None, 0
        if not self.persistent:
            self.registered, self.holder = {}, None

    def unregister(self, nexus: Nexus) -> None:
        if self.registered.pop(nexus, None) is None or not (nexus == self.holder or self.type.all_hold):
            return
        if self.holder is not None and self.type.all_hold and self.registered:
            self.holder = next(iter(self.registered))
        elif self.holder is not None:
            self.holder = None
            if self.type.registrants:
                self.notify(self.registered, RELEASED)

    def listed(self, data: bytes) -> list[Nexus]:
        """Return the initiator ports of the list that SPEC_I_PT announces."""
        length = int.from_bytes(data[24:28], "big")
        if len(data) < 28 or len(data) != 28 + length:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        rest, found = data[28:], []
        while rest:
            size = 4 + int.from_bytes(rest[2:4], "big")
            found.append(nexus_of(rest[:size]))
            rest = rest[size:]
        return found

    def reserve(self, nexus: Nexus, kind: PrType) -> None:
        if self.holder is None:
            self.holder, self.type = nexus, kind
        elif not self.holds(nexus) or kind != self.type:
            raise Ended(ScsiStatus.RESERVATION_CONFLICT)

    def release(self, nexus: Nexus, kind: PrType) -> None:
        if not self.holds(nexus):
            return
        if kind != self.type:
            raise illegal(Asc.INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
        self.holder = None
        if kind.registrants and not self.silent_releases:
            self.notify((one for one in self.registered if one != nexus), RELEASED)

    def preempt(self, nexus: Nexus, kind: PrType, victim: int, *, abort: bool) -> None:
        all_hold = self.holder is not None and self.type.all_hold
        held = self.holder is not None and not all_hold and self.registered[self.holder] == victim
        if not victim and not all_hold:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        gone = [one for one, key in self.registered.items() if one != nexus and (key == victim or not victim)]
        if victim and not gone and not (held and self.holder == nexus):
            raise Ended(ScsiStatus.RESERVATION_CONFLICT)
        before = self.type
        for one in gone:
            del self.registered[one]
        self.notify(gone, UNREGISTERED)
        if held or (all_hold and not victim):
            self.holder, self.type = nexus, kind
            if before != kind:
                self.notify((one for one in self.registered if one != nexus), RELEASED)
        elif all_hold and self.holder not in self.registered:
            self.holder = next(iter(self.registered), None)
        self.generation += 1
        if abort:
            for one in gone:
                self.abort(one)

    def move(self, nexus: Nexus, new: int, data: bytes) -> None:
        """REGISTER AND MOVE (SPC-4): the reservation becomes that of another nexus, which is registered."""
        length = int.from_bytes(data[20:24], "big")
        if len(data) != BASIC_LIST + length:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        if self.holder != nexus or self.type.all_hold:
            raise Ended(ScsiStatus.RESERVATION_CONFLICT)
        to = nexus_of(data[BASIC_LIST:])
        if not new or to == nexus or int.from_bytes(data[18:20], "big") != PORT:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        self.registered[to] = new
        self.attentions.setdefault(to, [])
        self.holder = to
        if data[17] & 2:  # UNREG
            del self.registered[nexus]
        self.generation += 1


def illegal(asc: int) -> ScsiError:
    return ScsiError(SenseKey.ILLEGAL_REQUEST, asc)


def invalid_field() -> ScsiError:
    return illegal(Asc.INVALID_FIELD_IN_CDB)


def cut(data: bytes, allocation: bytes) -> bytes:
    return data[: int.from_bytes(allocation, "big")]


def transport_id(nexus: Nexus) -> bytes:
    """Return the TransportID of an iSCSI initiator port (SPC-4)."""
    name = f"{nexus[0]},i,0x{nexus[1].hex()}".encode() + b"\0"
    name = name.ljust(max(20, -(-len(name) // 4) * 4), b"\0")
    return struct.pack(">BxH", 0x45, len(name)) + name


def nexus_of(data: bytes) -> Nexus:
    """Return the nexus of a TransportID. Raises ScsiError if there is none."""
    name, _, isid = data[4:].rstrip(b"\0").decode("ascii", "replace").partition(",i,0x")
    if len(data) < 24 or data[0] != 0x45 or len(isid) != 12:
        raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
    return name, bytes.fromhex(isid)
