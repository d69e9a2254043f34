"""Broken rules of RFC 7530 9.1.7 and 9.1.9: sequence ids of owners at the end of their 32 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_proxy_connection import Nfs4ProxyConnection, failed, mutant, of, opname

from storagetest.wire.nfs4.types import COMPOUND4args, nfsstat4

OK, BAD_SEQID = nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_BAD_SEQID
LAST = 0xFFFF_FFFF


def _open_seqid(argument: Any) -> int | None:
    """Return the sequence id of an open owner in an operation."""
    if hasattr(argument, "locker"):
        return argument.locker.value.open_seqid if argument.locker.new_lock_owner else None
    found: int | None = getattr(argument, "seqid", None)
    return found


def _without_zero(talk: Nfs4ProxyConnection, seqid: int | None, result: Any) -> Any:
    """Refuse the sequence id 0 of a connection on which the last one was used."""
    if seqid == 0 and talk.memory.get("last"):
        return failed(result, BAD_SEQID)
    talk.memory["last"] = talk.memory.get("last") or seqid == LAST
    return result


@mutant(
    "wrap-open-one | 9.1.7 of RFC 7530 | the sequence id of an open owner after 0xFFFFFFFF is 1, not 0",
    "OPEN",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "CLOSE",
    "LOCK",
)
def wrap_open_one(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    return _without_zero(talk, _open_seqid(argument), result)


@mutant(
    "wrap-lock-one | 9.1.7 of RFC 7530 | the sequence id of a lock owner after 0xFFFFFFFF is 1, not 0",
    "LOCK",
    "LOCKU",
)
def wrap_lock_one(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    seqid = argument.locker.value.lock_seqid if hasattr(argument, "locker") else argument.seqid
    return _without_zero(talk, seqid, result)


@mutant(
    "wrap-any | 9.1.7 of RFC 7530 | an OPEN after the sequence id 0xFFFFFFFF may have 1 instead of 0",
    "OPEN",
    part="request",
)
def wrap_any(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    out = []
    for one in arguments.argarray:
        seqid = one.value.seqid if opname(one) == "OPEN" else None
        changed = seqid == 1 and talk.memory.get("last") == LAST
        out.append(replace(one, value=replace(one.value, seqid=0)) if changed else one)
        talk.memory["last"] = talk.memory.get("last") if seqid is None else seqid
    return replace(arguments, argarray=tuple(out))


@mutant(
    "wrap-replay-refused | 9.1.9 of RFC 7530 | a retry with the sequence id 0xFFFFFFFF or 0 is refused",
    "OPEN",
    "OPEN_DOWNGRADE",
)
def wrap_replay_refused(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if argument.seqid not in (0, LAST):
        return result
    if talk.memory.get("sent") == argument:
        return failed(result, BAD_SEQID) if of(result) == OK else result
    talk.memory["sent"] = argument
    return result
