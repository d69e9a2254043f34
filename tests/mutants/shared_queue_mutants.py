"""Mutants between two clients: several requests for locks that wait or are interrupted; data and names."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_locks_below import LocksBelow
from fuse_protocol import Call, Created
from posix_rules import mutant as enter
from shared_round_mutants import MUTANTS as ROUNDS

MUTANTS = dict(ROUNDS)
together = partial(enter, table=MUTANTS)
apart = partial(enter, table=MUTANTS, apart=True)


class _Interrupted(Locking):
    """Honest; it notes the requests that were interrupted."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.stopped: list[Held] = []

    def interrupt(self, unique: int) -> None:
        stopped = [asked for one, asked in self.waiting if one == unique]
        super().interrupt(unique)
        self.stopped += stopped
        for asked in stopped:
            self.after(asked)

    def after(self, asked: Held) -> None:
        """Break the rule."""


@together(
    "interrupted-request-queued | fcntl(3p) F_SETLKW | who waits behind an interrupted request waits forever"
)
class InterruptedRequestQueued(_Interrupted):
    def grant(self) -> None:
        kept = [one for one in self.waiting if any(asked.meets(one[1]) for asked in self.stopped)]
        self.waiting = [one for one in self.waiting if one not in kept]
        super().grant()
        self.waiting = kept + self.waiting


@together(
    "interrupted-request-takes-others | fcntl(3p) EINTR | all that wait for the range are given up with it"
)
class InterruptedRequestTakesOthers(_Interrupted):
    def after(self, asked: Held) -> None:
        for unique, other in list(self.waiting):
            if other.meets(asked):
                self.interrupt(unique)


@together(
    "interrupted-request-granted-later | fcntl(3p) EINTR | who was interrupted gets the lock when it is free"
)
class InterruptedRequestGrantedLater(_Interrupted):
    def grant(self) -> None:
        for asked in [one for one in self.stopped if self.conflict(one) is None]:
            self.stopped.remove(asked)
            if Path(f"/proc/{asked.pid}").exists():
                self.held.append(asked)
        super().grant()


@together(
    "interrupted-request-unlocks | fcntl(3p) F_SETLKW | an interrupted request releases what is on its range"
)
class InterruptedRequestUnlocks(_Interrupted):
    def after(self, asked: Held) -> None:
        self.put(replace(asked, kind=FREE))


@together("unlock-grants-one | fcntl(3p) F_SETLKW | of those that wait to share an unlock grants one")
class UnlockGrantsOne(Locking):
    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if self.conflict(asked) is None:
                self.waiting.remove((unique, asked))
                self.held.append(asked)
                self.answer(unique, 0)
                return


@together("waiting-holder-is-a-deadlock | fcntl(2) EDEADLK | who holds a lock of the file may not wait")
class WaitingHolderIsADeadlock(Locking):
    def would_wait_for_itself(self, asked: Held, seen: frozenset[int] = frozenset()) -> bool:
        own = any(one.owner == asked.owner and one.node == asked.node for one in self.held)
        return own or super().would_wait_for_itself(asked, seen)


@apart("two-creat-loses-the-race | open() O_CREAT | EEXIST if another made the file since the client looked")
class TwoCreatLosesTheRace(LocksBelow):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        time.sleep(0.003)  # a server's commit, in which the other client is as far
        return super().create(call, parent, name, flags | os.O_EXCL, mode, umask)


@apart("two-locked-msync-keeps-data | msync(2) | what msync() writes under a lock is sent at the close")
class TwoLockedMsyncKeepsData(LocksBelow):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.locked: set[int] = set()
        self.kept: dict[int, list[tuple[int, bytes]]] = {}

    def put(self, asked: Held) -> bool:
        done = super().put(asked)
        if done:
            (self.locked.discard if asked.kind == FREE else self.locked.add)(asked.node)
        return done

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not call.from_cache or node not in self.locked:
            return super().write(call, node, handle, offset, data)
        self.kept.setdefault(node, []).append((offset, bytes(data)))
        return len(data)

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        for offset, data in self.kept.pop(node, []):
            self.reset_ids()
            file = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(file, data, offset)
            os.close(file)
        super().flush(call, node, handle, owner)

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""
