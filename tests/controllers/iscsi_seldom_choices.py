"""Legal choices of a target that few make: of the unit, of its command window, of its logins and sessions."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from iscsi_full_media import WITHOUT_MEDIUM
from iscsi_full_reservations import TYPED, Nexus, cut, illegal, invalid_field
from iscsi_full_unit import CHANGEABLE, PORT_NAMES, FullConnection, FullUnit
from iscsi_thin_unit import PORT_DESIGNATORS, ScsiError

from storagetest.polling import wait_until
from storagetest.wire.iscsi.codes import NO_TAG, Attribute, LoginStatus, Stage, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, numeric, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, NopIn, ScsiCommand, TaskRequest
from storagetest.wire.scsi.cdb import REPORT_LUNS, WRITE_10, CommandFormat
from storagetest.wire.scsi.codes import Asc, PrIn, PrType, SenseKey

TYPES = {
    PrType.WRITE_EXCLUSIVE: b"\x02\x00",
    PrType.EXCLUSIVE_ACCESS: b"\x08\x00",
    PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY: b"\x20\x00",
    PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: b"\x40\x00",
}
"""Types of persistent reservations, and their bits of the TYPE MASK (SPC-4 REPORT CAPABILITIES)."""
MOST_REGISTRANTS = 3
"""Registrations of :class:`FewRegistrants`."""
VENDOR_MODES = range(0x21, 0x3F)
"""Mode page codes that are the vendor's, but 20h (SPC-4)."""
VENDOR_COMMAND = 0xFF
"""An operation code that is the vendor's (SPC-4): C0h to FFh are."""
STARTING = 0.3
"""Seconds that the unit of :class:`BecomingReady` takes."""
PIECE = 48
"""Bytes of text of a Login Response of :class:`Pieces`."""
INVALID_MESSAGE = 0x4900
"""INVALID MESSAGE ERROR (SPC-4)."""
LONGEST_TURN = 60.0
"""Seconds that a command waits for its turn in :class:`OneNexus`."""
MASKED = "iqn.2024-01.org.example:the-mapped-client"
"""The initiator name that :class:`Masking` serves."""


class FewTypes(FullUnit):
    """It has two types of persistent reservation (SPC-4)."""

    types: tuple[PrType, ...] = (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)

    def check_out(self, action: int, block: bytes, data: bytes) -> None:
        refused = action in TYPED and block[2] & 0x0F not in self.types
        if refused and not self.removes(action, data):
            raise invalid_field()
        super().check_out(action, block, data)

    def persistent_reserve_in(self, block: bytes, nexus: Nexus) -> bytes:
        if block[1] & 0x1F != PrIn.REPORT_CAPABILITIES:
            return bytes(super().persistent_reserve_in(block, nexus))
        mask = sum(int.from_bytes(TYPES[kind], "big") for kind in self.types).to_bytes(2, "big")
        return cut(b"\0\x08\x0c\x80" + mask + b"\0\0", block[7:9])


class RegistrantsTypes(FewTypes):
    """It has the other two."""

    types = (PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY)


class FewRegistrants(FullUnit):
    """It takes three registrations (SPC-4)."""

    def register(self, nexus: Nexus, new: int, data: bytes) -> None:
        listed = self.listed(data) if data[20] & 8 else []
        if new and len({*self.registered, nexus, *listed}) > MOST_REGISTRANTS:
            raise illegal(Asc.INSUFFICIENT_REGISTRATION_RESOURCES)
        super().register(nexus, new, data)


class VendorUnit(FullUnit):
    """It has mode pages of its vendor, and a Device Identification page of more than 255 bytes (SPC-4)."""

    def default_modes(self) -> dict[int, bytes]:
        CHANGEABLE.update({code: bytes(2) for code in VENDOR_MODES})
        return super().default_modes() | {code: bytes((code, 7)) for code in VENDOR_MODES}

    def page(self, code: int) -> bytes:
        own = b"\x02\x00\0\xc8" + b"any text".ljust(200) if code == 0x83 else b""
        return super().page(code) + own


GRAIN, ALIGNMENT, MOST_UNMAPPED = 8, 3, 16
"""Limits of :class:`Grains`, in blocks."""


