"""Broken rules of RFC 1813 on large offsets and counts, long listings, and attributes that are set in pairs.

They are of a list that was written from the text before a look for their cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status
from nfs_listed import of_the_first

from storagetest.wire.nfs3.types import nfsstat3

OK = nfsstat3.NFS3_OK


@mutant("read-far-refused | RFC 1813 3.3.6 | a READ that begins at 2^62 or behind it is refused", "READ")
def read_far_refused(talk: ProxyConnection, call: Call, result: Any) -> Any:
    far = call.argument.offset >= 1 << 62
    return with_status(result, nfsstat3.NFS3ERR_INVAL) if far and result.status == OK else result


@mutant(
    "count-signed | RFC 1813 2.5 | a count of 2^31 or more is negative, and is refused",
    "READ",
    "READDIR",
    "READDIRPLUS",
)
def count_signed(talk: ProxyConnection, call: Call, result: Any) -> Any:
    count = call.argument.maxcount if call.name == "READDIRPLUS" else call.argument.count
    return with_status(result, nfsstat3.NFS3ERR_INVAL) if count >= 1 << 31 and result.status == OK else result


@mutant(
    "readdir-many-lost | RFC 1813 3.3.16 | no listing goes beyond 200 entries, and it states the end",
    "READDIR",
    "READDIRPLUS",
)
def readdir_many_lost(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    argument, reply = call.argument, result.value.reply
    left = of_the_first(talk.shared, argument.dir.data, argument.cookie, reply.entries)
    return result if left is None else put(result, "value.reply", replace(reply, entries=left, eof=True))


@mutant(
    "setattr-owner-with-mode | RFC 1813 3.3.2 | uid and gid are not set by a SETATTR that sets the mode",
    "SETATTR",
    part="request",
)
def setattr_owner_with_mode(talk: ProxyConnection, call: Call) -> Any:
    new = call.argument.new_attributes
    return (
        call.argument
        if new.mode is None
        else replace(call.argument, new_attributes=replace(new, uid=None, gid=None))
    )


@mutant("access-nothing-all | RFC 1813 3.3.4 | an ACCESS that asks for no right states all of them", "ACCESS")
def access_nothing_all(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.access", 0x3F) if result.status == OK and not call.argument.access else result
