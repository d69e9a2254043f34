"""Locks kept by the file system (fcntl(2), flock(2)), where the kernel would keep them itself.

Honest, like :mod:`fuse_passthrough`: locks of one owner replace each other, others' conflict unless both are
shared, who waits is answered when he can have it, a close gives up what its owner held.
"""

from __future__ import annotations

import errno
import fcntl
from dataclasses import dataclass, replace
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import FLOCK_LOCKS, POSIX_LOCKS, Call, Init, Later

READ, WRITE, FREE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
LAST = (1 << 63) - 1
"""OFFSET_MAX: the last byte of a lock without an end."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lock on the bytes ``start`` to ``end``, both included; ``whole``: one of flock's."""

    node: int
    owner: int
    start: int
    end: int
    kind: int
    pid: int
    whole: bool

    def meets(self, other: Held) -> bool:
        return (
            self.node == other.node
            and self.whole == other.whole
            and self.start <= other.end
            and other.start <= self.end
        )


class UnlocksAtClose(PassThrough):
    """What is the same wherever the locks are kept: a close gives up what its owner held."""

    init = Init(POSIX_LOCKS | FLOCK_LOCKS)

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.through: dict[int, set[int]] = {}
        """Open file → the owners of locks that were asked through it."""

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        self.give_up(node, owner, whole=False)
        super().flush(call, node, handle, owner)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        if flock:
            self.give_up(node, owner, whole=True)
        # The last close: the kernel sends no other request for open file description locks (F_OFD_SETLK).
        for one in self.through.pop(handle, ()):
            self.give_up(node, one, whole=False)
        super().release(call, node, handle, owner, flock=flock)

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        """Give up what ``owner`` holds: a close."""
        raise NotImplementedError


class Locking(UnlocksAtClose):
    """An honest pass-through that keeps the locks."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.held: list[Held] = []
        self.waiting: list[tuple[int, Held]] = []

    def conflict(self, asked: Held) -> Held | None:
        """Return a lock that conflicts."""
        return next(
            (
                one
                for one in self.held
                if one.owner != asked.owner and one.meets(asked) and WRITE in (one.kind, asked.kind)
            ),
            None,
        )

    def put(self, asked: Held) -> None:
        """Give ``asked``, or give up its range, whatever others hold."""
        kept = []
        for one in self.held:
            if one.owner != asked.owner or not one.meets(asked):
                kept.append(one)
                continue
            if one.start < asked.start:
                kept.append(replace(one, end=asked.start - 1))
            if one.end > asked.end:
                kept.append(replace(one, start=asked.end + 1))
        self.held = kept if asked.kind == FREE else [*kept, asked]
        self.grant()

    def grant(self) -> None:
        """Give what waits and need not any more."""
        for unique, asked in list(self.waiting):
            if (unique, asked) in self.waiting and self.conflict(asked) is None:
                self.waiting.remove((unique, asked))
                self.put(asked)
                self.answer(unique, 0)

    def would_wait_for_itself(self, asked: Held, seen: frozenset[int] = frozenset()) -> bool:
        """Whether a holder of a conflicting lock waits, also indirectly, for the requesting process."""
        for one in self.held:
            if one.owner == asked.owner or not one.meets(asked) or WRITE not in (one.kind, asked.kind):
                continue
            for _, other in self.waiting:
                if other.owner != one.owner or other.owner in seen:
                    continue
                behind = replace(other, owner=other.owner)
                if any(
                    mine.owner == asked.owner and mine.meets(behind) and WRITE in (mine.kind, behind.kind)
                    for mine in self.held
                ):
                    return True
                if self.would_wait_for_itself(behind, seen | {other.owner}):
                    return True
        return False

    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        found = self.conflict(Held(node, owner, start, end, kind, 0, whole=False))
        return (start, end, FREE, 0) if found is None else (found.start, found.end, found.kind, found.pid)

    def setlk(
        self,
        call: Call,
        node: int,
        owner: int,
        start: int,
        end: int,
        kind: int,
        pid: int,
        *,
        waits: bool,
        whole: bool,
    ) -> None:
        self.through.setdefault(call.handle, set()).add(owner)
        asked = Held(node, owner, 0 if whole else start, LAST if whole else end, kind, pid, whole)
        if kind == FREE or self.conflict(asked) is None:
            self.put(asked)
        elif not waits:
            raise BlockingIOError(errno.EAGAIN, "locked")
        elif not whole and self.would_wait_for_itself(asked):
            raise OSError(errno.EDEADLK, "lock")
        else:
            self.waiting.append((call.unique, asked))
            raise Later

    def interrupt(self, unique: int) -> None:
        for one in [one for one in self.waiting if one[0] == unique]:
            self.waiting.remove(one)
            self.answer(unique, errno.EINTR)

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        self.put(Held(node, owner, 0, LAST, FREE, 0, whole))
