"""What is done a second time, or while something else is under way.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- fcntl() F_SETLKW: a process waits until its request can be satisfied, whatever of it is free before.
- close(): the locks that are removed are those on the file that is closed.
"""

from fuse_locks import FREE, Held, Locking
from posix_rules import mutant


@mutant("lock-waits-for-one | fcntl(3p) F_SETLKW | of several processes in the way, a waiter waits for one")
class LockWaitsForOne(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and not asked.whole:
            for unique, one in list(self.waiting):
                before = self.conflict(one)
                if before is not None and before.owner == asked.owner and before.meets(asked):
                    self.waiting.remove((unique, one))
                    self.held.append(one)
                    self.answer(unique, 0)
        super().put(asked)


@mutant("close-unlocks-other-file | close(3p) | the close of a file removes the process's locks of another")
class CloseUnlocksOtherFile(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        if not whole:
            for other in {one.node for one in self.held if one.owner == owner and not one.whole}:
                super().give_up(other, owner, whole=False)
        super().give_up(node, owner, whole=whole)
