"""Optional commands of the unit of :mod:`iscsi_full_unit` that few units have (SPC-4).

EXTENDED COPY(LID1) copies within the unit: identification descriptors of its own NAA name, and segments from
block device to block device. Each nexus has an echo buffer. There are no diagnostic pages but the list and an
empty one, and no aliases.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from iscsi_full_reservations import Nexus, cut, illegal, invalid_field
from iscsi_target import NAA
from iscsi_thin_unit import GROUP, PORT, ScsiError

from storagetest.wire.scsi.cdb import CommandFormat
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.seldom_cdb import (
    EXTENDED_COPY,
    SET_TARGET_PORT_GROUPS,
    WRITE_BUFFER,
)

INQUIRY_FLAGS = 0x38
"""Byte 5 of standard INQUIRY data: implicit and explicit asymmetric access (TPGS), and 3PC."""
MOST_CSCDS, MOST_SEGMENTS, MOST_COPIED = 2, 4, 1 << 24
"""Limits of EXTENDED COPY: descriptors, and bytes of a segment."""
BLOCK_TO_BLOCK, IDENTIFICATION = 0x02, 0xE4
"""Descriptor type codes."""
CSCD, SEGMENT, COPY_HEADER = 32, 28, 16
"""Bytes of the descriptors, and of the header of the parameter list."""
NOT_REACHABLE, TOO_MANY_CSCDS, TOO_MANY_SEGMENTS = 0x0D02, 0x2606, 0x2608
CSCD_TYPE, SEGMENT_TYPE = 0x2607, 0x2609
ECHO, ECHO_DESCRIPTOR, DESCRIPTOR = 0x0A, 0x0B, 0x03
"""MODE of READ BUFFER and WRITE BUFFER."""
MOST_ECHO, BUFFER = 1024, 4096
NO_ECHO = 0x2C00
"""COMMAND SEQUENCE ERROR."""
LOG_PAGES = {
    (0x00, 0x00): b"\x00\x0c",
    (0x00, 0xFF): b"\x00\x00\x00\xff\x0c\x00",
    (0x0C, 0x00): bytes.fromhex("000103020001"),
}
"""By page and subpage: the lists of pages and of subpages, and one page with one parameter."""
DIAGNOSTIC_PAGES = bytes((0x00, 0x3F))
"""The list of pages, and an empty one."""
STATES = {0x0: 0x01, 0x1: 0x02}
"""States of its target port group that can be set, and their bits."""
SELDOM_OUT = (EXTENDED_COPY, WRITE_BUFFER, SET_TARGET_PORT_GROUPS)


@dataclass(kw_only=True)
class Seldom:
    """``blocks``, ``get`` and ``put`` are those of the unit."""

    echoes: dict[Nexus, bytes] = field(default_factory=dict)
    access_state: int = 0
    ticks: int = 0

    # Third-party copy

    def receive_copy_operating_parameters(self, block: bytes, nexus: Nexus) -> bytes:
        codes = bytes((BLOCK_TO_BLOCK, IDENTIFICATION))
        limits = (1, MOST_CSCDS, MOST_SEGMENTS, 1024, MOST_COPIED)
        body = struct.pack(">B3xHHIIIII2xHBBBB3xB", *limits, 0, 0, 0, 1, 1, 0, 0, 0, len(codes))
        return cut(struct.pack(">I", len(body) + len(codes)) + body + codes, block[10:14])

    def copy(self, data: bytes) -> None:
        if not data:
            return
        cscds, segments = (int.from_bytes(data[at : at + size], "big") for at, size in ((2, 2), (8, 4)))
        if len(data) < COPY_HEADER or len(data) < COPY_HEADER + cscds + segments:
            raise illegal(Asc.PARAMETER_LIST_LENGTH_ERROR)
        if cscds > MOST_CSCDS * CSCD:
            raise illegal(TOO_MANY_CSCDS)
        if segments > MOST_SEGMENTS * SEGMENT:
            raise illegal(TOO_MANY_SEGMENTS)
        if cscds % CSCD or segments % SEGMENT:
            raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
        named = [data[at : at + CSCD] for at in range(COPY_HEADER, COPY_HEADER + cscds, CSCD)]
        if any(one[0] != IDENTIFICATION for one in named):
            raise illegal(CSCD_TYPE)
        first = COPY_HEADER + cscds
        for at in range(first, first + segments, SEGMENT):
            self.copy_segment(data[at : at + SEGMENT], named)

    def copy_segment(self, one: bytes, named: list[bytes]) -> None:
        kind, source_at, target_at, count, source, target = struct.unpack(">B3xHHxxHQQ", one)
        if kind != BLOCK_TO_BLOCK:
            raise ScsiError(SenseKey.COPY_ABORTED, SEGMENT_TYPE)
        if any(at >= len(named) or named[at][8:24] != NAA for at in (source_at, target_at)):
            raise ScsiError(SenseKey.COPY_ABORTED, NOT_REACHABLE)
        if max(source, target) + count > self.blocks:  # type: ignore[attr-defined]
            raise ScsiError(SenseKey.COPY_ABORTED, Asc.LBA_OUT_OF_RANGE)
        self.put(target, self.get(source, count))  # type: ignore[attr-defined]

    # Buffers

    def read_buffer(self, block: bytes, nexus: Nexus) -> bytes:
        match block[1] & 0x1F:
            case 0x03:
                data = bytes(4) if block[2] else BUFFER.to_bytes(4, "big")
            case 0x0B:
                data = MOST_ECHO.to_bytes(4, "big")
            case 0x0A if nexus in self.echoes:
                data = self.echoes[nexus]
            case 0x0A:
                raise illegal(NO_ECHO)
            case _:
                raise invalid_field()
        return cut(data, block[6:9])

    # Log pages, diagnostic pages

    def log_sense(self, block: bytes, nexus: Nexus) -> bytes:
        code, subpage = block[2] & 0x3F, block[3]
        if (code, subpage) not in LOG_PAGES or int.from_bytes(block[5:7], "big") > 1:
            raise invalid_field()
        body = LOG_PAGES[code, subpage]
        return cut(struct.pack(">BBH", code | 0x40 * bool(subpage), subpage, len(body)) + body, block[7:9])

    def receive_diagnostic_results(self, block: bytes, nexus: Nexus) -> bytes:
        code = block[2] if block[1] & 1 else 0
        if code not in DIAGNOSTIC_PAGES:
            raise invalid_field()
        body = b"" if code else DIAGNOSTIC_PAGES
        return cut(struct.pack(">BxH", code, len(body)) + body, block[3:5])

    # Target port groups

    def report_target_port_groups(self, block: bytes, nexus: Nexus) -> bytes:
        group = struct.pack(">BBHxBxBHH", self.access_state, sum(STATES.values()), GROUP, 0, 1, 0, PORT)
        body = b"\x10\0\0\0" + group if block[1] >> 5 == 1 else group
        return cut(struct.pack(">I", len(body)) + body, block[6:10])

    def set_groups(self, data: bytes) -> None:
        for at in range(4, len(data), 4):
            state, number = struct.unpack_from(">BxH", data, at)
            if state & 0x0F not in STATES or number != GROUP:
                raise illegal(Asc.INVALID_FIELD_IN_PARAMETER_LIST)
            self.access_state = state & 0x0F

    # Reports

    def report_identifying_information(self, block: bytes, nexus: Nexus) -> bytes:
        return cut(b"\0\0\0\x04unit", block[6:10])

    def report_aliases(self, block: bytes, nexus: Nexus) -> bytes:
        return cut(struct.pack(">II", 4, 0), block[6:10])

    def report_priority(self, block: bytes, nexus: Nexus) -> bytes:
        return cut(struct.pack(">I8x", 8), block[6:10])

    def report_timestamp(self, block: bytes, nexus: Nexus) -> bytes:
        self.ticks += 1
        return cut(struct.pack(">HBxQ", 10, 0, self.ticks << 16), block[6:10])

    def seldom_out(
        self, command: CommandFormat, block: bytes, nexus: Nexus
    ) -> tuple[int, Callable[[bytes], object]]:
        """Return how much one of the commands with data-out transfers, and what executes it."""
        if command is EXTENDED_COPY:
            return int.from_bytes(block[10:14], "big"), self.copy
        if command is SET_TARGET_PORT_GROUPS:
            return int.from_bytes(block[6:10], "big"), self.set_groups
        length = int.from_bytes(block[6:9], "big")
        if block[1] & 0x1F != ECHO or length > MOST_ECHO:
            raise invalid_field()
        return length, lambda data: self.echoes.update({nexus: data})
