"""Broken rules of RFC 7530, 8881 and 7862 that earlier cases missed: what is claimed and found after a change."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import bitmap, decode_attributes, encode_attributes, numbers_of
from storagetest.wire.nfs4.client import status_of
from storagetest.wire.nfs4.types import COMPOUND4args, COMPOUND4res, createmode4, nfsstat4, opentype4

OK = nfsstat4.NFS4_OK


def _unchecked(argument: Any) -> bool:
    how = argument.openhow
    return how.opentype == opentype4.OPEN4_CREATE and how.value.mode == createmode4.UNCHECKED4


@mutant(
    "open-old-attrset | 18.16.3 | attrset of an OPEN with UNCHECKED4 has the mode that was not sent", "OPEN"
)
def open_old_attrset(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not _unchecked(argument):
        return result
    return put(result, "value.attrset", lambda bits: bitmap(*numbers_of(bits), types.FATTR4_MODE))


@mutant(
    "open-old-truncates | 18.16.3 | an OPEN with UNCHECKED4 and no size truncates the file", part="request"
)
def open_old_truncates(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def cut(value: Any) -> Any:
        if not _unchecked(value) or value.openhow.value.value.attrmask:
            return value
        return put(value, "openhow.value.value", encode_attributes({types.FATTR4_SIZE: 0}))

    return _with_opens(arguments, cut)


def _with_opens(arguments: COMPOUND4args, change: Callable[[Any], Any]) -> COMPOUND4args:
    """Return the request with another argument of each OPEN."""
    out = (
        replace(one, value=change(one.value)) if opname(one) == "OPEN" else one for one in arguments.argarray
    )
    return replace(arguments, argarray=tuple(out))


@mutant(
    "access-sticks | 18.1.3 | ACCESS of the current filehandle returns what it returned first",
    part="compound",
)
def access_sticks(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    new = {}
    for at, name, argument, result, current in _walk(arguments, results):
        if name == "ACCESS" and of(result) == OK:
            key: Any = current, argument.access
            first = talk.shared.setdefault(key, result.value)
            new[at] = put(result, "value", first)
    return _with(results, new)


@mutant("access-deletes | 18.1.3 | ACCESS states DELETE of every file", "ACCESS")
def access_deletes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.access & types.ACCESS4_DELETE:
        return result
    for field in ("supported", "access"):
        result = put(result, f"value.{field}", lambda bits: bits | types.ACCESS4_DELETE)
    return result


@mutant("access-delete-never | 18.1.3 | ACCESS denies DELETE of every file", "ACCESS")
def access_delete_never(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.access & types.ACCESS4_DELETE:
        return result
    stated = put(result, "value.supported", lambda bits: bits | types.ACCESS4_DELETE)
    return put(stated, "value.access", lambda bits: bits & ~types.ACCESS4_DELETE)


def _walk(arguments: COMPOUND4args, results: COMPOUND4res) -> Iterator[tuple[int, str, Any, Any, Any]]:
    """Yield position, name, argument, result and current filehandle (None: unknown) of each operation."""
    current: bytes | None = None
    for at, (asked, one) in enumerate(zip(arguments.argarray, results.resarray, strict=False)):
        name = opname(asked)
        argument: Any = asked.value
        result: Any = one.value
        yield at, name, argument, result, current
        if name == "PUTFH":
            current = argument.object
        elif name == "GETFH" and of(result) == OK:
            current = result.value.object
        elif name in ("PUTROOTFH", "LOOKUP", "LOOKUPP", "OPEN", "CREATE", "RESTOREFH", "OPENATTR"):
            current = None


def _with(results: COMPOUND4res, new: dict[int, Any]) -> COMPOUND4res:
    """Return the results with other values of some operations."""
    if not new:
        return results
    out = tuple(replace(one, value=new.get(at, one.value)) for at, one in enumerate(results.resarray))
    return replace(results, resarray=out, status=status_of(out[-1]))


@mutant("readdir-removed-end | 18.23.3 | a listing of small pages ends at its second page", "READDIR")
def readdir_removed_end(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.cookie:
        return result
    return put(result, "value.reply", types.dirlist4((), True))


@mutant("readdir-removed-again | 18.23.3 | a later page has the first entry of the listing again", "READDIR")
def readdir_removed_again(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if not argument.cookie:
        talk.shared["first"] = result.value.reply.entries[:1]
        return result
    first = talk.shared.pop("first", ())
    return put(result, "value.reply.entries", lambda entries: (*first, *entries))


@mutant(
    "exclusive-half | 18.16.3 | only half of the verifier of an exclusive create is compared", part="request"
)
def exclusive_half(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _with_opens(arguments, lambda value: _first_half(talk, value))


def _first_half(talk: Nfs4ProxyConnection, argument: Any) -> Any:
    if argument.openhow.opentype != opentype4.OPEN4_CREATE:
        return argument
    how = argument.openhow.value
    path = {
        createmode4.EXCLUSIVE4: "openhow.value.value",
        createmode4.EXCLUSIVE4_1: "openhow.value.value.cva_verf",
    }.get(how.mode)
    if path is None:
        return argument
    verifier = how.value if how.mode == createmode4.EXCLUSIVE4 else how.value.cva_verf
    first = talk.shared.setdefault(argument.claim, verifier)
    return put(argument, path, first) if verifier[:4] == first[:4] else argument


@mutant(
    "replaced-lives | 18.26.3 | the handle of a file that RENAME has replaced is valid for ever",
    part="compound",
)
def replaced_lives(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    asked = [opname(one) for one in arguments.argarray]
    if asked[-2:] != ["PUTFH", "GETATTR"]:
        return results
    asked_of: Any = arguments.argarray[-2].value
    handle: Any = asked_of.object
    if results.status == OK:
        talk.shared[handle] = results.resarray[-2:]
        return results
    known = talk.shared.get(handle)
    if known is None or results.status not in (nfsstat4.NFS4ERR_STALE, nfsstat4.NFS4ERR_FHEXPIRED):
        return results
    before = tuple(one for one in results.resarray if status_of(one) == OK and opname(one) == "SEQUENCE")
    return replace(results, status=OK, resarray=(*before, *known))


def _numlinks(row: str, change: Callable[[int, int], int]) -> None:
    """A mutant that changes numlinks after names were removed or replaced."""

    def changed(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        new = {}
        for at, name, _, result, _ in _walk(arguments, results):
            if name in ("REMOVE", "RENAME") and of(result) == OK:
                talk.shared["gone"] = talk.shared.get("gone", 0) + 1
            if name != "GETATTR" or of(result) != OK:
                continue
            found = decode_attributes(result.value.obj_attributes)
            if types.FATTR4_NUMLINKS in found:
                links = change(found[types.FATTR4_NUMLINKS], talk.shared.get("gone", 0))
                stated = encode_attributes(found | {types.FATTR4_NUMLINKS: links})
                new[at] = put(result, "value.obj_attributes", stated)
        return _with(results, new)

    mutant(row, part="compound")(changed)


_numlinks(
    "numlinks-removed-twice | 18.25.3 | each removal of a name lowers numlinks by two",
    lambda links, gone: max(1, links - gone),
)
_numlinks(
    "numlinks-removed-never | 18.25.3 | numlinks of a file that loses a name stays as it was",
    lambda links, gone: links + gone,
)


def _seek(row: str, what: int, change: Callable[[int, int], int]) -> None:
    """A mutant of the offset that SEEK of ``what`` returns, from what was asked for and found."""

    def changed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        if of(result) != OK or argument.sa_what != what:
            return result
        return put(result, "value.sr_offset", lambda found: change(argument.sa_offset, found))

    mutant(row, "SEEK")(changed)


DATA, HOLE = types.data_content4.NFS4_CONTENT_DATA, types.data_content4.NFS4_CONTENT_HOLE
BLOCK = 65536

_seek(
    "seek-data-begin | 7862 15.11.3 | SEEK of data inside of them returns where they begin",
    DATA,
    lambda asked, found: found // BLOCK * BLOCK,
)
_seek(
    "seek-data-next | 7862 15.11.3 | SEEK of data inside of them returns the next page",
    DATA,
    lambda asked, found: -(-found // 4096) * 4096 if asked % 4096 else found + 4096 * bool(asked),
)
_seek(
    "seek-hole-begin | 7862 15.11.3 | SEEK of a hole inside of it returns where it begins",
    HOLE,
    lambda asked, found: found // BLOCK * BLOCK,
)


@mutant("seek-end-begin | 7862 15.11.3 | SEEK from the end of a file begins again", "SEEK")
def seek_end_begin(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4ERR_NXIO:
        return result
    return types.SEEK4res(OK, types.seek_res4(False, 0))


@mutant(
    "symlink-one-fault | 18.4.3 | CREATE of a symbolic link with a text of one byte ends with SERVERFAULT",
    "CREATE",
)
def symlink_one_fault(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    kind = argument.objtype
    short = kind.type == types.nfs_ftype4.NF4LNK and len(kind.value) == 1
    return failed(result, nfsstat4.NFS4ERR_SERVERFAULT) if short else result


@mutant(
    "readdir-mounted-on-other | 18.23.3 | mounted_on_fileid of an entry is not that of the file", "READDIR"
)
def readdir_mounted_on_other(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result

    def other(entry: Any) -> Any:
        found = decode_attributes(entry.attrs)
        if types.FATTR4_MOUNTED_ON_FILEID in found:
            found[types.FATTR4_MOUNTED_ON_FILEID] += 1
        return replace(entry, attrs=encode_attributes(found))

    return put(result, "value.reply.entries", lambda entries: tuple(map(other, entries)))


@mutant(
    "reclaim-one-fs-all | 18.51.3 | a RECLAIM_COMPLETE of one file system is taken for that of all",
    "RECLAIM_COMPLETE",
)
def reclaim_one_fs_all(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if argument.rca_one_fs:
        talk.memory["one"] = True
        return result
    return failed(result, nfsstat4.NFS4ERR_COMPLETE_ALREADY) if "one" in talk.memory else result


@mutant(
    "open-exclusive-later | 18.16.3 | an exclusive OPEN of a file that was changed opens it by any verifier",
    part="request",
)
def open_exclusive_later(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    names = {opname(one) for one in arguments.argarray}
    if names & {"SETATTR", "WRITE"}:
        for key in talk.shared:
            talk.shared[key] = True
    directory, out = b"", []
    for one in arguments.argarray:
        value: Any = one.value
        if opname(one) == "PUTFH":
            directory = value.object
        if opname(one) == "OPEN" and _is_exclusive(value):
            key = directory, value.claim.value
            if talk.shared.setdefault(key, False):
                how = types.openflag4(opentype4.OPEN4_NOCREATE)
                out.append(replace(one, value=replace(value, openhow=how)))
                continue
        out.append(one)
    return replace(arguments, argarray=tuple(out))


def _is_exclusive(argument: Any) -> bool:
    how = argument.openhow
    exclusive = (createmode4.EXCLUSIVE4, createmode4.EXCLUSIVE4_1)
    return how.opentype == opentype4.OPEN4_CREATE and how.value.mode in exclusive
