"""Mutants of requests that wait in flock(2).

The rules, before any case (flock(2)):

- A call blocks while an incompatible lock is held: it goes on when that is released, by whichever call.
- Any number of processes may hold a shared lock; one holds an exclusive lock.
- [EINTR], and the end of a process: the request that waits is gone.
"""

import errno

from fuse_locks import FREE, Held, Locking
from posix_rules import mutant


class _Waking(Locking):
    """``put`` as is, but for whom of those that wait for a whole file it wakes."""

    closes = False
    """Whether a close gives the lock up now."""

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        self.closes = True
        try:
            super().give_up(node, owner, whole=whole)
        finally:
            self.closes = False

    def wakes(self, asked: Held) -> bool:
        """Whether ``asked`` is granted if it can be."""
        raise NotImplementedError

    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if (unique, asked) not in self.waiting or self.conflict(asked) is not None:
                continue
            if not asked.whole or self.wakes(asked):
                self.waiting.remove((unique, asked))
                self.put(asked)
                self.answer(unique, 0)


@mutant("flock-waiter-left-at-unlock | flock(2) LOCK_UN | who waits for a lock that is unlocked waits on")
class FlockUnlockWakesNone(_Waking):
    def wakes(self, asked: Held) -> bool:
        return self.closes


@mutant("flock-waiter-left-at-close | flock(2) | who waits for a lock that ends with its last close waits on")
class FlockCloseWakesNone(_Waking):
    def wakes(self, asked: Held) -> bool:
        return not self.closes


@mutant("flock-grants-one-reader | flock(2) LOCK_SH | of those that wait for a shared lock one gets it")
class FlockGrantsOneReader(_Waking):
    def wakes(self, asked: Held) -> bool:
        return not any(one.whole and one.node == asked.node for one in self.held)


@mutant(
    "flock-granted-at-first-release | flock(2) LOCK_EX | one of several shared locks is released: who "
    "waits has his"
)
class FlockGrantedAtFirstRelease(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and asked.whole and self.holds(asked):
            for unique, one in list(self.waiting):
                if one.whole and one.node == asked.node:
                    self.waiting.remove((unique, one))
                    self.held.append(one)
                    self.answer(unique, 0)
        super().put(asked)

    def holds(self, asked: Held) -> bool:
        return any(one.whole and one.node == asked.node and one.owner == asked.owner for one in self.held)


@mutant(
    "flock-interrupted-waits-on | flock(2) [EINTR] | a wait that a signal ended is granted the lock later"
)
class FlockInterruptedWaitsOn(Locking):
    def interrupt(self, unique: int) -> None:
        if any(one.whole for number, one in self.waiting if number == unique):
            self.answer(unique, errno.EINTR)
        else:
            super().interrupt(unique)
