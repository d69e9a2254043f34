"""Legal NFSv4 servers: NFS-Ganesha on loopback behind a proxy that makes choices which RFC 8881 leaves.

Each is written as a mutant is, and breaks no rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs3_proxy_connection import blank
from nfs4_proxy_connection import Nfs4Mutant, Nfs4ProxyConnection, failed, of, opname, put

from storagetest.wire.nfs4.attributes import (
    REQUIRED_41,
    bitmap,
    decode_attributes,
    encode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.types import (
    FATTR4_FILEID,
    FATTR4_MAXFILESIZE,
    FATTR4_MAXREAD,
    FATTR4_MAXWRITE,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SIZE,
    FATTR4_SUPPATTR_EXCLCREAT,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    COMPOUND4args,
    COMPOUND4res,
    fattr4,
    nfs_resop4,
    nfsstat4,
    stable_how4,
)

MOST = 3000
"""Bytes of the largest READ and WRITE."""
GIB = 1 << 30
"""Bytes of the largest file."""
LIMITS = {FATTR4_MAXFILESIZE: GIB, FATTR4_MAXREAD: MOST, FATTR4_MAXWRITE: MOST}
SUPPORTED = {
    *REQUIRED_41,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
}
"""The REQUIRED attributes, and those of a file in POSIX."""


def _short(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """READ and WRITE are of 3000 bytes at most (18.22.3, 18.32.3: a server may do fewer than asked)."""
    ops = []
    for one in arguments.argarray:
        value: Any = one.value
        if opname(one) == "READ":
            value = replace(value, count=min(value.count, MOST))
        elif opname(one) == "WRITE":
            value = replace(value, data=value.data[:MOST])
        ops.append(replace(one, value=value))
    return replace(arguments, argarray=tuple(ops))


def _one_entry(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """Return one entry of a page; the client asks for the rest by its cookie (18.23.3)."""
    if of(result) != nfsstat4.NFS4_OK or len(result.value.reply.entries) < 2:
        return result
    return put(result, "value.reply", lambda page: replace(page, entries=page.entries[:1], eof=False))


def _fewer(attributes: fattr4) -> fattr4:
    found = {number: value for number, value in decode_attributes(attributes).items() if number in SUPPORTED}
    for number in (FATTR4_SUPPORTED_ATTRS, FATTR4_SUPPATTR_EXCLCREAT):
        if number in found:
            found[number] = bitmap(*SUPPORTED.intersection(numbers_of(found[number])))
    return encode_attributes(found)


def _few_attributes(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    """A server may have no RECOMMENDED attribute (5.2)."""
    if of(result) != nfsstat4.NFS4_OK:
        return result
    if hasattr(result.value, "obj_attributes"):
        return put(result, "value.obj_attributes", _fewer)
    entries = tuple(replace(one, attrs=_fewer(one.attrs)) for one in result.value.reply.entries)
    return put(result, "value.reply", lambda page: replace(page, entries=entries))


def _small_session(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """A session has one slot, and eight operations in a COMPOUND (18.36.3: the server may lower both)."""

    def lowered(one: Any) -> Any:
        if opname(one) != "CREATE_SESSION":
            return one
        fore = one.value.csa_fore_chan_attrs
        fore = replace(fore, ca_maxoperations=min(fore.ca_maxoperations, 8), ca_maxrequests=1)
        return put(one, "value.csa_fore_chan_attrs", fore)

    return replace(arguments, argarray=tuple(map(lowered, arguments.argarray)))


NEVER = (
    "GETFH",
    "ILLEGAL",
    "OPEN_CONFIRM",
    "RELEASE_LOCKOWNER",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
)
"""Operations that do not end with NFS4ERR_DELAY (15.2)."""
NUMBERED = ("CLOSE", "LOCK", "LOCKU", "OPEN", "OPEN_DOWNGRADE")
"""Operations of minor version 0 that have the sequence id of an owner, which counts them (RFC 7530 9.1.7)."""


def _slot(arguments: COMPOUND4args) -> tuple[bytes, int, int] | None:
    """Return the session, the slot and the sequence id of a request."""
    first = arguments.argarray[0].value if arguments.argarray else None
    return (first.sa_sessionid, first.sa_slotid, first.sa_sequenceid) if hasattr(first, "sa_slotid") else None


def _due(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> int | None:
    """Return the place of the first operation that its connection has not had before.

    A request that is sent again on its slot is ended as it was.
    """
    slots: dict[Any, int | None] = talk.shared.setdefault("slots", {})
    request = _slot(arguments)
    if request in slots:
        return slots[request]
    seen, found = talk.memory.setdefault("seen", set(NEVER)), None
    alone = arguments.minorversion and request is None  # no other operation may follow (18.35.3)
    for at, one in enumerate(arguments.argarray if not alone or len(arguments.argarray) == 1 else ()):
        name = opname(one)
        if name == "DESTROY_SESSION" and at + 1 < len(arguments.argarray):
            break  # it would be the last operation (18.37.3)
        if name not in seen and (arguments.minorversion or name not in NUMBERED):
            seen.add(name)
            found = at
            break
    if request is not None and found != 0:
        slots[request] = found
    return found


def _until(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, at: int | None) -> COMPOUND4args:
    """Return the operations before ``at``: the server executes no others."""
    talk.memory.setdefault("ended", {})[id(arguments)] = at
    return arguments if at is None else replace(arguments, argarray=arguments.argarray[:at])


def _ending(status: nfsstat4) -> Any:
    """Return what ends the COMPOUNDs that :func:`_until` has cut with ``status``."""

    def ended(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
        at = talk.memory["ended"].pop(id(arguments), None)
        if at is None or len(results.resarray) != at or (at and results.status != nfsstat4.NFS4_OK):
            return results
        number = arguments.argarray[at].argop
        last = nfs_resop4(number, failed(blank(nfs_resop4.ARMS[number]), status))
        return replace(results, status=status, resarray=(*results.resarray, last))

    return ended


def _until_due(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """An operation ends with NFS4ERR_DELAY, and nothing of it is done (15.1.1.3)."""
    return _until(talk, arguments, _due(talk, arguments))


def _end_of(one: Any) -> int:
    """Return the size of the file that an operation wants, in bytes."""
    name, value = opname(one), one.value
    if name == "WRITE":
        return int(value.offset + len(value.data))
    if name == "ALLOCATE":
        return int(value.aa_offset + value.aa_length)
    if name == "SETATTR" and FATTR4_SIZE in value.obj_attributes.attrmask:
        return int(decode_attributes(value.obj_attributes)[FATTR4_SIZE])
    return 0


def _in_limits(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    """READ and WRITE are short, and every WRITE is stable. Files end at 1 GiB."""
    over = [at for at, one in enumerate(arguments.argarray) if _end_of(one) > GIB]
    short = _short(talk, _until(talk, arguments, over[0] if over else None))
    stable = stable_how4.FILE_SYNC4
    ops = tuple(put(one, "value.stable", stable) if opname(one) == "WRITE" else one for one in short.argarray)
    return replace(short, argarray=ops)


def _modest(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    """State the limits; what is larger is NFS4ERR_FBIG (15.1.4.4). No change_info4 is atomic (3.3.8)."""
    ended: COMPOUND4res = _ending(nfsstat4.NFS4ERR_FBIG)(talk, arguments, results)
    return replace(ended, resarray=tuple(map(_stated, ended.resarray)))


def _stated(one: Any) -> Any:
    """Return a result with the server's limits, without atomic changes, and with 0 as write verifier."""
    name, result = opname(one), one.value
    if of(result) != nfsstat4.NFS4_OK:
        return one
    if name == "GETATTR":
        found = decode_attributes(result.value.obj_attributes)
        found |= {number: value for number, value in LIMITS.items() if number in found}
        return put(one, "value.value.obj_attributes", encode_attributes(found))
    if name in ("WRITE", "COMMIT"):
        return put(one, "value.value.writeverf", bytes(8))
    for field in ("cinfo", "source_cinfo", "target_cinfo"):
        if hasattr(getattr(result, "value", None), field):
            one = put(one, f"value.value.{field}.atomic", False)
    return one


