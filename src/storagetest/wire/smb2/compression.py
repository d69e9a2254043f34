"""Compression of messages (MS-SMB2 2.2.42, 3.1.4.4, 3.1.5.3): LZNT1 and LZ77 of MS-XCA, and Pattern_V1.

An unchained message has one algorithm for all that is behind an offset; a chained one is a list of payloads
with an algorithm each. What does not decompress to the stated size raises
:class:`~storagetest.errors.RemoteProtocolError`. No more than the stated size is ever produced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import Compression

COMPRESSED_ID = b"\xfcSMB"
"""The first bytes of a compressed message (2.2.42)."""

HEADER_SIZE = 16
"""Bytes of the header of an unchained message (2.2.42.1)."""

CHAINED = 1
"""SMB2_COMPRESSION_FLAG_CHAINED (2.2.42.2.1), and the flag of the negotiate context (2.2.3.1.3)."""

_SIZED = (Compression.LZNT1, Compression.LZ77)
"""The algorithms whose payloads begin with their size before compression (2.2.42.2.1)."""

_CHUNK = 4096
"""Bytes of an LZNT1 chunk before compression (MS-XCA 2.5)."""

Payload = tuple[Compression, bytes]
"""A payload of a chained message: the algorithm, and the bytes before compression."""


class _Broken(Exception):
    """Compressed data that no compressor makes."""


# LZ77 (MS-XCA 2.3, 2.4)

_FAR, _SHORTEST = 8192, 3


def lz77_compress(data: bytes) -> bytes:
    """Return ``data`` compressed by plain LZ77 (MS-XCA 2.3)."""
    out, seen = bytearray(4), dict[bytes, int]()
    flags = count = flag_at = half_at = at = 0
    while at < len(data):
        key = data[at : at + _SHORTEST]
        before = seen.get(key, -1) if len(key) == _SHORTEST else -1
        length = _match(data, before, at) if before >= 0 and at - before <= _FAR else 0
        if length:
            half_at = _write_match(out, length, at - before, half_at)
        else:
            out.append(data[at])
        seen[key] = at
        at += length or 1
        flags, count = flags << 1 | bool(length), count + 1
        if count == 32:
            out[flag_at : flag_at + 4] = flags.to_bytes(4, "little")
            flags, count, flag_at = 0, 0, len(out)
            out += bytes(4)
    rest = 32 - count
    out[flag_at : flag_at + 4] = (flags << rest | (1 << rest) - 1).to_bytes(4, "little")
    return bytes(out)


def _match(data: bytes, before: int, at: int) -> int:
    """Return how many bytes at ``at`` repeat those at ``before``."""
    length = 0
    while at + length < len(data) and data[before + length] == data[at + length]:
        length += 1
    return length


def _write_match(out: bytearray, length: int, distance: int, half_at: int) -> int:
    """Append a match; return where the free half of a shared length byte is, or 0."""
    rest = length - _SHORTEST
    out += struct.pack("<H", distance - 1 << 3 | min(rest, 7))
    if rest < 7:
        return half_at
    rest -= 7
    if half_at:
        out[half_at] |= min(rest, 15) << 4
        half_at = 0
    else:
        half_at = len(out)
        out.append(min(rest, 15))
    if rest >= 15:
        rest -= 15
        out.append(min(rest, 255))
        if rest >= 255:
            whole = rest + 15 + 7
            out += struct.pack("<H", whole) if whole < 1 << 16 else struct.pack("<HI", 0, whole)
    return half_at


def lz77_decompress(data: bytes, size: int) -> bytes:
    """Return the ``size`` bytes of plain LZ77 in ``data`` (MS-XCA 2.4)."""
    return _whole(_lz77, data, size, "LZ77 (MS-XCA 2.4)")


def _lz77(data: bytes, size: int) -> bytes:
    out = bytearray()
    at = half_at = flags = count = 0
    while True:
        if not count:
            (flags,), at, count = struct.unpack_from("<I", data, at), at + 4, 32
        count -= 1
        if not flags >> count & 1:
            out.append(data[at])
            at += 1
        elif at == len(data):
            return bytes(out)
        else:
            (word,) = struct.unpack_from("<H", data, at)
            at += 2
            length = word & 7
            if length == 7:
                length, at, half_at = _length(data, at, half_at)
            _copy(out, (word >> 3) + 1, length + _SHORTEST, size)
        if len(out) > size:
            raise _Broken


def _length(data: bytes, at: int, half_at: int) -> tuple[int, int, int]:
    """Read the further parts of a length; return it, and where to go on."""
    if half_at:
        length, half_at = data[half_at] >> 4, 0
    else:
        length, half_at = data[at] & 15, at
        at += 1
    if length == 15:
        length, at = data[at], at + 1
        if length == 255:
            (length,), at = struct.unpack_from("<H", data, at), at + 2
            if not length:
                (length,), at = struct.unpack_from("<I", data, at), at + 4
            if length < 15 + 7:
                raise _Broken
            length -= 15 + 7
        length += 15
    return length + 7, at, half_at


def _copy(out: bytearray, distance: int, length: int, size: int) -> None:
    """Append ``length`` bytes from ``distance`` before the end; the two may overlap."""
    if distance > len(out) or len(out) + length > size:
        raise _Broken
    piece = bytes(out[-distance:])
    out += (piece * (length // distance + 1))[:length]


# LZNT1 (MS-XCA 2.5)


def lznt1_compress(data: bytes) -> bytes:
    """Return ``data`` compressed by LZNT1 (MS-XCA 2.5): chunks, each alone, stored if that is shorter."""
    out = b""
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        packed = _lznt1_chunk(chunk)
        compressed = len(packed) < len(chunk)
        body = packed if compressed else chunk
        out += struct.pack("<H", compressed << 15 | 3 << 12 | len(body) - 1) + body
    return out


def _lznt1_chunk(chunk: bytes) -> bytes:
    out, seen = bytearray(), dict[bytes, int]()
    at = 0
    while at < len(chunk):
        flag_at, flags = len(out), 0
        out.append(0)
        for bit in range(8):
            if at >= len(chunk):
                break
            key = chunk[at : at + _SHORTEST]
            before = seen.get(key, -1) if len(key) == _SHORTEST else -1
            bits = _distance_bits(at)
            length = min(_match(chunk, before, at), (1 << 16 - bits) + 2) if before >= 0 else 0
            if length:
                out += struct.pack("<H", at - before - 1 << 16 - bits | length - _SHORTEST)
                flags |= 1 << bit
            else:
                out.append(chunk[at])
            seen[key] = at
            at += length or 1
        out[flag_at] = flags
    return bytes(out)


def _distance_bits(at: int) -> int:
    """Return the bits of a distance after ``at`` bytes of a chunk (MS-XCA 2.5.1.4)."""
    return min(max(4, (at - 1).bit_length()), 12)


def lznt1_decompress(data: bytes, size: int) -> bytes:
    """Return the ``size`` bytes of LZNT1 in ``data`` (MS-XCA 2.5)."""
    return _whole(_lznt1, data, size, "LZNT1 (MS-XCA 2.5)")


def _lznt1(data: bytes, size: int) -> bytes:
    out, at = bytearray(), 0
    while at < len(data):
        (head,) = struct.unpack_from("<H", data, at)
        if not head:
            break
        end = at + 3 + (head & 0xFFF)
        if end > len(data) or head >> 12 & 7 != 3:
            raise _Broken
        body = data[at + 2 : end]
        out += _lznt1_body(body) if head >> 15 else body
        if len(out) > size:
            raise _Broken
        at = end
    return bytes(out)


def _lznt1_body(body: bytes) -> bytes:
    out, at = bytearray(), 0
    while at < len(body):
        flags, at = body[at], at + 1
        for bit in range(8):
            if at >= len(body):
                break
            if flags >> bit & 1:
                (word,) = struct.unpack_from("<H", body, at)
                at += 2
                bits = 16 - _distance_bits(len(out))
                _copy(out, (word >> bits) + 1, (word & (1 << bits) - 1) + _SHORTEST, _CHUNK)
            else:
                out.append(body[at])
                at += 1
    if len(out) > _CHUNK:
        raise _Broken
    return bytes(out)


def _whole(decompress: Callable[[bytes, int], bytes], data: bytes, size: int, name: str) -> bytes:
    """Return the ``size`` bytes that ``decompress`` makes of ``data``. Raises RemoteProtocolError."""
    try:
        out = decompress(data, size)
        if len(out) == size:
            return out
    except (_Broken, IndexError, struct.error):
        pass
    raise RemoteProtocolError(f"SMB2: these are not {size} bytes of {name}: {hex_short(data)}")


# Messages


def compress(message: bytes, algorithm: Compression, *, offset: int = 0) -> bytes:
    """Return ``message`` unchained; its first ``offset`` bytes stay as they are (2.2.42.1)."""
    head = struct.pack("<4sIHHI", COMPRESSED_ID, len(message) - offset, algorithm, 0, offset)
    return head + message[:offset] + _encode(algorithm, message[offset:])


def compress_chained(payloads: Iterable[Payload]) -> bytes:
    """Return a chained message of ``payloads`` (2.2.42.2); Pattern_V1 repeats the first byte of its own."""
    out, size = b"", 0
    for number, (algorithm, data) in enumerate(payloads):
        size += len(data)
        body = _encode(algorithm, data)
        body = struct.pack("<I", len(data)) + body if algorithm in _SIZED else body
        out += struct.pack("<HHI", algorithm, CHAINED if not number else 0, len(body)) + body
    return COMPRESSED_ID + struct.pack("<I", size) + out


def _encode(algorithm: Compression, data: bytes) -> bytes:
    match algorithm:
        case Compression.NONE:
            return data
        case Compression.LZNT1:
            return lznt1_compress(data)
        case Compression.LZ77:
            return lz77_compress(data)
        case Compression.PATTERN_V1:
            return struct.pack("<BBHI", data[0], 0, 0, len(data))
        case _:
            raise LocalProtocolError(f"no codec for the compression algorithm {algorithm.name}")


def decompress(data: bytes, algorithms: Collection[int], *, chained: bool, largest: int) -> bytes:
    """Return the message in ``data``. Raises RemoteProtocolError.

    ``algorithms`` and ``chained`` were negotiated; ``largest`` is the most bytes of a compressed part
    (3.2.5.1.1.2).
    """
    if len(data) < HEADER_SIZE or data[:4] != COMPRESSED_ID:
        raise RemoteProtocolError(f"SMB2: no header of a compressed message (2.2.42): {hex_short(data)}")
    _, size, algorithm, flags, offset = struct.unpack_from("<4sIHHI", data)
    if size > largest:
        raise RemoteProtocolError(
            f"SMB2: {size} compressed bytes, more than the largest message has (3.2.5.1.1.2): "
            f"{hex_short(data)}"
        )
    if flags == CHAINED and chained:
        return _decompress_chain(data[8:], size, algorithms)
    if flags or algorithm not in algorithms or algorithm not in _SIZED:
        raise RemoteProtocolError(
            f"SMB2: compressed by algorithm {algorithm} with flags {flags:#x}, which was not negotiated "
            f"(3.2.5.1.1.2): {hex_short(data)}"
        )
    start = HEADER_SIZE + offset
    return data[HEADER_SIZE:start] + _decode(algorithm, data[start:], size)


def _decompress_chain(data: bytes, size: int, algorithms: Collection[int]) -> bytes:
    out = b""
    while data:
        if len(data) < 8:
            raise RemoteProtocolError(f"SMB2: {len(data)} bytes of a payload (2.2.42.2.1): {hex_short(data)}")
        algorithm, _, length = struct.unpack_from("<HHI", data)
        body, data = data[8 : 8 + length], data[8 + length :]
        if len(body) < length or (algorithm != Compression.NONE and algorithm not in algorithms):
            raise RemoteProtocolError(
                f"SMB2: a payload of {length} bytes of algorithm {algorithm} (3.1.5.3): {hex_short(body)}"
            )
        out += _decode_payload(algorithm, body, size - len(out))
    if len(out) != size:
        raise RemoteProtocolError(f"SMB2: payloads of {len(out)} bytes in a message of {size} (3.1.5.3)")
    return out


def _decode_payload(algorithm: int, body: bytes, most: int) -> bytes:
    """Return a payload of at most ``most`` bytes."""
    if algorithm == Compression.NONE:
        out, stated = body[: most + 1], len(body)
    elif algorithm == Compression.PATTERN_V1 and len(body) == 8:
        stated = int.from_bytes(body[4:], "little")
        out = body[:1] * min(stated, most)
    elif algorithm in _SIZED and len(body) > 4:
        stated = int.from_bytes(body[:4], "little")
        out = _decode(algorithm, body[4:], stated) if stated <= most else b""
    else:
        stated, out = most + 1, b""
    if stated > most:
        raise RemoteProtocolError(
            f"SMB2: a payload of algorithm {algorithm} is not {most} bytes at most (3.1.5.3): "
            f"{hex_short(body)}"
        )
    return out


def _decode(algorithm: int, data: bytes, size: int) -> bytes:
    return lznt1_decompress(data, size) if algorithm == Compression.LZNT1 else lz77_decompress(data, size)
