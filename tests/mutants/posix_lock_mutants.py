"""Locks: given to two, kept for ever, of the wrong range, or said to be free."""

from __future__ import annotations

import errno
from dataclasses import replace

from fuse_locks import FREE, LAST, READ, WRITE, Held, Locking
from fuse_protocol import Call
from posix_rules import mutant


@mutant("lock-ignored", "fcntl(3p) F_SETLK [EAGAIN]", "every record lock is given to everybody")
class LockIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(asked) if asked.whole else None


@mutant("flock-ignored", "flock(2) [EWOULDBLOCK]", "every lock of a file is given to everybody")
class FlockIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return None if asked.whole else super().conflict(asked)


@mutant("lock-shared-admits-writer", "fcntl(3p) F_RDLCK", "a write lock is given beside another's read lock")
class LockSharedAdmitsWriter(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        return None if found is not None and found.kind == READ else found


@mutant("lock-writer-admits-shared", "fcntl(3p) F_WRLCK", "a read lock is given beside another's write lock")
class LockWriterAdmitsShared(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return None if asked.kind == READ else super().conflict(asked)


@mutant("lock-shared-excludes", "fcntl(3p) F_RDLCK", "two read locks exclude each other")
class LockSharedExcludes(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return next((one for one in self.held if one.owner != asked.owner and one.meets(asked)), None)


@mutant("lock-range-ignored", "fcntl(3p) l_start, l_len", "a lock of some bytes locks the whole file")
class LockRangeIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(replace(asked, start=0, end=LAST))


@mutant("lock-end-cut", "fcntl(3p) l_len 0", "a lock to the end of the file ends at 4 GiB")
class LockEndCut(Locking):
    def put(self, asked: Held) -> None:
        whole = asked.whole or asked.kind == FREE
        super().put(asked if whole else replace(asked, end=min(asked.end, (1 << 32) - 1)))


@mutant("unlock-ignored", "fcntl(3p) F_UNLCK", "a lock that is given up is still held")
class UnlockIgnored(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int, *,
        waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        if kind != FREE:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)


@mutant("unlock-part-unlocks-all", "fcntl(3p) F_UNLCK", "giving up some bytes gives up the whole lock")
class UnlockPartUnlocksAll(Locking):
    def put(self, asked: Held) -> None:
        super().put(replace(asked, start=0, end=LAST) if asked.kind == FREE else asked)


@mutant("lock-kept-over-close", "fcntl(3p), close(3p)", "a close leaves the process's locks")
class LockKeptOverClose(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        """Keep them."""


@mutant("lock-conversion-refused", "fcntl(3p) F_SETLK", "a process's own lock stands in its way")
class LockConversionRefused(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        return found or next((one for one in self.held if one.meets(asked) and one.kind != asked.kind), None)


@mutant("getlk-says-free", "fcntl(3p) F_GETLK", "F_GETLK says that a locked range is free")
class GetlkSaysFree(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        return start, end, FREE, 0


@mutant("getlk-wrong-range", "fcntl(3p) F_GETLK", "F_GETLK says that the whole file is locked")
class GetlkWrongRange(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        *_, found, pid = super().getlk(call, node, owner, start, end, kind)
        return (start, end, found, pid) if found == FREE else (0, LAST, found, pid)


@mutant("lock-wait-refused", "fcntl(3p) F_SETLKW", "who would wait for a lock is refused")
class LockWaitRefused(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int, *,
        waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        super().setlk(call, node, owner, start, end, kind, pid, waits=False, whole=whole)


@mutant("lock-wrong-errno", "fcntl(3p) F_SETLK [EAGAIN]", "a lock that another holds gives EIO")
class LockWrongErrno(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int, *,
        waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        try:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        except BlockingIOError:
            raise OSError(errno.EIO, "lock") from None


@mutant(
    "lock-write-only", "fcntl(3p) F_SETLK", "of two locks of one owner that meet, the first stays as it was"
)
class LockWriteOnly(Locking):
    def put(self, asked: Held) -> None:
        mine = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        if asked.kind == READ and any(one.kind == WRITE for one in mine):
            return
        super().put(asked)
