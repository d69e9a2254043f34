"""Broken rules of leases (RFC 8881 8.3, 8.4): their cases wait for the lease, so they have a run of their own."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import time
from typing import Any

from nfs4_proxy_connection import MUTANTS, Nfs4ProxyConnection, failed, mutant, of, opname

from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.types import COMPOUND4args, COMPOUND4res, nfs_opnum4, nfsstat4

LEASE = 5
"""Seconds of the server's lease in this run (chosen)."""

OK = nfsstat4.NFS4_OK


@mutant("lease-not-renewed | 8.3 | a lease ends at its time, whatever its client sends")
def ends(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    began = talk.memory.setdefault("began", time.monotonic())
    over = time.monotonic() - began > LEASE and type(result).__name__ == "READ4res"
    return failed(result, nfsstat4.NFS4ERR_EXPIRED) if over else result


@mutant("lease-endless | 8.4.3 | state is never given to another client", "OPEN", "LOCK")
def endless(talk: Nfs4ProxyConnection, argument: Any, result: Any) -> Any:
    name, status = type(result).__name__, of(result)
    if status in (nfsstat4.NFS4ERR_SHARE_DENIED, nfsstat4.NFS4ERR_DENIED):
        talk.shared["refused"] = True
    if status != OK or not talk.shared.get("refused"):
        return result
    return failed(result, nfsstat4.NFS4ERR_SHARE_DENIED if name == "OPEN4res" else nfsstat4.NFS4ERR_LOCKED)


@mutant("lease-state-kept | 8.4.3 | READ with the stateid of an expired lease succeeds", part="compound")
def kept(talk: Nfs4ProxyConnection, arguments: COMPOUND4args, results: COMPOUND4res) -> COMPOUND4res:
    names = [opname(one) for one in arguments.argarray]
    if results.status == OK or names[-1:] != ["READ"]:
        return results
    made = []
    for one in arguments.argarray:
        if one.argop == nfs_opnum4.OP_SEQUENCE:
            given = one.value
            done = types.SEQUENCE4resok(given.sa_sessionid, given.sa_sequenceid, given.sa_slotid, 0, 0, 0)
            made.append(types.nfs_resop4(one.argop, types.SEQUENCE4res(OK, done)))
        elif one.argop == nfs_opnum4.OP_PUTFH:
            made.append(types.nfs_resop4(one.argop, types.PUTFH4res(OK)))
        else:
            made.append(types.nfs_resop4(one.argop, types.READ4res(OK, types.READ4resok(True, b"data"))))
    return COMPOUND4res(OK, results.tag, tuple(made))


for name in ("lease-not-renewed", "lease-endless", "lease-state-kept"):
    MUTANTS[name].kind = "lease"
