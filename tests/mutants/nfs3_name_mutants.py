"""Broken rules of names (RFC 1813 3.3.3, 3.3.5, 3.3.8 to 3.3.15)."""

# a mutant is a row of a table

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import Call, ProxyConnection, mutant, put, with_status
from nfs3_rules import OK, accepts, answers, forged, ignores, refuses, sets

from storagetest.wire.nfs3.client import attributes
from storagetest.wire.nfs3.types import createhow3, createmode3, diropargs3, ftype3, nfs_fh3, nfsstat3

NOWHERE = nfs_fh3(bytes(8))
MAKERS = ("CREATE", "MKDIR", "SYMLINK", "MKNOD")

sets("lookup-other | RFC 1813 3.3.3 | LOOKUP returns the directory's handle", "LOOKUP", "object", NOWHERE)


@mutant("lookup-dot | RFC 1813 3.3.3 | LOOKUP of . and .. is refused", "LOOKUP")
def lookup_dot(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return with_status(result, nfsstat3.NFS3ERR_NOENT) if call.argument.what.name.startswith(b".") else result


@mutant("lookup-follows | RFC 1813 3.3.3 | LOOKUP follows symbolic links", "LOOKUP", part="request")
def lookup_follows(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "what.name", lambda name: b"file" if name == b"symlink" else name)


sets(
    "lookup-attributes | RFC 1813 3.3.3 | the attributes of LOOKUP are of another size",
    "LOOKUP",
    "obj_attributes.size",
    0,
)
refuses(
    "noent-always | RFC 1813 3.3.3 | a name with bytes over 7Fh is not found",
    "LOOKUP",
    nfsstat3.NFS3ERR_NOENT,
    when=lambda call, result: not call.argument.what.name.isascii(),
)
accepts("noent-accepted | RFC 1813 3.3.3 | an absent name is accepted", nfsstat3.NFS3ERR_NOENT)
answers(
    "noent-other | RFC 1813 3.3.3 | an absent name is refused with NFS3ERR_IO",
    nfsstat3.NFS3ERR_IO,
    nfsstat3.NFS3ERR_NOENT,
)
accepts("notdir-accepted | RFC 1813 3.3.3 | a name in a file is accepted", nfsstat3.NFS3ERR_NOTDIR)
answers(
    "notdir-other | RFC 1813 3.3.3 | a name in a file is refused with NFS3ERR_NOENT",
    nfsstat3.NFS3ERR_NOENT,
    nfsstat3.NFS3ERR_NOTDIR,
)
accepts(
    "exist-accepted | RFC 1813 3.3.8 | a name that exists is made again",
    nfsstat3.NFS3ERR_EXIST,
    nfsstat3.NFS3ERR_INVAL,
    nfsstat3.NFS3ERR_ACCES,
)
answers(
    "exist-other | RFC 1813 3.3.8 | a name that exists is refused with NFS3ERR_ACCES",
    nfsstat3.NFS3ERR_ACCES,
    nfsstat3.NFS3ERR_EXIST,
)
accepts(
    "acces-accepted | RFC 1813 4.4 | what the caller may not do is done",
    nfsstat3.NFS3ERR_ACCES,
    nfsstat3.NFS3ERR_PERM,
)
accepts(
    "long-accepted | RFC 1813 3.3.20 | a name over name_max is accepted",
    nfsstat3.NFS3ERR_NAMETOOLONG,
    nfsstat3.NFS3ERR_NOENT,
)
accepts(
    "empty-accepted | RFC 1813 4.6 | the empty name is found",
    nfsstat3.NFS3ERR_INVAL,
    nfsstat3.NFS3ERR_NOENT,
    nfsstat3.NFS3ERR_ACCES,
    procedures=("LOOKUP",),
)
accepts(
    "notempty-accepted | RFC 1813 3.3.13 | a directory with entries is removed",
    nfsstat3.NFS3ERR_NOTEMPTY,
    nfsstat3.NFS3ERR_EXIST,
)
answers(
    "notempty-other | RFC 1813 3.3.13 | a directory with entries is refused with NFS3ERR_IO",
    nfsstat3.NFS3ERR_IO,
    nfsstat3.NFS3ERR_NOTEMPTY,
    nfsstat3.NFS3ERR_EXIST,
)

sets("readlink-text | RFC 1813 3.3.5 | READLINK cuts the text", "READLINK", "data", lambda data: data[:10])
accepts(
    "readlink-file | RFC 1813 3.3.5 | READLINK of what is no link succeeds",
    nfsstat3.NFS3ERR_INVAL,
    procedures=("READLINK",),
)


def how(mode: createmode3, change: Any) -> Any:
    def request(talk: ProxyConnection, call: Call) -> Any:
        return (
            replace(call.argument, how=change(call.argument.how))
            if call.argument.how.mode == mode
            else call.argument
        )

    return request


mutant("create-guarded | RFC 1813 3.3.8 | GUARDED is done as UNCHECKED", "CREATE", part="request")(
    how(createmode3.GUARDED, lambda old: replace(old, mode=createmode3.UNCHECKED))
)
mutant("create-unchecked | RFC 1813 3.3.8 | UNCHECKED is done as GUARDED", "CREATE", part="request")(
    how(createmode3.UNCHECKED, lambda old: replace(old, mode=createmode3.GUARDED))
)
mutant("create-truncates | RFC 1813 3.3.8 | UNCHECKED ignores the size", "CREATE", part="request")(
    how(createmode3.UNCHECKED, lambda old: put(old, "value.size", None))
)
mutant("create-mode | RFC 1813 3.3.8 | CREATE ignores the mode", "CREATE", part="request")(
    how(createmode3.GUARDED, lambda old: put(old, "value.mode", 0o755))
)
mutant("create-exclusive-again | RFC 1813 3.3.8 | EXCLUSIVE is done as GUARDED", "CREATE", part="request")(
    how(createmode3.EXCLUSIVE, lambda old: createhow3(createmode3.GUARDED, attributes(mode=0o644)))
)
mutant("create-exclusive-other | RFC 1813 3.3.8 | EXCLUSIVE is done as UNCHECKED", "CREATE", part="request")(
    how(createmode3.EXCLUSIVE, lambda old: createhow3(createmode3.UNCHECKED, attributes(mode=0o644)))
)
forged(
    "create-lost | RFC 1813 3.3.8 | CREATE does nothing",
    "CREATE",
    lambda argument: put(argument, "where.dir", NOWHERE),
)
sets("create-handle | RFC 1813 3.3.8 | the handle of CREATE is none", "CREATE", "obj", NOWHERE)
sets(
    "create-wcc | RFC 1813 2.6 | the attributes after CREATE are not the directory's",
    "CREATE",
    "dir_wcc.after.fileid",
    lambda number: number + 1,
)


@mutant("make-owner | RFC 1813 3.3.8 | what is made belongs to root", *MAKERS, part="inbound")
def make_owner(talk: ProxyConnection, pdu: bytes) -> bytes:
    at = pdu.find((4001).to_bytes(4, "big") * 2)
    return pdu if at < 0 else pdu[:at] + bytes(8) + pdu[at + 8 :]


@mutant("make-type | RFC 1813 3.3.8 | the attributes of what is made are a socket's", *MAKERS)
def make_type(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return put(result, "value.obj_attributes.type", ftype3.NF3SOCK) if result.status == OK else result


ignores("mkdir-mode | RFC 1813 3.3.9 | MKDIR ignores the mode", "MKDIR", "attributes.mode", 0o777)
accepts(
    "mknod-badtype | RFC 1813 3.3.11 | MKNOD makes any type",
    nfsstat3.NFS3ERR_BADTYPE,
    nfsstat3.NFS3ERR_NOTSUPP,
    nfsstat3.NFS3ERR_INVAL,
    procedures=("MKNOD",),
)

forged(
    "remove-stays | RFC 1813 3.3.12 | REMOVE does nothing",
    "REMOVE",
    lambda argument: put(argument, "object.dir", NOWHERE),
)
forged(
    "rmdir-stays | RFC 1813 3.3.13 | RMDIR does nothing",
    "RMDIR",
    lambda argument: put(argument, "object.dir", NOWHERE),
)
accepts(
    "rmdir-dot | RFC 1813 3.3.13 | RMDIR of . succeeds",
    nfsstat3.NFS3ERR_INVAL,
    nfsstat3.NFS3ERR_NOTSUPP,
    nfsstat3.NFS3ERR_ACCES,
    nfsstat3.NFS3ERR_EXIST,
    procedures=("RMDIR",),
)

ELSEWHERE = diropargs3(NOWHERE, b"x")
forged(
    "rename-nothing | RFC 1813 3.3.14 | RENAME does nothing",
    "RENAME",
    lambda argument: replace(argument, from_=ELSEWHERE),
)


@mutant("rename-stale | RFC 1813 3.3.14 | the handle of a file is stale after a RENAME", "RENAME", "GETATTR")
def rename_stale(talk: ProxyConnection, call: Call, result: Any) -> Any:
    seen = talk.memory.setdefault("seen", set())
    if result.status != OK:
        return result
    if call.name == "RENAME":
        talk.memory["stale"] = set(seen)
    elif call.argument.object.data in talk.memory.get("stale", ()):
        return with_status(result, nfsstat3.NFS3ERR_STALE)
    elif result.value.obj_attributes.type == ftype3.NF3REG:
        seen.add(call.argument.object.data)
    return result


refuses(
    "rename-same | RFC 1813 3.3.14 | RENAME between names of one file is refused",
    "RENAME",
    nfsstat3.NFS3ERR_EXIST,
)
accepts(
    "rename-types | RFC 1813 3.3.14 | RENAME replaces another type",
    nfsstat3.NFS3ERR_EXIST,
    nfsstat3.NFS3ERR_ISDIR,
    nfsstat3.NFS3ERR_NOTDIR,
    procedures=("RENAME",),
)
accepts(
    "rename-loop | RFC 1813 3.3.14 | a directory moves into itself",
    nfsstat3.NFS3ERR_INVAL,
    procedures=("RENAME",),
)
sets(
    "rename-wcc | RFC 1813 2.6 | the attributes after RENAME are not the directory's",
    "RENAME",
    "todir_wcc.after.fileid",
    lambda number: number + 1,
)

forged(
    "link-nothing | RFC 1813 3.3.15 | LINK does nothing",
    "LINK",
    lambda argument: put(argument, "link.dir", NOWHERE),
)
mutant("link-directory | RFC 1813 3.3.15 | a directory gets a second name", "LINK")(
    lambda talk, call, result: with_status(result, OK) if result.status != OK else result
)
sets(
    "link-attributes | RFC 1813 3.3.15 | the attributes of LINK are those before it",
    "LINK",
    "file_attributes.nlink",
    1,
)
