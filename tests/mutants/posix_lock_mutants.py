"""Locks: granted twice, never released, of the wrong range, or reported as free."""

import errno
from dataclasses import replace

from fuse_locks import FREE, LAST, READ, WRITE, Held, Locking
from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import asked_by, mutant


@mutant("lock-ignored | fcntl(3p) F_SETLK [EAGAIN] | every record lock request is granted")
class LockIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(asked) if asked.whole else None


@mutant("flock-ignored | flock(2) [EWOULDBLOCK] | every flock request is granted")
class FlockIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return None if asked.whole else super().conflict(asked)


@mutant(
    "lock-shared-admits-writer | fcntl(3p) F_RDLCK | "
    "a write lock is granted despite another process's read lock"
)
class LockSharedAdmitsWriter(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        return None if found is not None and found.kind == READ else found


@mutant(
    "lock-writer-admits-shared | fcntl(3p) F_WRLCK | "
    "a read lock is granted despite another process's write lock"
)
class LockWriterAdmitsShared(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return None if asked.kind == READ else super().conflict(asked)


@mutant("lock-shared-excludes | fcntl(3p) F_RDLCK | two read locks exclude each other")
class LockSharedExcludes(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return next((one for one in self.held if one.owner != asked.owner and one.meets(asked)), None)


@mutant("lock-range-ignored | fcntl(3p) l_start, l_len | a lock of a range locks the whole file")
class LockRangeIgnored(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(replace(asked, start=0, end=LAST))


@mutant("lock-end-cut | fcntl(3p) l_len 0 | a lock to the end of the file ends at 4 GiB")
class LockEndCut(Locking):
    def put(self, asked: Held) -> None:
        whole = asked.whole or asked.kind == FREE
        super().put(asked if whole else replace(asked, end=min(asked.end, (1 << 32) - 1)))


@mutant("unlock-ignored | fcntl(3p) F_UNLCK | an unlocked range stays locked")
class UnlockIgnored(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int, *,
        waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        if kind != FREE:
            super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)


@mutant("unlock-part-unlocks-all | fcntl(3p) F_UNLCK | unlocking a part unlocks the whole lock")
class UnlockPartUnlocksAll(Locking):
    def put(self, asked: Held) -> None:
        super().put(replace(asked, start=0, end=LAST) if asked.kind == FREE else asked)


@mutant("lock-kept-over-close | fcntl(3p), close(3p) | a close does not release the process's locks")
class LockKeptOverClose(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        """Keep them."""


@mutant("lock-conversion-refused | fcntl(3p) F_SETLK | a process's own lock conflicts with its request")
class LockConversionRefused(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        return found or next((one for one in self.held if one.meets(asked) and one.kind != asked.kind), None)


@mutant("getlk-reports-free | fcntl(3p) F_GETLK | F_GETLK reports a locked range as free")
class GetlkReportsFree(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        return start, end, FREE, 0


@mutant("getlk-wrong-range | fcntl(3p) F_GETLK | F_GETLK reports the whole file as locked")
class GetlkWrongRange(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        *_, found, pid = super().getlk(call, node, owner, start, end, kind)
        return (start, end, found, pid) if found == FREE else (0, LAST, found, pid)


@mutant("lock-wait-refused | fcntl(3p) F_SETLKW | F_SETLKW returns an error instead of waiting")
class LockWaitRefused(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int, *,
        waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        super().setlk(call, node, owner, start, end, kind, pid, waits=False, whole=whole)


@mutant("lock-wrong-errno | fcntl(3p) F_SETLK [EAGAIN] | a conflicting lock returns EIO")
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
    "lock-write-only | fcntl(3p) F_SETLK | of two overlapping locks of one owner, the first does not change"
)
class LockWriteOnly(Locking):
    def put(self, asked: Held) -> None:
        mine = [one for one in self.held if one.owner == asked.owner and one.meets(asked)]
        if asked.kind == READ and any(one.kind == WRITE for one in mine):
            return
        super().put(asked)


@mutant("flock-upgrade-over-shared | flock(2) [EWOULDBLOCK] | a shared lock becomes exclusive over others'")
class FlockUpgradeOverShared(Locking):
    def conflict(self, asked: Held) -> Held | None:
        found = super().conflict(asked)
        mine = any(one.owner == asked.owner and one.meets(asked) for one in self.held)
        return None if asked.whole and mine and found is not None and found.kind == READ else found


@mutant("lock-downgrade-wakes-none | fcntl(3p) F_SETLKW | a reader is not woken by a downgrade")
class LockDowngradeWakesNone(Locking):
    def grant(self) -> None:
        if not self.held or self.held[-1].kind != READ:
            super().grant()


@mutant("lock-outlives-process | fcntl(3p) | locks of a process that ended with the file open stay")
class LockOutlivesProcess(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        number, _ = call.waits_in()
        if number >= 0 and not asked_by(call, "exit_group"):
            self.give_up(node, owner, whole=False)
        PassThrough.flush(self, call, node, handle, owner)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        if flock:
            self.give_up(node, owner, whole=True)
        PassThrough.release(self, call, node, handle, owner, flock=flock)
