"""Broken rules of attributes and access (RFC 1813 2.6, 3.3.1, 3.3.2, 3.3.4), and of handles."""

# ruff: noqa: E501  # a mutant is a row of a table

from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status
from nfs3_rules import accepts, answers, ignores, sets

from storagetest.wire.nfs3.types import ftype3, nfsstat3, nfstime3, set_atime, set_mtime, time_how

ATTRIBUTES = "obj_attributes"
LATER = nfstime3(2_000_000_000, 0)
UNSET_MTIME = set_mtime(time_how.DONT_CHANGE, None)
UNSET_ATIME = set_atime(time_how.DONT_CHANGE, None)

sets(
    "getattr-type | RFC 1813 2.6 | every object is a socket", "GETATTR", f"{ATTRIBUTES}.type", ftype3.NF3SOCK
)
sets(
    "getattr-size | RFC 1813 2.6 | size is a multiple of 512",
    "GETATTR",
    f"{ATTRIBUTES}.size",
    lambda size: (size + 511) // 512 * 512,
)
sets("getattr-nlink | RFC 1813 2.6 | nlink is 1", "GETATTR", f"{ATTRIBUTES}.nlink", 1)
sets(
    "getattr-fileid-shared | RFC 1813 2.6 | all objects have one fileid", "GETATTR", f"{ATTRIBUTES}.fileid", 7
)
sets(
    "getattr-nseconds | RFC 1813 2.6 | nseconds are over 999,999,999",
    "GETATTR",
    f"{ATTRIBUTES}.mtime.nseconds",
    1_000_000_000,
)


@mutant("getattr-fileid-changes | RFC 1813 2.6 | fileid is another in each reply", "GETATTR")
def fileid_changes(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return put(result, "value.obj_attributes.fileid", talk.memory["at"]) if not result.status else result


@mutant("getattr-ctime-moves | RFC 1813 2.6 | ctime is that of the reply", "GETATTR")
def ctime_moves(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    return (
        put(result, "value.obj_attributes.ctime.nseconds", talk.memory["at"]) if not result.status else result
    )


BAD = (nfsstat3.NFS3ERR_BADHANDLE, nfsstat3.NFS3ERR_STALE)
accepts(
    "badhandle-accepted | RFC 1813 2.6 | a handle that is none is accepted", *BAD, procedures=("GETATTR",)
)
answers(
    "badhandle-noent | RFC 1813 2.6 | a handle that is none is refused with NFS3ERR_NOENT",
    nfsstat3.NFS3ERR_NOENT,
    *BAD,
    procedures=("GETATTR",),
)
accepts("stale-accepted | RFC 1813 2.6 | the handle of a removed object is accepted", nfsstat3.NFS3ERR_STALE)
answers(
    "stale-noent | RFC 1813 2.6 | the handle of a removed object is refused with NFS3ERR_NOENT",
    nfsstat3.NFS3ERR_NOENT,
    nfsstat3.NFS3ERR_STALE,
)

ignores(
    "setattr-mode | RFC 1813 3.3.2 | SETATTR does not set the mode", "SETATTR", "new_attributes.mode", None
)
ignores(
    "setattr-size | RFC 1813 3.3.2 | SETATTR does not set the size", "SETATTR", "new_attributes.size", None
)
ignores(
    "setattr-mtime | RFC 1813 3.3.2 | SETATTR does not set mtime",
    "SETATTR",
    "new_attributes.mtime",
    set_mtime(time_how.SET_TO_SERVER_TIME, None),
)
ignores(
    "setattr-atime | RFC 1813 3.3.2 | SETATTR does not set atime",
    "SETATTR",
    "new_attributes.atime",
    set_atime(time_how.SET_TO_SERVER_TIME, None),
)
ignores(
    "setattr-server-time | RFC 1813 2.6 | SET_TO_SERVER_TIME changes nothing",
    "SETATTR",
    "new_attributes.mtime",
    UNSET_MTIME,
)
ignores(
    "setattr-server-atime | RFC 1813 2.6 | atime is not set to the server's time",
    "SETATTR",
    "new_attributes.atime",
    UNSET_ATIME,
)
ignores(
    "setattr-others | RFC 1813 3.3.2 | SETATTR sets the mode to 0, too", "SETATTR", "new_attributes.mode", 0
)
ignores("setattr-guard | RFC 1813 3.3.2 | the guard is ignored", "SETATTR", "guard", None)
ignores(
    "setattr-guard-always | RFC 1813 3.3.2 | a guard never matches",
    "SETATTR",
    "guard",
    lambda guard: guard and LATER,
)
mutant("setattr-dir-size | RFC 1813 3.3.2 | the size of a directory is set", "SETATTR")(
    lambda talk, call, result: with_status(result, nfsstat3.NFS3_OK)
)
accepts(
    "setattr-not-owner | RFC 1813 3.3.2 | another than the owner sets the mode",
    nfsstat3.NFS3ERR_PERM,
    nfsstat3.NFS3ERR_ACCES,
    procedures=("SETATTR",),
)


@mutant("setattr-ctime | RFC 1813 2.6 | ctime goes back after a change", "GETATTR")
def ctime_back(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["at"] = talk.memory.get("at", 0) + 1
    if result.status or talk.memory["at"] < 2:
        return result
    return put(result, "value.obj_attributes.ctime.seconds", lambda seconds: seconds - 60)


@mutant(
    "setattr-wcc | RFC 1813 2.6 | the attributes before SETATTR are those after it, and those after it are old",
    "SETATTR",
)
def setattr_wcc(talk: ProxyConnection, call: Call, result: Any) -> Any:
    changed = put(result, "value.obj_wcc.before.size", 99)
    return put(changed, "value.obj_wcc.after.size", 99) if not result.status else result


sets("access-all | RFC 1813 3.3.4 | ACCESS permits all", "ACCESS", "access", 0x3F)
sets("access-none | RFC 1813 3.3.4 | ACCESS permits nothing", "ACCESS", "access", 0)
sets(
    "access-unasked | RFC 1813 3.3.4 | ACCESS states bits that were not asked for",
    "ACCESS",
    "access",
    lambda bits: bits | 0x3F,
)
