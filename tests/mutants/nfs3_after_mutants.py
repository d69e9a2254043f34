"""Broken rules of RFC 1813 that earlier cases missed: what replies state after a change, and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put, with_status

from storagetest.wire.nfs3.types import (
    ACCESS3_DELETE,
    FSF3_SYMLINK,
    createmode3,
    ftype3,
    nfsstat3,
)

OK = nfsstat3.NFS3_OK


@mutant("access-sticks | RFC 1813 3.3.4 | ACCESS of a file returns what it returned first", "ACCESS")
def access_sticks(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    key: Any = call.argument.object.data, call.argument.access
    return put(result, "value.access", talk.shared.setdefault(key, result.value.access))


@mutant("access-deletes | RFC 1813 3.3.4 | ACCESS of a file that may be written states DELETE", "ACCESS")
def access_deletes(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    return put(result, "value.access", lambda bits: bits | call.argument.access & ACCESS3_DELETE)


REMOVED = "removed"


def _continued(talk: ProxyConnection, call: Call) -> bool:
    """Whether this is a later page of a listing from which a name was removed."""
    if call.name in ("REMOVE", "RMDIR"):
        talk.shared[REMOVED] = True
        return False
    return bool(call.argument.cookie) and REMOVED in talk.shared


LISTING = ("READDIR", "READDIRPLUS", "REMOVE", "RMDIR")


@mutant("listing-removed-end | RFC 1813 3.3.16 | a listing ends where an entry was removed", *LISTING)
def listing_removed_end(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if not _continued(talk, call) or result.status != OK:
        return result
    return put(result, "value.reply", replace(result.value.reply, entries=(), eof=True))


@mutant("listing-removed-again | RFC 1813 3.3.16 | a listing begins again after a removal", *LISTING)
def listing_removed_again(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name in ("READDIR", "READDIRPLUS") and not call.argument.cookie and result.status == OK:
        talk.shared["first"] = result.value.reply.entries
    if not _continued(talk, call) or result.status != OK:
        return result
    first = tuple(one for one in talk.shared.pop("first", ()) if one.name not in (b".", b".."))[:1]
    return put(result, "value.reply.entries", lambda entries: (*first, *entries))


for _name in ("listing-removed-end", "listing-removed-again"):
    MUTANTS[_name].everywhere = True  # the names are removed on another connection


@mutant(
    "pathconf-name-max-less | RFC 1813 3.3.20 | name_max is less than the names that are taken", "PATHCONF"
)
def pathconf_name_max_less(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.name_max", 16) if result.status == OK else result


@mutant("fsinfo-file-less | RFC 1813 3.3.19 | maxfilesize is less than the sizes that are taken", "FSINFO")
def fsinfo_file_less(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.maxfilesize", (1 << 31) - 1) if result.status == OK else result


@mutant("fsinfo-of-file | RFC 1813 3.3.19 | FSINFO of a file lacks a property that the root has", "FSINFO")
def fsinfo_of_file(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    stated = result.value.obj_attributes
    is_root = talk.shared.setdefault("root", call.argument.fsroot.data) == call.argument.fsroot.data
    if is_root or (stated is not None and stated.type == ftype3.NF3DIR):
        return result
    return put(result, "value.properties", lambda bits: bits & ~FSF3_SYMLINK)


def _exclusive_half(talk: ProxyConnection, call: Call) -> Any:
    how, where = call.argument.how, call.argument.where
    if how.mode != createmode3.EXCLUSIVE:
        return call.argument
    key: Any = where.dir.data, where.name
    first = talk.shared.setdefault(key, how.value)
    return put(call.argument, "how.value", first) if how.value[:4] == first[:4] else call.argument


mutant(
    "exclusive-half | RFC 1813 3.3.8 | only half of the verifier of an EXCLUSIVE CREATE is compared",
    "CREATE",
    part="request",
)(_exclusive_half)


@mutant(
    "replaced-lives | RFC 1813 3.3.14 | the handle of a file that RENAME has replaced is valid for ever",
    "LOOKUP",
    "GETATTR",
)
def replaced_lives(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "LOOKUP":
        if result.status == OK:
            talk.shared[result.value.object.data] = None
        return result
    handle = call.argument.object.data
    if result.status == OK:
        talk.shared[handle] = result
        return result
    return talk.shared.get(handle) or result if result.status == nfsstat3.NFS3ERR_STALE else result


def _nlink(row: str, change: Any) -> None:
    """A mutant that changes nlink of a file in GETATTR after a name was removed or replaced."""

    def changed(talk: ProxyConnection, call: Call, result: Any) -> Any:
        if call.name != "GETATTR":
            talk.shared["gone"] = talk.shared.get("gone", 0) + (result.status == OK)
            return result
        if result.status != OK or result.value.obj_attributes.type != ftype3.NF3REG:
            return result
        return put(
            result, "value.obj_attributes.nlink", lambda links: change(links, talk.shared.get("gone", 0))
        )

    mutant(row, "GETATTR", "REMOVE", "RENAME")(changed)


_nlink(
    "nlink-removed-twice | RFC 1813 3.3.12 | each removal of a name lowers nlink by two",
    lambda links, gone: max(1, links - gone),
)
_nlink(
    "nlink-removed-never | RFC 1813 3.3.12 | nlink of a file that loses a name stays as it was",
    lambda links, gone: links + gone,
)


@mutant(
    "mnt-below-is-root | RFC 1813 5.2.1 | MNT of a directory below the export returns the export's handle",
    "MNT",
    part="request",
)
def mnt_below_is_root(talk: ProxyConnection, call: Call) -> Any:
    """What is below the export of a run is the run's own directory."""
    export, _, name = call.argument.rpartition(b"/")
    return export if b"storagetest" in name else call.argument


@mutant(
    "nlm-cancel-any | RFC 1813 6.3.3 | CANCEL of any lock of the file ends the one that waits",
    "LOCK",
    "CANCEL",
    part="request",
)
def nlm_cancel_any(talk: ProxyConnection, call: Call) -> Any:
    argument = call.argument
    if call.name == "LOCK":
        if argument.block:
            talk.shared[argument.alock.fh] = argument
        return argument
    waits = talk.shared.get(argument.alock.fh)
    return argument if waits is None else replace(argument, exclusive=waits.exclusive, alock=waits.alock)


@mutant(
    "symlink-one-fault | RFC 1813 3.3.10 | SYMLINK of a text of one byte ends with SERVERFAULT", "SYMLINK"
)
def symlink_one_fault(talk: ProxyConnection, call: Call, result: Any) -> Any:
    short = len(call.argument.symlink.symlink_data) == 1
    return with_status(result, nfsstat3.NFS3ERR_SERVERFAULT) if short else result


@mutant(
    "exclusive-later | RFC 1813 3.3.8 | after a change, an exclusive CREATE opens its file by any verifier",
    "CREATE",
    "SETATTR",
    "WRITE",
)
def exclusive_later(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name != "CREATE":
        changed = getattr(call.argument, "object", None) or call.argument.file
        talk.shared.setdefault("changed", set()).add(changed)
        return result
    if call.argument.how.mode != createmode3.EXCLUSIVE:
        return result
    key = call.argument.where.dir, call.argument.where.name
    if result.status == nfsstat3.NFS3_OK:
        talk.shared[key] = result
        return result
    made = talk.shared.get(key)
    return made if made is not None and made.value.obj in talk.shared.get("changed", ()) else result
