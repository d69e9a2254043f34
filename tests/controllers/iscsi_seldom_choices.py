"""Legal choices of a target that few make: of the unit, of its command window, of its logins and sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from iscsi_full_reservations import TYPED, Nexus, cut, invalid_field
from iscsi_full_unit import CHANGEABLE, FullConnection, FullUnit

from storagetest.wire.iscsi.codes import NO_TAG, LoginStatus, Stage
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, NopIn, ScsiCommand
from storagetest.wire.scsi.codes import PrIn, PrType

TYPES = {
    PrType.WRITE_EXCLUSIVE: b"\x02\x00",
    PrType.EXCLUSIVE_ACCESS: b"\x08\x00",
    PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY: b"\x20\x00",
    PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: b"\x40\x00",
}
"""Types of persistent reservations, and their bits of the TYPE MASK (SPC-4 REPORT CAPABILITIES)."""
VENDOR_MODES = range(0x21, 0x3F)
"""Mode page codes that are the vendor's, but 20h (SPC-4)."""
VENDOR_COMMAND = 0xFF
"""An operation code that is the vendor's (SPC-4): C0h to FFh are."""
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


class VendorUnit(FullUnit):
    """It has mode pages of its vendor, and a Device Identification page of more than 255 bytes (SPC-4)."""

    def default_modes(self) -> dict[int, bytes]:
        CHANGEABLE.update({code: bytes(2) for code in VENDOR_MODES})
        return super().default_modes() | {code: bytes((code, 7)) for code in VENDOR_MODES}

    def page(self, code: int) -> bytes:
        own = b"\x02\x00\0\xc8" + b"any text".ljust(200) if code == 0x83 else b""
        return super().page(code) + own


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
