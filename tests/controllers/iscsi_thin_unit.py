"""A thin-provisioned logical unit in memory: UNMAP, GET LBA STATUS, a Control mode page, and seldom commands.

Written from SPC-4 and SBC-3; ``iscsi_target.py`` serves it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import fixed_sense

D_SENSE = 0x04
"""Of byte 2 of the Control mode page (SPC-4)."""
MODE_SELECT_6, MODE_SENSE_6, UNMAP, SERVICE_IN_16 = 0x15, 0x1A, 0x42, 0x9E
GET_LBA_STATUS = 0x12
WRITE_SAME_16, VERIFY_16, LOG_SENSE, MAINTENANCE_IN = 0x93, 0x8F, 0x4D, 0xA3
PORT_GROUPS, TASK_FUNCTIONS = 0x0A, 0x0D
"""Service actions of MAINTENANCE IN."""
TPGS = 0x10
"""Of byte 5 of standard INQUIRY data: implicit asymmetric access."""
GROUP, PORT = 5, 1
"""The one target port group, and its one port."""
PORT_DESIGNATORS = (
    bytes.fromhex("51940004")
    + struct.pack(">HH", 0, PORT)
    + (bytes.fromhex("51950004") + struct.pack(">HH", 0, GROUP))
)
"""Relative target port and target port group, of iSCSI (page 83h)."""
LOG_PAGES: dict[int, bytes] = {0x00: b"\x00\x0c", 0x0C: bytes.fromhex("000103020001")}
"""The bodies of the log pages: the list, and one parameter of Logical Block Provisioning."""
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
        return {0xB0: bytes(limits), 0xB2: bytes((0, 0xC4, 2, 0))}

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

    def log_sense(self, cdb: bytes) -> bytes:
        """LOG SENSE of one of :data:`LOG_PAGES`."""
        page = cdb[2] & 0x3F
        if page not in LOG_PAGES or cdb[3]:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        return struct.pack(">BxH", page, len(LOG_PAGES[page])) + LOG_PAGES[page]

    def maintenance_in(self, cdb: bytes) -> bytes:
        """REPORT TARGET PORT GROUPS, and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS."""
        match cdb[1] & 0x1F:
            case action if action == PORT_GROUPS:
                return struct.pack(">IBBHxBxBHH", 12, 0, 1, GROUP, 0, 1, 0, PORT)
            case action if action == TASK_FUNCTIONS:
                return bytes((0x88, 0, 0, 0))  # ABORT TASK and LOGICAL UNIT RESET
        raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE)

    # Commands with data-out

    def range_command(self, cdb: bytes) -> tuple[int, Callable[[bytes], None]]:
        """Return the bytes of data-out of WRITE SAME(16) or VERIFY(16), and what executes it."""
        lba, blocks = struct.unpack_from(">QI", cdb, 2)
        if lba + blocks > self.blocks:
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)
        start, size = lba * self.block_size, blocks * self.block_size
        if cdb[0] == VERIFY_16:
            check = cdb[1] >> 1 & 3
            length = {0: 0, 1: size, 3: self.block_size}.get(check)
            if length is None:
                raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)

            def verify(data: bytes) -> None:
                if check and self.data[start : start + size] != data * (blocks if check == 3 else 1):
                    raise ScsiError(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY)

            return length, verify
        if cdb[1] & 0x10:  # ANCHOR
            raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)

        def write_same(data: bytes) -> None:
            block = data or bytes(self.block_size)
            self.data[start : start + size] = block * blocks
            self.wrote(start, size)
            if cdb[1] & 8 and not any(block):  # UNMAP
                self.mapped -= set(range(lba, lba + blocks))

        return (0 if cdb[1] & 1 else self.block_size), write_same

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
