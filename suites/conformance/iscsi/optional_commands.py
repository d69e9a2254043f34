"""Commands that a device server need not have."""

from __future__ import annotations

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit


def has_twelve_byte_commands(unit: LogicalUnit, lba: int) -> bool:
    """Whether READ(12) is supported (a unit that has it is taken to have WRITE(12), too)."""
    return not unit.read(lba, command=c.READ_12).unsupported
