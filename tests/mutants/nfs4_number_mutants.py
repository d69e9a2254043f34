"""Broken rules of RFC 7530 and RFC 8881 on large offsets and counts, long listings, and pairs of attributes.

They are of a list that was written from the text before a look for their cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_made_mutants import asked
from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, put

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


LISTED = 200
"""Entries of a directory that the server lists."""


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
    places: dict[int, int] = talk.shared.setdefault(talk.memory.get("handle"), {})
    start = places.get(argument.cookie, 0) if argument.cookie else 0
    entries = result.value.reply.entries
    places.update({one.cookie: at for at, one in enumerate(entries, start + 1)})
    if start + len(entries) <= LISTED:
        return result
    left = entries[: max(0, LISTED - start)]
    return put(result, "value.reply", lambda reply: replace(reply, entries=left, eof=True))


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
