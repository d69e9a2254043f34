"""Broken rules of RFC 1813 of a second list, which was written from its text before a look for their cases."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put

from storagetest.wire.nfs3.types import nfsstat3

OK = nfsstat3.NFS3_OK


@mutant("readlink-255 | RFC 1813 3.3.5 | READLINK returns at most 255 bytes", "READLINK")
def readlink_255(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.data", lambda text: text[:255]) if result.status == OK else result


@mutant(
    "guard-second-ignored | RFC 1813 3.3.2 | the guard of every second SETATTR is ignored",
    "SETATTR",
    part="request",
)
def guard_second_ignored(talk: ProxyConnection, call: Call) -> Any:
    if call.argument.guard is None:
        return call.argument
    talk.shared["guards"] = talk.shared.get("guards", 0) + 1
    return call.argument if talk.shared["guards"] % 2 else put(call.argument, "guard", None)


@mutant(
    "mkdir-parent-nlink | RFC 1813 3.3.9 | the directory's attributes after a MKDIR have the old number of links",
    "MKDIR",
)
def mkdir_parent_nlink(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK or result.value.dir_wcc.after is None:
        return result
    return put(result, "value.dir_wcc.after.nlink", lambda links: links - 1)


@mutant(
    "write-offset-31 | RFC 1813 3.3.7 | a write at 2 GiB or above goes to the low 31 bits of its offset",
    "WRITE",
    part="request",
)
def write_offset_31(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "offset", lambda offset: offset & 0x7FFFFFFF)


@mutant(
    "readdir-later-eof-early | RFC 1813 3.3.16 | every page after the first states eof",
    "READDIR",
    "READDIRPLUS",
)
def readdir_later_eof_early(talk: ProxyConnection, call: Call, result: Any) -> Any:
    later = result.status == OK and call.argument.cookie and result.value.reply.entries
    return put(result, "value.reply.eof", True) if later else result
