"""What the cases of reservations between two hosts share: keys, premises and claims."""

from __future__ import annotations

from storagetest.wire.scsi.codes import PrType
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

KEY_A, KEY_B = 0xA1A2A3A4A5A6A7A8, 0xB1B2B3B4B5B6B7B8
"""Reservation keys of the two hosts (chosen)."""

RESERVING = ("SCS-PR-36", "SCS-PR-37")
"""The premises of a case in which an initiator registers and reserves."""


def reserved(a: LogicalUnit, kind: PrType) -> None:
    """Register ``a`` and let it reserve."""
    for answer in (a.register(KEY_A), a.reserve(kind, KEY_A)):
        assert answer.good, answer


def claim(answer: ScsiResult, *, allowed: bool) -> None:
    """Claim that a command was done, or ended in RESERVATION CONFLICT."""
    assert answer.good if allowed else answer.conflict, (
        f"{answer}; {'GOOD' if allowed else 'RESERVATION CONFLICT'} was expected"
    )
