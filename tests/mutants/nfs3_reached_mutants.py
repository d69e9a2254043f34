"""Broken rules of RFC 1813 in code of servers that no case had reached: permissions, types, far offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put, with_status
from nfs3_rules import OK, refuses

from storagetest.wire.nfs3.client import attributes
from storagetest.wire.nfs3.mount import mountbody
from storagetest.wire.nfs3.types import createmode3, ftype3, nfsstat3, set_mtime, stable_how, time_how

ACCES, INVAL = nfsstat3.NFS3ERR_ACCES, nfsstat3.NFS3ERR_INVAL
FAR = 1 << 62
"""An offset behind which no server of the mutants has data."""
DEEP = 30
"""Directories in one another in which the server of ``deep-fails`` finds names."""
LIMIT = 1_000
"""Objects that the server of ``calls-run-out`` can open."""
OPEN = 256
"""Files whose data the server of ``unstable-many-lost`` keeps."""


@mutant(
    "setattr-own-closed | RFC 1813 3.3.2 | the owner of a file of mode 0 cannot set its attributes",
    "SETATTR",
)
def own_closed(talk: ProxyConnection, call: Call, result: Any) -> Any:
    closed = talk.shared.setdefault("closed", set())
    if call.argument.object in closed:
        return with_status(result, ACCES)
    if call.argument.new_attributes.mode == 0 and result.status == OK:
        closed.add(call.argument.object)
    return result


def _without(stated: Any, bits: int) -> bool:
    return stated is not None and not stated.mode & bits


refuses(
    "read-bits-alone | RFC 1813 4.4 | READ is refused if the mode has no read bit",
    "READ",
    ACCES,
    when=lambda call, result: _without(result.value.file_attributes, 0o444),
)
refuses(
    "write-bits-alone | RFC 1813 4.4 | WRITE is refused if the mode has no write bit",
    "WRITE",
    ACCES,
    when=lambda call, result: _without(result.value.file_wcc.after, 0o222),
)
refuses(
    "setattr-files-alone | RFC 1813 3.3.2 | SETATTR of what is no regular file is refused",
    "SETATTR",
    INVAL,
    when=lambda call, result: (
        result.value.obj_wcc.after is not None and result.value.obj_wcc.after.type != ftype3.NF3REG
    ),
)


@mutant(
    "setattr-follows | RFC 1813 3.3.2 | SETATTR of a symbolic link changes the file that it names",
    "LOOKUP",
    "SETATTR",
    part="request",
)
def follows(talk: ProxyConnection, call: Call) -> Any:
    is_link = call.name == "SETATTR" and call.argument.object in talk.shared.get("links", ())
    return replace(call.argument, object=talk.shared["target"]) if is_link else call.argument


def _looked_up(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "LOOKUP" and result.status == OK:
        stated = result.value.obj_attributes
        if stated is not None and stated.type == ftype3.NF3LNK:
            talk.shared.setdefault("links", set()).add(result.value.object)
        elif call.argument.what.name == b"target":
            talk.shared["target"] = result.value.object
    return result


@mutant(
    "setattr-link-nothing | RFC 1813 3.3.2 | SETATTR of a symbolic link succeeds and sets nothing",
    "LOOKUP",
    "SETATTR",
    part="request",
)
def link_nothing(talk: ProxyConnection, call: Call) -> Any:
    is_link = call.name == "SETATTR" and call.argument.object in talk.shared.get("links", ())
    return replace(call.argument, new_attributes=attributes()) if is_link else call.argument


for _name in ("setattr-follows", "setattr-link-nothing"):
    MUTANTS[_name].reply = _looked_up
    MUTANTS[_name].everywhere = True  # the cases make the objects where they arrange


@mutant(
    "made-plain-refused | RFC 1813 2.6 | what is made without a mode is refused with NFS3ERR_INVAL",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
)
def made_plain(talk: ProxyConnection, call: Call, result: Any) -> Any:
    match call.name:
        case "CREATE" if call.argument.how.mode == createmode3.EXCLUSIVE:
            return result
        case "CREATE":
            new = call.argument.how.value
        case "MKDIR":
            new = call.argument.attributes
        case "SYMLINK":
            new = call.argument.symlink.symlink_attributes
        case _:
            new = call.argument.what.value
    is_plain = result.status == OK and getattr(new, "mode", 0) is None
    return with_status(result, INVAL) if is_plain else result


@mutant(
    "create-over-accepted | RFC 1813 3.3.8 | CREATE of the name of a directory or of a link succeeds",
    "CREATE",
)
def create_over(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return (
        with_status(result, OK)
        if result.status in (nfsstat3.NFS3ERR_EXIST, nfsstat3.NFS3ERR_ISDIR)
        else result
    )


@mutant(
    "readdir-end-again | RFC 1813 3.3.16 | the cookie of the last entry leads to the first one",
    "READDIR",
    "READDIRPLUS",
    part="request",
)
def end_again(talk: ProxyConnection, call: Call) -> Any:
    is_last = call.argument.cookie and call.argument.cookie in talk.shared.get(call.argument.dir, ())
    return replace(call.argument, cookie=0, cookieverf=bytes(8)) if is_last else call.argument


def _last(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status == OK and result.value.reply.eof and result.value.reply.entries:
        talk.shared.setdefault(call.argument.dir, set()).add(result.value.reply.entries[-1].cookie)
    return result


MUTANTS["readdir-end-again"].reply = _last


@mutant(
    "write-far-lost | RFC 1813 3.3.7 | a WRITE at a far offset succeeds and writes nothing",
    "WRITE",
    part="request",
)
def far_lost(talk: ProxyConnection, call: Call) -> Any:
    is_far = call.argument.offset >= FAR
    return replace(call.argument, offset=0, count=0, data=b"") if is_far else call.argument


def _written(talk: ProxyConnection, call: Call, result: Any) -> Any:
    is_far = call.argument.offset >= FAR and result.status == OK
    return put(result, "value.count", call.argument.count) if is_far else result


MUTANTS["write-far-lost"].reply = _written


@mutant(
    "unstable-many-lost | RFC 1813 3.3.7 | UNSTABLE data of more than 256 files are zeros",
    "WRITE",
    part="request",
)
def many_lost(talk: ProxyConnection, call: Call) -> Any:
    if call.argument.stable != stable_how.UNSTABLE:
        return call.argument
    files = talk.memory.setdefault("files", set())
    files.add(call.argument.file)
    return put(call.argument, "data", bytes(len(call.argument.data))) if len(files) > OPEN else call.argument


@mutant(
    "umnt-stays | RFC 1813 5.2.3 | UMNT and UMNTALL leave the entry of a mount in the list", "MNT", "DUMP"
)
def umnt_stays(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if call.name == "MNT":
        talk.memory["mounted"] = mountbody(b"127.0.0.1", call.argument)
        return result
    return (talk.memory["mounted"],) if "mounted" in talk.memory else result


@mutant(
    "descriptor-kept | RFC 1813 4.4 | what one caller reads all may read, and what one writes all may write",
    "READ",
    "WRITE",
)
def descriptor_kept(talk: ProxyConnection, call: Call, result: Any) -> Any:
    kept = talk.shared.setdefault(call.name, set())
    if result.status == OK:
        kept.add(call.argument.file)
    is_open = result.status == ACCES and call.argument.file in kept
    return with_status(result, OK) if is_open else result


@mutant("epoch-is-now | RFC 1813 2.5 | a time of 0 is set to that of the server", "SETATTR", part="request")
def epoch_is_now(talk: ProxyConnection, call: Call) -> Any:
    new = call.argument.new_attributes
    is_zero = new.mtime.set_it == time_how.SET_TO_CLIENT_TIME and not new.mtime.value.seconds
    now = set_mtime(time_how.SET_TO_SERVER_TIME, None)
    return put(call.argument, "new_attributes.mtime", now) if is_zero else call.argument


@mutant(
    "calls-run-out | RFC 1813 3.3 | after a thousand calls that open an object the next ends with NFS3ERR_IO",
    "READDIR",
    "READ",
    "WRITE",
    "SETATTR",
)
def run_out(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.memory["calls"] = talk.memory.get("calls", 0) + 1
    return with_status(result, nfsstat3.NFS3ERR_IO) if talk.memory["calls"] > LIMIT else result


@mutant("deep-fails | RFC 1813 3.3.3 | a name in the thirtieth directory is NFS3ERR_IO", "LOOKUP")
def deep_fails(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status != OK:
        return result
    depth = talk.memory.get(call.argument.what.dir, 0) + 1
    talk.memory[result.value.object] = depth
    return with_status(result, nfsstat3.NFS3ERR_IO) if depth > DEEP else result
