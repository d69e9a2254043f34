"""Broken rules of NFSv4 of a second list, which was written from the standards' text before a look for cases."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import COMPOUND4args, nfs_lock_type4, nfsstat4

OK = nfsstat4.NFS4_OK


def _asked(arguments: COMPOUND4args, name: str, change: Any) -> COMPOUND4args:
    out = tuple(
        replace(one, value=change(one.value)) if opname(one) == name else one for one in arguments.argarray
    )
    return replace(arguments, argarray=out)


@mutant(
    "deny-write-lost | RFC 8881 18.16.3 | OPEN with a deny of writing denies nothing", "OPEN", part="request"
)
def deny_write_lost(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(arguments, "OPEN", lambda one: replace(one, share_deny=one.share_deny & ~2))


@mutant(
    "lock-upgrade-read | RFC 8881 18.10.3 | a write lock of an owner that has locked before is a read lock",
    "LOCK",
    part="request",
)
def lock_upgrade_read(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def read(one: Any) -> Any:
        return one if one.locker.new_lock_owner else replace(one, locktype=nfs_lock_type4.READ_LT)

    return _asked(arguments, "LOCK", read)


@mutant(
    "create-session-again-other | RFC 8881 18.36.4 | a CREATE_SESSION that is sent again returns another session ID",
    "CREATE_SESSION",
)
def create_session_again_other(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    key = argument.csa_clientid, argument.csa_sequence
    again = key in talk.shared
    talk.shared[key] = True
    return put(result, "value.csr_sessionid", bytes(16)) if again and of(result) == OK else result


@mutant("numlinks-sticks | RFC 8881 5.8.2.20 | numlinks of a file stays as it was first", "PUTFH", "GETATTR")
def numlinks_sticks(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
    if of(result) != OK or not hasattr(argument, "attr_request"):
        return result
    values = decode_attributes(result.value.obj_attributes)
    if types.FATTR4_NUMLINKS not in values:
        return result
    key = talk.memory.get("handle")
    values[types.FATTR4_NUMLINKS] = talk.shared.setdefault(key, values[types.FATTR4_NUMLINKS])
    return put(result, "value.obj_attributes", encode_attributes(values))


@mutant(
    "seek-hole-past-end | RFC 7862 15.11.3 | the hole at the end of a file begins a byte behind it", "SEEK"
)
def seek_hole_past_end(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    hole = of(result) == OK and argument.sa_what == types.data_content4.NFS4_CONTENT_HOLE
    return put(result, "value.sr_offset", lambda offset: offset + 1) if hole else result


@mutant(
    "readdir-later-maxcount | RFC 8881 18.23.3 | pages after the first are up to four times maxcount",
    "READDIR",
    part="request",
)
def readdir_later_maxcount(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def more(one: Any) -> Any:
        return replace(one, maxcount=min(4 * one.maxcount, 1 << 20)) if one.cookie else one

    return _asked(arguments, "READDIR", more)


@mutant(
    "setattr-first-only | RFC 8881 18.30.3 | SETATTR sets the first of several attributes, and states all",
    "SETATTR",
    part="request",
)
def setattr_first_only(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def first(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        return replace(one, obj_attributes=encode_attributes(dict(list(values.items())[:1])))

    return _asked(arguments, "SETATTR", first)


def _states_all(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return replace(result, attrsset=argument.obj_attributes.attrmask) if of(result) == OK else result


MUTANTS["setattr-first-only"].result = _states_all


@mutant("restorefh-once | RFC 8881 18.27.3 | RESTOREFH takes away what was saved", part="compound")
def restorefh_once(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: Any) -> Any:
    restored = False
    for at, one in enumerate(results.resarray):
        if restored and opname(one) == "RESTOREFH" and of(one.value) == OK:
            status = nfsstat4.NFS4ERR_NOFILEHANDLE if arguments.minorversion else nfsstat4.NFS4ERR_RESTOREFH
            last = replace(one, value=failed(one.value, status))
            return replace(results, status=status, resarray=(*results.resarray[:at], last))
        restored = opname(one) != "SAVEFH" and (restored or opname(one) == "RESTOREFH")
    return results


@mutant(
    "lock-stateid-no-io | RFC 8881 8.2.5 | READ, WRITE and SETATTR refuse the stateid of locks",
    "LOCK",
    "READ",
    "WRITE",
    "SETATTR",
)
def lock_stateid_no_io(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    locks = talk.shared.setdefault("locks", set())
    if of(result) != OK:
        return result
    if hasattr(argument, "locker"):
        locks.add(result.value.lock_stateid.other)
        return result
    return failed(result, nfsstat4.NFS4ERR_BAD_STATEID) if argument.stateid.other in locks else result


@mutant(
    "readdir-first-mask | RFC 8881 18.23.3 | later pages of a listing have the attributes of its first page",
    part="request",
)
def readdir_first_mask(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def kept(one: Any) -> Any:
        if not one.cookie:
            talk.memory["mask"] = one.attr_request
        return replace(one, attr_request=talk.memory.get("mask", one.attr_request))

    return _asked(arguments, "READDIR", kept)
