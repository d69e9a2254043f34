"""Mutants between two clients: parts of locks, conversions of locks, and data under a second lock."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from fuse_locks import FREE, LAST, READ, WRITE, Held, Locking
from fuse_locks_below import LocksBelow
from fuse_passthrough import Attributes
from fuse_protocol import Call, Opened
from posix_rules import mutant as enter
from shared_repeated_mutants import MUTANTS as REPEATED

MUTANTS = dict(REPEATED)
apart = partial(enter, table=MUTANTS, apart=True)
together = partial(enter, table=MUTANTS)
FOUR_GIB = 1 << 32


@apart("two-lock-to-the-end-4-gib | fcntl(2) l_len | a lock without an end reaches to 4 GiB")
class TwoLockToTheEnd4Gib(LocksBelow):
    def put(self, asked: Held) -> bool:
        if not asked.whole and asked.kind != FREE and asked.end == LAST and asked.start < FOUR_GIB:
            asked = replace(asked, end=FOUR_GIB - 1)
        return super().put(asked)


@together(
    "lock-part-not-downgraded | RFC 7530 9.3 | a read lock on a part of one's write lock changes nothing"
)
class LockPartNotDowngraded(Locking):
    def put(self, asked: Held) -> None:
        own = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        part = any(one.kind == WRITE and one.start < asked.start and asked.end < one.end for one in own)
        if asked.whole or asked.kind != READ or not part:
            super().put(asked)


@together("unlock-of-many-frees-one | fcntl(2) | an unlock over several locks releases the first of them")
class UnlockOfManyFreesOne(Locking):
    def put(self, asked: Held) -> None:
        own = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        if asked.kind == FREE and (asked.start, asked.end) != (0, LAST) and len(own) > 1:
            asked = replace(asked, start=max(asked.start, own[0].start), end=min(asked.end, own[0].end))
        super().put(asked)


@together(
    "lock-wait-for-the-very-range | fcntl(2) F_SETLKW | an unlock grants those who wait for the same range"
)
class LockWaitForTheVeryRange(Locking):
    _freed: tuple[int, int] | None = None

    def put(self, asked: Held) -> None:
        self._freed = (asked.start, asked.end) if asked.kind == FREE else None
        super().put(asked)

    def grant(self) -> None:
        waiting = [(one.start, one.end) for _, one in self.waiting]
        if self._freed == (0, LAST) or self._freed in waiting:
            super().grant()


@together("flock-shared-becomes-exclusive | flock(2) | a conversion is granted, whatever others hold")
class FlockSharedBecomesExclusive(Locking):
    def conflict(self, asked: Held) -> Held | None:
        own = any(one.owner == asked.owner and one.whole and one.meets(asked) for one in self.held)
        return None if asked.whole and own else super().conflict(asked)


class _Quiet(Locking):
    """While ``_quiet``, no lock is granted to who waits."""

    _quiet = False

    def grant(self) -> None:
        if not self._quiet:
            super().grant()


@together(
    "flock-unlock-wakes-none | flock(2) LOCK_UN | a lock that is released is granted to no one who waits"
)
class FlockUnlockWakesNone(_Quiet):
    def put(self, asked: Held) -> None:
        self._quiet = asked.whole and asked.kind == FREE and not self._closing
        super().put(asked)
        self._quiet = False

    _closing = False

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        self._closing = True
        super().give_up(node, owner, whole=whole)
        self._closing = False


@together("flock-close-wakes-none | flock(2), close(2) | a lock that ends with a close is granted to no one")
class FlockCloseWakesNone(_Quiet):
    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self._quiet = flock
        super().release(call, node, handle, owner, flock=flock)
        self._quiet = False


class _Kept(LocksBelow):
    """Honest; it keeps every node, and has a table of what this mount knows."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""


@apart("two-second-lock-reads-old | RFC 7530 10.3.2 | while a lock of the file is held no other revalidates")
class TwoSecondLockReadsOld(_Kept):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        known: dict[tuple[int, int, int], bytes] = self.__dict__.setdefault("known", {})
        return known.setdefault((node, offset, size), data)

    def unlearn(self, node: int) -> None:
        """Revalidate all data of the file."""
        self.__dict__["known"] = {k: v for k, v in self.__dict__.get("known", {}).items() if k[0] != node}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.unlearn(node)
        return super().open(call, node, flags)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.unlearn(node)
        return super().write(call, node, handle, offset, data)

    def put(self, asked: Held) -> bool:
        locked: set[tuple[int, int, int]] = self.__dict__.setdefault("locked", set())
        if not any(node == asked.node for node, _, _ in locked):
            self.unlearn(asked.node)
        key = asked.node, asked.start, asked.end
        done = super().put(asked)
        if done:
            (locked.discard if asked.kind == FREE else locked.add)(key)
        return done


@apart("two-downgrade-keeps-data | RFC 7530 10.3.2 | data are sent at an unlock, and not at a downgrade")
class TwoDowngradeKeepsData(_Kept):
    @property
    def dirty(self) -> dict[int, list[tuple[int, bytes]]]:
        table: dict[int, list[tuple[int, bytes]]] = self.__dict__.setdefault("dirty_data", {})
        return table

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if node not in self.__dict__.get("locked", ()):
            return super().write(call, node, handle, offset, data)
        self.dirty.setdefault(node, []).append((offset, bytes(data)))
        return len(data)

    def send(self, node: int) -> None:
        """Write what was kept back."""
        for offset, data in self.dirty.pop(node, []):
            self.reset_ids()
            fd = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(fd, data, offset)
            os.close(fd)

    def put(self, asked: Held) -> bool:
        locked: set[int] = self.__dict__.setdefault("locked", set())
        if asked.kind != READ:
            self.send(asked.node)
        done = super().put(asked)
        if done and asked.kind == WRITE:
            locked.add(asked.node)
        elif done and asked.kind == FREE:
            locked.discard(asked.node)
        return done

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.send(node)
        super().flush(call, node, handle, owner)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.size = max([found.size, *(offset + len(data) for offset, data in self.dirty.get(node, []))])
        return found
