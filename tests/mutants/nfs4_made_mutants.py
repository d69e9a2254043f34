"""Broken rules of RFC 7530 and RFC 8881 on what is made and set, of a list written before a look for their cases."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, mutant, of, opname, put

from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    COMPOUND4args,
    nfs_ftype4,
    nfsstat4,
    opentype4,
)

OK = nfsstat4.NFS4_OK
TIMES = (FATTR4_TIME_ACCESS_SET, FATTR4_TIME_MODIFY_SET)


def asked(arguments: COMPOUND4args, name: str, change: Any) -> COMPOUND4args:
    """Return the arguments with ``change`` of those of one operation."""
    out = tuple(
        replace(one, value=change(one.value)) if opname(one) == name else one for one in arguments.argarray
    )
    return replace(arguments, argarray=out)


@mutant(
    "create-special-cinfo | RFC 8881 18.4.3 | change info of a CREATE of no directory is atomic, and has before twice",
    "CREATE",
)
def create_special_cinfo(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or argument.objtype.type == nfs_ftype4.NF4DIR:
        return result
    return put(result, "value.cinfo", lambda info: replace(info, atomic=True, after=info.before))


@mutant(
    "remove-special-cinfo | RFC 8881 18.25.3 | change info of a REMOVE is atomic, and has after twice",
    "REMOVE",
)
def remove_special_cinfo(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.cinfo", lambda info: replace(info, atomic=True, before=info.after))


@mutant(
    "change-sticks-at-setattr | RFC 8881 5.8.1.4 | a SETATTR leaves the change attribute as it is",
    "PUTFH",
    "SETATTR",
    "GETATTR",
)
def change_sticks(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
    handle = talk.memory.get("handle")
    if of(result) != OK or hasattr(argument, "object"):
        return result
    if hasattr(argument, "stateid"):  # of SETATTR
        talk.memory["sticks", handle] = True
        return result
    values = decode_attributes(result.value.obj_attributes)
    if FATTR4_CHANGE not in values:
        return result
    first = talk.memory.setdefault(handle, values[FATTR4_CHANGE])
    if ("sticks", handle) not in talk.memory:
        return result
    return put(result, "value.obj_attributes", encode_attributes({**values, FATTR4_CHANGE: first}))


@mutant("create-attrset-empty | RFC 8881 18.4.3 | the attrset of CREATE is empty", "CREATE")
def create_attrset_empty(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.attrset", ()) if of(result) == OK else result


@mutant(
    "open-times-ignored | RFC 8881 18.16.3 | OPEN states the times of its attributes as set, and sets none",
    "OPEN",
    part="request",
)
def open_times_ignored(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def without(one: Any) -> Any:
        how = one.openhow.value
        if one.openhow.opentype != opentype4.OPEN4_CREATE or not hasattr(how.value, "attrmask"):
            return one
        values = decode_attributes(how.value)
        talk.memory["asked"] = how.value.attrmask
        kept = {number: value for number, value in values.items() if number not in TIMES}
        return put(one, "openhow.value.value", encode_attributes(kept))

    return asked(arguments, "OPEN", without)


def _states_all(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not hasattr(argument, "openhow") or "asked" not in talk.memory:
        return result
    return put(result, "value.attrset", talk.memory.pop("asked"))


MUTANTS["open-times-ignored"].result = _states_all


@mutant(
    "setattr-mixed-times | RFC 8881 5.8.2 | a SETATTR of a time sets both times alike",
    "SETATTR",
    part="request",
)
def setattr_mixed_times(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def mixed(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        found = [values[number] for number in TIMES if number in values]
        if not found:
            return one
        server = next((how for how in found if not int(how.set_it)), None)
        changed = dict.fromkeys(TIMES, found[0] if server is None else server)
        return replace(one, obj_attributes=encode_attributes({**values, **changed}))

    return asked(arguments, "SETATTR", mixed)


def _states_asked(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    asked = of(result) == OK and hasattr(argument, "obj_attributes") and hasattr(result, "attrsset")
    return replace(result, attrsset=argument.obj_attributes.attrmask) if asked else result


MUTANTS["setattr-mixed-times"].result = _states_asked


@mutant(
    "setattr-size-denied-ok | RFC 8881 18.30.3 | SETATTR of a size seems to succeed against a share reservation",
    "SETATTR",
)
def setattr_size_denied_ok(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    sizes = FATTR4_SIZE in decode_attributes(argument.obj_attributes)
    if of(result) == OK or not sizes:
        return result
    return replace(result, status=OK, attrsset=argument.obj_attributes.attrmask)


@mutant("denied-owner-cut | RFC 8881 9.1.1 | a denial has the owner's first byte alone", "LOCK", "LOCKT")
def denied_owner_cut(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4ERR_DENIED:
        return result
    return put(result, "value.owner.owner", lambda owner: owner[:1])
