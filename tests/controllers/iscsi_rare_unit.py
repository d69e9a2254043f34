"""The unit of :mod:`iscsi_full_unit` with what few units have: saved mode pages, QErr, counters, RESERVE(10).

Written from SPC-4 and, for RESERVE(10), from SPC-2. One log page has counters, which LOG SELECT resets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from iscsi_full_reservations import Ended, Nexus, cut, illegal, invalid_field
from iscsi_full_unit import CONTROL_PAGE, SELECTS, FullConnection, FullUnit
from iscsi_thin_unit import ScsiError

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.pdu import ScsiCommand, ScsiResponse, TaskRequest
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat
from storagetest.wire.scsi.codes import Asc
from storagetest.wire.scsi.seldom_cdb import LOG_SELECT, RELEASE_10, RESERVE_10

SAVED, PS = 3, 0x80
"""PC of saved values, and the bit of a mode page that can be saved (SPC-4)."""
QERR, QERR_ALL = 0x06, 0x02
"""The field QERR in byte 3 of the Control mode page, and its value 01b: every command is aborted (SPC-4)."""
CLEARED = 0x2F00
"""COMMANDS CLEARED BY ANOTHER INITIATOR (SPC-4)."""
COUNTERS, PROVISIONING = 0x02, 0x0C
"""Log pages: Write Error Counter, and Logical Block Provisioning (SPC-4, SBC-3)."""
ERRORS, PROCESSED = 0x0003, 0x0005
"""Parameters of page 02h: total errors corrected, and total bytes processed (SPC-4)."""
MOST = 1024
"""MAXIMUM UNMAP LBA COUNT and MAXIMUM WRITE SAME LENGTH (SBC-3)."""
SIX = {RESERVE_10: c.RESERVE_6, RELEASE_10: c.RELEASE_6}
"""The commands of 6 bytes that do the same."""


@dataclass
class RareUnit(FullUnit):
    """``saved`` are the saved mode pages; ``processed`` counts the bytes that were written."""

    saved: dict[int, bytes] = field(default_factory=dict)
    processed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.saved = self.default_modes()

    def restore(self) -> None:
        """After a power on or a reset the current values are the saved ones (SPC-4)."""
        self.modes = dict(self.saved)

    # Mode pages

    def mode_pages(self, block: bytes) -> bytes:
        own = block
        if block[2] >> 6 == SAVED:
            own = block[:2] + bytes((block[2] & 0x3F,)) + block[3:]
        current, self.modes = self.modes, self.saved if own is not block else self.modes
        try:
            data = bytearray(super().mode_pages(own))
        finally:
            self.modes = current
        at = 0 if block[1] & 8 else 8
        while at < len(data):
            data[at] |= PS
            at += 2 + data[at + 1]
        return bytes(data)

    @property
    def changeable(self) -> dict[int, bytes]:
        mask = dict(super().changeable)
        page = bytearray(mask[CONTROL_PAGE])
        page[1] |= QERR
        return mask | {CONTROL_PAGE: bytes(page)}

    def select(self, command: CommandFormat, data: bytes, nexus: Nexus, *, save: bool) -> None:
        """MODE SELECT: QERR is not in the mask of the unit that this one is made of."""
        start = {c.MODE_SELECT_6: 4, c.MODE_SELECT_10: 8}[command]
        skipped = (int.from_bytes(data[6:8], "big") if start == 8 else data[3]) if len(data) >= start else 0
        at, qerr, own = start + skipped, None, bytearray(data)
        while at + 4 <= len(data):
            if data[at] == CONTROL_PAGE:
                qerr = data[at + 3] & QERR
                own[at + 3] = own[at + 3] & ~QERR | self.modes[CONTROL_PAGE][1] & QERR
            at += 2 + data[at + 1]
        if qerr == 0x04:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        before = self.modes
        self.mode_select(command, bytes(own), nexus)
        if qerr is not None:
            page = bytearray(self.modes[CONTROL_PAGE])
            page[1] = page[1] & ~QERR | qerr
            unreported = self.modes == before
            self.modes = self.modes | {CONTROL_PAGE: bytes(page)}
            if unreported and self.modes != before:
                self.notify(self.others(nexus), Asc.MODE_PARAMETERS_CHANGED)
        if save:
            self.saved = dict(self.modes)

    # Log pages

    def parameters(self, page: int) -> list[bytes]:
        """Return the parameters of a log page, in the order of their codes."""
        if page == PROVISIONING:
            return [bytes.fromhex("000103020001")]
        values = {ERRORS: 0, PROCESSED: self.processed}
        return [struct.pack(">HBBQ", code, 0, 8, value) for code, value in values.items()]

    def log_sense(self, block: bytes, nexus: Nexus) -> bytes:
        code, subpage, pointer = block[2] & 0x3F, block[3], int.from_bytes(block[5:7], "big")
        if code == 0 and subpage in (0, 0xFF):
            listed = (0, COUNTERS, PROVISIONING)
            body = bytes(listed) if not subpage else b"\0\0\0\xff\x02\0\x0c\0"
            if pointer:
                raise invalid_field()
        elif code in (COUNTERS, PROVISIONING) and not subpage:
            left = [one for one in self.parameters(code) if int.from_bytes(one[:2], "big") >= pointer]
            if not left:
                raise invalid_field()
            body = b"".join(left)
        else:
            raise invalid_field()
        flags = 0x40 * bool(subpage)
        return cut(struct.pack(">BBH", code | flags, subpage, len(body)) + body, block[7:9])

    def log_select(self, block: bytes) -> tuple[int, Callable[[bytes], object]]:
        """LOG SELECT: no parameter can be set or saved; PCR resets the counters."""
        length = int.from_bytes(block[7:9], "big")
        resets = block[1] & 2
        if block[1] & 1 or (resets and length):
            raise invalid_field()
        if not length and block[2] & 0x3F not in (0, COUNTERS, PROVISIONING):
            raise invalid_field()

        def execute(data: bytes) -> None:
            if resets:
                self.processed = 0
            if data and len(data) < 4 + int.from_bytes(data[2:4], "big"):
                raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
            if data:
                raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)

        return length, execute

    def put(self, lba: int, data: bytes) -> None:
        self.processed += len(data)
        super().put(lba, data)

    # Block Limits

    def limits(self) -> bytes:
        data = bytearray(super().limits())
        data[16:20], data[32:40] = MOST.to_bytes(4, "big"), MOST.to_bytes(8, "big")
        return bytes(data)

    def unmap(self, data: bytes) -> None:
        listed = struct.iter_unpack(">QI4x", data[8:][: (len(data) - 8) // 16 * 16] if len(data) > 8 else b"")
        if sum(count for _, count in listed) > MOST:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        super().unmap(data)

    def same(
        self, command: CommandFormat, block: bytes, lba: int, blocks: int
    ) -> tuple[int, Callable[[bytes], object]]:
        if (blocks or self.blocks - lba) > MOST:
            raise invalid_field()
        return super().same(command, block, lba, blocks)

    # RESERVE(10)

    def excludes(self, command: CommandFormat, block: bytes, nexus: Nexus) -> bool:
        return super().excludes(SIX.get(command, command), block, nexus)

    def reserve_10(self, block: bytes, nexus: Nexus) -> bytes:
        if block[1] & 0x13:  # third parties, and extents
            raise invalid_field()
        return self.reserve_6(block, nexus)

    def release_10(self, block: bytes, nexus: Nexus) -> bytes:
        if block[1] & 0x13:
            raise invalid_field()
        return self.release_6(block, nexus)

    # Commands with data-out

    def outgoing(
        self, command: CommandFormat, block: bytes, nexus: Nexus
    ) -> tuple[int, Callable[[bytes], object]]:
        if command in SELECTS:
            length, _ = super().outgoing(command, block[:1] + bytes((block[1] & ~1,)) + block[2:], nexus)
            save = bool(block[1] & 1)
            return length, lambda data: self.select(command, data, nexus, save=save)
        return super().outgoing(command, block, nexus)

    def lose_power(self) -> None:
        super().lose_power()
        self.restore()


class RareConnection(FullConnection):
    """A connection to a :class:`RareUnit`."""

    full: RareUnit

    def command(self, pdu: ScsiCommand) -> None:
        if pdu.cdb[0] != LOG_SELECT.opcode or pdu.lun != flat_lun(self.choices.lun):
            super().command(pdu)
            return
        try:
            self.full.check(LOG_SELECT, pdu.cdb, self.nexus, waiting=len(self.writes))
            size, execute = self.full.log_select(pdu.cdb)
            self.receive(pdu, size, 0, execute)
        except ScsiError as error:
            self.fail(pdu, error)
        except Ended as ended:
            self.respond(ScsiResponse(itt=pdu.itt, status=ended.status))

    def fail(self, pdu: ScsiCommand, error: ScsiError) -> None:
        """End a command in CHECK CONDITION; QERR states which others end with it (SPC-4)."""
        qerr = self.full.modes[CONTROL_PAGE][1] & QERR
        if qerr:
            self.writes.clear()
        for other in self.every if qerr == QERR_ALL else ():
            if isinstance(other, RareConnection) and other is not self and other.writes:
                other.writes.clear()
                self.full.notify([other.nexus], CLEARED)
        super().fail(pdu, error)

    def task(self, pdu: TaskRequest) -> None:
        resets = pdu.function in (TaskFunction.TARGET_WARM_RESET, TaskFunction.LOGICAL_UNIT_RESET)
        if resets and pdu.lun in (flat_lun(self.choices.lun), 0):
            self.full.restore()
        super().task(pdu)
