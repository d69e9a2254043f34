"""Sequences of locks (:mod:`storagetest.wire.sequences.ranges`) as LOCK and CLOSE of SMB2."""

from __future__ import annotations

from storagetest.wire.sequences.ranges import LockStep
from storagetest.wire.smb2.client import SmbFile
from storagetest.wire.smb2.codes import Disposition, Lock, SmbStatus
from storagetest.wire.smb2.harness import expect


class Smb2Locks:
    """Opens of one file, each an owner."""

    def __init__(self, files: list[SmbFile]) -> None:
        self.files = files

    def lock(self, step: LockStep) -> bool:
        """LOCK with FAIL_IMMEDIATELY (2.2.26)."""
        kind = Lock.EXCLUSIVE if step.exclusive else Lock.SHARED
        element = step.start, step.end - step.start, kind | Lock.FAIL_IMMEDIATELY
        done = self.files[step.owner].lock(element)
        return expect(done, SmbStatus.SUCCESS, SmbStatus.LOCK_NOT_GRANTED).status == SmbStatus.SUCCESS

    def unlock(self, step: LockStep) -> bool:
        """LOCK with UNLOCK."""
        done = self.files[step.owner].lock((step.start, step.end - step.start, Lock.UNLOCK))
        return expect(done, SmbStatus.SUCCESS, SmbStatus.RANGE_NOT_LOCKED).status == SmbStatus.SUCCESS

    def test(self, step: LockStep) -> bool:
        """SMB2 has no test of a lock."""
        raise NotImplementedError

    def close(self, step: LockStep) -> None:
        """CLOSE, which frees the locks of the open (3.3.5.10), and CREATE."""
        file = self.files[step.owner]
        expect(file.close())
        self.files[step.owner] = file.tree.open(file.name, disposition=Disposition.OPEN)
