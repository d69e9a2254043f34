"""Decoders of data-in: INQUIRY, VPD pages, capacity, LUNs, mode pages (SPC-4, SBC-3).

Every decoder is total: too little data, or a length that points past the end, is a
:class:`~storagetest.errors.RemoteProtocolError` that shows the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from storagetest.wire.bitfields import require_bytes


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Standard INQUIRY data (SPC-4, table of standard INQUIRY data format)."""

    qualifier: int
    device_type: int
    version: int
    response_format: int
    additional_length: int
    multi_port: bool
    cmd_queue: bool
    vendor: str
    product: str
    revision: str
    length: int


def decode_inquiry(data: bytes) -> Inquiry:
    """Read standard INQUIRY data of at least 36 bytes."""
    require_bytes(data, 36, "SCSI: standard INQUIRY data")

    def text(start: int, end: int) -> str:
        return data[start:end].decode("ascii", "replace")

    return Inquiry(
        qualifier=data[0] >> 5,
        device_type=data[0] & 0x1F,
        version=data[2],
        response_format=data[3] & 0x0F,
        additional_length=data[4],
        multi_port=bool(data[6] & 0x10),
        cmd_queue=bool(data[7] & 0x02),
        vendor=text(8, 16),
        product=text(16, 32),
        revision=text(32, 36),
        length=len(data),
    )


_IMPLEMENTATIONS = {("LIO-ORG", ""): "lio", ("IET", "VIRTUAL-DISK"): "tgt", ("IET", "Controller"): "tgt"}
"""Vendor and product of INQUIRY → implementation. Any product if it is empty: LIO's can be set."""


def implementation(inquiry: Inquiry) -> str:
    """Return the name of the software that sends these INQUIRY data, or "" if it is not known.

    No version: LIO reports the revision 4.0 and tgt the revision 0001 since their first releases.
    """
    vendor, product = inquiry.vendor.strip(), inquiry.product.strip()
    return _IMPLEMENTATIONS.get((vendor, product)) or _IMPLEMENTATIONS.get((vendor, ""), "")


@dataclass(frozen=True, slots=True)
class VpdPage:
    """A vital product data page: its code, and its body after the 4-byte header."""

    qualifier: int
    device_type: int
    code: int
    body: bytes


def decode_vpd(data: bytes) -> VpdPage:
    """Read any VPD page."""
    require_bytes(data, 4, "SCSI: a VPD page")
    length = int.from_bytes(data[2:4], "big")
    require_bytes(data, 4 + length, f"SCSI: VPD page {data[1]:02x}h")
    return VpdPage(data[0] >> 5, data[0] & 0x1F, data[1], data[4 : 4 + length])


@dataclass(frozen=True, slots=True)
class Designator:
    """One designation descriptor (SPC-4, Device Identification VPD page)."""

    code_set: int
    association: int
    kind: int
    data: bytes


def decode_designators(page: VpdPage) -> tuple[Designator, ...]:
    """Read the descriptors of page 83h."""
    designators, rest = [], page.body
    while rest:
        require_bytes(rest, 4, "SCSI: a designation descriptor")
        require_bytes(rest, 4 + rest[3], "SCSI: a designation descriptor")
        designators.append(
            Designator(rest[0] & 0x0F, rest[1] >> 4 & 0x3, rest[1] & 0x0F, rest[4 : 4 + rest[3]])
        )
        rest = rest[4 + rest[3] :]
    return tuple(designators)


def wwids(designators: tuple[Designator, ...]) -> tuple[str, ...]:
    """Return the logical unit's names as the kernel writes them (``naa.…``, ``eui.…``, ``t10.…``).

    A UUID, which is a name since SPC-5 (designator type Ah), is ``uuid.…``.
    """
    names = []
    for designator in designators:
        data = designator.data
        if designator.association != 0:
            continue
        if designator.kind == 3:
            names.append(f"naa.{data.hex()}")
        elif designator.kind == 2:
            names.append(f"eui.{data.hex()}")
        elif designator.kind == 1:
            text = data.rstrip(b"\0").decode("ascii", "replace")
            names.append("t10." + " ".join(text.split()))
        elif designator.kind == 8:
            names.append(data.rstrip(b"\0").decode("utf-8", "replace"))
        elif designator.kind == 0xA and len(data) == 18:
            names.append(f"uuid.{UUID(bytes=data[2:])}")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Block Limits, page B0h (SBC-3); numbers of blocks, 0 if not reported."""

    max_compare_and_write: int
    max_transfer: int
    optimal_transfer: int
    max_unmap_blocks: int
    max_unmap_descriptors: int
    unmap_granularity: int
    max_write_same: int
    write_same_non_zero: bool
    unmap_alignment: int = 0


def decode_block_limits(page: VpdPage) -> BlockLimits:
    """Read page B0h; the short page of SBC-2 (0Ch) reports no unmap limits."""
    require_bytes(page.body, 12, "SCSI: the Block Limits page")
    body = page.body.ljust(60, b"\0")
    return BlockLimits(
        max_compare_and_write=body[1],
        max_transfer=int.from_bytes(body[4:8], "big"),
        optimal_transfer=int.from_bytes(body[8:12], "big"),
        max_unmap_blocks=int.from_bytes(body[16:20], "big"),
        max_unmap_descriptors=int.from_bytes(body[20:24], "big"),
        unmap_granularity=int.from_bytes(body[24:28], "big"),
        max_write_same=int.from_bytes(body[32:40], "big"),
        write_same_non_zero=bool(body[0] & 1),
        unmap_alignment=int.from_bytes(body[28:32], "big") & 0x7FFFFFFF if body[28] & 0x80 else 0,  # UGAVALID
    )


def first_grain(limits: BlockLimits | None, lba: int) -> int:
    """Return the first LBA from ``lba`` on at which a grain of UNMAP begins.

    Grains begin at n x OPTIMAL UNMAP GRANULARITY + UNMAP GRANULARITY ALIGNMENT (SBC-3, Block Limits).
    """
    if limits is None:
        return lba
    return lba + (limits.unmap_alignment - lba) % max(1, limits.unmap_granularity)


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Logical Block Provisioning, page B2h (SBC-3)."""

    unmap: bool
    write_same_unmap: bool
    write_same10_unmap: bool
    reads_zero: bool
    anchor: bool
    kind: int


