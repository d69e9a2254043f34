"""Lists of contexts: those of NEGOTIATE (MS-SMB2 2.2.3.1, 2.2.4.1) and of CREATE (2.2.13.2, 2.2.14.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.smb2.codes import SHA_512, ContextType, Lease

NegotiateContext = tuple[int, bytes]
"""Type and data."""

CreateContext = tuple[bytes, bytes]
"""Name and data."""


def preauth(salt: bytes = b"salt" * 8, hashes: Sequence[int] = (SHA_512,)) -> NegotiateContext:
    """Return the context that offers hash algorithms (2.2.3.1.1)."""
    data = struct.pack("<HH", len(hashes), len(salt)) + b"".join(struct.pack("<H", h) for h in hashes) + salt
    return ContextType.PREAUTH_INTEGRITY, data


def numbers(kind: ContextType, values: Sequence[int]) -> NegotiateContext:
    """Return a context that is a count and as many numbers: ciphers, signing algorithms (2.2.3.1.2, .7)."""
    return kind, struct.pack("<H", len(values)) + b"".join(struct.pack("<H", value) for value in values)


def compression(algorithms: Sequence[int], *, chained: bool = False) -> NegotiateContext:
    """Return the context that offers compression algorithms (2.2.3.1.3)."""
    data = struct.pack("<HHI", len(algorithms), 0, chained)
    return ContextType.COMPRESSION, data + b"".join(struct.pack("<H", each) for each in algorithms)


def decode_compression(data: bytes) -> tuple[tuple[int, ...], bool]:
    """Read algorithms but NONE, and whether they may be chained (2.2.4.1.3). Raises RemoteProtocolError."""
    if len(data) < 8 or len(data) < 8 + 2 * (data[0] | data[1] << 8):
        raise RemoteProtocolError(f"SMB2: a compression context is not whole (2.2.4.1.3): {hex_short(data)}")
    count, _, flags = struct.unpack_from("<HHI", data)
    algorithms = struct.unpack_from(f"<{count}H", data, 8)
    return tuple(each for each in algorithms if each), bool(flags & 1)


def encode_negotiate(contexts: Iterable[NegotiateContext]) -> bytes:
    """Encode a list; each context begins at a multiple of 8 bytes."""
    out = b""
    for kind, data in contexts:
        out += bytes(-len(out) % 8) + struct.pack("<HHI", kind, len(data), 0) + data
    return out


def decode_negotiate(data: bytes, offset: int, count: int) -> dict[int, bytes]:
    """Read ``count`` contexts at ``offset`` of a message. Raises RemoteProtocolError if they do not fit."""
    found: dict[int, bytes] = {}
    for _ in range(count):
        if offset % 8 or offset + 8 > len(data):
            raise RemoteProtocolError(
                f"SMB2: a negotiate context at offset {offset} of {len(data)} bytes: it is whole and at a "
                f"multiple of 8 (2.2.4): {hex_short(data)}"
            )
        kind, length = struct.unpack_from("<HH", data, offset)
        if offset + 8 + length > len(data):
            raise RemoteProtocolError(
                f"SMB2: negotiate context {kind:#x} has {length} bytes, past the end (2.2.4.1): "
                f"{hex_short(data)}"
            )
        if kind in found:
            raise RemoteProtocolError(f"SMB2: two negotiate contexts of type {kind:#x} (3.3.5.4)")
        found[kind] = data[offset + 8 : offset + 8 + length]
        offset += 8 + length + (-length % 8)
    return found


def chosen(contexts: dict[int, bytes], kind: ContextType) -> int | None:
    """Return the one number that the server chose in a context of ``kind``, None without that context."""
    data = contexts.get(kind)
    if data is None:
        return None
    at = 4 if kind is ContextType.PREAUTH_INTEGRITY else 2
    if len(data) < at + 2 or int.from_bytes(data[:2], "little") != 1:
        raise RemoteProtocolError(
            f"SMB2: negotiate context {kind.name} of a response does not name one choice (2.2.4.1): "
            f"{hex_short(data)}"
        )
    return int.from_bytes(data[at : at + 2], "little")


def encode_create(contexts: Sequence[CreateContext]) -> bytes:
    """Encode a list of create contexts (2.2.13.2)."""
    out = b""
    for number, (name, data) in enumerate(contexts):
        at = 16 + len(name) + (-len(name) % 8)
        body = name.ljust(at - 16, b"\0") + data
        body += bytes(-len(body) % 8) if number + 1 < len(contexts) else b""
        step = 16 + len(body) if number + 1 < len(contexts) else 0
        out += struct.pack("<IHHHHI", step, 16, len(name), 0, at if data else 0, len(data)) + body
    return out


def decode_create(data: bytes) -> dict[bytes, bytes]:
    """Read the create contexts of a response. Raises :class:`RemoteProtocolError`."""
    found: dict[bytes, bytes] = {}
    while data:
        if len(data) < 16:
            raise RemoteProtocolError(f"SMB2: a create context of {len(data)} bytes: {hex_short(data)}")
        step, name_at, name_size, _, at, size = struct.unpack_from("<IHHHHI", data)
        end = step or len(data)
        if name_at + name_size > end or (size and at + size > end) or step > len(data) or 0 < step < 16:
            raise RemoteProtocolError(
                f"SMB2: a create context is not within its {end} bytes (2.2.14.2): {hex_short(data)}"
            )
        found[data[name_at : name_at + name_size]] = data[at : at + size] if size else b""
        data = data[step:] if step else b""
    return found


MAXIMAL_ACCESS, ON_DISK_ID = b"MxAc", b"QFid"
DURABLE, DURABLE_RECONNECT = b"DHnQ", b"DHnC"
DURABLE_V2, DURABLE_RECONNECT_V2 = b"DH2Q", b"DH2C"
LEASE = b"RqLs"
ALLOCATION, EXTENDED_ATTRIBUTES, SECURITY, TIMEWARP = b"AlSi", b"ExtA", b"SecD", b"TWrp"
"""Names of create contexts (2.2.13.2)."""


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A lease context: key, state and flags; ``epoch`` is None in the first version (2.2.13.2.8, .10)."""

    key: bytes
    state: Lease
    flags: int
    epoch: int | None


