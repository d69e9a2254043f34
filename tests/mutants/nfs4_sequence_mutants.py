"""Broken rules of NFSv4 that show in what several operations leave: data, names, opens, locks, attributes."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import COMPOUND4args, COMPOUND4res, nfs_ftype4, nfsstat4, stable_how4

OK = nfsstat4.NFS4_OK
PAGE = 4096
ACCESS, MODIFY = types.FATTR4_TIME_ACCESS_SET, types.FATTR4_TIME_MODIFY_SET


def _asks(
    row: str, operation: str, change: Callable[[Nfs4ProxyConnection, Any], Any], result: Any = None
) -> None:
    """Register a mutant whose server sees other arguments of an operation; ``result`` is what it returns."""

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        return replace(
            arguments,
            argarray=tuple(
                replace(one, value=change(talk, one.value)) if opname(one) == operation else one
                for one in arguments.argarray
            ),
        )

    mutant(row, operation, part="request")(request)
    MUTANTS[row.split("|", 1)[0].strip()].result = result


def _handle(talk: Nfs4ProxyConnection, argument: Any) -> bytes:
    """Return the filehandle of the last PUTFH."""
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
    found: bytes = talk.memory.get("handle", b"")
    return found


# Data


def _as_asked(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.count", len(argument.data)) if of(result) == OK else result


_asks(
    "write-odd-at-512 | RFC 8881 18.32 | a write at an odd offset behind the first page begins at a multiple of 512",
    "WRITE",
    lambda talk, one: replace(one, offset=one.offset & ~511) if one.offset > PAGE and one.offset % 2 else one,
)


def _without_tail(talk: Nfs4ProxyConnection, one: Any) -> Any:
    talk.shared["writes"] = talk.shared.get("writes", 0) + 1
    tail = len(one.data) % 4
    return replace(one, data=one.data[:-tail]) if tail and talk.shared["writes"] > 2 else one


_asks(
    "write-later-tail-lost | RFC 8881 18.32 | writes after the second lose what is behind a multiple of 4 bytes",
    "WRITE",
    _without_tail,
    _as_asked,
)


@mutant(
    "unstable-after-commit-lost | RFC 8881 18.3 | UNSTABLE4 writes after a COMMIT are lost",
    "WRITE",
    part="request",
)
def unstable_after_commit_lost(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    out = []
    for one in arguments.argarray:
        if opname(one) == "COMMIT":
            talk.shared["committed"] = True
        unstable = opname(one) == "WRITE" and one.value.stable == stable_how4.UNSTABLE4
        lost = unstable and "committed" in talk.shared
        out.append(replace(one, value=replace(one.value, data=b"")) if lost else one)
    return replace(arguments, argarray=tuple(out))


MUTANTS["unstable-after-commit-lost"].result = _as_asked


@mutant(
    "shrunk-data-returns | RFC 8881 18.30 | a file that was made shorter and longer has a byte of its old data",
    "PUTFH",
    "SETATTR",
    "READ",
)
def shrunk_data_returns(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    handle = _handle(talk, argument)
    if of(result) != OK:
        return result
    if hasattr(argument, "obj_attributes"):
        size = decode_attributes(argument.obj_attributes).get(types.FATTR4_SIZE)
        if size is not None:
            talk.shared[handle] = min(size, talk.shared.get(handle, size))
    elif hasattr(argument, "count") and handle in talk.shared:
        data, at = result.value.data, talk.shared[handle] - argument.offset
        if 0 <= at < len(data) and not data[at]:
            return put(result, "value.data", data[:at] + b"A" + data[at + 1 :])
    return result


@mutant(
    "size-after-setattr-old | RFC 8881 18.30 | the first GETATTR after a SETATTR of the size returns the old size",
    "PUTFH",
    "SETATTR",
    "GETATTR",
)
def size_after_setattr_old(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    handle = _handle(talk, argument)
    if of(result) != OK:
        return result
    if hasattr(argument, "obj_attributes"):
        if types.FATTR4_SIZE in decode_attributes(argument.obj_attributes):
            talk.shared[handle, "set"] = True
    elif hasattr(argument, "attr_request"):
        values = decode_attributes(result.value.obj_attributes)
        if types.FATTR4_SIZE in values:
            if talk.shared.pop((handle, "set"), False) and handle in talk.shared:
                old = {**values, types.FATTR4_SIZE: talk.shared[handle]}
                return put(result, "value.obj_attributes", encode_attributes(old))
            talk.shared[handle] = values[types.FATTR4_SIZE]
    return result


@mutant(
    "compound-size-stale | RFC 8881 18.32 | GETATTR after a WRITE in one COMPOUND lacks the last byte",
    part="compound",
)
def compound_size_stale(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    out, wrote = [], False
    for one in results.resarray:
        wrote = wrote or opname(one) == "WRITE"
        if opname(one) == "GETATTR" and wrote and of(one.value) == OK:
            values = decode_attributes(one.value.value.obj_attributes)
            if values.get(types.FATTR4_SIZE):
                values[types.FATTR4_SIZE] -= 1
                one = replace(one, value=put(one.value, "value.obj_attributes", encode_attributes(values)))  # noqa: PLW2901
        out.append(one)
    return replace(results, resarray=tuple(out))


# Names


def _normal(talk: Nfs4ProxyConnection, one: Any) -> Any:
    if one.objtype.type != nfs_ftype4.NF4LNK:
        return one
    return put(one, "objtype.value", lambda text: text.replace(b"//", b"/").replace(b"/./", b"/"))


_asks("symlink-text-normal | RFC 8881 18.4 | the text of a symbolic link is normalised", "CREATE", _normal)


@mutant("readlink-slash-lost | RFC 8881 18.24 | READLINK leaves a slash at the end out", "READLINK")
def readlink_slash_lost(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.link", lambda text: text.rstrip(b"/")) if of(result) == OK else result


# Opens and locks


@mutant(
    "open-again-replaces | RFC 8881 9.7 | the access of a second OPEN replaces that of the first",
    "OPEN",
    "READ",
)
def open_again_replaces(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "share_access"):
        talk.shared[result.value.stateid.other] = argument.share_access & types.OPEN4_SHARE_ACCESS_BOTH
    elif not talk.shared.get(argument.stateid.other, 1) & types.OPEN4_SHARE_ACCESS_READ:
        return failed(result, nfsstat4.NFS4ERR_OPENMODE)
    return result


@mutant(
    "locku-frees-neighbour | RFC 8881 18.12 | LOCKU frees the lock that touches the range, too",
    "LOCK",
    part="request",
)
def locku_frees_neighbour(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    locked = talk.shared.setdefault("locked", [])
    out = []
    for one in arguments.argarray:
        value = one.value
        if opname(one) == "LOCK":
            locked.append((value.offset, value.length))
        if opname(one) == "LOCKU":
            touches = [length for offset, length in locked if offset == value.offset + value.length]
            value = replace(value, length=value.length + max(touches, default=0))
        out.append(replace(one, value=value))
    return replace(arguments, argarray=tuple(out))


# Attributes


def _sets(row: str, change: Callable[[dict[int, Any]], None]) -> None:
    """Register a mutant whose server sets other attributes, and states those that were sent."""

    def request(talk: Nfs4ProxyConnection, one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        before = dict(values)
        change(values)
        return one if values == before else replace(one, obj_attributes=encode_attributes(values))

    def result(talk: Nfs4ProxyConnection, argument: Any, found: Any) -> Any:
        return replace(found, attrsset=argument.obj_attributes.attrmask) if of(found) == OK else found

    _asks(row, "SETATTR", request, result)


def _both(values: dict[int, Any]) -> None:
    if MODIFY in values:
        values.setdefault(ACCESS, values[MODIFY])


def _swapped(values: dict[int, Any]) -> None:
    if MODIFY in values and ACCESS in values:
        values[ACCESS], values[MODIFY] = values[MODIFY], values[ACCESS]


def _mode_alone(values: dict[int, Any]) -> None:
    if types.FATTR4_MODE in values:
        values.pop(MODIFY, None)


_sets("mtime-sets-atime | RFC 8881 5.8.2 | SETATTR of time_modify_set sets time_access, too", _both)
_sets("times-swapped | RFC 8881 18.30 | SETATTR of both times swaps them", _swapped)
_sets(
    "mtime-with-mode-lost | RFC 8881 18.30 | SETATTR of mode and time_modify_set sets the mode", _mode_alone
)
