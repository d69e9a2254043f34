"""A logical unit number that no logical unit of the target has."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.scsi.data import decode_luns
from storagetest.wire.scsi.logical_unit import LogicalUnit

NUMBERS = (0x2FF, 0x1A7, 0x3FD, 0x155)
"""Numbers that may be absent (chosen: of two bytes that are both not zero)."""


def absent_lun(session: Initiator, *, harmless: bool = True) -> int:
    """Return the 8-byte field of a LUN that REPORT LUNS does not list.

    Skips the case if all of :data:`NUMBERS` are listed. If the units are not listed at all, a case that is
    not ``harmless`` is skipped: its command would change a unit that is there after all.
    """
    listed = LogicalUnit(session).luns()
    if not listed.good:
        if harmless:
            return flat_lun(NUMBERS[0])
        pytest.skip(f"{listed}: the units are not listed, and a LUN that is thought absent may be there")
    there = decode_luns(listed.data)
    for number in NUMBERS:
        if flat_lun(number) not in there:
            return flat_lun(number)
    pytest.skip(f"the LUNs {', '.join(map(str, NUMBERS))} are there")
