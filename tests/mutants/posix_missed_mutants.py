"""Mutants of cuts at sectors, synchronised writes, set-ID bits and locks (second blind set).

The rules:

- ftruncate(): what was cut does not come back, wherever the cut is.
- write(), O_SYNC: all bytes that are counted are stored.
- chown(): an unprivileged one clears the set-ID bits, also if the IDs stay.
- fcntl(): F_GETLK describes the lock that it finds, and an unlock grants all requests that can be satisfied.
"""

import os
import stat
from pathlib import Path

from fuse_locks import Locking
from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, mutant

_SECTOR, _PAGE = 512, 4096
_MOST = 64 * 1024


@mutant(
    "cut-at-sector-returns | ftruncate(3p) | a cut at a sector's end keeps the rest of the page for a growth"
)
class CutAtSectorReturns(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._rest: dict[int, tuple[int, bytes]] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        path = self.nodes[node].path
        self.reset_ids()
        descriptor = os.open(path, os.O_RDWR)
        try:
            before = os.fstat(descriptor).st_size
            end = min(before, -(-size // _PAGE) * _PAGE)
            is_cut = size < before and size % _SECTOR == 0
            rest = os.pread(descriptor, max(0, end - size), size) if is_cut else b""
            super().truncate(call, node, handle, size)
            at, kept = self._rest.pop(node, (before, b""))
            if size > before == at and kept:
                os.pwrite(descriptor, kept[: size - before], before)
            elif rest:
                self._rest[node] = (size, rest)
        finally:
            os.close(descriptor)


@mutant("sync-write-64-kib | write(3p) DESCRIPTION | of a synchronised write 64 KiB are stored")
class SyncWrite64KiB(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._synchronised: set[int] = set()

    def _note(self, opened: Opened, flags: int) -> None:
        if flags & os.O_DSYNC:  # O_SYNC has its bit, too
            self._synchronised.add(opened.handle)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self._note(opened, flags)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self._note(opened, flags)
        return node, opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = data[:_MOST] if handle in self._synchronised else data
        return super().write(call, node, handle, offset, kept) + len(data) - len(kept)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self._synchronised.discard(handle)
        super().release(call, node, handle, owner, flock=flock)


@mutant("setuid-kept-on-same-owner | chown(3p) | the set-ID bits stay if owner and group do")
class SetuidKeptOnSameOwner(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        before = os.fstat(self.fd(node))
        super().chown(call, node, uid, gid)
        if call.uid and uid in (-1, before.st_uid) and gid in (-1, before.st_gid):
            self.reset_ids()
            os.chmod(self.nodes[node].path, stat.S_IMODE(before.st_mode))


@mutant("getlk-cut-to-request | fcntl(3p) F_GETLK | of a lock only the part that was asked is described")
class GetlkCutToRequest(Locking):
    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        first, last, found, pid = super().getlk(call, node, owner, start, end, kind)
        return max(first, start), min(last, end), found, pid


@mutant("lock-wakes-first-waiter | fcntl(3p) F_SETLKW | an unlock grants only the first request that waits")
class LockWakesFirstWaiter(Locking):
    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if self.conflict(asked) is None:
                self.waiting.remove((unique, asked))
                self.held.append(asked)
                self.answer(unique, 0)
                return
