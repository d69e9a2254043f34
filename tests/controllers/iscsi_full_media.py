"""The medium of the unit of :mod:`iscsi_full_unit`, and its self-test (SPC-4 SEND DIAGNOSTIC, SBC-3).

A unit that is not removable is always ready, and a prevention of its removal changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from iscsi_full_reservations import Nexus, illegal, invalid_field
from iscsi_thin_unit import ScsiError

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat
from storagetest.wire.scsi.codes import Asc, SenseKey

SELFTEST, LOEJ, START = 0x04, 0x02, 0x01
RESERVED_CODES = (3, 7)
"""Of SELF-TEST CODE."""
RESERVED_CONDITIONS = (0xC, 0xD, 0xE, 0xF)
"""Of POWER CONDITION."""
WITHOUT_MEDIUM = (
    c.INQUIRY, c.REPORT_LUNS, c.REQUEST_SENSE, c.START_STOP_UNIT, c.PREVENT_ALLOW_MEDIUM_REMOVAL,
    c.PERSISTENT_RESERVE_IN, c.PERSISTENT_RESERVE_OUT, c.REPORT_SUPPORTED_OPERATION_CODES,
)  # fmt: skip
"""Commands that are executed without a medium."""


@dataclass(kw_only=True)
class Medium:
    """``prevented`` has the nexuses that prevent the removal."""

    loaded: bool = True
    removable: bool = False
    prevented: set[Nexus] = field(default_factory=set)

    def check_medium(self, command: CommandFormat) -> None:
        if not self.loaded and command not in WITHOUT_MEDIUM:
            raise ScsiError(SenseKey.NOT_READY, Asc.MEDIUM_NOT_PRESENT)

    def test_unit_ready(self, block: bytes, nexus: Nexus) -> bytes:
        return b""

    def start_stop_unit(self, block: bytes, nexus: Nexus) -> bytes:
        """Load or eject the medium if it is removable; a start or a stop without that changes nothing.

        A POWER CONDITION but 0 has START and LOEJ ignored.
        """
        if block[4] >> 4 in RESERVED_CONDITIONS:
            raise invalid_field()
        if self.removable and block[4] & LOEJ and not block[4] >> 4:
            if not block[4] & START and self.prevented:
                raise illegal(Asc.MEDIUM_REMOVAL_PREVENTED)
            self.loaded = bool(block[4] & START)
        return b""

    def prevent_allow_medium_removal(self, block: bytes, nexus: Nexus) -> bytes:
        if block[4] & 2:
            raise invalid_field()
        (self.prevented.add if block[4] & 1 else self.prevented.discard)(nexus)
        return b""

    def diagnostic(self, block: bytes) -> tuple[int, Callable[[bytes], object]]:
        """Return the length of the parameter list of SEND DIAGNOSTIC, and what executes it."""
        if not block[1] & SELFTEST and block[1] >> 5 in RESERVED_CODES:
            raise invalid_field()

        def execute(data: bytes) -> None:
            if data:
                raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)  # it has no page

        return int.from_bytes(block[3:5], "big"), execute
