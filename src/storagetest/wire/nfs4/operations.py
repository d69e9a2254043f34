# ruff: noqa: ANN401  # arguments have the type of their operation
"""Operations of a COMPOUND, each as a function that returns its ``nfs_argop4``; values by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storagetest.wire.nfs4.attributes import bitmap, encode_attributes
from storagetest.wire.nfs4.types import (
    ACCESS4args,
    CLOSE4args,
    COMMIT4args,
    CREATE4args,
    GETATTR4args,
    LINK4args,
    LOOKUP4args,
    PUTFH4args,
    READ4args,
    READDIR4args,
    REMOVE4args,
    RENAME4args,
    SETATTR4args,
    WRITE4args,
    createhow4,
    createmode4,
    createtype4,
    fattr4,
    nfs_argop4,
    nfs_ftype4,
    nfs_opnum4,
    openflag4,
    opentype4,
    specdata4,
    stable_how4,
    stateid4,
)

ANONYMOUS = stateid4(0, bytes(12))
"""The anonymous stateid (RFC 8881 8.2.3)."""

READ_BYPASS = stateid4(0xFFFFFFFF, b"\xff" * 12)
"""The READ bypass stateid (RFC 8881 8.2.3)."""

CURRENT = stateid4(1, bytes(12))
"""The current stateid (RFC 8881 8.2.3)."""

INVALID = stateid4(0xFFFFFFFF, bytes(12))
"""The invalid stateid (RFC 8881 8.2.3)."""

NO_VERIFIER = bytes(8)
"""The cookie verifier of a READDIR from the beginning (RFC 8881 18.23.3)."""


def op(name: str, argument: Any = None) -> nfs_argop4:
    """Return the operation ``OP_name``."""
    return nfs_argop4(nfs_opnum4[f"OP_{name}"], argument)


PUTROOTFH, GETFH, SAVEFH, RESTOREFH = op("PUTROOTFH"), op("GETFH"), op("SAVEFH"), op("RESTOREFH")
LOOKUPP, READLINK = op("LOOKUPP"), op("READLINK")


def putfh(handle: bytes) -> nfs_argop4:
    """PUTFH."""
    return op("PUTFH", PUTFH4args(handle))


def lookup(name: bytes) -> nfs_argop4:
    """LOOKUP."""
    return op("LOOKUP", LOOKUP4args(name))


def getattr_(*numbers: int) -> nfs_argop4:
    """GETATTR of these attributes."""
    return op("GETATTR", GETATTR4args(bitmap(*numbers)))


def setattr_(values: Mapping[int, Any] | fattr4, stateid: stateid4 = ANONYMOUS) -> nfs_argop4:
    """SETATTR of values by number."""
    return op("SETATTR", SETATTR4args(stateid, _fattr(values)))


def access(bits: int) -> nfs_argop4:
    """ACCESS."""
    return op("ACCESS", ACCESS4args(bits))


def create(
    name: bytes,
    kind: int = nfs_ftype4.NF4DIR,
    values: Mapping[int, Any] | fattr4 | None = None,
    *,
    text: bytes = b"target",
    device: specdata4 | None = None,
) -> nfs_argop4:
    """CREATE of a file that is no regular one; ``text`` is that of a symbolic link."""
    made: dict[int, Any] = {
        nfs_ftype4.NF4LNK: text,
        nfs_ftype4.NF4BLK: device or specdata4(1, 2),
        nfs_ftype4.NF4CHR: device or specdata4(1, 2),
    }
    return op("CREATE", CREATE4args(createtype4(kind, made.get(kind)), name, _fattr(values or {})))  # type: ignore[arg-type]


def remove(name: bytes) -> nfs_argop4:
    """REMOVE."""
    return op("REMOVE", REMOVE4args(name))


def rename(old: bytes, new: bytes) -> nfs_argop4:
    """RENAME, from the saved to the current directory."""
    return op("RENAME", RENAME4args(old, new))


def link(name: bytes) -> nfs_argop4:
    """LINK of the saved file in the current directory."""
    return op("LINK", LINK4args(name))


def readdir(
    *,
    cookie: int = 0,
    verifier: bytes = NO_VERIFIER,
    dircount: int = 4096,
    maxcount: int = 16384,
    numbers: tuple[int, ...] = (),
) -> nfs_argop4:
    """READDIR with these attributes of each entry."""
    return op("READDIR", READDIR4args(cookie, verifier, dircount, maxcount, bitmap(*numbers)))


def read(stateid: stateid4, offset: int, count: int) -> nfs_argop4:
    """READ."""
    return op("READ", READ4args(stateid, offset, count))


def write(
    stateid: stateid4, offset: int, data: bytes, stable: stable_how4 = stable_how4.FILE_SYNC4
) -> nfs_argop4:
    """WRITE."""
    return op("WRITE", WRITE4args(stateid, offset, stable, data))


def commit(offset: int = 0, count: int = 0) -> nfs_argop4:
    """COMMIT."""
    return op("COMMIT", COMMIT4args(offset, count))


def close(stateid: stateid4, seqid: int = 0) -> nfs_argop4:
    """CLOSE."""
    return op("CLOSE", CLOSE4args(seqid, stateid))


def unchecked(values: Mapping[int, Any] | None = None) -> openflag4:
    """OPEN with UNCHECKED4."""
    return openflag4(
        opentype4.OPEN4_CREATE, createhow4(createmode4.UNCHECKED4, encode_attributes(values or {}))
    )


def guarded(values: Mapping[int, Any] | None = None) -> openflag4:
    """OPEN with GUARDED4."""
    return openflag4(
        opentype4.OPEN4_CREATE, createhow4(createmode4.GUARDED4, encode_attributes(values or {}))
    )


def exclusive(verifier: bytes) -> openflag4:
    """OPEN with EXCLUSIVE4."""
    return openflag4(opentype4.OPEN4_CREATE, createhow4(createmode4.EXCLUSIVE4, verifier))


NO_CREATE = openflag4(opentype4.OPEN4_NOCREATE)


def _fattr(values: Mapping[int, Any] | fattr4) -> fattr4:
    return values if isinstance(values, fattr4) else encode_attributes(values)
