"""Sequences of locks (:mod:`storagetest.wire.sequences.ranges`) as calls of NLM."""

from __future__ import annotations

from storagetest.wire.nfs3.locks import END as TO_END
from storagetest.wire.nfs3.locks import LockOwner
from storagetest.wire.nfs3.nlm import nlm4_stats
from storagetest.wire.nfs3.types import nfs_fh3
from storagetest.wire.sequences.ranges import END, Denial, LockStep


class NlmLocks:
    """Owners on one file."""

    def __init__(self, owners: list[LockOwner], file: nfs_fh3) -> None:
        self.owners, self.file = owners, file

    @staticmethod
    def _length(step: LockStep) -> int:
        return TO_END if step.length is None else step.length

    def lock(self, step: LockStep) -> bool:
        """LOCK without waiting."""
        owner = self.owners[step.owner]
        status = owner.lock(self.file, step.start, self._length(step), exclusive=step.exclusive)
        assert status in (nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED), f"LOCK ends with {status.name}"
        return status == nlm4_stats.NLM4_GRANTED

    def unlock(self, step: LockStep) -> bool:
        """UNLOCK."""
        status = self.owners[step.owner].unlock(self.file, step.start, self._length(step))
        return status == nlm4_stats.NLM4_GRANTED

    def test(self, step: LockStep) -> Denial | bool:
        """TEST."""
        owner = self.owners[step.owner]
        found = owner.test(self.file, step.start, self._length(step), exclusive=step.exclusive)
        if found.stat == nlm4_stats.NLM4_GRANTED:
            return True
        assert found.stat == nlm4_stats.NLM4_DENIED, f"TEST ends with {found.stat.name}"
        holder = found.value
        assert holder is not None
        end = holder.l_offset + holder.l_len if holder.l_len else END
        return Denial(None, holder.l_offset, end, holder.exclusive)

    def close(self, step: LockStep) -> None:
        """UNLOCK of the whole file, which a client sends when a process closes it."""
        status = self.owners[step.owner].unlock(self.file)
        assert status == nlm4_stats.NLM4_GRANTED, f"UNLOCK of the whole file ends with {status.name}"
