"""Commands that a device server need not have."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.data import decode_mode6
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

CONTROL_PAGE, NUAR = 0x0A, 0x08
"""The Control mode page (SPC-4), and a bit of its byte 3."""


def has_twelve_byte_commands(unit: LogicalUnit, lba: int) -> bool:
    """Whether READ(12) is supported (a unit that has it is taken to have WRITE(12), too)."""
    return not unit.read(lba, command=c.READ_12).unsupported


def require_address(command: c.CommandFormat, lba: int) -> None:
    """Skip if ``lba`` does not fit into the command: only those of 16 bytes have more than 32 bits."""
    if lba > 0xFFFFFFFF and command.length < 16:
        pytest.skip(f"{command.name} has no address past 2^32 - 1, and the unit has {lba} blocks or more")


def offered(answer: ScsiResult) -> ScsiResult:
    """Return ``answer``; skip if the unit has no such command."""
    if answer.unsupported:
        pytest.skip(f"not supported: {answer}")
    return answer


def reserve_6(unit: LogicalUnit) -> None:
    """Reserve the unit with RESERVE(6) (SPC-2); skip if it has no such command."""
    answer = offered(unit.run(c.RESERVE_6))
    assert answer.good, answer


def reports_no_release(unit: LogicalUnit) -> bool:
    """Whether NUAR of the Control mode page is 1: no unit attention on release (SPC-4)."""
    control = unit.run(c.MODE_SENSE_6, read=255, page=CONTROL_PAGE, dbd=1, allocation=255)
    return control.good and bool(decode_mode6(control.data).get(CONTROL_PAGE, bytes(2))[1] & NUAR)
