"""Guard of the wire cases' writes: prove that a device has no signature of a file system, volume or table.

The guard fails closed: only data that was really read counts. :func:`find_signature` reads the start and the
end of the device twice, with transfers of two sizes, and accepts the result only if both readings have every
byte and are equal. A refused, short or changing read raises :class:`~storagetest.errors.RemoteProtocolError`.

It looks for the common signatures (the offsets are those of util-linux's libblkid). Not guaranteed: that raw
data without a signature are found. Therefore a target names the device in ``erase``, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from storagetest.errors import RemoteProtocolError

Read = Callable[[int, int], bytes]
"""``read(lba, blocks)`` returns the data of a successful read, or raises RemoteProtocolError."""

HEAD = 0x10080
"""Bytes that are read from the start: up to the end of the last signature of :data:`SIGNATURES`."""

TAIL = 0x21000
"""Bytes that are read from the end: md's metadata 0.90 begins at most 128 KiB before the end (md(4))."""

LARGEST = 0x10000
"""Bytes of the largest read, if the target's limit is not lower (chosen)."""

SMALLEST = 0x1000
"""Bytes of a read of the second reading (chosen: every target permits it)."""

SIGNATURES = (
    (0x438, b"\x53\xef", "ext2, ext3 or ext4"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9", "bcachefs"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (0x8001, b"CD001", "ISO 9660"),
    *((sector * 512, b"LABELONE", "an LVM physical volume") for sector in range(4)),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0x4000, b"SKUL\xba\xbe", "LUKS"),
    (0x1FE, b"\x55\xaa", "a boot sector or a partition table"),
    (0x200, b"EFI PART", "a GUID partition table"),
    (0x1000, b"EFI PART", "a GUID partition table"),
    *((page - 10, magic, "swap") for page in (0x1000, 0x10000) for magic in (b"SWAPSPACE2", b"SWAP-SPACE")),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
    (0x20, b"ORCLDISK", "an Oracle ASM disk"),
)
"""(offset from the start, bytes, name)."""

RAID_MAGIC = (b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc")
"""md's magic number in either byte order: metadata 0.90 has the byte order of its host (md(4))."""


def signature_in(head: bytes, tail: bytes = b"", *, block_size: int = 512) -> str | None:
    """Return the name of the data on a device by its first and its last blocks, or None."""
    for offset, magic, name in SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return name
    if b"pool_guid" in head:  # the first label's list of names and values
        return "a ZFS pool"
    if tail[-block_size:].startswith(b"EFI PART"):  # the backup header is in the last block (UEFI 5.3.2)
        return "a GUID partition table"
    if any(tail[at : at + 4] in RAID_MAGIC for at in range(0, len(tail), 512)):
        return "a member of a RAID array"
    return None


def find_signature(read: Read, *, block_size: int, blocks: int, largest: int = LARGEST) -> str | None:
    """Return the name of the data on the device, or None if it has none.

    ``largest`` is the most bytes of one read that the target permits. Raises RemoteProtocolError if the
    device's start or end cannot be read, or changes between two reads.
    """
    if blocks < 1 or block_size < 512:
        raise RemoteProtocolError(f"the device reports {blocks} blocks of {block_size} bytes")
    head, tail = (_read_twice(read, *span) for span in _spans(block_size, blocks, largest))
    return signature_in(head, tail, block_size=block_size)


def _spans(block_size: int, blocks: int, largest: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield first block, number of blocks, block size and blocks per read of the start and of the end."""
    step = max(1, min(largest, LARGEST) // block_size)
    for first, size in ((0, HEAD), (None, TAIL)):
        count = min(blocks, -(-size // block_size))
        yield (blocks - count if first is None else first), count, block_size, step


def _read_twice(read: Read, first: int, count: int, block_size: int, step: int) -> bytes:
    """Read ``count`` blocks from ``first``, twice, with transfers of ``step`` blocks and of 4 KiB."""
    large = _read_all(read, first, count, block_size, step)
    small = _read_all(read, first, count, block_size, max(1, min(step, SMALLEST // block_size)))
    if large != small:
        at = next(at for at in range(len(large)) if large[at] != small[at])
        raise RemoteProtocolError(
            f"two reads of blocks {first} to {first + count - 1} differ, first in block "
            f"{first + at // block_size}"
        )
    return large


def _read_all(read: Read, first: int, count: int, block_size: int, step: int) -> bytes:
    data = b""
    for lba in range(first, first + count, step):
        number = min(step, first + count - lba)
        piece = read(lba, number)
        if len(piece) != number * block_size:
            raise RemoteProtocolError(
                f"a read of {number} blocks from block {lba} returned {len(piece)} bytes; "
                f"{number * block_size} are required"
            )
        data += piece
    return data
