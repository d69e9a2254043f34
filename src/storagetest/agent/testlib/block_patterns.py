"""Self-describing blocks: a block's data identifies the block and the write.

Theory. For a block with wrong data the report has to describe the error. Therefore each block holds its
number on the device, a generation (which of several writes), a seed (which case of which run), pseudo-random
data derived from those three, and at its end a CRC-32 of all of it. This distinguishes zeroes, an older
generation (a lost write, a stale read), another block's data (a misplaced write or read), parts of two writes
(torn), flipped bits, and unknown data.

The header is at the start and the CRC at the end, so a block with parts of two writes has no valid CRC.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import lru_cache

MAGIC = b"STBLOCK1"
_HEAD = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
_FEW_BITS = 16
_SHOWN = 4


class BlockHeader:
    """The header of a block; ``whole`` is true if the block's CRC is correct."""

    __slots__ = ("generation", "number", "seed", "whole")

    def __init__(self, number: int, generation: int, seed: int, whole: bool) -> None:
        self.number, self.generation, self.seed, self.whole = number, generation, seed, whole


@lru_cache(maxsize=8192)
def make_block(number: int, generation: int, seed: int, size: int) -> bytes:
    """Return the ``size`` bytes of block ``number`` in a generation."""
    head = _HEAD.pack(MAGIC, number, generation, seed)
    data = head + hashlib.shake_128(head).digest(size - _HEAD.size - _CRC.size)
    return data + _CRC.pack(zlib.crc32(data))


def make_blocks(first: int, count: int, generation: int, seed: int, size: int) -> bytes:
    """Return the data of ``count`` consecutive blocks."""
    return b"".join(make_block(number, generation, seed, size) for number in range(first, first + count))


def parse(data: bytes) -> BlockHeader | None:
    """Return the header of a block, or None if it has none."""
    magic, number, generation, seed = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return None
    end = len(data) - _CRC.size
    return BlockHeader(number, generation, seed, _CRC.unpack_from(data, end)[0] == zlib.crc32(data[:end]))


def describe_mismatch(data: bytes, number: int, generation: int, seed: int) -> str:
    """Describe how a block differs from the expected one; "" if it does not differ."""
    expected = make_block(number, generation, seed, len(data))
    if data == expected:
        return ""
    if not any(data):
        return f"zeroes instead of generation {generation}"
    header = parse(data)
    if header is not None and header.whole:
        return _describe_other_block(header, number, generation, seed)
    differing = int.from_bytes(data, "little") ^ int.from_bytes(expected, "little")
    bits = bin(differing).count("1")  # noqa: FURB161  # int.bit_count is of Python 3.10
    first = next(offset for offset, (got, want) in enumerate(zip(data, expected)) if got != want)
    if bits <= _FEW_BITS:
        return f"{bits} bits of generation {generation} are flipped, from byte {first}"
    for older in range(generation):
        before = make_block(number, older, seed, len(data)) if older else bytes(len(data))
        if all(got in (new, old) for got, new, old in zip(data, expected, before)):
            return f"torn: generations {generation} and {older} in one block, which meet at byte {first}"
    if header is None:
        return f"unknown data, from byte {first}: {data[:16].hex()}…"
    return f"damaged from byte {first}: wrong CRC"


def _describe_other_block(header: BlockHeader, number: int, generation: int, seed: int) -> str:
    if header.seed != seed:
        return f"data of another case or run (block {header.number}, generation {header.generation})"
    if header.number != number:
        return f"data of block {header.number} (generation {header.generation}): misplaced"
    if header.generation < generation:
        return f"generation {header.generation} instead of {generation}: a lost write, or a stale read"
    return f"generation {header.generation}, which is newer than {generation}"


def describe_mismatches(data: bytes, first: int, generation: int, seed: int, size: int) -> str:
    """Describe the wrong blocks in ``data``; "" if all are right."""
    if data == make_blocks(first, len(data) // size, generation, seed, size):
        return ""
    wrong = []
    for offset in range(0, len(data), size):
        number = first + offset // size
        mismatch = describe_mismatch(data[offset : offset + size], number, generation, seed)
        if mismatch:
            wrong.append(f"block {number}: {mismatch}")
    more = [f"and {len(wrong) - _SHOWN} more of {len(data) // size}"] if len(wrong) > _SHOWN else []
    return "; ".join(wrong[:_SHOWN] + more)
