"""Sequences of locks (:mod:`storagetest.wire.sequences.ranges`) as LOCK, LOCKT, LOCKU and CLOSE."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.state import WHOLE, OpenFile, StateOwner
from storagetest.wire.nfs4.types import nfs_lock_type4, nfsstat4
from storagetest.wire.sequences.ranges import END, Denial, LockStep

LIMITS = (
    nfsstat4.NFS4ERR_BAD_RANGE,
    nfsstat4.NFS4ERR_LOCK_RANGE,
    nfsstat4.NFS4ERR_LOCK_NOTSUPP,
    nfsstat4.NFS4ERR_LOCKS_HELD,
)
"""What a server may refuse (RFC 8881 18.10): offsets over 32 bits, parts of a lock, another kind of it."""


class Nfs4Locks:
    """Three lock owners on one file: two of one client, and one of ``other`` with the name of the first."""

    def __init__(self, nfs: Nfs4Client, other: Nfs4Client, directory: bytes, name: bytes) -> None:
        self.directory, self.name = directory, name
        one, two, three = (StateOwner(client) for client in (nfs, nfs, other))
        self.files: list[OpenFile] = [one_owner.open(directory, name) for one_owner in (one, two, three)]
        self.owners = [StateOwner(nfs), StateOwner(nfs), StateOwner(other)]
        self.owners[2].name = self.owners[0].name

    @staticmethod
    def _kind(step: LockStep) -> nfs_lock_type4:
        return nfs_lock_type4.WRITE_LT if step.exclusive else nfs_lock_type4.READ_LT

    @staticmethod
    def _length(step: LockStep) -> int:
        return WHOLE if step.length is None else step.length

    def _ended(self, done: Done, operation: str) -> Denial | bool:
        if done.status == nfsstat4.NFS4_OK:
            return True
        if done.status in LIMITS:
            pytest.skip(f"{operation} ends with {done.status.name}: the server does not lock such ranges")
        assert done.status == nfsstat4.NFS4ERR_DENIED, done.line
        stated = done.of(operation).value
        names = [owner.name for owner in self.owners]
        owner = names.index(stated.owner.owner) if stated.owner.owner in names else -1
        to_end = stated.length in (0, WHOLE)  # that 0 is wrong is the claim of LOCKT-HOLDER-END
        end = END if to_end else stated.offset + stated.length
        exclusive = stated.locktype in (nfs_lock_type4.WRITE_LT, nfs_lock_type4.WRITEW_LT)
        return Denial(None if names.count(stated.owner.owner) > 1 else owner, stated.offset, end, exclusive)

    def lock(self, step: LockStep) -> Denial | bool:
        """LOCK."""
        file, owner = self.files[step.owner], self.owners[step.owner]
        return self._ended(file.lock(owner, self._kind(step), step.start, self._length(step)), "LOCK")

    def unlock(self, step: LockStep) -> bool:
        """LOCKU, if the owner has a stateid."""
        file, owner = self.files[step.owner], self.owners[step.owner]
        if owner.name not in file.locks:
            return True
        return self._ended(file.unlock(owner, step.start, self._length(step)), "LOCKU") is True

    def test(self, step: LockStep) -> Denial | bool:
        """LOCKT."""
        file, owner = self.files[step.owner], self.owners[step.owner]
        return self._ended(file.test(owner, self._kind(step), step.start, self._length(step)), "LOCKT")

    def close(self, step: LockStep) -> None:
        """CLOSE, which may need LOCKU before it (RFC 8881 18.2.3), and OPEN."""
        file = self.files[step.owner]
        if file.try_close().status == nfsstat4.NFS4ERR_LOCKS_HELD:
            ok(file.unlock(self.owners[step.owner]))
            file.close()
        self.files[step.owner] = file.owner.open(self.directory, self.name)

    def end(self) -> None:
        """Free all locks, and close the file."""
        for file, owner in zip(self.files, self.owners, strict=True):
            if owner.name in file.locks:
                ok(file.unlock(owner))
            file.close()