def decode_provisioning(page: VpdPage) -> Provisioning:
    """Read page B2h."""
    require_bytes(page.body, 4, "SCSI: the Logical Block Provisioning page")
    flags = page.body[1]
    return Provisioning(
        unmap=bool(flags & 0x80),
        write_same_unmap=bool(flags & 0x40),
        write_same10_unmap=bool(flags & 0x20),
        reads_zero=bool(flags & 0x04),  # 010b: the provisioning initialization pattern (SBC-4)
        anchor=bool(flags & 0x02),
        kind=page.body[2] & 0x07,
    )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The address of the last block, and the bytes of a block (SBC-3, READ CAPACITY)."""

    last_lba: int
    block_size: int
    provisioned_thin: bool = False
    reads_zero: bool = False
    protection: bool = False

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.last_lba + 1


def decode_capacity10(data: bytes) -> Capacity:
    """Read READ CAPACITY(10) data."""
    require_bytes(data, 8, "SCSI: READ CAPACITY(10) data")
    return Capacity(*struct.unpack(">II", data[:8]))


def decode_capacity16(data: bytes) -> Capacity:
    """Read READ CAPACITY(16) data."""
    require_bytes(data, 32, "SCSI: READ CAPACITY(16) data")
    last, size = struct.unpack(">QI", data[:12])
    return Capacity(last, size, bool(data[14] & 0x80), bool(data[14] & 0x40), bool(data[12] & 0x01))


@dataclass(frozen=True, slots=True)
class LbaStatus:
    """One LBA status descriptor (SBC-3, GET LBA STATUS): ``count`` blocks from ``lba``."""

    lba: int
    count: int
    status: int


def decode_lba_status(data: bytes) -> tuple[int, tuple[LbaStatus, ...]]:
    """Read GET LBA STATUS data: PARAMETER DATA LENGTH, and the descriptors. A truncated list is allowed."""
    require_bytes(data, 8, "SCSI: GET LBA STATUS data")
    length = int.from_bytes(data[:4], "big")
    listed = data[8 : 4 + length]
    return length, tuple(
        LbaStatus(lba, count, status & 0x0F)
        for lba, count, status in struct.iter_unpack(">QIB3x", listed[: len(listed) // 16 * 16])
    )


@dataclass(frozen=True, slots=True)
class TargetPortGroup:
    """One target port group descriptor (SPC-4, REPORT TARGET PORT GROUPS).

    ``supported`` is its byte 1: a bit for each state. ``status`` is the STATUS CODE.
    """

    state: int
    number: int
    ports: tuple[int, ...]
    supported: int = 0
    status: int = 0


def decode_target_port_groups(data: bytes) -> tuple[TargetPortGroup, ...]:
    """Read the parameter data of REPORT TARGET PORT GROUPS."""
    require_bytes(data, 4, "SCSI: REPORT TARGET PORT GROUPS")
    size = int.from_bytes(data[:4], "big")
    require_bytes(data, 4 + size, "SCSI: REPORT TARGET PORT GROUPS, RETURN DATA LENGTH")
    groups, rest = [], data[4 : 4 + size]
    while rest:
        require_bytes(rest, 8, "SCSI: a target port group descriptor")
        end = 8 + 4 * rest[7]
        require_bytes(rest, end, "SCSI: a target port group descriptor, TARGET PORT COUNT")
        ports = tuple(int.from_bytes(rest[at + 2 : at + 4], "big") for at in range(8, end, 4))
        number = int.from_bytes(rest[2:4], "big")
        groups.append(TargetPortGroup(rest[0] & 0x0F, number, ports, supported=rest[1], status=rest[5]))
        rest = rest[end:]
    return tuple(groups)


def decode_luns(data: bytes) -> tuple[int, ...]:
    """Read REPORT LUNS data: 8-byte logical unit numbers. A truncated list is allowed."""
    require_bytes(data, 8, "SCSI: REPORT LUNS data")
    listed = data[8 : 8 + int.from_bytes(data[:4], "big")]
    return tuple(int.from_bytes(listed[at : at + 8], "big") for at in range(0, len(listed) - 7, 8))


def decode_mode6(data: bytes) -> Mapping[int, bytes]:
    """Read MODE SENSE(6) data: pages by code (page_0 format only), without their two header bytes."""
    require_bytes(data, 4, "SCSI: MODE SENSE(6) data")
    rest, pages = data[4 + data[3] : data[0] + 1], {}
    while len(rest) >= 2 and not rest[0] & 0x40 and len(rest) >= 2 + rest[1]:
        pages[rest[0] & 0x3F] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return pages


def unmap_list(*ranges: tuple[int, int]) -> bytes:
    """Return UNMAP's parameter list (SBC-3): pairs of first block and count."""
    descriptors = b"".join(struct.pack(">QI4x", lba, count) for lba, count in ranges)
    return struct.pack(">HH4x", 6 + len(descriptors), len(descriptors)) + descriptors
