"""A request of one client that conflicts with the state of another: it is sent, and its reply read later."""

from __future__ import annotations

from dataclasses import dataclass

from storagetest.suites.conformance.nfs4.slots import session_of
from storagetest.wire.nfs4.client import Done, Nfs4Client
from storagetest.wire.nfs4.types import nfs_argop4, nfsstat4


@dataclass
class Conflict:
    """Operations that conflict with the state of another client; they were sent, and no reply was read."""

    nfs: Nfs4Client
    ops: tuple[nfs_argop4, ...]
    xid: int

    def end(self, *, retry: bool = True) -> Done:
        """Return the reply to the request; with ``retry``, after NFS4ERR_DELAY that to its repetitions."""
        session = session_of(self.nfs)
        result = self.nfs.rpc.result(self.xid)
        session.advance()
        if retry and result.status == nfsstat4.NFS4ERR_DELAY:
            return self.nfs.compound(*self.ops)
        return Done(result)


def conflict(nfs: Nfs4Client, *ops: nfs_argop4) -> Conflict:
    """Send operations, and read no reply."""
    return Conflict(nfs, ops, nfs.rpc.send(nfs.rpc.procedure("COMPOUND"), nfs.encode(*ops)))
