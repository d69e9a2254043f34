# a value has the type of its attribute
"""File attributes of NFSv4 (RFC 8881 5, RFC 7862 12.2, RFC 8275 5, RFC 8276 8.2): bitmaps and their values.

A ``fattr4`` holds a bitmap and the values of its attributes one after the other, in the order of their
numbers. Here it is a mapping from number to value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.nfs4 import types
from storagetest.wire.xdr import Codec, Packer, Struct, Unpacker
from storagetest.wire.xdr.codecs import BOOL, UINT

FATTR4_MODE_UMASK = 81
"""RFC 8275 5: mode and umask, set when a file is created."""


@dataclass(frozen=True, slots=True)
class _ModeUmask(Struct):
    """RFC 8275 5."""

    mu_mode: int
    mu_umask: int
    FIELDS = (("mu_mode", UINT), ("mu_umask", UINT))


_OTHERS: dict[int, Codec] = {FATTR4_MODE_UMASK: _ModeUmask, types.FATTR4_XATTR_SUPPORT: BOOL}
_WRITE_ONLY = {
    types.FATTR4_TIME_ACCESS_SET,
    types.FATTR4_TIME_MODIFY_SET,
    types.FATTR4_LAYOUT_HINT,
    types.FATTR4_RETENTION_SET,
    types.FATTR4_RETENTEVT_SET,
    types.FATTR4_MODE_SET_MASKED,
    FATTR4_MODE_UMASK,
}
_READ_WRITE = {
    types.FATTR4_SIZE,
    types.FATTR4_ACL,
    types.FATTR4_ARCHIVE,
    types.FATTR4_HIDDEN,
    types.FATTR4_MIMETYPE,
    types.FATTR4_MODE,
    types.FATTR4_OWNER,
    types.FATTR4_OWNER_GROUP,
    types.FATTR4_SYSTEM,
    types.FATTR4_TIME_BACKUP,
    types.FATTR4_TIME_CREATE,
    types.FATTR4_DACL,
    types.FATTR4_SACL,
    types.FATTR4_RETENTION_HOLD,
    types.FATTR4_SEC_LABEL,
}


@dataclass(frozen=True, slots=True)
class FileAttribute:
    """An attribute: its number, its name in the tables of RFC 8881 5.8, its codec, and its access there."""

    number: int
    name: str
    codec: Codec
    access: Literal["R", "W", "R W"]


def _all() -> dict[int, FileAttribute]:
    found = {}
    for constant, number in sorted(vars(types).items()):
        if constant.startswith("FATTR4_") and isinstance(number, int):
            name = constant.removeprefix("FATTR4_").lower()
            codec = _OTHERS.get(number) or getattr(types, f"fattr4_{name}")
            access: Literal["R", "W", "R W"] = (
                "W" if number in _WRITE_ONLY else "R W" if number in _READ_WRITE else "R"
            )
            found[number] = FileAttribute(number, name, codec, access)
    found[FATTR4_MODE_UMASK] = FileAttribute(FATTR4_MODE_UMASK, "mode_umask", _ModeUmask, "W")
    return dict(sorted(found.items()))


ATTRIBUTES: Mapping[int, FileAttribute] = _all()
"""Every attribute by its number."""

REQUIRED = (
    *range(types.FATTR4_SUPPORTED_ATTRS, types.FATTR4_RDATTR_ERROR + 1),
    types.FATTR4_FILEHANDLE,
)
"""The attributes that every server of every minor version supports (RFC 7530 5.6, RFC 8881 5.6)."""

REQUIRED_41 = (*REQUIRED, types.FATTR4_SUPPATTR_EXCLCREAT)
"""Those of minor version 1 and later (RFC 8881 5.6)."""

MODE_UMASK = _ModeUmask


def bitmap(*numbers: int) -> tuple[int, ...]:
    """Return the ``bitmap4`` of attribute numbers (RFC 8881 3.3.7): 32 bits a word, without a last zero."""
    words = [0] * (max(numbers, default=-1) // 32 + 1)
    for number in numbers:
        words[number // 32] |= 1 << number % 32
    return tuple(words)


def numbers_of(bits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the attribute numbers of a bitmap, in order."""
    return tuple(at * 32 + bit for at, word in enumerate(bits) for bit in range(32) if word >> bit & 1)


def encode_attributes(values: Mapping[int, Any]) -> types.fattr4:
    """Return a ``fattr4`` of values by number. Raises LocalProtocolError if one is unknown."""
    out = Packer()
    for number in sorted(values):
        if number not in ATTRIBUTES:
            raise LocalProtocolError(f"no attribute has the number {number}")
        ATTRIBUTES[number].codec.pack(values[number], out)
    return types.fattr4(bitmap(*values), out.finish().data)


def decode_attributes(found: types.fattr4) -> dict[int, Any]:
    """Return the values by number. Raises RemoteProtocolError for an unknown one, and for left-over data."""
    source, values = Unpacker(found.attr_vals), {}
    for number in numbers_of(found.attrmask):
        if number not in ATTRIBUTES:
            raise RemoteProtocolError(f"RFC 8881 5: attribute {number} in a reply, which no standard defines")
        values[number] = ATTRIBUTES[number].codec.unpack(source)
    source.finish("the attributes")
    return values
