"""Open and lock owners with their sequence ids, and open files (RFC 7530 9, RFC 8881 8 and 9).

With minor version 0 every operation of an owner carries the next sequence id (RFC 7530 9.1.7); with 1 and 2
that field is 0. A file that is opened with OPEN4_RESULT_CONFIRM is confirmed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.operations import GETFH, NO_CREATE, close, op, putfh, write
from storagetest.wire.nfs4.types import (
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_DENY_NONE,
    LOCK4args,
    LOCKT4args,
    LOCKU4args,
    OPEN4args,
    OPEN_CONFIRM4args,
    OPEN_DOWNGRADE4args,
    exist_lock_owner4,
    locker4,
    nfs_argop4,
    nfs_lock_type4,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    open_to_lock_owner4,
    openflag4,
    state_owner4,
    stateid4,
)

WHOLE = 0xFFFF_FFFF_FFFF_FFFF
"""The length of a lock up to the end of the file (RFC 8881 18.10.3)."""

PIECE = 65536
"""Largest WRITE of :meth:`OpenFile.write_all`, in bytes (chosen)."""
_AROUND = 1024
"""Bytes for what is around the data in a request (chosen)."""

_UNCHANGED = {
    nfsstat4.NFS4ERR_STALE_CLIENTID,
    nfsstat4.NFS4ERR_STALE_STATEID,
    nfsstat4.NFS4ERR_BAD_STATEID,
    nfsstat4.NFS4ERR_BAD_SEQID,
    nfsstat4.NFS4ERR_BADXDR,
    nfsstat4.NFS4ERR_RESOURCE,
    nfsstat4.NFS4ERR_NOFILEHANDLE,
    nfsstat4.NFS4ERR_MOVED,
}
"""After these the sequence id of an owner remains (RFC 7530 9.1.7)."""

_names = itertools.count()


class StateOwner:
    """An open owner or a lock owner of one client, with its next sequence id."""

    def __init__(self, client: Nfs4Client, name: bytes | None = None) -> None:
        self.client = client
        self.name = f"owner-{next(_names)}".encode() if name is None else name
        self.seqid = 0

    @property
    def wire(self) -> state_owner4:
        """The owner as it is sent."""
        return state_owner4(self.client.clientid, self.name)

    def bump(self, status: nfsstat4) -> None:
        """Count an operation that ended with ``status``."""
        if self.client.minor == 0 and status not in _UNCHANGED:
            self.seqid = (self.seqid + 1) & 0xFFFFFFFF

    def open_op(
        self,
        name: bytes,
        *,
        how: openflag4 = NO_CREATE,
        access: int = OPEN4_SHARE_ACCESS_BOTH,
        deny: int = OPEN4_SHARE_DENY_NONE,
        claim: open_claim4 | None = None,
    ) -> nfs_argop4:
        """Return OPEN of a name in the current directory; with minor version 1 or 2 without a delegation."""
        wanted = access | (OPEN4_SHARE_ACCESS_WANT_NO_DELEG if self.client.minor else 0)
        chosen = open_claim4(open_claim_type4.CLAIM_NULL, name) if claim is None else claim
        return op("OPEN", OPEN4args(self.seqid, wanted, deny, self.wire, how, chosen))

    def try_open(
        self,
        directory: bytes,
        name: bytes,
        *,
        how: openflag4 = NO_CREATE,
        access: int = OPEN4_SHARE_ACCESS_BOTH,
        deny: int = OPEN4_SHARE_DENY_NONE,
        claim: open_claim4 | None = None,
    ) -> Done:
        """Open a file, whatever the outcome; repeat it after NFS4ERR_DELAY and NFS4ERR_GRACE."""

        def once() -> Done:
            opening = self.open_op(name, how=how, access=access, deny=deny, claim=claim)
            done = self.client.compound(putfh(directory), opening, GETFH, retry=False)
            if len(done.statuses) > 1:
                self.bump(done.statuses[1])
            return done

        return self.client.repeated(once)

    def open(
        self,
        directory: bytes,
        name: bytes,
        *,
        how: openflag4 = NO_CREATE,
        access: int = OPEN4_SHARE_ACCESS_BOTH,
        deny: int = OPEN4_SHARE_DENY_NONE,
        claim: open_claim4 | None = None,
    ) -> OpenFile:
        """Open a file and confirm it. Raises AssertionError if it is refused."""
        return self.opened(ok(self.try_open(directory, name, how=how, access=access, deny=deny, claim=claim)))

    def opened(self, done: Done) -> OpenFile:
        """Return the file of an OPEN that succeeded, and confirm it."""
        file = OpenFile(self, done["GETFH"].object, done["OPEN"].stateid, done)
        if done["OPEN"].rflags & OPEN4_RESULT_CONFIRM:
            file.confirm()
        return file


@dataclass
class OpenFile:
    """An open file: its handle, and the stateid of the open as it is now."""

    owner: StateOwner
    handle: bytes
    stateid: stateid4
    done: Done
    locks: dict[bytes, stateid4] = field(default_factory=dict)

    @property
    def client(self) -> Nfs4Client:
        """The client that opened it."""
        return self.owner.client

    def on(self, *ops: nfs_argop4) -> Done:
        """Execute operations on the file."""
        return self.client.compound(putfh(self.handle), *ops)

    def write_all(self, offset: int, data: bytes) -> None:
        """Write all of ``data``: a server may write fewer bytes than asked (RFC 8881 18.32.3).

        Raises AssertionError if a WRITE fails, writes nothing, or counts more bytes than it got.
        """
        session, at = self.client.session, 0
        most = PIECE if session is None else min(PIECE, max(512, session.fore.ca_maxrequestsize - _AROUND))
        while at < len(data):
            piece = data[at : at + most]
            count = ok(self.on(write(self.stateid, offset + at, piece)))["WRITE"].count
            assert 0 < count <= len(piece), f"a WRITE of {len(piece)} bytes wrote {count}"
            at += count

    def _repeated(self, execute: Callable[[], Done]) -> Done:
        """Execute again, with the owner's next sequence id, while the answer is NFS4ERR_DELAY."""
        return self.client.repeated(execute, nfsstat4.NFS4ERR_DELAY)

    def _owned(self, operation: Callable[[], nfs_argop4]) -> Done:
        """Execute an operation of the open owner."""

        def once() -> Done:
            done = self.client.compound(putfh(self.handle), operation(), retry=False)
            if len(done.statuses) > 1:
                self.owner.bump(done.statuses[1])
            return done

        return self._repeated(once)

    def confirm(self) -> Done:
        """OPEN_CONFIRM (RFC 7530 16.18)."""
        done = ok(self._owned(lambda: op("OPEN_CONFIRM", OPEN_CONFIRM4args(self.stateid, self.owner.seqid))))
        self.stateid = done["OPEN_CONFIRM"].open_stateid
        return done

    def downgrade(self, access: int, deny: int) -> Done:
        """OPEN_DOWNGRADE, whatever the outcome."""
        done = self._owned(
            lambda: op("OPEN_DOWNGRADE", OPEN_DOWNGRADE4args(self.stateid, self.owner.seqid, access, deny))
        )
        if done.status == nfsstat4.NFS4_OK:
            self.stateid = done["OPEN_DOWNGRADE"].open_stateid
        return done

    def try_close(self, stateid: stateid4 | None = None) -> Done:
        """CLOSE, whatever the outcome."""
        return self._owned(lambda: close(self.stateid if stateid is None else stateid, self.owner.seqid))

    def close(self) -> Done:
        """CLOSE. Raises AssertionError if it is refused."""
        return ok(self.try_close())

    def lock(
        self,
        owner: StateOwner,
        kind: nfs_lock_type4 = nfs_lock_type4.WRITE_LT,
        offset: int = 0,
        length: int = WHOLE,
        *,
        reclaim: bool = False,
        stateid: stateid4 | None = None,
    ) -> Done:
        """LOCK, whatever the outcome; the first one of an owner on this file names the open."""
        return self._repeated(
            lambda: self._lock(owner, kind, offset, length, reclaim=reclaim, stateid=stateid)
        )

    def _lock(
        self,
        owner: StateOwner,
        kind: nfs_lock_type4,
        offset: int,
        length: int,
        *,
        reclaim: bool,
        stateid: stateid4 | None,
    ) -> Done:
        known = self.locks.get(owner.name)
        if known is None:
            opened = self.stateid if stateid is None else stateid
            locker = locker4(True, open_to_lock_owner4(self.owner.seqid, opened, owner.seqid, owner.wire))
        else:
            locker = locker4(False, exist_lock_owner4(known if stateid is None else stateid, owner.seqid))
        done = self.client.compound(
            putfh(self.handle), op("LOCK", LOCK4args(kind, reclaim, offset, length, locker)), retry=False
        )
        if len(done.statuses) > 1:
            if known is None:
                self.owner.bump(done.statuses[1])
            if known is not None or done.status == nfsstat4.NFS4_OK:
                owner.bump(done.statuses[1])
        if done.status == nfsstat4.NFS4_OK:
            self.locks[owner.name] = done["LOCK"].lock_stateid
        return done

    def unlock(
        self,
        owner: StateOwner,
        offset: int = 0,
        length: int = WHOLE,
        *,
        stateid: stateid4 | None = None,
        kind: nfs_lock_type4 = nfs_lock_type4.WRITE_LT,
    ) -> Done:
        """LOCKU, whatever the outcome; ``kind`` has no effect on a sound server (RFC 8881 18.12.3)."""
        held = self.locks[owner.name] if stateid is None else stateid

        def once() -> Done:
            argument = LOCKU4args(kind, owner.seqid, held, offset, length)
            done = self.client.compound(putfh(self.handle), op("LOCKU", argument), retry=False)
            if len(done.statuses) > 1:
                owner.bump(done.statuses[1])
            return done

        done = self._repeated(once)
        if done.status == nfsstat4.NFS4_OK:
            self.locks[owner.name] = done["LOCKU"]
        return done

    def test(
        self,
        owner: StateOwner,
        kind: nfs_lock_type4 = nfs_lock_type4.WRITE_LT,
        offset: int = 0,
        length: int = WHOLE,
    ) -> Done:
        """LOCKT."""
        return self.on(op("LOCKT", LOCKT4args(kind, offset, length, owner.wire)))
