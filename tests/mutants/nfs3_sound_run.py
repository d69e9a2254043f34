"""Legal NFSv3 servers: NFS-Ganesha on loopback behind a proxy that makes choices which RFC 1813 leaves.

Each is written as a mutant is, and breaks no rule; ``CASES`` has the cases that once accused it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from nfs3_mutation_run import mutation_run as ganesha_run
from nfs3_proxy_connection import Call, Nfs3Mutant, ProxyConnection, put, with_status
from nfs3_rules import OK

from storagetest.wire.nfs3.types import createmode3, diropargs3, nfs_fh3, nfsstat3, nfstime3, time_how

CASES = {
    "stale-after-rename": (
        "NF3-RENAME-01",
        "NF3-RENAME-HANDLE",
        "NF3-GETATTR-STABLE",
        "NF3-LOOKUP-LATER-RENAME",
    ),
    "dot-is-removed": ("NF3-RMDIR-DOT",),
    "whole-seconds": (
        "NF3-BEFORE-CREATE",
        "NF3-BEFORE-RENAME",
        "NF3-BEFORE-SETATTR",
        "NF3-SETATTR-GUARD-AGAIN",
        "NF3-SETATTR-GUARD-NSEC",
    ),
    "no-readdirplus": ("NF3-READDIRPLUS-REMOVED-PAGE", "NF3-SEQUENCE-NAMES"),
    "create-plain": (
        "NF3-CREATE-UNCHECKED-SIZE-1",
        "NF3-CREATE-GUARDED-SIZE-1",
        "NF3-MADE-TIMES-UNCHECKED",
        "NF3-MADE-TIMES-GUARDED",
    ),
    "short-io": (
        "NF3-READ-SIZES",
        "NF3-READ-01",
        "NF3-READ-HOLE-EDGE",
        "NF3-GETATTR-SIZE",
        "NF3-WRITE-01",
        "NF3-COMMIT-01",
        "NF3-COMMIT-AT",
        "RPC-REC-WRITE",
    ),
    "one-entry": ("NF3-READDIRPLUS-PAGE-HANDLES", "NF3-READDIR-EMPTY"),
    "unchecked-is-new": ("NF3-CREATE-UNCHECKED-KEEPS", "NF3-CREATE-UNCHECKED", "NF3-CREATE-TRUNCATES"),
}


def _noted(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """A renamed object is found under another handle, and its old one is stale (3.3.14)."""
    if result.status != OK:
        return result
    handles, stale = talk.shared.setdefault("handles", {}), talk.shared.setdefault("stale", set())
    if call.name == "RENAME":
        old, new = call.argument.from_, call.argument.to
        handle = handles.pop((old.dir.data, old.name), None)
        if handle is not None:
            stale.add(handle)
            handles[new.dir.data, new.name] = handle
        return result
    where = call.argument.where if call.name == "CREATE" else call.argument.what
    found = result.value.obj if call.name == "CREATE" else result.value.object
    handles[where.dir.data, where.name] = found.data
    if call.name == "LOOKUP" and found.data in stale:
        return put(result, "value.object", nfs_fh3(found.data + b"moved"))
    return result


def _translated(talk: ProxyConnection, call: Call) -> Any:
    if call.name != "GETATTR":
        return call.argument
    handle = call.argument.object.data
    if handle in talk.shared.get("stale", ()):
        return replace(call.argument, object=nfs_fh3(handle[:-1]))  # Ganesha: the length is wrong
    return replace(call.argument, object=nfs_fh3(handle.removesuffix(b"moved")))


def _parents(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "MKDIR" and result.status == OK:
        talk.shared[result.value.obj.data] = call.argument.where
    return result


def _of_parent(talk: ProxyConnection, call: Call) -> Any:
    """RMDIR of "." removes the directory (3.3.13: the name is illegal on some servers)."""
    if call.name != "RMDIR" or call.argument.object.name != b".":
        return call.argument
    where: diropargs3 = talk.shared[call.argument.object.dir.data]
    return replace(call.argument, object=where)


def _whole(value: Any) -> Any:
    """Return a value of a result with times of whole seconds."""
    if isinstance(value, nfstime3):
        return nfstime3(value.seconds, 0)
    if isinstance(value, tuple):
        return tuple(_whole(one) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{one.name: _whole(getattr(value, one.name)) for one in fields(value)})


def _seconds(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """Times are kept in whole seconds, which FSINFO states (3.3.19)."""
    if call.name in ("GETATTR", "SETATTR") and result.status == OK:
        is_get = call.name == "GETATTR"
        exact = result.value.obj_attributes if is_get else result.value.obj_wcc.after
        if exact is not None:
            talk.shared.setdefault("exact", {})[call.argument.object.data] = exact.ctime
    found = _whole(result)
    return put(found, "value.time_delta", nfstime3(1, 0)) if call.name == "FSINFO" else found


def _exactly(talk: ProxyConnection, call: Call) -> Any:
    """Translate a guard of whole seconds into the time that Ganesha has."""
    if call.name != "SETATTR" or call.argument.guard is None:
        return call.argument
    exact = talk.shared.get("exact", {}).get(call.argument.object.data)
    matches = exact is not None and exact.seconds == call.argument.guard.seconds
    return replace(call.argument, guard=exact) if matches else call.argument


def _no_readdirplus(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """READDIRPLUS is not supported (3.3.17)."""
    return with_status(result, nfsstat3.NFS3ERR_NOTSUPP)


def _plain(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """A size other than 0, and times, are "unsupported arguments" of CREATE (2.6)."""
    how = call.argument.how
    refused = how.mode != createmode3.EXCLUSIVE and (
        how.value.size or time_how.SET_TO_CLIENT_TIME in (how.value.atime.set_it, how.value.mtime.set_it)
    )
    return with_status(result, nfsstat3.NFS3ERR_INVAL) if refused and result.status == OK else result


def _made_anew(talk: ProxyConnection, call: Call) -> Any:
    """An UNCHECKED CREATE makes the file "without checking for the existence of a duplicate file" (3.3.8)."""
    how = call.argument.how
    if how.mode != createmode3.UNCHECKED or how.value.size is not None:
        return call.argument
    return put(call.argument, "how.value.size", 0)


MOST = 511
"""Bytes of the largest READ and WRITE."""


def _short(talk: ProxyConnection, call: Call) -> Any:
    """READ and WRITE are of 511 bytes at most (3.3.6, 3.3.7: a server may do fewer than asked)."""
    argument = call.argument
    if call.name == "READ":
        return replace(argument, count=min(argument.count, MOST))
    if argument.count != len(argument.data):
        return argument
    return replace(argument, count=min(argument.count, MOST), data=argument.data[:MOST])


def _one_entry(talk: ProxyConnection, call: Call, result: Any) -> Any:
    """Return one entry of a page; the client asks for the rest by its cookie (3.3.16)."""
    if result.status != OK or len(result.value.reply.entries) < 2:
        return result
    return put(result, "value.reply", lambda page: replace(page, entries=page.entries[:1], eof=False))


LEGAL = {
    one.name: one
    for one in (
        Nfs3Mutant(
            "stale-after-rename",
            "RFC 1813 3.3.14",
            "a handle is stale after a RENAME",
            ("RENAME", "LOOKUP", "CREATE", "GETATTR"),
            reply=lambda talk, call, result: _noted(talk, call, result) if call.name != "GETATTR" else result,
            request=_translated,
            everywhere=True,
        ),
        Nfs3Mutant(
            "dot-is-removed",
            "RFC 1813 3.3.13",
            "RMDIR of . removes the directory",
            ("MKDIR", "RMDIR"),
            reply=_parents,
            request=_of_parent,
            everywhere=True,
        ),
        Nfs3Mutant(
            "whole-seconds",
            "RFC 1813 3.3.19",
            "times are kept in steps of one second, which FSINFO states",
            (),
            reply=_seconds,
            request=_exactly,
            everywhere=True,
        ),
        Nfs3Mutant(
            "no-readdirplus",
            "RFC 1813 3.3.17",
            "READDIRPLUS is not supported",
            ("READDIRPLUS",),
            reply=_no_readdirplus,
        ),
        Nfs3Mutant(
            "create-plain",
            "RFC 1813 2.6",
            "CREATE of a file with a size or with times is not supported",
            ("CREATE",),
            reply=_plain,
        ),
        Nfs3Mutant(
            "short-io",
            "RFC 1813 3.3.6, 3.3.7",
            "READ and WRITE do 511 bytes of what was asked",
            ("READ", "WRITE"),
            request=_short,
            everywhere=True,
        ),
        Nfs3Mutant(
            "one-entry",
            "RFC 1813 3.3.16, 3.3.17",
            "READDIR and READDIRPLUS return one entry",
            ("READDIR", "READDIRPLUS"),
            reply=_one_entry,
            everywhere=True,
        ),
        Nfs3Mutant(
            "unchecked-is-new",
            "RFC 1813 3.3.8",
            "an UNCHECKED CREATE of a name that exists makes an empty file",
            ("CREATE",),
            request=_made_anew,
            everywhere=True,
        ),
    )
}


def mutation_run() -> Any:
    """Return the run: each case of ``CASES`` before its server."""
    return replace(
        ganesha_run(),
        mutants=LEGAL,
        chosen=lambda case: [name for name, cases in CASES.items() if case in cases],
    )
