"""Broken rules of RFC 5531 and RFC 1813 that were written from their text alone, without a look at the suite."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.types import createmode3, nfsstat3, stable_how, wcc_attr
from storagetest.wire.rpc.record import LAST

OK = nfsstat3.NFS3_OK
LARGE = 64 * 1024


@mutant(
    "read-large-eof | RFC 1813 3.3.6 | eof after a read of more than 64 KiB though the file goes on", "READ"
)
def read_large_eof(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.eof", True) if not result.status and result.value.count > LARGE else result


@mutant(
    "read-offset-32 | RFC 1813 3.3.6 | a read beyond 4 GiB uses the low 32 bits of its offset",
    "READ",
    part="request",
)
def read_offset_32(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "offset", lambda offset: offset & 0xFFFFFFFF)


@mutant(
    "readdir-later-page-first-lost | RFC 1813 3.3.16 | pages after the first lose their first entry",
    "READDIR",
    "READDIRPLUS",
)
def readdir_later_page_first_lost(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or not call.argument.cookie or len(result.value.reply.entries) < 2:
        return result
    return put(result, "value.reply.entries", lambda entries: entries[1:])


@mutant(
    "readdirplus-later-page-handles | RFC 1813 3.3.17 | pages after the first have the handles of the neighbours",
    "READDIRPLUS",
)
def readdirplus_later_page_handles(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or not call.argument.cookie or len(result.value.reply.entries) < 2:
        return result
    entries = result.value.reply.entries
    handles = [one.name_handle for one in entries]
    moved = tuple(
        replace(one, name_handle=handle)
        for one, handle in zip(entries, handles[1:] + handles[:1], strict=True)
    )
    return put(result, "value.reply.entries", moved)


@mutant(
    "write-large-unstable | RFC 1813 3.3.7 | a FILE_SYNC write of more than 32 KiB is committed UNSTABLE",
    "WRITE",
)
def write_large_unstable(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or call.argument.stable == stable_how.UNSTABLE or call.argument.count <= LARGE // 2:
        return result
    return put(result, "value.committed", stable_how.UNSTABLE)


@mutant("commit-second-verifier | RFC 1813 3.3.21 | every second COMMIT has another verifier", "COMMIT")
def commit_second_verifier(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.shared["commits"] = talk.shared.get("commits", 0) + 1
    if result.status or talk.shared["commits"] % 2:
        return result
    return put(result, "value.verf", lambda verifier: bytes(byte ^ 0xFF for byte in verifier))


@mutant(
    "setattr-after-size-old | RFC 1813 3.3.2 | the attributes after a SETATTR of the size have the old size",
    "SETATTR",
)
def setattr_after_size_old(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or call.argument.new_attributes.size is None or result.value.obj_wcc.after is None:
        return result
    before = result.value.obj_wcc.before
    return put(result, "value.obj_wcc.after.size", before.size if before else lambda size: size + 1)


def _exclusive(call: Call) -> bool:
    return bool(call.argument.how.mode == createmode3.EXCLUSIVE)


@mutant(
    "exclusive-again-refused | RFC 1813 3.3.8 | an exclusive create with the same verifier is refused the second time",
    "CREATE",
)
def exclusive_again_refused(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or not _exclusive(call):
        return result
    key = call.argument.where, call.argument.how.value
    if key in talk.shared:
        return with_status(result, nfsstat3.NFS3ERR_EXIST)
    talk.shared[key] = True
    return result


@mutant(
    "exclusive-other-verifier | RFC 1813 3.3.8 | an exclusive create with another verifier gets the existing file",
    "CREATE",
)
def exclusive_other_verifier(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if not _exclusive(call):
        return result
    if not result.status:
        talk.shared[call.argument.where] = result
    if result.status == nfsstat3.NFS3ERR_EXIST:
        return talk.shared.get(call.argument.where, result)
    return result


@mutant(
    "remove-before-is-after | RFC 1813 3.3.12 | the directory's attributes before a REMOVE are those after it",
    "REMOVE",
)
def remove_before_is_after(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or result.value.dir_wcc.before is None or result.value.dir_wcc.after is None:
        return result
    after = result.value.dir_wcc.after
    before = replace(result.value.dir_wcc.before, size=after.size, mtime=after.mtime, ctime=after.ctime)
    return put(result, "value.dir_wcc.before", before)


@mutant("before-is-after | RFC 1813 2.6 | the attributes before any change are those after it")
def before_is_after(talk: ProxyConnection, call: Call, result: Any) -> Any:
    for field in ("dir_wcc", "obj_wcc", "file_wcc", "fromdir_wcc", "todir_wcc", "linkdir_wcc"):
        wcc = getattr(getattr(result, "value", None), field, None)
        if wcc is not None and wcc.before is not None and wcc.after is not None:
            before = wcc_attr(wcc.after.size, wcc.after.mtime, wcc.after.ctime)
            result = put(result, f"value.{field}", replace(wcc, before=before))
    return result


@mutant(
    "rename-target-wcc | RFC 1813 3.3.14 | a RENAME to another directory has the source's attributes twice",
    "RENAME",
)
def rename_target_wcc(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return result if result.status else put(result, "value.todir_wcc", result.value.fromdir_wcc)


@mutant("link-nlink-old | RFC 1813 3.3.15 | the attributes after a LINK have the old number of links", "LINK")
def link_nlink_old(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status or result.value.file_attributes is None:
        return result
    return put(result, "value.file_attributes.nlink", lambda links: links - 1)


@mutant("access-more-than-asked | RFC 1813 3.3.4 | ACCESS grants bits that were not asked for", "ACCESS")
def access_more_than_asked(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.access", lambda bits: bits | 0x3F) if not result.status else result


@mutant("lookup-long-noent | RFC 1813 3.3.3 | LOOKUP of a name that is too long ends with NOENT", "LOOKUP")
def lookup_long_noent(talk: ProxyConnection, call: Call, result: Any) -> Any:
    long = result.status == nfsstat3.NFS3ERR_NAMETOOLONG
    return with_status(result, nfsstat3.NFS3ERR_NOENT) if long else result


@mutant(
    "fragments-later-lost | RFC 5531 11 | a call in fragments is lost unless it is the first of its connection",
    part="inbound",
)
def fragments_later_lost(talk: ProxyConnection, pdu: bytes) -> bytes | None:
    talk.memory["calls"] = talk.memory.get("calls", 0) + 1
    whole = int.from_bytes(pdu[:4], "big") & LAST
    return pdu if whole or talk.memory["calls"] == 1 else None
