"""Broken rules of COMPOUND, filehandles, names and directories (RFC 8881 4, 14, 16, 18)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import (
    MUTANTS,
    Nfs4ProxyConnection,
    failed,
    field_of,
    mutant,
    of,
    opname,
    put,
    refuses,
    wrong_error,
)

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.operations import GETFH, SAVEFH, op
from storagetest.wire.nfs4.types import (
    FATTR4_FILEID,
    FATTR4_TYPE,
    COMPOUND4args,
    COMPOUND4res,
    LOOKUPP4res,
    PUTROOTFH4res,
    nfs_ftype4,
    nfs_opnum4,
    nfs_resop4,
    nfsstat4,
)

OK = nfsstat4.NFS4_OK

# COMPOUND


def whole(row: str, change: Any) -> None:
    """Register a mutant of the whole COMPOUND4res: ``change(arguments, results)``."""
    mutant(row, part="compound")(lambda talk, arguments, results: change(arguments, results))


def status_to(old: str, new: str) -> Any:
    """Return a change of the status of the COMPOUND and of its last operation."""

    def change(arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        if results.status != nfsstat4[old]:
            return results
        last = results.resarray[-1:]
        done = tuple(replace(one, value=failed(one.value, nfsstat4[new])) for one in last)
        return replace(results, status=nfsstat4[new], resarray=(*results.resarray[:-1], *done))

    return change


whole(
    "minor-mismatch | 16.2.3 | an unknown minor version ends with NFS4ERR_INVAL",
    status_to("NFS4ERR_MINOR_VERS_MISMATCH", "NFS4ERR_INVAL"),
)
whole(
    "tag | 16.2.3 | the tag is not returned as it was sent",
    lambda arguments, results: replace(results, tag=results.tag + b"x"),
)
whole(
    "compound-status | 16.2.4 | the status of a COMPOUND that fails is NFS4ERR_SERVERFAULT",
    lambda arguments, results: (
        results if results.status == OK else replace(results, status=nfsstat4.NFS4ERR_SERVERFAULT)
    ),
)
whole(
    "illegal-status | 18.52.3 | an illegal operation ends with NFS4ERR_NOTSUPP",
    status_to("NFS4ERR_OP_ILLEGAL", "NFS4ERR_NOTSUPP"),
)
whole(
    "illegal-later | 18.52.3 | an operation of a later minor version ends with NFS4ERR_NOTSUPP",
    status_to("NFS4ERR_OP_ILLEGAL", "NFS4ERR_NOTSUPP"),
)
whole(
    "notsupp | 18 | an operation that is not implemented ends with NFS4ERR_OP_ILLEGAL",
    status_to("NFS4ERR_NOTSUPP", "NFS4ERR_OP_ILLEGAL"),
)
whole(
    "result-order | 16.2.3 | the last two results change their places",
    lambda arguments, results: (
        replace(results, resarray=(*results.resarray[:-2], *results.resarray[-2:][::-1]))
        if len(results.resarray) > 2
        else results
    ),
)


@mutant("minor-results | 16.2.3 | a mismatch of minor versions has a result", part="compound")
def minor_results(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    if results.status != nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH:
        return results
    return replace(results, resarray=(nfs_resop4(nfs_opnum4.OP_PUTROOTFH, PUTROOTFH4res(results.status)),))


@mutant("illegal-op | 18.52.3 | an illegal operation has a result of LOOKUPP", part="compound")
def illegal_op(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    if results.status != nfsstat4.NFS4ERR_OP_ILLEGAL:
        return results
    last = nfs_resop4(nfs_opnum4.OP_LOOKUPP, LOOKUPP4res(results.status))
    return replace(results, resarray=(*results.resarray[:-1], last))


@mutant("goes-on | 16.2.3 | the last result of a COMPOUND that fails is there twice", part="compound")
def goes_on(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    return (
        results
        if results.status == OK or not results.resarray
        else replace(results, resarray=(*results.resarray, results.resarray[-1]))
    )


def requested(row: str, change: Any) -> None:
    """Register a mutant of the request: ``change(operations)`` returns the operations that the server sees."""

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        return replace(arguments, argarray=tuple(change(list(arguments.argarray))))

    mutant(row, part="request")(request)


def create_first(ops: list[Any]) -> list[Any]:
    names = [opname(one) for one in ops]
    if names[-2:] != ["LOOKUP", "CREATE"]:
        return ops
    return [*ops[:-2], SAVEFH, ops[-1], op("RESTOREFH"), ops[-2]]


requested("goes-on-create | 16.2.3 | a CREATE after a LOOKUP that fails is executed", create_first)

# Filehandles

wrong_error(
    "nofilehandle | 16.2.3.1.1 | an operation without a filehandle ends with another error",
    "",
    "NOFILEHANDLE",
)
wrong_error(
    "restorefh-none | 18.27.3 | RESTOREFH without a saved filehandle ends with another error",
    "RESTOREFH",
    "NOFILEHANDLE",
    "RESTOREFH",
)
wrong_error("putfh-badhandle | 18.19.3 | PUTFH of a bad handle ends with another error", "PUTFH", "BADHANDLE")
wrong_error(
    "stale | 4.2.2 | the handle of a removed file ends with another error",
    "PUTFH GETATTR",
    "STALE",
    "FHEXPIRED",
)
wrong_error("lookup-noent | 18.13.3 | LOOKUP of an absent name ends with another error", "LOOKUP", "NOENT")
wrong_error("lookup-notdir | 18.13.3 | LOOKUP in a file ends with another error", "LOOKUP", "NOTDIR")
wrong_error(
    "lookup-symlink | 18.13.3 | LOOKUP in a symbolic link ends with another error", "LOOKUP", "SYMLINK"
)
wrong_error("lookupp-root | 18.14.3 | LOOKUPP of the root ends with another error", "LOOKUPP", "NOENT")
wrong_error("lookupp-notdir | 18.14.3 | LOOKUPP of a file ends with another error", "LOOKUPP", "NOTDIR")
wrong_error(
    "readlink-file | 18.24.3 | READLINK of a file ends with another error",
    "READLINK",
    "INVAL",
    "WRONG_TYPE",
    "ISDIR",
)
field_of(
    "getfh-other | 18.8.3 | GETFH returns another handle",
    "GETFH",
    "value.object",
    lambda old: old[:-1] + bytes([old[-1] ^ 1]),
)
field_of("fh-length | 18.8.3 | GETFH returns an empty handle", "GETFH", "value.object", b"")
field_of(
    "readlink-text | 18.24.3 | READLINK returns another text",
    "READLINK",
    "value.link",
    lambda old: old + b"/",
)


@mutant("root-handle | 18.21.3 | GETFH returns another handle each time", "GETFH")
def another_handle(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    talk.memory["calls"] = talk.memory.get("calls", 0) + 1
    return (
        put(result, "value.object", lambda old: old + bytes([talk.memory["calls"]]))
        if of(result) == OK
        else result
    )


@mutant("lookup-other | 18.13.3 | the file that LOOKUP finds has another handle", part="compound")
def lookup_other(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    names = [opname(one) for one in results.resarray]
    if "LOOKUP" not in names or results.status != OK:
        return results
    return replace(
        results,
        resarray=tuple(
            put(one, "value.value.object", lambda old: old[:-1] + bytes([old[-1] ^ 1]))
            if opname(one) == "GETFH"
            else one
            for one in results.resarray
        ),
    )


@mutant("lookup-follows | 18.13.3 | a symbolic link has the type of a directory", "GETATTR")
def lookup_follows(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    values = decode_attributes(result.value.obj_attributes)
    if values.get(FATTR4_TYPE) != nfs_ftype4.NF4LNK:
        return result
    return put(result, "value.obj_attributes", encode_attributes({**values, FATTR4_TYPE: nfs_ftype4.NF4DIR}))


def ignored(row: str, operation: str) -> None:
    """Register a mutant that does not execute ``operation`` and returns the result of an earlier success."""
    number = nfs_opnum4[f"OP_{operation}"]

    def request(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
        return replace(
            arguments, argarray=tuple(GETFH if one.argop == number else one for one in arguments.argarray)
        )

    def back(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        out = []
        for one, given in zip(results.resarray, arguments.argarray, strict=False):
            if given.argop == number and one.resop == nfs_opnum4.OP_GETFH and of(one.value) == OK:
                out.append(replace(one, resop=number, value=success(operation)))
            else:
                out.append(one)
        return replace(results, resarray=tuple(out))

    mutant(row, part="request")(request)
    MUTANTS[row.partition("|")[0].strip()].compound = back


def success(operation: str) -> Any:
    """Return a result of ``operation`` that succeeded."""
    cinfo = types.change_info4(True, 1, 2)
    made: dict[str, Any] = {
        "RESTOREFH": lambda: types.RESTOREFH4res(OK),
        "LOOKUPP": lambda: types.LOOKUPP4res(OK),
        "REMOVE": lambda: types.REMOVE4res(OK, types.REMOVE4resok(cinfo)),
        "RENAME": lambda: types.RENAME4res(OK, types.RENAME4resok(cinfo, cinfo)),
        "LINK": lambda: types.LINK4res(OK, types.LINK4resok(cinfo)),
    }
    return made[operation]()


ignored("restorefh-ignored | 18.27.3 | RESTOREFH does nothing", "RESTOREFH")
ignored("lookupp-same | 18.14.3 | LOOKUPP keeps the directory", "LOOKUPP")
ignored("remove-ignored | 18.25.3 | REMOVE does nothing", "REMOVE")
ignored("rename-ignored | 18.26.3 | RENAME does nothing", "RENAME")
ignored("link-ignored | 18.9.3 | LINK does nothing", "LINK")

# Names

for row, operations, *statuses in (
    ("create-badtype | 18.4.3 | CREATE of a regular file ends with another error", "CREATE", "BADTYPE"),
    ("create-exist | 18.4.3 | CREATE of a name that exists ends with another error", "CREATE", "EXIST"),
    ("create-notdir | 18.4.3 | CREATE in a file ends with another error", "CREATE", "NOTDIR"),
    (
        "create-badname | 14.5 | CREATE of a dot ends with another error",
        "CREATE",
        "BADNAME",
        "INVAL",
        "EXIST",
    ),
    ("remove-noent | 18.25.3 | REMOVE of an absent name ends with another error", "REMOVE", "NOENT"),
    ("remove-notdir | 18.25.3 | REMOVE in a file ends with another error", "REMOVE", "NOTDIR"),
    (
        "remove-notempty | 18.25.3 | REMOVE of a directory with entries ends with another error",
        "REMOVE",
        "NOTEMPTY",
    ),
    ("rename-noent | 18.26.3 | RENAME of an absent name ends with another error", "RENAME", "NOENT"),
    (
        "rename-exist | 18.26.3 | RENAME to what cannot be replaced ends with another error",
        "RENAME",
        "EXIST",
        "NOTEMPTY",
    ),
    ("rename-inval | 18.26.3 | RENAME of a directory into itself ends with another error", "RENAME", "INVAL"),
    ("rename-notdir | 18.26.3 | RENAME into a file ends with another error", "RENAME", "NOTDIR"),
    ("link-exist | 18.9.3 | LINK to a name that exists ends with another error", "LINK", "EXIST"),
    ("link-isdir | 18.9.3 | LINK of a directory ends with another error", "LINK", "ISDIR", "NOTSUPP"),
    ("link-notdir | 18.9.3 | LINK in a file ends with another error", "LINK", "NOTDIR"),
    (
        "name-inval | 14.5 | a name of zero length ends with another error",
        "LOOKUP CREATE REMOVE LINK RENAME",
        "INVAL",
    ),
    (
        "name-toolong | 14.5 | a name over maxname ends with another error",
        "LOOKUP CREATE REMOVE LINK RENAME",
        "NAMETOOLONG",
    ),
    ("secinfo-noent | 18.29.3 | SECINFO of an absent name ends with another error", "SECINFO", "NOENT"),
    ("secinfo-keeps | 18.29.3 | GETFH after SECINFO ends with another error", "GETFH", "NOFILEHANDLE"),
    (
        "readdir-toosmall | 18.23.3 | READDIR with too small a maxcount ends with another error",
        "READDIR",
        "TOOSMALL",
    ),
    ("readdir-notdir | 18.23.3 | READDIR of a file ends with another error", "READDIR", "NOTDIR"),
    (
        "readdir-reserved | 18.23.3 | READDIR of a reserved cookie ends with another error",
        "READDIR",
        "BAD_COOKIE",
    ),
):
    wrong_error(row, operations, *statuses)

refuses("create-not-utf8 | 14.5 | CREATE of a name that is not UTF-8 ends with NFS4ERR_SERVERFAULT", "CREATE")
field_of("secinfo-empty | 18.29.3 | SECINFO lists no flavor", "SECINFO", "value", ())
refuses("rename-same | 18.26.3 | RENAME to another link of the file fails", "RENAME")


@mutant("cinfo | 18.4.3 | change_info4 is atomic and has other values than the directory", "CREATE", "REMOVE")
def same_cinfo(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK:
        return result
    return put(result, "value.cinfo", lambda old: replace(old, atomic=True, before=1, after=2))


# READDIR


def entries_of(row: str, change: Any) -> None:
    """Register a mutant of the entries of READDIR: ``change(entries, talk)``."""

    def result(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
        return (
            put(result, "value.reply.entries", lambda old: tuple(change(old, talk)))
            if of(result) == OK
            else result
        )

    mutant(row, "READDIR")(result)


entries_of(
    "readdir-lost | 18.23.3 | READDIR leaves out the first entry of a reply",
    lambda old, talk: old[1:] if len(old) > 1 else old,
)
entries_of(
    "readdir-twice | 18.23.3 | READDIR returns the last entry of a reply twice",
    lambda old, talk: (*old, *old[-1:]),
)


@mutant(
    "readdir-second-none | 16.2.3 | the second READDIR of a COMPOUND returns no entries",
    part="compound",
)
def readdir_second_none(
    talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res
) -> COMPOUND4res:
    reads = [at for at, one in enumerate(results.resarray) if opname(one) == "READDIR"]
    if len(reads) < 2 or of(results.resarray[reads[1]].value) != OK:
        return results
    out = list(results.resarray)
    out[reads[1]] = put(out[reads[1]], "value.value.reply.entries", ())
    return replace(results, resarray=tuple(out))


entries_of(
    "readdir-cookie | 18.23.3 | the first cookie of a reply is 1",
    lambda old, talk: (*(replace(one, cookie=1) for one in old[:1]), *old[1:]),
)
entries_of(
    "readdir-dots | 18.23.3 | READDIR returns dot as the name of an entry",
    lambda old, talk: (*(replace(one, name=b".") for one in old[:1]), *old[1:]),
)
entries_of(
    "readdir-big | 18.23.3 | a reply of READDIR has more than maxcount bytes",
    lambda old, talk: (*old, *(replace(one, name=one.name * 255) for one in old[:8])),
)
entries_of(
    "readdir-name | 14.5 | READDIR returns names without their last byte",
    lambda old, talk: tuple(replace(one, name=one.name[:-1]) for one in old),
)
entries_of(
    "readdir-attributes | 18.23.3 | entries have other fileids than the files",
    lambda old, talk: tuple(
        replace(one, attrs=encode_attributes({**decode_attributes(one.attrs), FATTR4_FILEID: 1}))
        for one in old
    ),
)
field_of("readdir-eof | 18.23.3 | READDIR never is at the end", "READDIR", "value.reply.eof", False)


@mutant("readdir-same-verifier | 18.23.3 | READDIR with a cookie ends with NFS4ERR_NOT_SAME", "READDIR")
def not_same(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return failed(result, nfsstat4.NFS4ERR_NOT_SAME) if argument.cookie else result
