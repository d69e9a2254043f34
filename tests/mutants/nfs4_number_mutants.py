"""Broken rules of RFC 7530 and RFC 8881 on large offsets and counts, pairs of attributes, and much state.

They are of a list that was written from the text before a look for their cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_made_mutants import asked
from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, put
from nfs_listed import of_the_first

from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.types import (
    FATTR4_MODE,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    COMPOUND4args,
    nfsstat4,
)

OK = nfsstat4.NFS4_OK


@mutant("read-far-refused | 18.22.3 | a READ that begins at 2^62 or behind it is refused", "READ")
def read_far_refused(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    far = argument.offset >= 1 << 62
    return failed(result, nfsstat4.NFS4ERR_INVAL) if far and of(result) == OK else result


@mutant(
    "count-signed | 18.22.3 | a count of 2^31 or more is negative, and is refused",
    "READ",
    "READDIR",
)
def count_signed(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    count = argument.maxcount if hasattr(argument, "maxcount") else argument.count
    return failed(result, nfsstat4.NFS4ERR_INVAL) if count >= 1 << 31 and of(result) == OK else result


@mutant(
    "readdir-many-lost | 18.23.3 | no listing goes beyond 200 entries, and it states the end",
    "PUTFH",
    "READDIR",
)
def readdir_many_lost(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if hasattr(argument, "object"):
        talk.memory["handle"] = argument.object
        return result
    if of(result) != OK:
        return result
    reply = result.value.reply
    left = of_the_first(talk.shared, talk.memory.get("handle"), argument.cookie, reply.entries)
    return result if left is None else put(result, "value.reply", replace(reply, entries=left, eof=True))


@mutant(
    "setattr-owner-with-mode | 18.30.3 | a SETATTR that sets the mode states owners as set, and sets none",
    "SETATTR",
    part="request",
)
def setattr_owner_with_mode(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def without(one: Any) -> Any:
        values = decode_attributes(one.obj_attributes)
        kept = {
            number: value
            for number, value in values.items()
            if number not in (FATTR4_OWNER, FATTR4_OWNER_GROUP)
        }
        return replace(one, obj_attributes=encode_attributes(kept)) if FATTR4_MODE in values else one

    return asked(arguments, "SETATTR", without)


def _states_asked(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    stated = of(result) == OK and hasattr(result, "attrsset")
    return replace(result, attrsset=argument.obj_attributes.attrmask) if stated else result


MUTANTS["setattr-owner-with-mode"].result = _states_asked


# Much state

OPENS, RANGES, LOCKERS = 16, 16, 8
"""Stateids of opens, ranges of a lock owner, and lock owners of an open file that the server keeps."""
FAR = 1 << 40
"""Where the lock is that the server takes instead of one that it forgets."""


@mutant(
    "opens-many-forgotten | 8.2.4 | a connection has the stateids of its last 16 opens, and no older ones",
    "OPEN",
    "CLOSE",
    "READ",
    "WRITE",
)
def opens_many_forgotten(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    opens: list[bytes] = talk.memory.setdefault("opens", [])
    if of(result) != OK:
        return result
    if hasattr(argument, "openhow"):
        if (other := result.value.stateid.other) not in opens:
            opens.append(other)
        return result
    stateid = argument.open_stateid if hasattr(argument, "open_stateid") else argument.stateid
    if stateid.other in opens[:-OPENS]:
        return failed(result, nfsstat4.NFS4ERR_BAD_STATEID)
    if hasattr(argument, "open_stateid") and stateid.other in opens:
        opens.remove(stateid.other)
    return result


def _elsewhere(lock: Any) -> Any:
    return replace(lock, offset=FAR + lock.offset, length=1)


@mutant(
    "lock-many-forgotten | 9.2 | a lock owner has 16 ranges, and is granted more that others can lock",
    "LOCK",
    part="request",
)
def lock_many_forgotten(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def less(lock: Any) -> Any:
        if lock.locker.new_lock_owner:
            return lock
        locks: dict[bytes, int] = talk.shared.setdefault("locks", {})
        other = lock.locker.value.lock_stateid.other
        locks[other] = locks.get(other, 1) + 1
        return _elsewhere(lock) if locks[other] > RANGES else lock

    return asked(arguments, "LOCK", less)


@mutant(
    "lockers-many-forgotten | 9.1.1 | an open file has 8 lock owners, and grants more that exclude no other",
    "LOCK",
    part="request",
)
def lockers_many_forgotten(talk: Nfs4ProxyConnection, arguments: COMPOUND4args) -> COMPOUND4args:
    def less(lock: Any) -> Any:
        if not lock.locker.new_lock_owner:
            return lock
        first = lock.locker.value
        lockers: set[bytes] = talk.shared.setdefault(first.open_stateid.other, set())
        lockers.add(first.lock_owner.owner)
        return _elsewhere(lock) if len(lockers) > LOCKERS else lock

    return asked(arguments, "LOCK", less)


@mutant(
    "lock-named-again | 18.10.3 | a lock owner that has locks cannot be named with the open again", "LOCK"
)
def lock_named_again(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if of(result) != OK or not argument.locker.new_lock_owner:
        return result
    first, seen = argument.locker.value, talk.shared.setdefault("named", set())
    if (key := (first.open_stateid.other, first.lock_owner.owner)) in seen:
        return failed(result, nfsstat4.NFS4ERR_INVAL)
    seen.add(key)
    return result
