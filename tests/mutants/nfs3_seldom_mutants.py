"""Broken rules of a fourth list: procedures that clients seldom send, and what is kept of a first look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.nlm import nlm4_stats
from storagetest.wire.nfs3.types import ftype3, nfsstat3

BLOCKED, DENIED = nlm4_stats.NLM4_BLOCKED, nlm4_stats.NLM4_DENIED


@mutant(
    "nlm-unshare-others | RFC 1813 6.2 | UNSHARE releases the shares of all owners of the file",
    "SHARE",
    "UNSHARE",
)
def unshare_others(talk: ProxyConnection, call: Call, result: Any) -> Any:
    file = call.argument.share.fh
    if call.name == "UNSHARE":
        talk.shared[file] = True
        return result
    released = file in talk.shared and result.stat == DENIED
    return put(result, "stat", nlm4_stats.NLM4_GRANTED) if released else result


@mutant(
    "nlm-second-waiter-lost | RFC 1813 6.1.4 | the second LOCK that waits for a file is never granted",
    "LOCK",
    part="request",
)
def second_waiter_lost(talk: ProxyConnection, call: Call) -> Any:
    region = call.argument.alock
    if not call.argument.block:
        return call.argument
    first = talk.shared.setdefault(region.fh, region.oh)
    return call.argument if region.oh == first else put(call.argument, "block", False)


def _blocked(talk: ProxyConnection, call: Call, result: Any) -> Any:
    waits = call.argument.block and result.stat.stat == DENIED
    return put(result, "stat.stat", BLOCKED) if waits else result


MUTANTS["nlm-second-waiter-lost"].reply = _blocked


@mutant(
    "mknod-mode | RFC 1813 3.3.11 | MKNOD ignores the mode of a FIFO and of a socket", "MKNOD", part="request"
)
def mknod_mode(talk: ProxyConnection, call: Call) -> Any:
    has_mode = hasattr(call.argument.what.value, "mode")
    return put(call.argument, "what.value.mode", None) if has_mode else call.argument


@mutant(
    "lookup-negative-kept | RFC 1813 3.3.3 | a name that a connection did not find is never found on it",
    "LOOKUP",
)
def negative_kept(talk: ProxyConnection, call: Call, result: Any) -> Any:
    key = call.argument.what
    if result.status == nfsstat3.NFS3ERR_NOENT:
        talk.memory[key] = True
    return with_status(result, nfsstat3.NFS3ERR_NOENT) if key in talk.memory else result


@mutant(
    "lookup-positive-kept | RFC 1813 3.3.3 | a name leads a connection to the file that it was first",
    "LOOKUP",
)
def positive_kept(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != nfsstat3.NFS3_OK:
        return result
    return put(result, "value.object", talk.memory.setdefault(call.argument.what, result.value.object))


@mutant(
    "readdirplus-attributes-kept | RFC 1813 3.3.17 | READDIRPLUS states the attributes that a name had first",
    "READDIRPLUS",
)
def attributes_kept(talk: ProxyConnection, call: Call, result: Any) -> Any:
    def first(entry: Any) -> Any:
        if entry.name_attributes is None or entry.name_handle is None:
            return entry
        kept = talk.shared.setdefault(entry.name_handle, entry.name_attributes)
        return replace(entry, name_attributes=kept)

    if result.status != nfsstat3.NFS3_OK:
        return result
    return put(result, "value.reply.entries", lambda entries: tuple(map(first, entries)))


@mutant(
    "guard-with-size-ignored | RFC 1813 3.3.2 | the guard is ignored if the size is set",
    "SETATTR",
    part="request",
)
def guard_with_size_ignored(talk: ProxyConnection, call: Call) -> Any:
    is_size_set = call.argument.new_attributes.size is not None
    return replace(call.argument, guard=None) if is_size_set else call.argument


@mutant("guard-seconds | RFC 1813 3.3.2 | only the seconds of a guard are compared", "GETATTR", "SETATTR")
def guard_seconds(talk: ProxyConnection, call: Call, result: Any) -> Any:
    ctimes = talk.shared.setdefault("ctimes", {})
    file = call.argument.object.data
    if call.name == "GETATTR":
        if result.status == nfsstat3.NFS3_OK:
            ctimes[file] = result.value.obj_attributes.ctime.seconds
        return result
    guard = call.argument.guard
    is_same = guard is not None and guard.seconds == ctimes.get(file)
    return with_status(result, nfsstat3.NFS3_OK) if is_same else result


MUTANTS["guard-seconds"].everywhere = True  # the cases read the ctime where they arrange


@mutant(
    "readdirplus-symlink-size | RFC 1813 3.3.17 | the size of a symbolic link in READDIRPLUS is 0",
    "READDIRPLUS",
)
def readdirplus_symlink_size(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != nfsstat3.NFS3_OK:
        return result

    def without(one: Any) -> Any:
        stated = one.name_attributes
        is_link = stated is not None and stated.type == ftype3.NF3LNK
        return replace(one, name_attributes=replace(stated, size=0)) if is_link else one

    return put(result, "value.reply.entries", tuple(map(without, result.value.reply.entries)))
