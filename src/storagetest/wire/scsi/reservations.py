"""Parameter data of persistent reservations (SPC-4, PERSISTENT RESERVE IN and OUT). Decoding is total."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short


@dataclass(frozen=True, slots=True)
class Keys:
    """READ KEYS: PRGENERATION, and one key for each registered I_T nexus."""

    generation: int
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """READ RESERVATION; without a reservation ``held`` is False and the rest is zero."""

    generation: int
    held: bool
    key: int = 0
    scope: int = 0
    type: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """REPORT CAPABILITIES. ``types`` is the type mask, or None if it is not valid."""

    length: int
    replace_lost: bool
    spec_i_pt: bool
    all_tg_pt: bool
    persist_through_power_loss: bool
    power_loss_active: bool
    types: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class FullStatus:
    """One descriptor of READ FULL STATUS; ``transport_id`` is not decoded."""

    key: int
    holder: bool
    all_ports: bool
    scope: int
    type: int
    port: int
    transport_id: bytes


def _header(data: bytes, command: str) -> tuple[int, bytes]:
    if len(data) < 8:
        raise RemoteProtocolError(f"SCSI: {command} data of {len(data)} bytes: {hex_short(data)}")
    generation, length = struct.unpack(">II", data[:8])
    if length > len(data) - 8:
        raise RemoteProtocolError(
            f"SCSI: {command} data has length {length}, but {len(data) - 8} bytes follow: {hex_short(data)}"
        )
    return generation, data[8 : 8 + length]


def decode_keys(data: bytes) -> Keys:
    """Read READ KEYS data."""
    generation, body = _header(data, "READ KEYS")
    return Keys(generation, tuple(key for (key,) in struct.iter_unpack(">Q", body[: len(body) // 8 * 8])))


def decode_reservation(data: bytes) -> Reservation:
    """Read READ RESERVATION data."""
    generation, body = _header(data, "READ RESERVATION")
    if not body:
        return Reservation(generation, held=False)
    if len(body) < 16:
        raise RemoteProtocolError(f"SCSI: a reservation descriptor of {len(body)} bytes: {hex_short(data)}")
    return Reservation(generation, True, int.from_bytes(body[:8], "big"), body[13] >> 4, body[13] & 0x0F)


_MASK = ((4, 7, 7), (4, 6, 6), (4, 5, 5), (4, 3, 3), (4, 1, 1), (5, 0, 8))
"""Byte, bit and type of the persistent reservation type mask (SPC-4)."""


def decode_capabilities(data: bytes) -> Capabilities:
    """Read REPORT CAPABILITIES data."""
    if len(data) < 8:
        raise RemoteProtocolError(f"SCSI: REPORT CAPABILITIES data of {len(data)} bytes: {hex_short(data)}")
    types = frozenset(kind for byte, shift, kind in _MASK if data[byte] >> shift & 1)
    return Capabilities(
        length=int.from_bytes(data[:2], "big"),
        replace_lost=bool(data[2] & 0x80),
        spec_i_pt=bool(data[2] & 0x08),
        all_tg_pt=bool(data[2] & 0x04),
        persist_through_power_loss=bool(data[2] & 0x01),
        power_loss_active=bool(data[3] & 0x01),
        types=types if data[3] & 0x80 else None,
    )


def decode_full_status(data: bytes) -> tuple[FullStatus, ...]:
    """Read READ FULL STATUS data."""
    _, rest = _header(data, "READ FULL STATUS")
    descriptors = []
    while rest:
        extra = int.from_bytes(rest[20:24], "big")
        if len(rest) < 24 + extra:
            raise RemoteProtocolError(f"SCSI: a full status descriptor past the end: {hex_short(data)}")
        descriptors.append(
            FullStatus(
                key=int.from_bytes(rest[:8], "big"),
                holder=bool(rest[12] & 0x01),
                all_ports=bool(rest[12] & 0x02),
                scope=rest[13] >> 4,
                type=rest[13] & 0x0F,
                port=int.from_bytes(rest[18:20], "big"),
                transport_id=rest[24 : 24 + extra],
            )
        )
        rest = rest[24 + extra :]
    return tuple(descriptors)


def out_list(
    key: int,
    action_key: int = 0,
    *,
    aptpl: bool = False,
    all_target_ports: bool = False,
    spec_i_pt: bool = False,
) -> bytes:
    """Return the 24-byte basic parameter list of PERSISTENT RESERVE OUT."""
    flags = aptpl | all_target_ports << 2 | spec_i_pt << 3
    return struct.pack(">QQ4xB3x", key, action_key, flags)


def transport_id(name: str, isid: bytes) -> bytes:
    """Return the TransportID of an initiator port of iSCSI: its name and ISID, and zeros (SPC-4)."""
    text = f"{name},i,0x{isid.hex()}".encode() + b"\0"
    text += bytes(max(20 - len(text), -len(text) % 4))
    return struct.pack(">BxH", 0x45, len(text)) + text


def port_list(key: int, action_key: int, transport_ids: bytes, *, length: int | None = None) -> bytes:
    """Return the parameter list of REGISTER with SPEC_I_PT; ``length`` overrides that of the TransportIDs."""
    listed = len(transport_ids) if length is None else length
    return out_list(key, action_key, spec_i_pt=True) + struct.pack(">I", listed) + transport_ids


def move_list(
    key: int, action_key: int, port: int, transport_id: bytes, *, unregister: bool = False
) -> bytes:
    """Return the parameter list of REGISTER AND MOVE to a relative target port and an initiator port."""
    return struct.pack(">QQxBHI", key, action_key, unregister << 1, port, len(transport_id)) + transport_id
