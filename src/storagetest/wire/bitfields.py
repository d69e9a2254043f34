"""Big-endian fields of a header, declared once and used both ways, for SCSI and iSCSI.

A layout is a tuple of :class:`Field`, written out, or read from the annotations of a dataclass
(:func:`layout_of`). It packs and unpacks values by name, overrides a field of encoded bytes (:func:`put`),
and gives the bits that no field defines (:func:`reserved_bits`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import get_type_hints

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short

Value = int | bool | bytes
"""The value of a field: bool for a flag, int for a number, bytes for an opaque field."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: ``size`` bytes at ``offset``, of them ``width`` bits from ``shift`` (0: all, as bytes)."""

    name: str
    offset: int
    size: int
    shift: int = 0
    width: int = 0
    flag: bool = False
    mask: int = dataclasses.field(init=False, repr=False, compare=False)
    """The field's bits within its bytes."""

    def __post_init__(self) -> None:
        """Set the mask once: it is used for each field of each header."""
        object.__setattr__(self, "mask", ((1 << (self.width or self.size * 8)) - 1) << self.shift)


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
    """Declare opaque bytes (a CDB, an ISID)."""
    return Field(name, offset, size)


def layout_of(record: type) -> tuple[Field, ...]:
    """Return the fields of a dataclass in header order: each attribute annotated ``Annotated[TYPE, Field]``.

    A field's name is that of its attribute.
    """
    return _read_layout(record)


@cache
def _read_layout(record: type) -> tuple[Field, ...]:
    hints = get_type_hints(record, include_extras=True)
    fields = [
        replace(field, name=name)
        for name, hint in hints.items()
        for field in getattr(hint, "__metadata__", ())
        if isinstance(field, Field)
    ]
    return tuple(sorted(fields, key=lambda field: (field.offset, -field.shift)))


def require_bytes(data: bytes, size: int, name: str) -> bytes:
    """Return ``data``. Raises :class:`RemoteProtocolError` if it is shorter than ``size`` bytes."""
    if len(data) < size:
        raise RemoteProtocolError(
            f"{name}: {len(data)} bytes, at least {size} are required: {hex_short(data)}"
        )
    return data


def get(data: bytes, field: Field) -> Value:
    """Return the field of ``data``; a field beyond its end reads as zero."""
    piece = data[field.offset : field.offset + field.size]
    if len(piece) < field.size:
        piece = bytes(piece).ljust(field.size, b"\0")
    if not field.width:
        return bytes(piece)
    value = (int.from_bytes(piece, "big") & field.mask) >> field.shift
    return bool(value) if field.flag else value


def put(data: bytes, field: Field, value: Value) -> bytes:
    """Return ``data`` with the field changed. Raises :class:`ValueError` if ``value`` does not fit."""
    changed = bytearray(data)
    _put(changed, field, value)
    return bytes(changed)


def _put(data: bytearray, field: Field, value: Value) -> None:
    place = slice(field.offset, field.offset + field.size)
    if isinstance(value, bytes):
        if field.width or len(value) > field.size:
            raise ValueError(f"{field.name} is not {len(value)} bytes")
        data[place] = value.ljust(field.size, b"\0")
        return
    moved = int(value) << field.shift
    if value < 0 or moved & ~field.mask:
        raise ValueError(f"{field.name} is {field.width} bits; {value} does not fit")
    others = int.from_bytes(data[place], "big") & ~field.mask
    data[place] = (others | moved).to_bytes(field.size, "big")


def pack(length: int, layout: Iterable[Field], values: Mapping[str, Value]) -> bytes:
    """Return ``length`` bytes with every field of ``layout`` taken from ``values`` by name."""
    data = bytearray(length)
    for field in layout:
        _put(data, field, values[field.name])
    return bytes(data)


def unpack(data: bytes, layout: Iterable[Field]) -> dict[str, Value]:
    """Return every field by name."""
    return {field.name: get(data, field) for field in layout}


def reserved_bits(data: bytes, layout: tuple[Field, ...]) -> bytes:
    """Return ``data`` with every defined bit cleared: the rest is reserved, and should be zero.

    ``layout`` has no fields beyond the end of ``data``.
    """
    return (int.from_bytes(data, "big") & ~_defined_bits(layout, len(data))).to_bytes(len(data), "big")


@cache
def _defined_bits(layout: tuple[Field, ...], size: int) -> int:
    """Return ``size`` bytes, as a number, in which the bits of all fields are set."""
    defined = 0
    for field in layout:
        defined |= field.mask << 8 * (size - field.offset - field.size)
    return defined
