"""Broken rules of NFSv4 of a fourth list: operations that clients seldom send, and what is kept of a first look."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.client import status_of
from storagetest.wire.nfs4.operations import ANONYMOUS, CURRENT, PUTROOTFH, RESTOREFH
from storagetest.wire.nfs4.types import (
    COMPOUND4args,
    COMPOUND4res,
    nfs_argop4,
    nfs_lock_type4,
    nfsstat4,
)

OK = nfsstat4.NFS4_OK

# Filehandles

Step = tuple[nfs_argop4 | None, nfs_argop4 | None]
"""An operation as the server receives it, and as the client sent it; None: there is none."""


def other_operations(row: str, steps: Callable[[COMPOUND4args], list[Step]]) -> None:
    """Register a mutant whose server executes other operations, and returns the results of those that were sent.

    What it does not execute ends with NFS4_OK.
    """

    def request(_talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        return replace(arguments, argarray=tuple(one for one, _ in steps(arguments) if one is not None))

    def compound(_talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        left, out = list(results.resarray), []
        for executed, sent in steps(arguments):
            if out and status_of(out[-1]) != OK:
                break
            if executed is None and sent is not None:
                done = getattr(types, f"{opname(sent)}4res")(OK)
                out.append(types.nfs_resop4(sent.argop, done))
            elif left:
                found = left.pop(0)
                out += [found] if sent is not None else []
        return replace(results, status=status_of(out[-1]), resarray=tuple(out)) if out else results

    mutant(row, part="request")(request)
    MUTANTS[row.partition("|")[0].strip()].compound = compound


def never(name: str) -> Callable[[COMPOUND4args], list[Step]]:
    """The server does not execute an operation."""
    return lambda arguments: [(None if opname(one) == name else one, one) for one in arguments.argarray]


def then(operation: nfs_argop4, *names: str) -> Callable[[COMPOUND4args], list[Step]]:
    """The server executes an operation more before GETFH, behind one of ``names``."""

    def steps(arguments: COMPOUND4args) -> list[Step]:
        out: list[Step] = []
        for before, one in zip((None, *arguments.argarray), arguments.argarray, strict=False):
            if before is not None and opname(before) in names and opname(one) == "GETFH":
                out.append((operation, None))
            out.append((one, one))
        return out

    return steps


def public_behind_others(arguments: COMPOUND4args) -> list[Step]:
    """The server does not execute a PUTPUBFH where there is a current filehandle."""
    names = [opname(one) for one in arguments.argarray]
    found = "PUTPUBFH" in names and "PUTFH" in names[: names.index("PUTPUBFH")]
    return never("PUTPUBFH")(arguments) if found else [(one, one) for one in arguments.argarray]


def open_before_current(arguments: COMPOUND4args) -> list[Step]:
    """The server executes no PUTFH and LOOKUP behind an OPEN, and before the current stateid."""
    names = [opname(one) for one in arguments.argarray]
    uses = bool(names) and getattr(arguments.argarray[-1].value, "stateid", None) == CURRENT
    first = names.index("OPEN") if uses and "OPEN" in names else len(names)
    return [
        (None if at > first and name in ("PUTFH", "LOOKUP") else one, one)
        for at, (name, one) in enumerate(zip(names, arguments.argarray, strict=True))
    ]


KEEP = "REMOVE", "READDIR", "ACCESS", "SAVEFH", "SETATTR", "READ", "WRITE", "COMMIT"

other_operations(
    "putpubfh-keeps | RFC 8881 18.20.3 | PUTPUBFH leaves the current filehandle as it is",
    public_behind_others,
)
other_operations(
    "openattr-same | RFC 8881 18.17.3 | OPENATTR succeeds, and the file stays the current one",
    never("OPENATTR"),
)
other_operations(
    "link-leaves-file | RFC 8881 18.9.3 | the current filehandle after LINK is that of the file",
    then(RESTOREFH, "LINK"),
)
other_operations(
    "rename-leaves-source | RFC 8881 18.26.3 | the current filehandle after RENAME is the source directory",
    then(RESTOREFH, "RENAME"),
)
other_operations(
    "create-leaves-parent | RFC 8881 18.4.3 | the current filehandle after CREATE is the directory",
    then(types.nfs_argop4(types.nfs_opnum4.OP_LOOKUPP), "CREATE"),
)
other_operations(
    "kept-handle-lost | RFC 8881 16.2.3.1.1 | the root is current after operations that keep the filehandle",
    then(PUTROOTFH, *KEEP),
)

other_operations(
    "putfh-keeps-stateid | RFC 8881 16.2.3.1.2 | PUTFH and LOOKUP leave the current stateid of an OPEN",
    open_before_current,
)

# Attributes


def attribute(row: str, number: int, value: Any) -> None:
    """Register a mutant that states another value of an attribute in GETATTR."""

    def changed(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        if of(result) != OK:
            return result
        values = decode_attributes(result.value.obj_attributes)
        if number not in values:
            return result
        return put(result, "value.obj_attributes", encode_attributes({**values, number: value}))

    mutant(row, "GETATTR")(changed)


attribute(
    "link-support-false | RFC 8881 5.8.1.6 | link_support is FALSE, and LINK succeeds",
    types.FATTR4_LINK_SUPPORT,
    False,
)
attribute(
    "symlink-support-false | RFC 8881 5.8.1.7 | symlink_support is FALSE, and symbolic links are made",
    types.FATTR4_SYMLINK_SUPPORT,
    False,
)


@mutant(
    "rdattr-error-always | RFC 8881 5.8.1.12 | entries have the rdattr_error NFS4ERR_IO, and attributes",
    "READDIR",
)
def rdattr_error_always(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    def wrong(entry: Any) -> Any:
        values = decode_attributes(entry.attrs)
        if types.FATTR4_RDATTR_ERROR in values:
            values[types.FATTR4_RDATTR_ERROR] = nfsstat4.NFS4ERR_IO
        return replace(entry, attrs=encode_attributes(values))

    if of(result) != OK:
        return result
    return put(result, "value.reply.entries", lambda entries: tuple(map(wrong, entries)))


@mutant(
    "readdir-attributes-kept | RFC 8881 18.23.3 | READDIR states the attributes that a name had first",
    "READDIR",
)
def readdir_attributes_kept(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    def first(entry: Any) -> Any:
        key = entry.name, entry.cookie, argument.attr_request
        return replace(entry, attrs=talk.shared.setdefault(key, entry.attrs))

    if of(result) != OK:
        return result
    return put(result, "value.reply.entries", lambda entries: tuple(map(first, entries)))


def ended(results: COMPOUND4res, at: int, status: nfsstat4) -> COMPOUND4res:
    """Return the reply with another status of the result ``at``, and nothing behind it."""
    last = replace(results.resarray[at], value=failed(results.resarray[at].value, status))
    return replace(results, status=status, resarray=(*results.resarray[:at], last))


def handle_of(arguments: COMPOUND4args) -> bytes | None:
    """Return the handle of the last PUTFH."""
    found = [one.value.object for one in arguments.argarray if opname(one) == "PUTFH"]
    return found[-1] if found else None


@mutant(
    "lookup-negative-kept | RFC 8881 18.13.3 | a name that a connection did not find is never found on it",
    part="compound",
)
def lookup_negative_kept(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    for at, one in enumerate(results.resarray):
        if opname(one) == "LOOKUP":
            key = handle_of(arguments), arguments.argarray[at].value.objname
            if status_of(one) == nfsstat4.NFS4ERR_NOENT:
                talk.memory[key] = True
            elif key in talk.memory:
                return ended(results, at, nfsstat4.NFS4ERR_NOENT)
    return results


@mutant(
    "lookup-positive-kept | RFC 8881 18.13.3 | a name leads a connection to the file that it was first",
    part="compound",
)
def lookup_positive_kept(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    names = [opname(one) for one in arguments.argarray]
    if names[-2:] != ["LOOKUP", "GETFH"] or results.status != OK:
        return results
    key = handle_of(arguments), arguments.argarray[-2].value.objname
    last = results.resarray[-1]
    kept = talk.memory.setdefault(key, last.value)
    return replace(results, resarray=(*results.resarray[:-1], replace(last, value=kept)))


@mutant(
    "readdir-special-regular | RFC 8881 18.23.3 | the type of a special file in READDIR is NF4REG", "READDIR"
)
def readdir_special_regular(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    usual = types.nfs_ftype4.NF4REG, types.nfs_ftype4.NF4DIR, types.nfs_ftype4.NF4LNK

    def regular(entry: Any) -> Any:
        values = decode_attributes(entry.attrs)
        if values.get(types.FATTR4_TYPE, usual[0]) not in usual:
            values[types.FATTR4_TYPE] = types.nfs_ftype4.NF4REG
        return replace(entry, attrs=encode_attributes(values))

    if of(result) != OK:
        return result
    return put(result, "value.reply.entries", lambda entries: tuple(map(regular, entries)))


COMPARED = {types.FATTR4_TYPE, types.FATTR4_SIZE, types.FATTR4_MODE, types.FATTR4_NUMLINKS}


@mutant(
    "verify-some-alone | RFC 8881 18.31.3 | VERIFY compares type, size, mode and numlinks, and nothing else",
    "VERIFY",
)
def verify_some_alone(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    others = not COMPARED & set(decode_attributes(argument.obj_attributes))
    return failed(result, OK) if others and of(result) == nfsstat4.NFS4ERR_NOT_SAME else result


# State


@mutant(
    "free-stateid-stays | RFC 8881 18.38.3 | TEST_STATEID finds a stateid valid that was freed",
    "FREE_STATEID",
    "TEST_STATEID",
)
def free_stateid_stays(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    if hasattr(argument, "fsa_stateid"):
        talk.shared[argument.fsa_stateid.other] = True
        return result
    codes = zip(argument.ts_stateids, result.value.tsr_status_codes, strict=True)
    changed = tuple(OK if stateid.other in talk.shared else code for stateid, code in codes)
    return put(result, "value.tsr_status_codes", changed)


@mutant(
    "release-lockowner-others | RFC 7530 16.37 | RELEASE_LOCKOWNER ends the locks of all owners of the client",
    "RELEASE_LOCKOWNER",
    "LOCKT",
    "LOCKU",
)
def release_lockowner_others(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "lock_owner"):
        talk.shared["released"] = True
        return result
    if "released" not in talk.shared:
        return result
    if hasattr(argument, "lock_stateid"):
        return failed(result, nfsstat4.NFS4ERR_BAD_STATEID)
    return types.LOCKT4res(OK)


OTHER_KIND = {
    nfs_lock_type4.READW_LT: nfs_lock_type4.WRITE_LT,
    nfs_lock_type4.WRITEW_LT: nfs_lock_type4.READ_LT,
}


@mutant(
    "lock-waiting-other | RFC 8881 18.10.3 | READW_LT locks for writing, and WRITEW_LT for reading",
    "LOCK",
    part="request",
)
def lock_waiting_other(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def other(one: nfs_argop4) -> nfs_argop4:
        if opname(one) != "LOCK":
            return one
        return put(one, "value.locktype", lambda kind: OTHER_KIND.get(kind, kind))

    return replace(arguments, argarray=tuple(map(other, arguments.argarray)))


@mutant(
    "lockt-waiting-free | RFC 8881 18.11.3 | LOCKT of READW_LT and WRITEW_LT finds no lock, because they wait",
    "LOCKT",
)
def lockt_waiting_free(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    waits = argument.locktype in OTHER_KIND and of(result) == nfsstat4.NFS4ERR_DENIED
    return types.LOCKT4res(OK) if waits else result


@mutant(
    "anonymous-passes | RFC 8881 8.2.3 | READ and WRITE with the anonymous stateid pass share reservations",
    "READ",
    "WRITE",
)
def anonymous_passes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if argument.stateid != ANONYMOUS or of(result) != nfsstat4.NFS4ERR_LOCKED:
        return result
    if hasattr(argument, "data"):
        made = types.WRITE4resok(len(argument.data), types.stable_how4.FILE_SYNC4, bytes(8))
        return types.WRITE4res(OK, made)
    return types.READ4res(OK, types.READ4resok(eof=True, data=b"data"))