LEGAL = {
    one.name: one
    for one in (
        Nfs4Mutant(
            "short-io",
            "RFC 8881 18.22.3, 18.32.3",
            "READ and WRITE do 3000 bytes of what was asked",
            (),
            request=_short,
            everywhere=True,
        ),
        Nfs4Mutant(
            "one-entry",
            "RFC 8881 18.23.3",
            "READDIR returns one entry",
            ("READDIR",),
            result=_one_entry,
            everywhere=True,
        ),
        Nfs4Mutant(
            "few-attributes",
            "RFC 8881 5.2",
            "there are no attributes but the REQUIRED ones and those of POSIX",
            ("GETATTR", "READDIR"),
            result=_few_attributes,
            everywhere=True,
        ),
        Nfs4Mutant(
            "small-session",
            "RFC 8881 18.36.3",
            "a session has one slot, and eight operations in a COMPOUND",
            (),
            request=_small_session,
            everywhere=True,
        ),
        Nfs4Mutant(
            "busy",
            "RFC 8881 15.1.1.3",
            "the first operation of each kind on a connection ends with NFS4ERR_DELAY",
            (),
            compound=_ending(nfsstat4.NFS4ERR_DELAY),
            request=_until_due,
            everywhere=True,
        ),
        Nfs4Mutant(
            "modest",
            "RFC 8881 5.8.2.17",
            "READ and WRITE do 3000 bytes, files have 1 GiB; all writes are stable, no change is atomic",
            (),
            compound=_modest,
            request=_in_limits,
            everywhere=True,
        ),
    )
}
