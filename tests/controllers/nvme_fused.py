"""The fused operation of the small subsystem: Compare and Write (Base 3.4.2, NVM 2.1.3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvme_namespace import CommandFailed

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme.command import Command

if TYPE_CHECKING:
    from nvme_subsystem import Controller

COMPARE, WRITE = 1, 2
"""FUSE of the first and of the second half (Base 4.1.1)."""


def compare_and_write(
    controller: Controller, halves: dict[int, Command], data: dict[int, bytes]
) -> dict[int, int]:
    """Carry out both halves as one; return the status of each."""
    compare, write = halves[COMPARE], halves[WRITE]
    same = _blocks(compare) == _blocks(write)
    if not same or (compare.opcode, write.opcode) != (Io.COMPARE, Io.WRITE):
        return dict.fromkeys((COMPARE, WRITE), int(StatusCode.INVALID_FIELD))
    if compare.cdw12 & 0xFFFF > controller.traits.acwu:
        return dict.fromkeys((COMPARE, WRITE), int(StatusCode.ATOMIC_WRITE_UNIT_EXCEEDED))
    with controller.subsystem.lock:
        compared = _status(controller, compare, data[COMPARE])
        if compared:
            return {COMPARE: compared, WRITE: int(StatusCode.ABORTED_FAILED_FUSED)}
        return {COMPARE: 0, WRITE: _status(controller, write, data[WRITE])}


def _blocks(half: Command) -> tuple[int, int, int, int]:
    return half.nsid, half.cdw10, half.cdw11, half.cdw12 & 0xFFFF


def _status(controller: Controller, half: Command, data: bytes) -> int:
    try:
        controller.io(half, data)
    except CommandFailed as refused:
        return refused.status
    return int(StatusCode.SUCCESS)
