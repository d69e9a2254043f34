"""A logical unit in memory with nearly every command that the suite knows, and the reservations of SPC-4.

Written from SPC-4 and SBC-3. :class:`FullServer` serves it with the transport of ``iscsi_target.py``, and it
makes the legal choices of a :class:`UnitChoices`. Blocks that were never written are zero and take no memory.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from iscsi_choices import Choices
from iscsi_full_media import Medium
from iscsi_full_reports import PORT_NAMES, PORTS_PAGE, TIMEOUTS, described, of_absent_unit, usage_map
from iscsi_full_reservations import (
    PRE_FETCHES,
    READERS,
    VERIFIERS,
    Ended,
    Nexus,
    Reservations,
    cut,
    illegal,
    invalid_field,
)
from iscsi_full_seldom import INQUIRY_FLAGS, SELDOM_OUT, Seldom
from iscsi_target import NAA, Connection, Server, Write
from iscsi_thin_unit import PORT_DESIGNATORS, ScsiError, descriptor_sense

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.keys import parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, ScsiCommand, ScsiResponse, TaskRequest
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import COMMANDS, CommandFormat
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, ScsiStatus, SenseKey
from storagetest.wire.scsi.seldom_cdb import SELDOM
from storagetest.wire.scsi.sense import fixed_sense

WRITERS = (c.WRITE_6, c.WRITE_10, c.WRITE_12, c.WRITE_16)
WRITING_VERIFIERS = (c.WRITE_AND_VERIFY_10, c.WRITE_AND_VERIFY_12, c.WRITE_AND_VERIFY_16)
SAMES = (c.WRITE_SAME_10, c.WRITE_SAME_16)
CHANGING = (*WRITERS, *WRITING_VERIFIERS, *SAMES, c.ORWRITE_16, c.COMPARE_AND_WRITE, c.UNMAP)
"""Commands that change blocks."""
SYNCHRONIZERS = (c.SYNCHRONIZE_CACHE_10, c.SYNCHRONIZE_CACHE_16)
RANGES = (*READERS, *CHANGING, *VERIFIERS, *PRE_FETCHES, *SYNCHRONIZERS)
RESERVATION_COMMANDS = (c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT)
SELECTS = (c.MODE_SELECT_6, c.MODE_SELECT_10)
WITHOUT_ATTENTION = (c.INQUIRY, c.REPORT_LUNS, c.REQUEST_SENSE)
"""Commands that are executed although a unit attention is pending (SAM-5 5.14)."""
CONTROL_PAGE, CACHING_PAGE = 0x0A, 0x08
D_SENSE, NUAR, SWP, WCE = 0x04, 0x08, 0x08, 0x04
CHANGEABLE = {CACHING_PAGE: bytes((WCE,)) + bytes(17), CONTROL_PAGE: bytes((D_SENSE, 0, SWP)) + bytes(7)}
RESET, CHANGED = 0x2903, 0x2A01
WRITE_PROTECTED = 0x2700
"""WRITE PROTECTED (SPC-4), with DATA PROTECT."""
POWER_ON = 0x2900
FORMAT_UNIT = 0x04


@dataclass(frozen=True)
class UnitChoices:
    """What the unit may choose."""

    blocks: int = 131072
    block_size: int = 512
    without: tuple[CommandFormat, ...] = ()  # commands that it does not have
    pages: tuple[int, ...] = (0x00, 0x80, 0x83, 0x86, 0x88, 0xB0, 0xB1, 0xB2)
    read_only: bool = False
    thin: bool = True
    max_transfer: int = 0  # blocks; 0: it announces no limit
    descriptor: bool = False  # D_SENSE is 1 from the start
    depth: int = 0  # commands of one nexus at a time; one more ends in TASK SET FULL; 0: no limit
    attentions: tuple[int, ...] = ()  # that each new nexus has
    silent_releases: bool = False  # NUAR is 1: no unit attention reports a RELEASE
    removable: bool = False  # RMB is 1
    persists: bool = False  # it supports APTPL


@dataclass
class FullUnit(Medium, Reservations, Seldom):
    """The unit."""

    choices: UnitChoices = field(default_factory=UnitChoices)
    written: dict[int, bytes] = field(default_factory=dict)
    modes: dict[int, bytes] = field(default_factory=dict)
    blocks: int = 0

    def __post_init__(self) -> None:
        self.silent_releases, self.removable = self.choices.silent_releases, self.choices.removable
        self.blocks, self.persists = self.choices.blocks, self.choices.persists
        self.modes = self.default_modes()

    def default_modes(self) -> dict[int, bytes]:
        """Return the default values of the mode pages."""
        flags = (D_SENSE * self.choices.descriptor, NUAR * self.choices.silent_releases)
        return {CACHING_PAGE: bytes((WCE,)) + bytes(17), CONTROL_PAGE: bytes(flags) + bytes(8)}

    def lose_power(self) -> None:
        """Forget what does not persist through a loss of power; each nexus is a new one."""
        self.attentions.clear()
        self.prevented.clear()
        self.forget_reservations()
        self.modes = self.default_modes()

    # Blocks

    @property
    def protected(self) -> bool:
        """Whether no block may be written: the unit is read-only, or SWP is set (SPC-4)."""
        return self.choices.read_only or bool(self.modes[CONTROL_PAGE][2] & SWP)

    @property
    def size(self) -> int:
        return self.choices.block_size

    def get(self, lba: int, blocks: int) -> bytes:
        empty = bytes(self.size)
        return b"".join(self.written.get(at, empty) for at in range(lba, lba + blocks))

    def put(self, lba: int, data: bytes) -> None:
        for at in range(len(data) // self.size):
            self.written[lba + at] = data[at * self.size : (at + 1) * self.size]

    def clear(self, lba: int, blocks: int) -> None:
        for at in [at for at in self.written if lba <= at < lba + blocks]:
            del self.written[at]

    # Sense data and unit attentions

    def sense(self, key: int, asc: int, information: int | None = None) -> bytes:
        if not self.modes[CONTROL_PAGE][0] & D_SENSE:
            return fixed_sense(key, asc, information=information)
        if information is None:
            return descriptor_sense(key, asc)
        body = b"\x00\x0a\x80\x00" + information.to_bytes(8, "big")
        return bytes((0x72, key)) + asc.to_bytes(2, "big") + bytes((0, 0, 0, len(body))) + body

    # Any command

    def known(self, block: bytes) -> CommandFormat:
        """Return the command of a CDB."""
        if block[0] == FORMAT_UNIT and block[1] & 0xC0:  # FMTPINFO; no other form is there
            raise invalid_field()
        keys = (block[0], block[1] & 0x1F), (block[0], None)
        command = next((table[key] for table in (COMMANDS, SELDOM) for key in keys if key in table), None)
        if command is None or command in self.choices.without or not hasattr(self, _method(command)):
            same = any(code == block[0] for code, action in COMMANDS if action is not None)
            absent = command is None and same
            raise invalid_field() if absent else illegal(Asc.INVALID_COMMAND_OPERATION_CODE)
        return command

    def check(self, command: CommandFormat, block: bytes, nexus: Nexus, *, waiting: int) -> None:
        """Raise what ends a command before it is executed; its nexus has ``waiting`` commands."""
        if self.choices.depth and waiting >= self.choices.depth:
            raise Ended(ScsiStatus.TASK_SET_FULL)
        if command not in WITHOUT_ATTENTION and (pending := self.attentions.get(nexus)):
            raise ScsiError(SenseKey.UNIT_ATTENTION, pending.pop(0))
        if block[command.length - 1] & 0x04:  # NACA
            raise invalid_field()
        if self.excludes(command, block, nexus):
            raise Ended(ScsiStatus.RESERVATION_CONFLICT)
        self.check_medium(command)
        if command in RANGES and command is not c.UNMAP:
            self.check_range(command, block)
        if self.protected and command in CHANGING:
            raise ScsiError(SenseKey.DATA_PROTECT, WRITE_PROTECTED)

    def check_range(self, command: CommandFormat, block: bytes) -> None:
        lba, blocks = extent(command, block)
        if command.length > 6 and command not in (*PRE_FETCHES, *SYNCHRONIZERS) and block[1] >> 5:
            raise invalid_field()
        if lba + blocks > self.blocks or (lba == self.blocks and blocks):
            raise illegal(Asc.LBA_OUT_OF_RANGE)
        if command is c.COMPARE_AND_WRITE and blocks > self.most_compared:
            raise invalid_field()
        limited = command not in (*SAMES, *PRE_FETCHES, *SYNCHRONIZERS)
        if self.choices.max_transfer and limited and blocks > self.choices.max_transfer:
            raise invalid_field()

    # Commands without data-out: each returns its data

    def request_sense(self, block: bytes, nexus: Nexus) -> bytes:
        pending = self.attentions.get(nexus)
        asc = pending.pop(0) if pending else 0
        key = SenseKey.UNIT_ATTENTION if asc else SenseKey.NO_SENSE
        return cut(descriptor_sense(key, asc) if block[1] & 1 else fixed_sense(key, asc), block[4:5])

    def inquiry(self, block: bytes, nexus: Nexus) -> bytes:
        if not block[1] & 1:
            if block[2]:
                raise invalid_field()
            head = bytes((0, self.removable << 7, 6, 0x12, 31, INQUIRY_FLAGS, 0, 2))
            return cut(head + b"SOUND   " + b"a full unit     " + b"1   ", block[3:5])
        if block[2] not in self.choices.pages:
            raise invalid_field()
        body = self.page(block[2])
        return cut(struct.pack(">BBH", 0, block[2], len(body)) + body, block[3:5])

    def page(self, code: int) -> bytes:
        """Return the body of a VPD page."""
        match code:
            case 0x00:
                return bytes(self.choices.pages)
            case 0x80:
                return b"57057E57"
            case 0x83:
                return b"\1\3\0\x10" + NAA + PORT_DESIGNATORS + PORT_NAMES
            case 0x86:
                return bytes((0, 0x07)) + bytes(58)  # HEADSUP, ORDSUP, SIMPSUP
            case 0x88:
                return PORTS_PAGE
            case 0xB0:
                return self.limits()
            case 0xB1:
                return b"\0\1" + bytes(58)  # it does not rotate
        return self.provisioning()

    def provisioning(self) -> bytes:
        """Return the body of page B2h: LBPU, LBPWS, LBPWS10, LBPRZ, and the type."""
        offered = [self.supports(one) for one in (c.UNMAP, c.WRITE_SAME_16, c.WRITE_SAME_10)]
        unmaps = sum(there << (7 - bit) for bit, there in enumerate(offered)) if self.choices.thin else 0
        return bytes((0, unmaps | 0x04, 2 if self.choices.thin else 0, 0))

    @property
    def may_unmap(self) -> bool:
        return self.choices.thin and c.UNMAP not in self.choices.without

    @property
    def most_compared(self) -> int:
        """MAXIMUM COMPARE AND WRITE LENGTH."""
        return min(16, self.choices.max_transfer or 16)

    def limits(self) -> bytes:
        """Return the body of the Block Limits page."""
        most = (8192, 8, 1) if self.may_unmap else (0, 0, 0)
        compared = 0 if c.COMPARE_AND_WRITE in self.choices.without else self.most_compared
        body = struct.pack(">BBHII", 0, compared, 0, self.choices.max_transfer, 0)
        body += struct.pack(">IIII", 0, *most) + bytes(4) + struct.pack(">Q", 0)
        return body.ljust(60, b"\0")

    def read_capacity_10(self, block: bytes, nexus: Nexus) -> bytes:
        if any(block[2:6]) or block[8] & 1:
            raise invalid_field()
        return struct.pack(">II", min(self.blocks - 1, 0xFFFFFFFF), self.size)

    def read_capacity_16(self, block: bytes, nexus: Nexus) -> bytes:
        provisioning = 0xC0 if self.choices.thin else 0
        data = struct.pack(">QIBBB", self.blocks - 1, self.size, 0, 0, provisioning)
        return cut(data.ljust(32, b"\0"), block[10:14])

    def get_lba_status(self, block: bytes, nexus: Nexus) -> bytes:
        lba = int.from_bytes(block[2:10], "big")
        if lba >= self.blocks:
            raise illegal(Asc.LBA_OUT_OF_RANGE)
        mapped = not self.choices.thin or lba in self.written
        end = lba + 1
        most = min(self.blocks, lba + 65536)
        while self.choices.thin and end < most and (end in self.written) == mapped:
            end += 1
        data = struct.pack(">I4xQIB3x", 20, lba, (end if self.choices.thin else most) - lba, not mapped)
        return cut(data, block[10:14])

    def report_luns(self, block: bytes, nexus: Nexus) -> bytes:
        if block[2] > 2:
            raise invalid_field()
        luns = b"" if block[2] == 1 else bytes(8)
        return cut(struct.pack(">I4x", len(luns)) + luns, block[6:10])

    def mode_sense_6(self, block: bytes, nexus: Nexus) -> bytes:
        body = self.mode_pages(block)
        head = bytes((3 + len(body), 0, self.mode_flags, 8 * (not block[1] & 8)))
        return cut(head + body, block[4:5])

    def mode_sense_10(self, block: bytes, nexus: Nexus) -> bytes:
        body = self.mode_pages(block)
        head = struct.pack(">HBBBxH", 6 + len(body), 0, self.mode_flags, 0, 8 * (not block[1] & 8))
        return cut(head + body, block[7:9])

    @property
    def mode_flags(self) -> int:
        return 0x10 | self.protected << 7

    def mode_pages(self, block: bytes) -> bytes:
        """Return the block descriptor and the pages that MODE SENSE asks for."""
        control, code, subpage = block[2] >> 6, block[2] & 0x3F, block[3]
        codes = sorted(self.modes) if code == 0x3F else [code]
        if any(one not in self.modes for one in codes) or subpage not in (0, 0xFF):
            raise invalid_field()
        if subpage and code != 0x3F:
            raise invalid_field()
        if control == 3:
            raise illegal(Asc.SAVING_PARAMETERS_NOT_SUPPORTED)
        out = b"" if block[1] & 8 else self.block_descriptor()
        for one in codes:
            values = (self.modes, self.changeable, self.default_modes())[control]
            out += bytes((one, len(values[one]))) + values[one]
        return out

    @property
    def changeable(self) -> dict[int, bytes]:
        """The masks of changeable values: none without MODE SELECT."""
        able = any(self.supports(one) for one in SELECTS)
        return {code: mask if able else bytes(len(mask)) for code, mask in CHANGEABLE.items()}

    def block_descriptor(self) -> bytes:
        return struct.pack(">II", min(self.blocks, 0xFFFFFFFF), self.size)

    def report_supported_operation_codes(self, block: bytes, nexus: Nexus) -> bytes:
        options, timeouts = block[2] & 7, bool(block[2] & 0x80)
        code, action = block[3], int.from_bytes(block[4:6], "big")
        supported = [one for one in COMMANDS.values() if self.supports(one)]
        if options == 0:
            body = b"".join(described(one, action, timeouts=timeouts) for one in supported
                            for action in self.actions(one))  # fmt: skip
            return cut(struct.pack(">I", len(body)) + body, block[6:10])
        found = [one for one in supported if one.opcode == code]
        has_actions = any(action is not None for one in found for action in self.actions(one))
        if options > 3 or (options == 1 and has_actions) or (options == 2 and found and not has_actions):
            raise invalid_field()
        if has_actions:
            found = [one for one in found if action in self.actions(one)]
        if not found or (options == 3 and not has_actions and action):
            return cut(bytes((0, 1, 0, 0)), block[6:10])
        usage = usage_map(found[0], action if has_actions else None)
        data = struct.pack(">BBH", 0, 3 | timeouts << 7, len(usage)) + usage
        return cut(data + timeouts * TIMEOUTS, block[6:10])

    def supports(self, command: CommandFormat) -> bool:
        return command not in self.choices.without and hasattr(self, _method(command))

    def actions(self, command: CommandFormat) -> list[int | None]:
        """Return the service actions of a command, or None alone."""
        if command is c.PERSISTENT_RESERVE_IN:
            return [int(action) for action in PrIn]
        if command is c.PERSISTENT_RESERVE_OUT:
            return [int(action) for action in PrOut]
        return [command.service_action]

    def report_supported_task_management_functions(self, block: bytes, nexus: Nexus) -> bytes:
        return cut(bytes((0x8A, 0, 0, 0)), block[6:10])

    def reserve_6(self, block: bytes, nexus: Nexus) -> bytes:
        self.reserved6 = nexus
        return b""

    def release_6(self, block: bytes, nexus: Nexus) -> bytes:
        self.reserved6 = None if self.reserved6 == nexus else self.reserved6
        return b""

    def read(self, block: bytes, nexus: Nexus) -> bytes:
        return self.get(*extent(self.known(block), block))

    read_6 = read_10 = read_12 = read_16 = read

    def nothing(self, block: bytes, nexus: Nexus) -> bytes:
        return b""

    pre_fetch_10 = pre_fetch_16 = synchronize_cache_10 = synchronize_cache_16 = nothing

    # Commands with data-out: ``outgoing`` returns how much is transferred, and what executes the command

    def outgoing(
        self, command: CommandFormat, block: bytes, nexus: Nexus
    ) -> tuple[int, Callable[[bytes], object]]:
        if command in SELECTS:
            length = block[4] if command is c.MODE_SELECT_6 else int.from_bytes(block[7:9], "big")
            if block[1] & 1 or not block[1] & 0x10:
                raise invalid_field()
            return length, lambda data: self.mode_select(command, data, nexus)
        if command in (c.SEND_DIAGNOSTIC, *SELDOM_OUT):
            return self.seldom_out(command, block, nexus) if command in SELDOM_OUT else self.diagnostic(block)
        if command is c.PERSISTENT_RESERVE_OUT:
            return int.from_bytes(block[5:9], "big"), lambda data: self.reserve_out(block, data, nexus)
        if command is c.UNMAP:
            if block[1] & 1:
                raise invalid_field()
            return int.from_bytes(block[7:9], "big"), self.unmap
        return self.outgoing_blocks(command, block)

    def outgoing_blocks(self, command: CommandFormat, block: bytes) -> tuple[int, Callable[[bytes], object]]:
        """``outgoing`` of a command on a range of blocks."""
        lba, blocks = extent(command, block)
        size = blocks * self.size
        check = block[1] >> 1 & 3
        if command in VERIFIERS:
            if check == 2:
                raise invalid_field()
            return {0: 0, 1: size, 3: self.size}[check], lambda data: self.verify(lba, blocks, check, data)
        if command in WRITING_VERIFIERS and check > 1:
            raise invalid_field()
        if command in SAMES:
            return self.same(command, block, lba, blocks)
        if command is c.COMPARE_AND_WRITE:
            return 2 * size, lambda data: self.compare_and_write(lba, data[:size], data[size:])
        if command is c.ORWRITE_16:
            return size, lambda data: self.orwrite(lba, blocks, data)
        return size, lambda data: self.put(lba, data)

    def compare_and_write(self, lba: int, compare: bytes, write: bytes) -> None:
        self.compared(self.get(lba, len(compare) // self.size), compare)
        self.put(lba, write)

    def orwrite(self, lba: int, blocks: int, data: bytes) -> None:
        self.put(lba, bytes(a | b for a, b in zip(self.get(lba, blocks), data, strict=True)))

    def verify(self, lba: int, blocks: int, check: int, data: bytes) -> None:
        if check:
            self.compared(self.get(lba, blocks), data * (blocks if check == 3 else 1))

    def compared(self, found: bytes, wanted: bytes) -> None:
        for start in range(0, len(found), 4096):  # a comparison of each byte takes long
            pair = found[start : start + 4096], wanted[start : start + 4096]
            if pair[0] != pair[1]:
                raise Miscompare(start + [a != b for a, b in zip(*pair, strict=True)].index(True))

    def same(
        self, command: CommandFormat, block: bytes, lba: int, blocks: int
    ) -> tuple[int, Callable[[bytes], object]]:
        nothing = command is c.WRITE_SAME_16 and block[1] & 1
        if block[1] & 0x10 or (block[1] & 8 and not self.choices.thin):
            raise invalid_field()
        count = blocks or self.blocks - lba

        def execute(data: bytes) -> None:
            one = data or bytes(self.size)
            if any(one):
                self.put(lba, one * count)
            else:
                self.clear(lba, count)

        return (0 if nothing else self.size), execute

    def unmap(self, data: bytes) -> None:
        if not data:
            return
        if len(data) < 8:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        length = int.from_bytes(data[2:4], "big") // 16 * 16
        ranges = list(struct.iter_unpack(">QI4x", data[8 : 8 + length][: (len(data) - 8) // 16 * 16]))
        if any(lba + count > self.blocks for lba, count in ranges):
            raise illegal(Asc.LBA_OUT_OF_RANGE)
        if len(ranges) > 8 or sum(count for _, count in ranges) > 8192:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        for lba, count in ranges:
            self.clear(lba, count)

    def mode_select(self, command: CommandFormat, data: bytes, nexus: Nexus) -> None:
        if not data:
            return
        long = command is c.MODE_SELECT_10
        if len(data) < (8 if long else 4):
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        skipped = int.from_bytes(data[6:8], "big") if long else data[3]
        rest, new = data[(8 if long else 4) + skipped :], dict(self.modes)
        if skipped not in (0, 8):
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        if len(data) < (8 if long else 4) + skipped:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        while rest:
            code, length = rest[0] & 0x3F, rest[1] if len(rest) > 1 else 0
            if len(rest) < 2 or len(rest) < 2 + length:
                raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
            if code not in new or length != len(new[code]) or rest[0] & 0xC0:
                raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
            body = rest[2 : 2 + length]
            if any((a ^ b) & ~mask for a, b, mask in zip(body, new[code], CHANGEABLE[code], strict=True)):
                raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
            new[code], rest = body, rest[2 + length :]
        if new != self.modes:
            self.modes = new
            self.notify(self.others(nexus), CHANGED)


class Miscompare(ScsiError):
    """The data of a comparison differ first in byte ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY)
        self.at = at


