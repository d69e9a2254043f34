"""Self-describing blocks: what is in a block says which block it is, and of which writing.

Theory. A block that reads back wrong is worth little as a finding if all one knows is that it is wrong. So
each block carries its own number on the device, a generation (which of several writings), a seed (which case
of which run), noise that follows from those three, and at its very end a CRC-32 of all of it. Whatever comes
back can then be told apart: zeroes, an older generation (a lost write, a stale read), another block's data (a
misplaced write or read), half of one writing and half of another (torn), a flipped bit, or what nobody wrote.

The head stands at the front and the CRC at the end, so that a block of which any part is another writing's
does not pass for a whole one.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import lru_cache

__all__ = ["BlockHeader", "describe_mismatch", "describe_mismatches", "make_block", "make_blocks", "parse"]

MAGIC = b"STBLOCK1"
_HEAD = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
_FEW_BITS = 16
_SHOWN = 4


class BlockHeader:
    """What a block says of itself; ``whole`` is whether its CRC agrees."""

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
    """Return ``count`` blocks one after another."""
    return b"".join(make_block(number, generation, seed, size) for number in range(first, first + count))


def parse(data: bytes) -> BlockHeader | None:
    """Return what a block says of itself, or None where it bears no head of ours."""
    magic, number, generation, seed = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return None
    end = len(data) - _CRC.size
    return BlockHeader(number, generation, seed, _CRC.unpack_from(data, end)[0] == zlib.crc32(data[:end]))


def describe_mismatch(data: bytes, number: int, generation: int, seed: int) -> str:
    """Say what a block holds instead of what it should; "" where it is right."""
    wanted = make_block(number, generation, seed, len(data))
    if data == wanted:
        return ""
    if not any(data):
        return f"zeroes instead of generation {generation}"
    found = parse(data)
    if found is not None and found.whole:
        return _of_another(found, number, generation, seed)
    differing = int.from_bytes(data, "little") ^ int.from_bytes(wanted, "little")
    bits = bin(differing).count("1")  # noqa: FURB161  # int.bit_count is of Python 3.10
    at = next(place for place, (got, want) in enumerate(zip(data, wanted)) if got != want)
    if bits <= _FEW_BITS:
        return f"{bits} bits of generation {generation} are flipped, from byte {at}"
    for older in range(generation):
        before = make_block(number, older, seed, len(data)) if older else bytes(len(data))
        if all(got in (new, old) for got, new, old in zip(data, wanted, before)):
            return f"torn: generations {generation} and {older} in one block, which meet at byte {at}"
    if found is None:
        return f"what nobody wrote, from byte {at}: {data[:16].hex()}…"
    return f"damaged from byte {at}: the CRC does not agree"


def _of_another(found: BlockHeader, number: int, generation: int, seed: int) -> str:
    if found.seed != seed:
        return f"data of another case or run (block {found.number}, generation {found.generation})"
    if found.number != number:
        return f"data of block {found.number} (generation {found.generation}): misplaced"
    if found.generation < generation:
        return f"generation {found.generation} instead of {generation}: a lost write, or a stale read"
    return f"generation {found.generation}, which is newer than {generation}"


def describe_mismatches(data: bytes, first: int, generation: int, seed: int, size: int) -> str:
    """Say which of the blocks in ``data`` are wrong, and how; "" where all are right."""
    if data == make_blocks(first, len(data) // size, generation, seed, size):
        return ""
    wrong = []
    for place in range(0, len(data), size):
        number = first + place // size
        words = describe_mismatch(data[place : place + size], number, generation, seed)
        if words:
            wrong.append(f"block {number}: {words}")
    more = [f"and {len(wrong) - _SHOWN} more of {len(data) // size}"] if len(wrong) > _SHOWN else []
    return "; ".join(wrong[:_SHOWN] + more)
