"""Reading of a logical unit whose result counts only if the command succeeded and returned every byte."""

from __future__ import annotations

from storagetest.errors import DataAtRisk, NotOffered, RemoteProtocolError
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.outcomes import ScsiCompletion
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import ScsiStatus, SenseKey
from storagetest.wire.scsi.data import (
    BlockLimits,
    Capacity,
    VpdPage,
    decode_capacity10,
    decode_capacity16,
    decode_inquiry,
    decode_vpd,
)
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.signatures import LARGEST, find_signature

SHORT_PAGE = 255
"""Allocation length of the first INQUIRY for a page: the most that SPC-2 permits."""

RETRIES = 8
"""Repetitions of a command that ends in a unit attention, BUSY or TASK SET FULL (chosen)."""

LAST_OF_32_BITS = 0xFFFF_FFFF
"""RETURNED LOGICAL BLOCK ADDRESS of READ CAPACITY(10) of a unit with more blocks (SBC-3)."""

VERSION_SPC_3 = 5
"""VERSION of standard INQUIRY data of a unit of SPC-3, whose block commands are those of SBC-2."""
SBC_3_PAGES = {0xB1, 0xB2}
"""Block Device Characteristics and Logical Block Provisioning, which SBC-2 has not."""
PROTECT = 0x01
"""In byte 5 of standard INQUIRY data: the unit supports protection information (SPC-3)."""

_AGAIN = (ScsiStatus.BUSY, ScsiStatus.TASK_SET_FULL)


def good_data(result: ScsiResult) -> bytes:
    """Return the data of a successful command. Raises :class:`RemoteProtocolError` for another status."""
    if not result.good:
        raise RemoteProtocolError(f"{result}; GOOD is required")
    return result.data


def vpd_page(unit: LogicalUnit, page: int) -> VpdPage:
    """Return a whole VPD page, with a second INQUIRY if it is longer than :data:`SHORT_PAGE` bytes."""
    data = good_data(unit.inquiry(page, allocation=SHORT_PAGE))
    stated = 4 + int.from_bytes(data[2:4], "big")
    if stated > SHORT_PAGE:
        data = good_data(unit.inquiry(page, allocation=stated))
    found = decode_vpd(data)
    if found.code != page:
        raise RemoteProtocolError(f"INQUIRY of VPD page {page:02x}h returned page {found.code:02x}h")
    return found


def read_capacity(unit: LogicalUnit) -> Capacity:
    """Return what READ CAPACITY(16) reports.

    Raises :class:`NotOffered` if the unit does not have the command, and need not by SBC-2: it is of SPC-3 or
    before, has no protection information and no VPD page of SBC-3, and READ CAPACITY(10) reports each block.
    """
    answer = unit.capacity16()
    if answer.unsupported and not _needs_capacity16(unit):
        raise NotOffered(
            "the unit has no READ CAPACITY(16), which it need not have before SBC-3; the cases on blocks use "
            "the commands of 16 bytes"
        )
    return decode_capacity16(good_data(answer))


def _needs_capacity16(unit: LogicalUnit) -> bool:
    data = good_data(unit.inquiry())
    if decode_inquiry(data).version > VERSION_SPC_3 or data[5] & PROTECT:
        return True
    pages = unit.inquiry(0x00, allocation=SHORT_PAGE)
    if pages.good and SBC_3_PAGES & set(decode_vpd(pages.data).body):
        return True
    short = decode_capacity10(good_data(unit.run(c.READ_CAPACITY_10, read=8)))
    return short.last_lba == LAST_OF_32_BITS


def is_write_protected(unit: LogicalUnit) -> bool:
    """Return whether MODE SENSE(6) states that the unit cannot be written (WP)."""
    header = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, dbd=1, allocation=255)
    return header.good and len(header.data) > 2 and bool(header.data[2] & 0x80)


def data_signature(initiator: Initiator, capacity: Capacity, limits: BlockLimits | None) -> str | None:
    """Return the name of the data on the logical unit, or None if it has none.

    Raises :class:`RemoteProtocolError` if that cannot be proved, and :class:`DataAtRisk` if another initiator
    has reserved the unit. Reads obey the MAXIMUM TRANSFER LENGTH of page B0h (SBC-3).
    """
    size = capacity.block_size

    def read(lba: int, blocks: int) -> bytes:
        form = c.READ_10 if lba + blocks <= 1 << 32 else c.READ_16
        block = c.cdb(form, lba=lba, blocks=blocks)
        for _ in range(RETRIES):
            done = initiator.command(block, read=blocks * size)
            result = LogicalUnit.result(done, f"{c.describe(block)} of {blocks} blocks from block {lba}")
            if not result.check(SenseKey.UNIT_ATTENTION) and result.status not in _AGAIN:
                break
        return _proven(done, result)

    most = limits.max_transfer * size if limits and limits.max_transfer else LARGEST
    return find_signature(read, block_size=size, blocks=capacity.blocks, largest=most)


def _proven(done: ScsiCompletion, result: ScsiResult) -> bytes:
    if result.conflict:
        raise DataAtRisk(f"{result}: another initiator has reserved the unit. Release the reservation")
    if done.response:
        raise RemoteProtocolError(f"{result}, with response {done.response:02x}h; 00h is required")
    if done.residual or not done.is_whole:
        missing = f"residual {done.residual}, Data-In " + ("whole" if done.is_whole else "with gaps")
        raise RemoteProtocolError(f"{result}, but {missing}; all data are required (RFC 7143 11.4.5, 11.7)")
    return good_data(result)
