"""Broken rules of LOCK, LOCKT and LOCKU (RFC 8881 8.2.2, 18.10, 18.11, 18.12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nfs4_io_mutants import argument
from nfs4_open_mutants import again, seqid_plus
from nfs4_proxy_connection import (
    Nfs4ProxyConnection,
    failed,
    field_of,
    mutant,
    of,
    put,
    refuses,
    wrong_error,
)

from storagetest.wire.nfs4.state import WHOLE
from storagetest.wire.nfs4.types import nfs_lock_type4, nfs_opnum4, nfsstat4


def denied(row: str, path: str, new: Any) -> None:
    """Register a mutant that describes the lock that conflicts in another way."""

    def change(_talk: Nfs4ProxyConnection, _argument: Any, result: Any) -> Any:
        return put(result, f"value.{path}", new) if of(result) == nfsstat4.NFS4ERR_DENIED else result

    mutant(row, "LOCK")(change)


wrong_error("lock-denied | 18.10.3 | a lock that conflicts ends with another error", "LOCK LOCKT", "DENIED")
denied("denied-offset | 18.10.3 | the offset of the lock that conflicts is 0", "offset", 0)
denied("denied-length | 18.10.3 | the length of the lock that conflicts is 1", "length", 1)
denied("denied-type | 18.10.3 | every lock that conflicts is READ_LT", "locktype", nfs_lock_type4.READ_LT)
denied("denied-owner | 18.10.3 | the lock that conflicts has another owner", "owner.owner", b"another")
refuses("lock-refused | 18.10.3 | every LOCK fails", "LOCK")
argument(
    "lock-whole | 18.10.3 | every LOCK has the whole file",
    nfs_opnum4.OP_LOCK,
    lambda old: replace(old, offset=0, length=WHOLE),
)
wrong_error("lock-inval | 18.10.3 | an invalid range ends with another error", "LOCK LOCKT LOCKU", "INVAL")
argument(
    "unlock-less | 18.12.3 | LOCKU unlocks one byte",
    nfs_opnum4.OP_LOCKU,
    lambda old: replace(old, length=min(old.length, 1)),
)
field_of(
    "lock-seqid | 8.2.2 | every stateid of a lock has the seqid 1", "LOCK", "value.lock_stateid.seqid", 1
)
wrong_error(
    "lock-openmode | 18.10.3 | a write lock through a read-only open ends with another error",
    "LOCK",
    "OPENMODE",
)
argument(
    "lock-reads | 9.3 | every LOCK is one for reading",
    nfs_opnum4.OP_LOCK,
    lambda old: replace(old, locktype=nfs_lock_type4.READ_LT),
)
argument(
    "lock-writes | 9.3 | every LOCK is one for writing",
    nfs_opnum4.OP_LOCK,
    lambda old: replace(old, locktype=nfs_lock_type4.WRITE_LT),
)
argument(
    "unlock-all | 9.2 | LOCKU unlocks the whole file",
    nfs_opnum4.OP_LOCKU,
    lambda old: replace(old, offset=0, length=WHOLE),
)


@mutant("lock-once | 9.2 | a lock owner has one lock of a file", "LOCK")
def lock_once(_talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    if argument.locker.new_lock_owner or of(result) != nfsstat4.NFS4_OK:
        return result
    return failed(result, nfsstat4.NFS4ERR_SERVERFAULT)


for row, operation, status in (
    ("lock-bad-stateid | 18.10.4 | LOCK of an unknown open ends with another error", "LOCK", "BAD_STATEID"),
    ("lock-old-stateid | 8.2.2 | LOCKU with an old stateid ends with another error", "LOCKU", "OLD_STATEID"),
    (
        "lock-bad-seqid | 9.1.7 of RFC 7530 | a sequence id out of order ends otherwise",
        "LOCK LOCKU",
        "BAD_SEQID",
    ),
    ("close-locks | 18.2.3 | CLOSE of a file with locks ends with another error", "CLOSE", "LOCKS_HELD"),
):
    wrong_error(row, operation, status)

again(
    "replay-lock | 9.1.7 of RFC 7530 | a retransmitted LOCK has another stateid",
    "LOCK",
    seqid_plus("value.lock_stateid"),
)
again(
    "replay-unlock | 9.1.7 of RFC 7530 | a retransmitted LOCKU has another stateid",
    "LOCKU",
    seqid_plus("value"),
)
again("replay-denied | 9.1.7 of RFC 7530 | a retransmitted LOCK that was denied has another error", "LOCK")
