"""Remote procedure calls on named pipes: bind, and the list of shares (C706 12 and 14, MS-SRVS 3.1.4.8)."""

from __future__ import annotations

import struct
from uuid import UUID

from storagetest.errors import RemoteProtocolError

SRVSVC = UUID("4b324fc8-1670-01d3-1278-5a47bf6ee188")
"""The interface of the server service, version 3.0 (MS-SRVS 1.9)."""

NDR = UUID("8a885d04-1ceb-11c9-9fe8-08002b104860")
"""The transfer syntax NDR, version 2 (C706 14)."""

SHARE_ENUM = 15
"""The number of NetrShareEnum (MS-SRVS 3.1.4)."""

FRAGMENT = 4280
"""Bytes of the largest fragment that is offered (chosen)."""

_REQUEST, _RESPONSE, _BIND, BIND_ACK = 0, 2, 11, 12
_WHOLE = 3  # first and last fragment (C706 12.6.3.1)
_HEADER = struct.Struct("<BBBB4sHHI")


def _pdu(kind: int, call: int, body: bytes) -> bytes:
    """Return a PDU in one fragment, with little-endian data (C706 12.6.3.1)."""
    size = _HEADER.size + len(body)
    return _HEADER.pack(5, 0, kind, _WHOLE, b"\x10\0\0\0", size, 0, call) + body


def bind(call: int = 1) -> bytes:
    """Return the bind of the server service (C706 12.6.4.3)."""
    context = struct.pack("<HBx", 0, 1) + SRVSVC.bytes_le + struct.pack("<I", 3)
    return _pdu(
        _BIND,
        call,
        struct.pack("<HHIB3x", FRAGMENT, FRAGMENT, 0, 1) + context + NDR.bytes_le + struct.pack("<I", 2),
    )


def share_enum(call: int = 2) -> bytes:
    """Return NetrShareEnum of level 1, without a limit (C706 12.6.4.9, MS-SRVS 3.1.4.8)."""
    stub = struct.pack("<I", 0) + struct.pack("<III", 1, 1, 0x20000) + struct.pack("<II", 0, 0)
    stub += struct.pack("<II", 0xFFFFFFFF, 0)
    return _pdu(_REQUEST, call, struct.pack("<IHH", len(stub), 0, SHARE_ENUM) + stub)


def kind_of(data: bytes) -> int:
    """Return the type of a PDU. Raises RemoteProtocolError if ``data`` is not one whole PDU of version 5."""
    if len(data) < _HEADER.size:
        raise RemoteProtocolError(f"RPC: {len(data)} bytes are no PDU (C706 12.6.3.1)")
    version, _, kind, _, _, size, _, _ = _HEADER.unpack_from(data)
    if version != 5 or size != len(data):
        raise RemoteProtocolError(
            f"RPC: version {version}, {size} bytes in {len(data)}: not one PDU (C706 12.6.3.1)"
        )
    return int(kind)


def shares(data: bytes) -> dict[str, int]:
    """Return the names of the shares and their types from the response to :func:`share_enum`.

    Raises RemoteProtocolError if it is a fault, or not whole.
    """
    if (kind := kind_of(data)) != _RESPONSE:
        raise RemoteProtocolError(f"RPC: a PDU of type {kind} in place of a response (C706 12.6.4.10)")
    stub = data[_HEADER.size + 8 :]
    try:
        count, pointer = struct.unpack_from("<II", stub, 12)
        if not pointer:
            return {}
        entries = [struct.unpack_from("<III", stub, 24 + 12 * number) for number in range(count)]
        at, found = 24 + 12 * count, {}
        for name_pointer, share_type, remark_pointer in entries:
            name = ""
            if name_pointer:
                name, at = _string(stub, at)
            if remark_pointer:
                _, at = _string(stub, at)
            found[name] = share_type
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"RPC: the list of shares is not whole: {error}") from None
    return found


def _string(stub: bytes, at: int) -> tuple[str, int]:
    """Return a conformant and varying string, and the place behind it (C706 14.3.4.2)."""
    _, _, count = struct.unpack_from("<III", stub, at)
    end = at + 12 + 2 * count
    if end > len(stub):
        raise struct.error(f"a string of {count} characters at byte {at}")
    return stub[at + 12 : end].decode("utf-16-le").rstrip("\0"), end + -end % 4
