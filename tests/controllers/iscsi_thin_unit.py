"""A thin-provisioned logical unit in memory: UNMAP, GET LBA STATUS, and a Control mode page to be changed.

Written from SPC-4 and SBC-3; ``iscsi_target.py`` serves it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import fixed_sense

D_SENSE = 0x04
"""Of byte 2 of the Control mode page (SPC-4)."""
MODE_SELECT_6, MODE_SENSE_6, UNMAP, SERVICE_IN_16 = 0x15, 0x1A, 0x42, 0x9E
GET_LBA_STATUS = 0x12
MODE_PARAMETERS_CHANGED = 0x2A01
MAPPED, DEALLOCATED = 0, 1
MOST_BLOCKS, MOST_DESCRIPTORS = 1024, 8


class ScsiError(Exception):
    """A command ends in CHECK CONDITION with this sense key and additional sense code."""

    def __init__(self, key: int, asc: int) -> None:
        super().__init__(f"{key:x}h/{asc:04x}h")
        self.key, self.asc = key, asc


def descriptor_sense(key: int, asc: int) -> bytes:
    """Return sense data in descriptor format, without descriptors."""
    return bytes((0x72, key)) + asc.to_bytes(2, "big") + bytes(4)


@dataclass
class ThinUnit:
    """``data`` are the blocks; ``mapped`` has the numbers of those that were written and not unmapped."""

    data: bytearray
    block_size: int
    mapped: set[int] = field(default_factory=set)
    d_sense: bool = False

    @property
    def blocks(self) -> int:
        return len(self.data) // self.block_size

    def sense(self, key: int, asc: int) -> bytes:
        """Return sense data in the format that D_SENSE selects."""
        return descriptor_sense(key, asc) if self.d_sense else fixed_sense(key, asc)

    def wrote(self, start: int, size: int) -> None:
        """Map the blocks of a range of bytes."""
        self.mapped.update(range(start // self.block_size, (start + size) // self.block_size))

    # Commands with data-in

    def capacity(self) -> bytes:
        """READ CAPACITY(16), with LBPME and LBPRZ."""
        return struct.pack(">QIBBB", self.blocks - 1, self.block_size, 0, 0, 0xC0).ljust(32, b"\0")

    def pages(self) -> dict[int, bytes]:
        """Return the bodies of the VPD pages of thin provisioning."""
        limits = bytearray(60)
        limits[16:28] = struct.pack(">III", MOST_BLOCKS, MOST_DESCRIPTORS, 1)
        return {0xB0: bytes(limits), 0xB2: bytes((0, 0x84, 2, 0))}

    def mode_sense(self, cdb: bytes) -> bytes:
        """MODE SENSE(6): the Control mode page. D_SENSE can be changed and is not saved."""
        if cdb[2] & 0x3F not in (0x0A, 0x3F):
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        if cdb[2] >> 6 == 3:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.SAVING_PARAMETERS_NOT_SUPPORTED)
        flags = {0: D_SENSE * self.d_sense, 1: D_SENSE, 2: 0}[cdb[2] >> 6]
        page = bytes((0x0A, 0x0A, flags)) + bytes(9)
        return bytes((3 + len(page), 0, 0, 0)) + page

    def lba_status(self, cdb: bytes) -> bytes:
        """GET LBA STATUS: as many descriptors as fit into the allocation length, and one at least."""
        start, allocation = struct.unpack_from(">QI", cdb, 2)
        if start >= self.blocks:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)
        most = max(1, (allocation - 8) // 16)
        found = [run for run, _ in zip(self._runs(start), range(most), strict=False)]
        body = b"".join(struct.pack(">QIB3x", lba, count, status) for lba, count, status in found)
        return struct.pack(">I4x", 4 + len(body)) + body

    def _runs(self, start: int) -> Iterator[tuple[int, int, int]]:
        while start < self.blocks:
            mapped, end = start in self.mapped, start + 1
            while end < self.blocks and (end in self.mapped) == mapped:
                end += 1
            yield start, end - start, MAPPED if mapped else DEALLOCATED
            start = end

    # Commands with data-out

    def mode_select(self, data: bytes) -> bool:
        """MODE SELECT(6): return whether it changed a value. Any other value than D_SENSE is refused."""
        if not data:
            return False
        page = data[4 + data[3] :] if len(data) >= 4 else b""
        if len(page) < 2 or len(page) < 2 + page[1]:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR)
        if len(page) != 12 or page[:2] != b"\x0a\x0a" or page[2] & ~D_SENSE or any(page[3:]):
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        before, self.d_sense = self.d_sense, bool(page[2] & D_SENSE)
        return before != self.d_sense

    def unmap(self, data: bytes) -> None:
        """UNMAP: the blocks read as zeroes (LBPRZ)."""
        ranges = [
            (lba, count) for lba, count in struct.iter_unpack(">QI4x", data[8 : len(data) // 16 * 16 + 8])
        ]
        if any(lba + count > self.blocks for lba, count in ranges):
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)
        for lba, count in ranges:
            size = self.block_size
            self.data[lba * size : (lba + count) * size] = bytes(count * size)
            self.mapped -= set(range(lba, lba + count))