class Grains(FullUnit):
    """An UNMAP takes one descriptor of few blocks, and parts of a grain stay as they are (SBC-3)."""

    def limits(self) -> bytes:
        data = bytearray(super().limits())
        data[16:32] = struct.pack(">IIII", MOST_UNMAPPED, 1, GRAIN, 1 << 31 | ALIGNMENT)
        return bytes(data)

    def unmap(self, data: bytes) -> None:
        listed = [count for _, count in struct.iter_unpack(">QI4x", data[8:][: (len(data) - 8) // 16 * 16])]
        if len(listed) > 1 or sum(listed) > MOST_UNMAPPED:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        super().unmap(data)

    def clear(self, lba: int, blocks: int) -> None:
        first = lba + (ALIGNMENT - lba) % GRAIN
        end = lba + blocks - (lba + blocks - ALIGNMENT) % GRAIN
        super().clear(first, max(0, end - first))

    def same(
        self, command: CommandFormat, block: bytes, lba: int, blocks: int
    ) -> tuple[int, Callable[[bytes], object]]:
        """Write the blocks: those that are zero are mapped as any other."""
        length, _ = super().same(command, block, lba, blocks)
        count = blocks or self.blocks - lba
        return length, lambda data: self.put(lba, (data or bytes(self.size)) * count)


NAME = UUID("12345678-90ab-4cde-8f01-234567890abc")
"""The name of :class:`LaterStandards`."""
MAPPED, DEALLOCATED = 3, 1
"""PROVISIONING STATUS of SBC-4."""
PATTERN = b"\xa5"
"""Each byte of its provisioning initialization pattern."""
FAILURE_PREDICTED = b"\x5d\x00"
"""FAILURE PREDICTION THRESHOLD EXCEEDED (SPC-4)."""


class LaterStandards(Grains):
    """What SPC-5 and SBC-4 allow, an informational exception, and commands that are not described now."""

    identity = f"uuid.{NAME}"

    def page(self, code: int) -> bytes:
        """Its one name is a UUID (SPC-5), and it has SIMPSUP alone."""
        if code == 0x86:
            return b"\0\1".ljust(60, b"\0")
        if code != 0x83:
            return super().page(code)
        return b"\x01\x0a\0\x12\x10\0" + NAME.bytes + PORT_DESIGNATORS + PORT_NAMES

    def get(self, lba: int, blocks: int) -> bytes:
        """Blocks that are not mapped read as the provisioning initialization pattern (SBC-4)."""
        return b"".join(self.written.get(at, PATTERN * self.size) for at in range(lba, lba + blocks))

    def provisioning(self) -> bytes:
        """LBPRZ is 010b."""
        data = bytearray(super().provisioning())
        data[1] = data[1] & ~0x1C | 0x08
        return bytes(data)

    def read_capacity_16(self, block: bytes, nexus: Nexus) -> bytes:
        """LBPRZ is 0: no zeroes are read."""
        data = bytearray(super().read_capacity_16(block[:10] + bytes((0, 0, 0, 32)) + block[14:], nexus))
        data[14] &= ~0x40
        return cut(bytes(data), block[10:14])

    def read_capacity_10(self, block: bytes, nexus: Nexus) -> bytes:
        """LBA and PMI are obsolete since SBC-3, and are ignored."""
        return super().read_capacity_10(bytes(10), nexus)

    def get_lba_status(self, block: bytes, nexus: Nexus) -> bytes:
        """End with the last whole descriptor for which there is space: COMPLETION CONDITION 001b (SBC-4)."""
        lba, space = struct.unpack_from(">QI", block, 2)
        if lba >= self.blocks:
            raise illegal(Asc.LBA_OUT_OF_RANGE)
        listed, most = b"", min(max(1, (space - 8) // 16), 64)
        while len(listed) < 16 * most and lba < self.blocks:
            mapped, end = lba in self.written, lba + 1
            while end < min(self.blocks, lba + 3) and (end in self.written) == mapped:
                end += 1
            listed += struct.pack(">QIB3x", lba, end - lba, MAPPED if mapped else DEALLOCATED)
            lba = end
        return cut(struct.pack(">I3xB", 4 + len(listed), 1 << 1 | 1) + listed, block[10:14])

    def request_sense(self, block: bytes, nexus: Nexus) -> bytes:
        """Report the exception on request (SPC-4 Informational Exceptions Control mode page, MRIE 6h)."""
        pending = bool(self.attentions.get(nexus))
        data = bytearray(super().request_sense(block[:4] + b"\xfc" + block[5:], nexus))
        if not pending:
            at = 2 if block[1] & 1 else 12
            data[at : at + 2] = FAILURE_PREDICTED
        return cut(bytes(data), block[4:5])

    def report_supported_operation_codes(self, block: bytes, nexus: Nexus) -> bytes:
        """SUPPORT is 000b for one command: there are no data now (SPC-4)."""
        data = bytes(super().report_supported_operation_codes(block, nexus))
        described = bool(block[2] & 7) and data[1:2] != b"\1"
        return cut(bytes(4), block[6:10]) if described else data


class VendorConnection(FullConnection):
    """The unit has a command of its vendor, without data."""

    def command(self, pdu: ScsiCommand) -> None:
        if pdu.cdb[0] == VENDOR_COMMAND:
            self.answer(pdu, b"")
        else:
            super().command(pdu)


@dataclass(eq=False)
class Shutting(FullConnection):
    """A window of one command: it is closed until its response was sent, and a NOP-In opens it (11.19)."""

    shut: bool = False

    @property
    def free(self) -> int:
        return 0 if self.shut or self.writes else 1

    def is_outside(self, pdu: Pdu) -> bool:
        before = self.exp_cmd_sn
        outside = super().is_outside(pdu)
        self.shut = self.shut or self.exp_cmd_sn != before
        return outside

    def respond(self, pdu: Any, *, uses: bool = True) -> None:
        super().respond(pdu, uses=uses)
        if self.shut and uses:
            self.shut = False
            self.send(NopIn(ttt=NO_TAG), uses=False)


@dataclass(eq=False)
class Asking(FullConnection):
    """The first request to enter the full feature phase is answered with T=0 (RFC 7143 6.3)."""

    asked: bool = False

    def login(self, pdu: LoginRequest) -> None:
        if pdu.transit and pdu.nsg == Stage.FULL_FEATURE and not pdu.continues and not self.asked:
            self.asked, pdu = True, replace(pdu, transit=False, nsg=0)
        super().login(pdu)


class BecomingReady(FullConnection):
    """Its unit is becoming ready for a moment after a reset (SPC-4 TEST UNIT READY)."""

    def task(self, pdu: TaskRequest) -> None:
        if pdu.function in (TaskFunction.LOGICAL_UNIT_RESET, TaskFunction.TARGET_WARM_RESET):
            self.full.ready_at = time.monotonic() + STARTING  # type: ignore[attr-defined]
        super().task(pdu)


class StartingUnit(FullUnit):
    """The unit of :class:`BecomingReady`."""

    ready_at = 0.0

    def check_medium(self, command: CommandFormat) -> None:
        if command not in WITHOUT_MEDIUM and time.monotonic() < self.ready_at:
            raise ScsiError(SenseKey.NOT_READY, Asc.BECOMING_READY)
        super().check_medium(command)


class SimpleTasks(FullConnection):
    """It has the task attribute SIMPLE alone."""

    def command(self, pdu: ScsiCommand) -> None:
        if pdu.attribute in (Attribute.UNTAGGED, Attribute.SIMPLE):
            super().command(pdu)
        else:
            self.fail(pdu, illegal(INVALID_MESSAGE))


class Hexadecimal(FullConnection):
    """Numbers of its Login Responses are in hexadecimal notation, in small letters or capital ones (6.1)."""

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        if isinstance(pdu, LoginResponse):
            keys = [(name, value, numeric(value)) for name, value in parse_text(pdu.data)]
            shown = [
                (name, value if number is None else f"0x{number:x}" if number % 2 else f"0X{number:X}")
                for name, value, number in keys
            ]
            pdu = replace(pdu, data=format_text(shown))
        super().send(pdu, uses=uses)


class Irrelevant(FullConnection):
    """FirstBurstLength is Irrelevant after InitialR2T=Yes and ImmediateData=No; each R2T is counted.

    ExpDataSN of a response counts R2Ts as it counts Data-In (RFC 7143 11.4.8, 13.14).
    """

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        if isinstance(pdu, LoginResponse):
            keys = dict(parse_text(pdu.data))
            if "FirstBurstLength" in keys and {**self.taken, **keys}.get("ImmediateData") == "No":
                keys["FirstBurstLength"] = "Irrelevant"
            pdu = replace(pdu, data=format_text(list(keys.items())[::-1]))
        super().send(pdu, uses=uses)


class ShortCommands(FullUnit):
    """It has no commands of 12 and 16 bytes but REPORT LUNS: a unit of SBC-2 (its version is SPC-3)."""

    def supports(self, command: CommandFormat) -> bool:
        return self.is_short(command) and super().supports(command)

    def known(self, block: bytes) -> CommandFormat:
        command = super().known(block)
        if not self.is_short(command):
            raise illegal(Asc.INVALID_COMMAND_OPERATION_CODE)
        return command

    @staticmethod
    def is_short(command: CommandFormat) -> bool:
        return command.length < 12 or command is REPORT_LUNS

    def inquiry(self, block: bytes, nexus: Nexus) -> bytes:
        data = bytearray(super().inquiry(block, nexus))
        if not block[1] & 1:
            data[2:3] = b"\x05"[: len(data[2:3])]
        return bytes(data)


class LongWrites(FullUnit):
    """It has no WRITE(10): no form of a write is mandatory (SBC-3)."""

    def supports(self, command: CommandFormat) -> bool:
        return command is not WRITE_10 and super().supports(command)

    def known(self, block: bytes) -> CommandFormat:
        command = super().known(block)
        if command is WRITE_10:
            raise illegal(Asc.INVALID_COMMAND_OPERATION_CODE)
        return command


@dataclass(eq=False)
class Pieces(FullConnection):
    """The text of its Login Responses comes in pieces (RFC 7143 6.2)."""

    rest: LoginResponse | None = None

    def login(self, pdu: LoginRequest) -> None:
        if self.rest is not None and not pdu.data:
            self.send(self.rest)
        else:
            super().login(pdu)

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        if isinstance(pdu, LoginResponse):
            self.rest = replace(pdu, data=pdu.data[PIECE:]) if len(pdu.data) > PIECE else None
            if self.rest is not None:
                pdu = replace(pdu, data=pdu.data[:PIECE], continues=True, transit=False, nsg=0, tsih=0)
        super().send(pdu, uses=uses)


class Masking(FullConnection):
    """It serves one initiator name, and refuses each other one (RFC 7143 11.13.5)."""

    def login(self, pdu: LoginRequest) -> None:
        name = dict(parse_text(pdu.data)).get("InitiatorName", MASKED) if not pdu.continues else MASKED
        if name == MASKED:
            super().login(pdu)
        else:
            self.refuse_login(pdu, LoginStatus.AUTHORIZATION_FAILED)

    def refuse_login(self, pdu: LoginRequest, status: LoginStatus) -> None:
        """Refuse a login."""
        self.exp_cmd_sn = pdu.cmd_sn
        self.send(LoginResponse(itt=pdu.itt, isid=pdu.isid, csg=pdu.csg, status=status))


class TwoSessions(Masking):
    """It serves two sessions at a time, of any initiator (RFC 7143 11.13.5)."""

    def login(self, pdu: LoginRequest) -> None:
        others = [one for one in self.every if one is not self and one.stage == Stage.FULL_FEATURE]
        if len(others) > 1 and self.stage is None:
            self.refuse_login(pdu, LoginStatus.OUT_OF_RESOURCES)
        else:
            FullConnection.login(self, pdu)


class OneNexus(FullConnection):
    """The unit serves one nexus after the other: commands wait while a write of another waits for data."""

    turn = threading.Lock()
    holder: OneNexus | None = None

    def serve(self) -> None:
        try:
            super().serve()
        finally:
            self.writes.clear()

    def handle(self, pdu: Pdu) -> bool:
        if isinstance(pdu, ScsiCommand):
            wait_until(self.is_turn, LONGEST_TURN, "a turn", interval=0.005)
        return super().handle(pdu)

    def is_turn(self) -> bool:
        """Take the turn and return True, if no other nexus has a write that waits."""
        with self.turn:
            if OneNexus.holder is not None and OneNexus.holder is not self and OneNexus.holder.writes:
                return False
            OneNexus.holder = self
            return True