def _method(command: CommandFormat) -> str:
    """Return the name of the method of a command; those with data-out are executed by ``outgoing``."""
    if command in (*CHANGING, *VERIFIERS, *SELECTS, *SELDOM_OUT, c.PERSISTENT_RESERVE_OUT, c.SEND_DIAGNOSTIC):
        return "outgoing"
    return command.name.lower().replace("(", "_").replace(")", "").replace(" ", "_").replace("-", "_")


def extent(command: CommandFormat, block: bytes) -> tuple[int, int]:
    """Return the first block and the number of blocks of a CDB."""
    if command.length == 6:
        return int.from_bytes(block[1:4], "big") & 0x1FFFFF, block[4] or 256
    if command is c.COMPARE_AND_WRITE:
        return int.from_bytes(block[2:10], "big"), block[13]
    lba, blocks = {10: (4, slice(7, 9)), 12: (4, slice(6, 10)), 16: (8, slice(10, 14))}[command.length]
    return int.from_bytes(block[2 : 2 + lba], "big"), int.from_bytes(block[blocks], "big")


@dataclass(eq=False)
class FullConnection(Connection):
    """A connection to a :class:`FullUnit`."""

    full: FullUnit = field(default_factory=FullUnit)
    nexus: Nexus = ("", b"")

    def login(self, pdu: LoginRequest) -> None:
        with contextlib.suppress(Exception):
            name = dict(parse_text(pdu.data)).get("InitiatorName")
            if name:
                self.nexus = (name, bytes(pdu.isid))
        super().login(pdu)
        if self.nexus not in self.full.attentions:
            self.full.attentions[self.nexus] = list(self.full.choices.attentions)

    def command(self, pdu: ScsiCommand) -> None:
        full = self.full
        try:
            if pdu.lun != flat_lun(self.choices.lun):
                self.answer(pdu, of_absent_unit(pdu))
                return
            command = full.known(pdu.cdb)
            full.check(command, pdu.cdb, self.nexus, waiting=len(self.writes))
            if _method(command) == "outgoing":
                size, execute = full.outgoing(command, pdu.cdb, self.nexus)
                least = min(size, 1) if command in WRITERS else size  # a part of a write is an overflow
                if pdu.expected_length < least:
                    raise invalid_field()
                self.receive(pdu, size, 0, execute)
            else:
                self.answer(pdu, getattr(full, _method(command))(pdu.cdb, self.nexus))
        except ScsiError as error:
            self.fail(pdu, error)
        except Ended as ended:
            self.respond(ScsiResponse(itt=pdu.itt, status=ended.status))

    def fail(self, pdu: ScsiCommand, error: ScsiError) -> None:
        information = error.at if isinstance(error, Miscompare) else None
        sense = self.full.sense(error.key, error.asc, information)
        self.respond(ScsiResponse(itt=pdu.itt, status=2, data=struct.pack(">H", len(sense)) + sense))

    def end(self, write: Write) -> None:
        try:
            super().end(write)
        except Ended as ended:
            self.respond(ScsiResponse(itt=write.command.itt, status=ended.status))

    def task(self, pdu: TaskRequest) -> None:
        if pdu.function == TaskFunction.TARGET_WARM_RESET:  # it has one logical unit
            pdu = replace(pdu, function=TaskFunction.LOGICAL_UNIT_RESET, lun=flat_lun(self.choices.lun))
        there = pdu.lun == flat_lun(self.choices.lun)
        if there and pdu.function == TaskFunction.LOGICAL_UNIT_RESET:  # all is done before the response
            self.full.notify(self.full.others(self.nexus), RESET)
            self.full.reserved6 = None
            self.full.prevented.clear()
        super().task(pdu)


class FullServer(Server):
    """A context manager that serves one :class:`FullUnit` on loopback."""

    def __init__(
        self, unit: FullUnit, choices: Choices | None = None, *, kind: type[FullConnection] = FullConnection
    ) -> None:
        super().__init__(choices)
        self.full, self.kind = unit, kind
        unit.abort = self._abort

    def _abort(self, nexus: Nexus) -> None:
        for other in self._connections:
            if isinstance(other, FullConnection) and other.nexus == nexus:
                other.writes.clear()

    def drop_connections(self) -> None:
        """End every connection."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _serve(self, sock: Any, moved_to: str) -> None:
        with sock, contextlib.suppress(OSError):
            made = self.kind(sock, self.unit, self.choices, every=self._connections, full=self.full)
            self._connections.append(made)
            try:
                made.serve()
            finally:
                self._connections.remove(made)
                self.full.prevented.discard(made.nexus)
                if self.full.reserved6 == made.nexus:
                    self.full.reserved6 = None