def lease_v1(key: bytes, state: int) -> CreateContext:
    """Return a lease request of the first version (2.2.13.2.8)."""
    return LEASE, key + struct.pack("<IIQ", state, 0, 0)


def lease_v2(key: bytes, state: int, *, epoch: int = 0, parent: bytes = b"") -> CreateContext:
    """Return a lease request of the second version (2.2.13.2.10)."""
    flags = 4 if parent else 0
    return LEASE, key + struct.pack("<IIQ", state, flags, 0) + parent.ljust(16, b"\0") + struct.pack(
        "<HH", epoch, 0
    )


def decode_lease(data: bytes) -> LeaseGrant:
    """Read a lease context of a response. Raises :class:`RemoteProtocolError`."""
    if len(data) not in (32, 52):
        raise RemoteProtocolError(
            f"SMB2: a lease context has {len(data)} bytes, not 32 or 52 (2.2.14.2.10, .11): {hex_short(data)}"
        )
    state, flags = struct.unpack_from("<II", data, 16)
    return LeaseGrant(data[:16], Lease(state), flags, data[48] | data[49] << 8 if len(data) == 52 else None)


DURABLE_PERSISTENT = 2
"""Flag of the durable contexts of the second version: a persistent handle (2.2.13.2.11)."""


def durable_v1() -> CreateContext:
    """Return a durable handle request of the first version (2.2.13.2.3)."""
    return DURABLE, bytes(16)


def reconnect_v1(file_id: bytes) -> CreateContext:
    """Return a durable handle reconnect of the first version (2.2.13.2.4)."""
    return DURABLE_RECONNECT, file_id


def durable_v2(guid: bytes, *, timeout: int = 0, flags: int = 0) -> CreateContext:
    """Return a durable handle request of the second version; ``timeout`` in milliseconds (2.2.13.2.11)."""
    return DURABLE_V2, struct.pack("<IIQ", timeout, flags, 0) + guid


def reconnect_v2(file_id: bytes, guid: bytes, *, flags: int = 0) -> CreateContext:
    """Return a durable handle reconnect of the second version (2.2.13.2.12)."""
    return DURABLE_RECONNECT_V2, file_id + guid + struct.pack("<I", flags)
