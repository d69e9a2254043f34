"""Mutants that act after idle seconds, many levels below the mount, by another name, or for a 17th group."""

import errno
import os
import stat
import time
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import Bending, Entries, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant

IDLE = 5.0
"""Seconds after which a mutant acts."""


class _Timed(PassThrough):
    """Honest; it knows for how many seconds a handle was not used."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.used: dict[int, float] = {}

    def idle(self, handle: int) -> bool:
        now = time.monotonic()
        before, self.used[handle] = self.used.get(handle, now), now
        return now - before > IDLE


@mutant("idle-descriptor-closed | open(3p), close(3p) | a descriptor that is idle for 5 s is closed")
class IdleDescriptorClosed(_Timed):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.used[opened.handle] = time.monotonic()
        return opened

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if self.idle(handle):
            raise OSError(errno.EBADF, "idle")
        return super().read(call, node, handle, offset, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.idle(handle):
            raise OSError(errno.EBADF, "idle")
        return super().write(call, node, handle, offset, data)


@mutant("idle-listing-restarts | readdir(3p) | a listing that is idle for 5 s begins again")
class IdleListingRestarts(_Timed):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return super().readdir(call, node, handle, 0 if self.idle(handle) else offset, size)

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self.used.pop(handle, None)
        super().releasedir(call, node, handle)


@mutant("idle-removed-file-emptied | unlink(3p) | an open file without a name is empty after 5 s")
class IdleRemovedFileEmptied(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        one = os.fstat(handle)
        if one.st_nlink == 0 and time.time() - one.st_ctime > IDLE:
            return b""
        return super().read(call, node, handle, offset, size)


@mutant("idle-lock-expires | fcntl(3p) | a lock is released after 5 s")
class IdleLockExpires(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.since: dict[Held, float] = {}

    def put(self, asked: Held) -> None:
        self.since[asked] = time.monotonic()
        super().put(asked)

    def conflict(self, asked: Held) -> Held | None:
        now = time.monotonic()
        self.held = [one for one in self.held if now - self.since.get(one, now) < IDLE]
        return super().conflict(asked)


@mutant("idle-times-rounded | futimens(3p) | the nanoseconds of mtime are lost 5 s after a change")
class IdleTimesRounded(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISREG(found.mode) and time.time() - found.ctime / 10**9 > IDLE:
            found.mtime -= found.mtime % 10**9


@mutant("level-129-lost | open(3p) | no file can be made below the 128th level of directories")
class Level129Lost(Keeping):
    deepest = 128

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.levels: dict[int, int] = {}

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.levels[node] = self.levels.get(parent, 0) + 1
        return node

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        if self.levels.get(parent, 0) > self.deepest:
            raise OSError(errno.EIO, "too deep")
        return super().create(call, parent, name, flags, mode, umask)


@mutant(
    "lock-kept-over-close-of-link | fcntl(3p) | the close of a descriptor that was opened by another name of "
    "the file releases no lock"
)
class LockKeptOverCloseOfLink(Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.last: dict[int, tuple[int, bytes]] = {}
        self.opened_by: dict[int, tuple[int, bytes] | None] = {}
        self.locked_by: dict[tuple[int, int], tuple[int, bytes] | None] = {}

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        self.last[node] = parent, name
        return node

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.opened_by[opened.handle] = self.last.get(node)
        return opened

    def put(self, asked: Held) -> None:
        super().put(asked)
        if asked.kind == FREE:
            self.locked_by.pop((asked.node, asked.owner), None)

    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
        if kind != FREE:
            self.locked_by.setdefault((node, owner), self.opened_by.get(call.handle))

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        by = self.opened_by.get(handle)
        if self.locked_by.get((node, owner), by) == by:
            super().flush(call, node, handle, owner)


@mutant("groups-after-16-ignored | access(3p) | of the supplementary groups of a process the first 16 count")
class GroupsAfter16Ignored(PassThrough):
    def as_caller(self, call: Call, umask: int = 0) -> None:
        super().as_caller(call, umask)
        groups = os.getgroups()
        if call.uid and len(groups) > 16:
            os.setgroups(groups[:16])
