"""EXTENDED COPY(LID1) of blocks within a logical unit (SPC-4): its parameter list, and its limits."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.bitfields import require_bytes
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi.data import Designator, decode_designators, decode_luns, decode_vpd
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.seldom_cdb import EXTENDED_COPY, RECEIVE_COPY_PARAMETERS

BLOCK_TO_BLOCK, IDENTIFICATION = 0x02, 0xE4
"""Descriptor type codes: a segment from block device to block device, a CSCD by its designator."""
ALLOCATION = 4096
HEADER = 44
"""Bytes of the operating parameters before the list of descriptor type codes."""
NO_LIST_ID = 0x18
"""LIST ID USAGE of 11b: the operation has no list identifier."""
NAMES = (3, 2, 1, 8)
"""Designator types of a logical unit, the best first: NAA, EUI-64, T10 vendor identification, name string."""
LONGEST_PAGE = 0xFFFF
"""Allocation length for the page of designators."""
LONGEST = 20
"""Bytes of a designator in an identification descriptor."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Operating parameters of the copy manager; ``segment`` is the bytes of a segment, 0 without a limit."""

    available: int
    anonymous: bool
    cscds: int
    segments: int
    list_length: int
    segment: int
    codes: tuple[int, ...]
    listed: int


def parameters(unit: LogicalUnit, allocation: int = ALLOCATION) -> ScsiResult:
    """Send RECEIVE COPY RESULTS for the operating parameters."""
    return unit.run(RECEIVE_COPY_PARAMETERS, read=allocation, allocation=allocation)


def copy_limits(unit: LogicalUnit) -> CopyLimits:
    """Return the operating parameters; skip if the unit has no copy manager."""
    answer = offered(parameters(unit))
    if not answer.good:
        pytest.skip(f"no operating parameters: {answer}")
    data = answer.data
    require_bytes(data, HEADER, "SCSI: RECEIVE COPY OPERATING PARAMETERS")
    return CopyLimits(
        available=int.from_bytes(data[:4], "big"),
        anonymous=bool(data[4] & 1),
        cscds=int.from_bytes(data[8:10], "big"),
        segments=int.from_bytes(data[10:12], "big"),
        list_length=int.from_bytes(data[12:16], "big"),
        segment=int.from_bytes(data[16:20], "big"),
        codes=tuple(data[HEADER : HEADER + data[43]]),
        listed=data[43],
    )


def own_name(unit: LogicalUnit) -> Designator:
    """Return the designator of the unit that an identification descriptor can have; skip if there is none.

    Skip as well if another logical unit of the target has it, or cannot be looked at: a copy could be
    written to that unit.
    """
    found = [
        one for one in decode_designators(vpd_page(unit, 0x83))
        if not one.association and one.kind in NAMES and len(one.data) <= LONGEST
    ]  # fmt: skip
    if not found:
        pytest.skip("page 83h has no designator of the logical unit of 20 bytes or less")
    name = min(found, key=lambda one: (NAMES.index(one.kind), -len(one.data)))
    _require_unique(unit, name)
    return name


def _require_unique(unit: LogicalUnit, name: Designator) -> None:
    """Skip the case unless each other logical unit of the target has other designators."""
    session = unit.runner
    assert isinstance(session, Initiator)
    own, luns = session.lun, decode_luns(unit.luns().good_data())
    try:
        for lun in luns:
            if lun == own:
                continue
            session.lun = lun
            page = unit.inquiry(0x83, allocation=LONGEST_PAGE)
            if not page.good:
                pytest.skip(
                    f"the designators of LUN {lun:016x}, which a copy could reach, are not read: {page}"
                )
            if name.data in [one.data for one in decode_designators(decode_vpd(page.data))]:
                pytest.skip(f"LUN {lun:016x} has a designator of this unit: a copy could be written to it")
    finally:
        session.lun = own


def cscd(name: Designator, block_size: int, *, code: int = IDENTIFICATION) -> bytes:
    """Return an identification descriptor of a disk."""
    head = struct.pack(">BB2xBBxB", code, 0, name.code_set, name.kind, len(name.data))
    return (head + name.data).ljust(28, b"\0") + block_size.to_bytes(4, "big")


def segment(
    source: int,
    target: int,
    blocks: int,
    *,
    code: int = BLOCK_TO_BLOCK,
    source_at: int = 0,
    target_at: int = 0,
) -> bytes:
    """Return a segment descriptor; ``source_at`` and ``target_at`` are the numbers of the CSCDs."""
    return struct.pack(">BxHHHxxHQQ", code, 0x18, source_at, target_at, blocks, source, target)


def copy_list(limits: CopyLimits, cscds: bytes, segments: bytes) -> bytes:
    """Return a parameter list."""
    number, usage = (0, NO_LIST_ID) if limits.anonymous else (1, 0)
    return struct.pack(">BBH4xI4x", number, usage, len(cscds), len(segments)) + cscds + segments


def run_copy(unit: LogicalUnit, data: bytes) -> ScsiResult:
    """Send EXTENDED COPY(LID1) with a parameter list."""
    return unit.run(EXTENDED_COPY, data=data, allocation=len(data))
