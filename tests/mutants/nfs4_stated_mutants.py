"""Broken rules of NFSv4 of a third list: one field of a reply, and what calls of one client alone had tried."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, field_of, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes, numbers_of
from storagetest.wire.nfs4.operations import ANONYMOUS
from storagetest.wire.nfs4.types import COMPOUND4args, nfsstat4

OK = nfsstat4.NFS4_OK
BITS_31 = 0x7FFF_FFFF


def asks(row: str, operation: str, change: Any) -> None:
    """Register a mutant whose server sees changed arguments of ``operation``."""

    def request(_talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        out = tuple(
            replace(one, value=change(one.value)) if opname(one) == operation else one
            for one in arguments.argarray
        )
        return replace(arguments, argarray=out)

    mutant(row, operation, part="request")(request)


@mutant(
    "rename-target-cinfo | RFC 8881 18.26.3 | change info of the target directory is that of the source, and atomic",
    "RENAME",
)
def rename_target_cinfo(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.target_cinfo", replace(result.value.source_cinfo, atomic=True))


@mutant("open-cinfo-same | RFC 8881 18.16.3 | change info of an OPEN is atomic, and has after twice", "OPEN")
def open_cinfo_same(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or argument.openhow.opentype != types.opentype4.OPEN4_CREATE:
        return result
    return put(result, "value.cinfo", lambda info: replace(info, atomic=True, before=info.after))


@mutant("time-metadata-sticks | RFC 8881 5.8.2 | time_metadata stays as it was first", "PUTFH", "GETATTR")
def time_metadata_sticks(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
    if of(result) != OK or not hasattr(argument, "attr_request"):
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_TIME_METADATA not in values:
        return result
    key = talk.memory.get("handle")
    values[types.FATTR4_TIME_METADATA] = talk.shared.setdefault(key, values[types.FATTR4_TIME_METADATA])
    return put(result, "value.obj_attributes", encode_attributes(values))


field_of(
    "readlink-255 | RFC 8881 18.24.3 | READLINK returns at most 255 bytes",
    "READLINK",
    "value.link",
    lambda text: text[:255],
)


def _anonymous(one: Any) -> Any:
    sets_size = types.FATTR4_SIZE in numbers_of(one.obj_attributes.attrmask)
    return replace(one, stateid=ANONYMOUS) if sets_size else one


asks(
    "setattr-size-anonymous | RFC 8881 18.30.3 | the stateid of a SETATTR of the size is not looked at",
    "SETATTR",
    _anonymous,
)
for _name in ("write", "read"):
    asks(
        f"{_name}-offset-31 | RFC 8881 18.22.3, 18.32.3 | a {_name.upper()} uses the low 31 bits of its offset",
        _name.upper(),
        lambda one: replace(one, offset=one.offset & BITS_31),
    )
asks(
    "reclaim-any-time | RFC 8881 8.4.2.1 | a reclaim of a lock is a new lock",
    "LOCK",
    lambda one: replace(one, reclaim=False),
)


@mutant("read-nothing-eof | RFC 8881 18.22.3 | a READ of no bytes states eof", "READ")
def read_nothing_eof(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.eof", True) if of(result) == OK and not argument.count else result


field_of(
    "sequence-expired-flag | RFC 8881 18.46.3 | SEQUENCE states that all state of the client was revoked",
    "SEQUENCE",
    "value.sr_status_flags",
    lambda flags: flags | types.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED,
)


@mutant("seek-hole-eof | RFC 7862 15.11.3 | a hole inside a file is its end", "SEEK")
def seek_hole_eof(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    hole = of(result) == OK and argument.sa_what == types.data_content4.NFS4_CONTENT_HOLE
    return put(result, "value.sr_eof", True) if hole else result


def _attribute(row: str, number: int, change: Any) -> None:
    """Register a mutant that changes one attribute in GETATTR; ``change`` has the handle, too."""

    def changed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if hasattr(argument, "object"):
            talk.memory["handle"] = argument.object
        if of(result) != OK or not hasattr(argument, "attr_request"):
            return result
        values = decode_attributes(result.value.obj_attributes)
        if number not in values:
            return result
        values[number] = change(talk, values[number])
        return put(result, "value.obj_attributes", encode_attributes(values))

    mutant(row, "PUTFH", "GETATTR")(changed)


def _second(talk: Nfs4ProxyConnection, value: Any) -> Any:
    """Return the second value that was stated of the file, once there were two."""
    seen = talk.shared.setdefault(talk.memory.get("handle"), [])
    if len(seen) < 2 and value not in seen:
        seen.append(value)
    return seen[-1]


_attribute(
    "space-free-more | RFC 8881 5.8.2 | space_free is more than space_total",
    types.FATTR4_SPACE_FREE,
    lambda _talk, value: value + (1 << 60),
)
_attribute(
    "files-free-more | RFC 8881 5.8.2 | files_free is more than files_total",
    types.FATTR4_FILES_FREE,
    lambda _talk, value: value + (1 << 60),
)
_attribute(
    "mounted-on-other | RFC 8881 5.8.2 | mounted_on_fileid is that of another file",
    types.FATTR4_MOUNTED_ON_FILEID,
    lambda _talk, value: value + 1,
)
_attribute(
    "mtime-sticks | RFC 8881 5.8.2 | time_modify stays after its second value",
    types.FATTR4_TIME_MODIFY,
    _second,
)
