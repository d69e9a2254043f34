"""Broken rules of RFC 1813 and RFC 5531 on what is made, set together, refused, and named by an xid or a cookie.

They are of a list that was written from the text before a look for their cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put

from storagetest.wire.nfs3.types import (
    createmode3,
    fattr3,
    ftype3,
    nfsstat3,
    sattr3,
    set_atime,
    set_mtime,
    time_how,
    wcc_data,
)
from storagetest.wire.rpc.record import frame

OK = nfsstat3.NFS3_OK
SPECIAL = (ftype3.NF3FIFO, ftype3.NF3SOCK)


def _new(call: Call, change: Any) -> Any:
    """Return the argument of CREATE or MKDIR with other initial attributes."""
    if call.name == "MKDIR":
        return put(call.argument, "attributes", change)
    if call.argument.how.mode == createmode3.EXCLUSIVE:
        return call.argument
    return put(call.argument, "how.value", change)


def _without_times(new: sattr3) -> sattr3:
    keep = time_how.DONT_CHANGE
    return replace(new, atime=set_atime(keep, None), mtime=set_mtime(keep, None))


@mutant(
    "made-times-ignored | RFC 1813 3.3.8 | times in the attributes of a CREATE or MKDIR are ignored",
    "CREATE",
    "MKDIR",
    part="request",
)
def made_times_ignored(talk: ProxyConnection, call: Call) -> Any:
    return _new(call, _without_times)


@mutant(
    "made-owners-ignored | RFC 1813 3.3.8 | uid and gid in the attributes of a CREATE or MKDIR are ignored",
    "CREATE",
    "MKDIR",
    part="request",
)
def made_owners_ignored(talk: ProxyConnection, call: Call) -> Any:
    return _new(call, lambda new: replace(new, uid=None, gid=None))


@mutant(
    "listing-special-regular | RFC 1813 3.3.17 | READDIRPLUS states that a FIFO or a socket is a regular file",
    "READDIRPLUS",
)
def listing_special_regular(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    entries = tuple(
        put(one, "name_attributes.type", ftype3.NF3REG)
        if one.name_attributes is not None and one.name_attributes.type in SPECIAL
        else one
        for one in result.value.reply.entries
    )
    return put(result, "value.reply.entries", entries)


@mutant(
    "setattr-mixed-times | RFC 1813 3.3.2 | a time of the client that is set with one of the server is the server's, too",
    "SETATTR",
    part="request",
)
def setattr_mixed_times(talk: ProxyConnection, call: Call) -> Any:
    new, server = call.argument.new_attributes, time_how.SET_TO_SERVER_TIME
    if {new.atime.set_it, new.mtime.set_it} != {server, time_how.SET_TO_CLIENT_TIME}:
        return call.argument
    both = replace(new, atime=set_atime(server, None), mtime=set_mtime(server, None))
    return put(call.argument, "new_attributes", both)


@mutant(
    "fsstat-available-more | RFC 1813 3.3.18 | FSSTAT states that more bytes are available than are free",
    "FSSTAT",
)
def fsstat_available_more(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.abytes", result.value.fbytes + 4096) if result.status == OK else result


@mutant(
    "not-sync-after-new | RFC 1813 2.6 | the attributes after a SETATTR with NFS3ERR_NOT_SYNC have what it did not set",
    "SETATTR",
    "GETATTR",
)
def not_sync_after_new(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "GETATTR" and result.status == OK:
        talk.shared[call.argument.object.data] = result.value.obj_attributes
    if call.name == "GETATTR" or result.status != nfsstat3.NFS3ERR_NOT_SYNC:
        return result
    known: fattr3 | None = talk.shared.get(call.argument.object.data)
    if known is None:
        return result
    return put(result, "value.obj_wcc", wcc_data(None, replace(known, mode=0o600, size=1)))


_FAILED = {
    "CREATE": "dir_wcc",
    "MKDIR": "dir_wcc",
    "REMOVE": "dir_wcc",
    "RMDIR": "dir_wcc",
    "RENAME": "todir_wcc",
    "LINK": "linkdir_wcc",
    "LOOKUP": "dir_attributes",
}
"""Procedures with the field that states a directory."""


@mutant(
    "refused-after-other | RFC 1813 2.6 | the directory in the result of a refused call has one link more",
    "GETATTR",
    *_FAILED,
)
def refused_after_other(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "GETATTR":
        if result.status == OK:
            talk.shared[call.argument.object.data] = result.value.obj_attributes
        return result
    if result.status == OK:
        return result
    known = talk.shared.get(_directory(call).data)
    if known is None:
        return result
    other = replace(known, nlink=known.nlink + 1)
    stated = other if call.name == "LOOKUP" else wcc_data(None, other)
    return put(result, f"value.{_FAILED[call.name]}", stated)


def _directory(call: Call) -> Any:
    """Return the directory of a call in its argument."""
    match call.name:
        case "RENAME":
            return call.argument.to.dir
        case "LINK":
            return call.argument.link.dir
        case "LOOKUP":
            return call.argument.what.dir
        case "REMOVE" | "RMDIR":
            return call.argument.object.dir
    return call.argument.where.dir


@mutant(
    "xid-of-all-connections | RFC 5531 9 | a call with the xid that a call of another connection had gets its reply",
    "CREATE",
    "MKDIR",
    "REMOVE",
    "RMDIR",
    part="inbound",
)
def xid_of_all_connections(talk: ProxyConnection, data: bytes) -> bytes | None:
    first, reply = talk.shared.get(data[4:8], (talk, b""))
    if first is talk or not reply:
        return data
    talk.send_to_host(frame(reply))
    return None


def _remember(talk: ProxyConnection, call: Call, data: bytes) -> bytes:
    talk.shared.setdefault(data[:4], (talk, data))
    return data


MUTANTS["xid-of-all-connections"].message = _remember


@mutant("nlm-cookie-cut | RFC 1813 6.2 | TEST returns the first 8 bytes of a cookie", "TEST")
def nlm_cookie_cut(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "cookie", lambda cookie: cookie[:8])


@mutant("nlm-cookie-padded | RFC 1813 6.2 | TEST returns a cookie of whole words", "TEST")
def nlm_cookie_padded(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "cookie", lambda cookie: cookie + bytes(-len(cookie) % 4))
