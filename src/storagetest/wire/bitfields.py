"""Big-endian fields at fixed places, declared once and used both ways: SCSI and iSCSI headers are no more.

A layout is a tuple of :class:`Place`. One table packs a dataclass, unpacks it, names each field for a lie
(:func:`put`), and knows which bits nobody has defined (:func:`undefined`), so that "reserved bits are zero"
is computed and not a list kept by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = [
    "Field",
    "Value",
    "bitfield",
    "flag",
    "get",
    "octets",
    "pack",
    "put",
    "reserved_bits",
    "uint",
    "unpack",
]

Value = int | bool | bytes
"""What stands in a field: a flag is a bool, a number an int, an opaque field bytes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: ``size`` bytes at ``offset``, of them ``width`` bits from ``shift`` (0: all, as bytes)."""

    name: str
    offset: int
    size: int
    shift: int = 0
    width: int = 0
    flag: bool = False

    @property
    def mask(self) -> int:
        """The field's bits within its bytes."""
        width = self.width or self.size * 8
        return ((1 << width) - 1) << self.shift


def uint(name: str, offset: int, size: int) -> Field:
    """Declare an unsigned number of whole bytes."""
    return Field(name, offset, size, 0, size * 8)


def bitfield(name: str, offset: int, shift: int, width: int) -> Field:
    """Declare a number of ``width`` bits within one byte, its lowest at bit ``shift``."""
    return Field(name, offset, 1, shift, width)


def flag(name: str, offset: int, shift: int) -> Field:
    """Declare a flag."""
    return Field(name, offset, 1, shift, 1, flag=True)


def octets(name: str, offset: int, size: int) -> Field:
    """Declare bytes that are left as they are (a CDB, an ISID)."""
    return Field(name, offset, size)


def get(data: bytes, place: Field) -> Value:
    """Return the field of ``data``; a field beyond its end reads as zero."""
    piece = bytes(data[place.offset : place.offset + place.size]).ljust(place.size, b"\0")
    if not place.width:
        return piece
    value = (int.from_bytes(piece, "big") & place.mask) >> place.shift
    return bool(value) if place.flag else value


def put(data: bytes, place: Field, value: Value) -> bytes:
    """Return ``data`` with the field changed. :class:`ValueError` when ``value`` does not fit there."""
    if isinstance(value, bytes):
        if place.width or len(value) > place.size:
            raise ValueError(f"{place.name} is not {len(value)} bytes")
        piece = value.ljust(place.size, b"\0")
    else:
        moved = int(value) << place.shift
        if value < 0 or moved & ~place.mask:
            raise ValueError(f"{place.name} is {place.width} bits; {value} does not fit")
        old = int.from_bytes(data[place.offset : place.offset + place.size], "big")
        piece = (old & ~place.mask | moved).to_bytes(place.size, "big")
    return data[: place.offset] + piece + data[place.offset + place.size :]


def pack(length: int, layout: Iterable[Field], values: Mapping[str, Value]) -> bytes:
    """Return ``length`` bytes with every field of ``layout`` taken from ``values`` by name."""
    data = bytes(length)
    for place in layout:
        data = put(data, place, values[place.name])
    return data


def unpack(data: bytes, layout: Iterable[Field]) -> dict[str, Value]:
    """Return every field by name."""
    return {place.name: get(data, place) for place in layout}


def reserved_bits(data: bytes, layout: Iterable[Field]) -> bytes:
    """Return ``data`` with every defined bit cleared: what is left is reserved, and should be zero."""
    for place in layout:
        data = put(data, place, bytes(place.size) if not place.width else 0)
    return data
