"""Broken rules of NFSv4 on what fits in a field and is lost, on cookies inside a reply, and on two minor versions.

They are of a list that was written from the text before a look for their cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname, put, wrong_error

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.client import status_of
from storagetest.wire.nfs4.types import (
    ACCESS4_EXECUTE,
    ACCESS4_READ,
    COMPOUND4args,
    COMPOUND4res,
    nfs_ftype4,
    nfsstat4,
    open_claim_type4,
    opentype4,
)

OK = nfsstat4.NFS4_OK
LONG = 255


def _asked(arguments: COMPOUND4args, name: str, change: Callable[[Any], Any]) -> COMPOUND4args:
    """Return the COMPOUND with the arguments of the operations ``name`` changed."""
    out = tuple(
        replace(one, value=change(one.value)) if opname(one) == name else one for one in arguments.argarray
    )
    return replace(arguments, argarray=out)


def _with(number: int, change: Callable[[Any], Any]) -> Callable[[types.fattr4], types.fattr4]:
    """Return what changes one attribute among others."""

    def changed(attributes: types.fattr4) -> types.fattr4:
        values = decode_attributes(attributes)
        return (
            encode_attributes({**values, number: change(values[number])}) if number in values else attributes
        )

    return changed


def _made_with(arguments: COMPOUND4args, number: int, change: Callable[[Any], Any]) -> COMPOUND4args:
    """Return the COMPOUND with one initial attribute of CREATE, and of OPEN, changed."""

    def opened(argument: Any) -> Any:
        how = argument.openhow
        if how.opentype != opentype4.OPEN4_CREATE or not isinstance(how.value.value, types.fattr4):
            return argument
        return put(argument, "openhow.value.value", _with(number, change))

    arguments = _asked(arguments, "OPEN", opened)
    return _asked(arguments, "CREATE", lambda argument: put(argument, "createattrs", _with(number, change)))


@mutant(
    "names-254 | RFC 8881 5.8.2.19 | only OPEN takes names of 255 bytes",
    "LOOKUP",
    "SECINFO",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
)
def names_254(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    fields = ("objname", "name", "target", "oldname", "newname")
    long = any(len(getattr(argument, field, b"")) == LONG for field in fields)
    return failed(result, nfsstat4.NFS4ERR_NAMETOOLONG) if long and of(result) == OK else result


@mutant(
    "readdir-hides | RFC 8881 18.23.3 | READDIR leaves out names that begin with a dot or have another byte than letters, digits and -",
    "READDIR",
)
def readdir_hides(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    def plain(entries: Any) -> Any:
        return tuple(one for one in entries if one.name.replace(b"-", b"").isalnum())

    return put(result, "value.reply.entries", plain) if of(result) == OK else result


@mutant("owners-16 | RFC 8881 5.9 | SETATTR sets owners that are numbers modulo 65536", part="request")
def owners_16(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def cut(owner: bytes) -> bytes:
        return b"%d" % (int(owner) & 0xFFFF) if owner.isdigit() else owner

    for number in (types.FATTR4_OWNER, types.FATTR4_OWNER_GROUP):
        change = _with(number, cut)
        arguments = _asked(
            arguments, "SETATTR", lambda one, change=change: put(one, "obj_attributes", change)
        )
    return arguments


@mutant(
    "made-mode-777 | RFC 8881 18.16.3 | CREATE and OPEN lose the bits of a mode above 0777", part="request"
)
def made_mode_777(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _made_with(arguments, types.FATTR4_MODE, lambda mode: mode & 0o777)


@mutant(
    "open-new-size | RFC 8881 18.16.3 | a file that OPEN makes has at most a size of 4096", part="request"
)
def open_new_size(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _made_with(arguments, types.FATTR4_SIZE, lambda size: min(size, 4096))


@mutant("set-times-usec | RFC 8881 5.8.2.41 | times are set in microseconds", part="request")
def set_times_usec(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def cut(time: Any) -> Any:
        return put(time, "value.nseconds", lambda nseconds: nseconds // 1000 * 1000)

    change = _with(types.FATTR4_TIME_MODIFY_SET, cut)
    return _asked(arguments, "SETATTR", lambda one: put(one, "obj_attributes", change))


@mutant(
    "access-execute-read | RFC 8881 18.1.3 | who may read a file may execute it", "ACCESS", part="request"
)
def access_execute_read(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def more(one: Any) -> Any:
        return replace(one, access=one.access | ACCESS4_READ) if one.access & ACCESS4_EXECUTE else one

    return _asked(arguments, "ACCESS", more)


def _executes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.access & ACCESS4_EXECUTE:
        return result
    reads = bool(result.value.access & ACCESS4_READ)
    allowed = result.value.access & ~ACCESS4_EXECUTE | reads * ACCESS4_EXECUTE
    both = {"supported": result.value.supported & argument.access, "access": allowed & argument.access}
    return replace(result, value=replace(result.value, **both))


MUTANTS["access-execute-read"].result = _executes


@mutant("lookupp-first | RFC 8881 18.14.3 | LOOKUPP finds the first parent of a directory for ever")
def lookupp_first(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return result


def _first_parent(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    out, child = [], b""
    for asked, one in zip(arguments.argarray, results.resarray, strict=False):
        if opname(asked) == "PUTFH":
            current, child = asked.value.object, b""
        elif opname(asked) == "LOOKUPP":
            child = current
        is_parent = opname(asked) == "GETFH" and child and status_of(one) == OK
        parent = talk.shared.setdefault(child, one.value.value.object) if is_parent else None
        out.append(replace(one, value=put(one.value, "value.object", parent)) if is_parent else one)
    return replace(results, resarray=tuple(out))


MUTANTS["lookupp-first"].result = None
MUTANTS["lookupp-first"].compound = _first_parent


@mutant(
    "readdir-cookie-of-last | RFC 8881 18.23.3 | a listing from any cookie of a reply goes on behind the last entry of that reply",
    "READDIR",
)
def readdir_cookie_of_last(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) == OK and result.value.reply.entries:
        cookies = [one.cookie for one in result.value.reply.entries]
        talk.memory.update({f"cookie {cookie}": cookies[-1] for cookie in cookies})
    return result


def _last_cookie(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(
        arguments,
        "READDIR",
        lambda one: replace(one, cookie=talk.memory.get(f"cookie {one.cookie}", one.cookie)),
    )


MUTANTS["readdir-cookie-of-last"].request = _last_cookie


@mutant("renamed-stateid-bad | RFC 8881 8.2 | the stateid of an open file is bad after a RENAME of its name")
def renamed_stateid_bad(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return result


def _bad_stateid(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    opened, bad = talk.shared.setdefault("opened", {}), talk.shared.setdefault("bad", set())
    out = []
    for asked, one in zip(arguments.argarray, results.resarray, strict=False):
        done = status_of(one) == OK
        if opname(asked) == "OPEN" and done and asked.value.claim.claim == open_claim_type4.CLAIM_NULL:
            opened[asked.value.claim.value] = one.value.value.stateid.other
        elif opname(asked) == "RENAME" and done:
            bad.add(opened.get(asked.value.oldname))
        elif opname(asked) in ("READ", "WRITE") and done and asked.value.stateid.other in bad:
            status = nfsstat4.NFS4ERR_BAD_STATEID
            out.append(replace(one, value=failed(one.value, status)))
            return replace(results, status=status, resarray=tuple(out))
        out.append(one)
    return results


MUTANTS["renamed-stateid-bad"].result = None
MUTANTS["renamed-stateid-bad"].compound = _bad_stateid


def _minor(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    talk.memory["minor"] = arguments.minorversion
    return arguments


@mutant(
    "lock-of-one-minor | RFC 8881 18.11.3 | LOCKT finds no lock of another minor version", "LOCK", "LOCKT"
)
def lock_of_one_minor(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    minor = talk.memory["minor"]
    if hasattr(argument, "locker"):
        if of(result) == OK and argument.locker.new_lock_owner:
            talk.shared[argument.locker.value.lock_owner.owner.decode("latin-1")] = minor
        return result
    if of(result) != nfsstat4.NFS4ERR_DENIED:
        return result
    holder = result.value.owner.owner.decode("latin-1")
    return type(result)(OK) if talk.shared.get(holder, minor) != minor else result


MUTANTS["lock-of-one-minor"].request = _minor


@mutant(
    "share-of-one-minor | RFC 8881 9.7 | the OPEN of the minor version that a client used first denies nothing",
    part="request",
)
def share_of_one_minor(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    first = talk.shared.setdefault("minor", arguments.minorversion)
    if arguments.minorversion == first:
        return _asked(arguments, "OPEN", lambda one: replace(one, share_deny=0))
    return arguments


@mutant("symlink-1023 | RFC 8881 18.4.3 | CREATE keeps 1023 bytes of a link's text", "CREATE", part="request")
def symlink_1023(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def cut(one: Any) -> Any:
        is_link = one.objtype.type == nfs_ftype4.NF4LNK
        return put(one, "objtype.value", lambda text: text[:1023]) if is_link else one

    return _asked(arguments, "CREATE", cut)


@mutant(
    "seq-misordered-slots | RFC 8881 18.46.3 | any sequence ID that is too high is accepted on slots other than 0",
    "SEQUENCE",
)
def seq_misordered_slots(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not hasattr(argument, "sa_sequenceid"):
        return result
    talk.memory[f"slot {argument.sa_slotid}"] = result.value.sr_sequenceid
    return put(result, "value.sr_sequenceid", argument.sa_sequenceid)


def _next_in_order(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def ordered(one: Any) -> Any:
        following = talk.memory.get(f"slot {one.sa_slotid}", 0) + 1
        too_high = one.sa_slotid and one.sa_sequenceid > following
        return replace(one, sa_sequenceid=following) if too_high else one

    return _asked(arguments, "SEQUENCE", ordered)


MUTANTS["seq-misordered-slots"].request = _next_in_order


@mutant("seek-32 | RFC 7862 15.11.3 | sr_offset has 32 bits", "SEEK")
def seek_32(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return put(result, "value.sr_offset", _low) if of(result) == OK else result


@mutant("deallocate-32 | RFC 7862 15.4.3 | da_offset has 32 bits", part="request")
def deallocate_32(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(arguments, "DEALLOCATE", lambda one: put(one, "da_offset", _low))


@mutant("allocate-32 | RFC 7862 15.1.3 | aa_offset has 32 bits", part="request")
def allocate_32(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    return _asked(arguments, "ALLOCATE", lambda one: put(one, "aa_offset", _low))


def _low(offset: int) -> int:
    return offset & 0xFFFF_FFFF


@mutant(
    "verify-unsupported | RFC 8881 18.31.3 | an attribute that is not supported is compared, and is not the same",
    "VERIFY",
    "NVERIFY",
)
def verify_unsupported(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != nfsstat4.NFS4ERR_ATTRNOTSUPP:
        return result
    return failed(result, nfsstat4.NFS4ERR_NOT_SAME)


wrong_error(
    "made-unsupported | RFC 8881 18.4.3 | an initial attribute that is not supported is NFS4ERR_SERVERFAULT",
    "CREATE OPEN",
    "ATTRNOTSUPP",
)
wrong_error(
    "secinfo-notdir-status | RFC 8881 18.29.3 | SECINFO in a file is NFS4ERR_SERVERFAULT", "SECINFO", "NOTDIR"
)
wrong_error(
    "write-fbig-status | RFC 8881 18.32.3 | a WRITE past the largest file is NFS4ERR_SERVERFAULT",
    "WRITE",
    "FBIG",
    "INVAL",
)
