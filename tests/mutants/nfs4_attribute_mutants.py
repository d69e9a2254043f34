"""Broken rules of attributes: GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 5, 18)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import (
    Nfs4ProxyConnection,
    field_of,
    mutant,
    of,
    opname,
    put,
    refuses,
    wrong_error,
)

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import bitmap, decode_attributes, encode_attributes, numbers_of
from storagetest.wire.nfs4.types import COMPOUND4args, nfs_ftype4, nfsstat4

ATTRIBUTES = "value.obj_attributes"
SET_ONLY = (types.FATTR4_TIME_ACCESS_SET, types.FATTR4_TIME_MODIFY_SET)


def attribute(row: str, number: int, new: Callable[[Any], Any]) -> None:
    """Register a mutant in which GETATTR returns another value of one attribute."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if of(result) != nfsstat4.NFS4_OK:
            return result
        values = decode_attributes(result.value.obj_attributes)
        if number not in values:
            return result
        return put(result, ATTRIBUTES, encode_attributes({**values, number: new(values[number])}))

    mutant(row, "GETATTR")(change)


def changed_attributes(row: str, new: Callable[[dict[int, Any]], dict[int, Any]]) -> None:
    """Register a mutant in which GETATTR returns other attributes."""

    def change(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if of(result) != nfsstat4.NFS4_OK:
            return result
        values = decode_attributes(result.value.obj_attributes)
        return put(result, ATTRIBUTES, encode_attributes(new(values)))

    mutant(row, "GETATTR")(change)


attribute("attr-supported | 5.6 | supported_attrs lacks lease_time", types.FATTR4_SUPPORTED_ATTRS,
          lambda bits: bitmap(*(one for one in numbers_of(bits) if one != types.FATTR4_LEASE_TIME)))  # fmt: skip
changed_attributes("attr-missing | 5.6 | GETATTR leaves fsid out if several attributes are requested",
                   lambda values: {key: value for key, value in values.items() if key != types.FATTR4_FSID or len(values) == 1})  # fmt: skip
changed_attributes("attr-more | 18.7.3 | GETATTR returns mode, which was not requested",
                   lambda values: {types.FATTR4_MODE: 0o644, **values})  # fmt: skip
changed_attributes("attr-unsupported | 18.7.3 | GETATTR returns archive, which is not supported",
                   lambda values: {types.FATTR4_ARCHIVE: False, **values})  # fmt: skip
attribute(
    "attr-filehandle | 5.8.1.13 | the attribute filehandle is another",
    types.FATTR4_FILEHANDLE,
    lambda old: old[:-1] + bytes([old[-1] ^ 1]),
)
attribute("attr-type | 5.8.1.2 | every type is NF4REG", types.FATTR4_TYPE, lambda old: nfs_ftype4.NF4REG)
attribute("attr-change | 5.8.1.4 | change stays 7", types.FATTR4_CHANGE, lambda old: 7)
attribute("attr-size | 5.8.1.5 | size is one too large", types.FATTR4_SIZE, lambda old: old + 1)
attribute("attr-fileid | 5.8.2.8 | every fileid is 7", types.FATTR4_FILEID, lambda old: 7)
attribute("attr-numlinks | 5.8.2.30 | numlinks is always 1", types.FATTR4_NUMLINKS, lambda old: 1)
attribute("attr-lease | 5.8.1.11 | the lease time is 0", types.FATTR4_LEASE_TIME, lambda old: 0)
attribute(
    "create-device | 18.4.3 | a device has the numbers 0 and 0",
    types.FATTR4_RAWDEV,
    lambda old: types.fattr4_rawdev(0, 0),
)
attribute("create-mode | 18.4.3 | every mode is 0644", types.FATTR4_MODE, lambda old: 0o644)


@mutant("attr-fsid | 5.8.1.9 | each GETATTR returns another fsid", "GETATTR")
def other_fsid(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4_OK:
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_FSID not in values:
        return result
    talk.memory["fsid"] = talk.memory.get("fsid", 0) + 1
    return put(
        result,
        ATTRIBUTES,
        encode_attributes({**values, types.FATTR4_FSID: types.fattr4_fsid(talk.memory["fsid"], 0)}),
    )


def without(row: str, numbers: set[int]) -> None:
    """Register a mutant whose server does not receive these attributes in SETATTR, and reports them as set."""

    def request(talk: Nfs4ProxyConnection, arguments: types.COMPOUND4args) -> types.COMPOUND4args:
        out = []
        for one in arguments.argarray:
            if one.argop == types.nfs_opnum4.OP_SETATTR:
                values = decode_attributes(one.value.obj_attributes)
                kept = {key: value for key, value in values.items() if key not in numbers}
                new = replace(one.value, obj_attributes=encode_attributes(kept))
                out.append(replace(one, value=new))
            else:
                out.append(one)
        return replace(arguments, argarray=tuple(out))

    mutant(row, part="request")(request)


without("setattr-mode | 18.30.3 | SETATTR ignores mode", {types.FATTR4_MODE})
without("setattr-size | 18.30.3 | SETATTR ignores size", {types.FATTR4_SIZE})
without(
    "setattr-time | 18.30.3 | SETATTR ignores times",
    {types.FATTR4_TIME_ACCESS_SET, types.FATTR4_TIME_MODIFY_SET},
)
attribute(
    "setattr-server-time | 5.8.2.46 | the time of modification is always of 1970",
    types.FATTR4_TIME_MODIFY,
    lambda old: replace(old, seconds=0),
)
attribute(
    "setattr-owner | 5.9 | the owner has another name each time", types.FATTR4_OWNER, lambda old: old + b"x"
)


@mutant("setattr-mask | 18.30.3 | SETATTR reports nothing as set", "SETATTR")
def nothing_set(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return replace(result, attrsset=())


@mutant("setattr-failed-mask | 18.30.3 | a SETATTR that fails reports all attributes as set", "SETATTR")
def all_set(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return (
        result
        if result.status == nfsstat4.NFS4_OK
        else replace(result, attrsset=argument.obj_attributes.attrmask)
    )


wrong_error(
    "setattr-inval | 18.30.3 | SETATTR of a read-only attribute ends with another error", "SETATTR", "INVAL"
)
wrong_error(
    "setattr-attrnotsupp | 18.30.3 | SETATTR of an unsupported attribute ends with another error",
    "SETATTR",
    "ATTRNOTSUPP",
)
wrong_error("setattr-badxdr | 18.30.3 | SETATTR of short values ends with another error", "SETATTR", "BADXDR")
wrong_error(
    "getattr-inval | 18.7.3 | GETATTR of a write-only attribute ends with another error", "GETATTR", "INVAL"
)


@mutant(
    "readdir-set-only | RFC 8881 5.5 | READDIR leaves out the set-only attributes that it is asked for",
    part="request",
)
def readdir_set_only(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def readable(one: Any) -> Any:
        if opname(one) != "READDIR":
            return one
        asked = set(numbers_of(one.value.attr_request))
        return put(one, "value.attr_request", bitmap(*asked.difference(SET_ONLY)))

    return replace(arguments, argarray=tuple(map(readable, arguments.argarray)))


refuses("verify-same | 18.31.3 | VERIFY of what is fails", "VERIFY")
wrong_error("verify-not-same | 18.31.3 | VERIFY of what is not ends with another error", "VERIFY", "NOT_SAME")
wrong_error("nverify-same | 18.15.3 | NVERIFY of what is ends with another error", "NVERIFY", "SAME")
refuses("nverify-not-same | 18.15.3 | NVERIFY of what is not fails", "NVERIFY")
wrong_error(
    "verify-inval | 18.31.3 | VERIFY of what cannot be compared ends with another error",
    "VERIFY NVERIFY",
    "INVAL",
)
field_of("access-more | 18.1.3 | ACCESS supports all bits", "ACCESS", "value.supported", 0x3F)
field_of("access-none | 18.1.3 | ACCESS grants nothing", "ACCESS", "value.access", 0)


@mutant("access-all | 18.1.3 | ACCESS grants all that was requested", "ACCESS")
def all_access(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4_OK:
        return result
    return put(put(result, "value.access", argument.access), "value.supported", argument.access)
