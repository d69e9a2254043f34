"""Requests that wait in a queue, locks that go with names, and times of symbolic links."""

import errno
import os
import stat
from dataclasses import replace

from fuse_locks import LAST, READ, WRITE, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call, Opened
from posix_rules import mutant


@mutant("lock-reader-behind-waiter | fcntl() F_RDLCK | while a writer waits, a shared lock is refused")
class LockReaderBehindWaiter(Locking):
    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        asked = Held(node, owner, 0 if whole else start, LAST if whole else end, kind, pid, whole)
        if kind == READ and any(one.kind == WRITE and one.meets(asked) for _, one in self.waiting):
            raise BlockingIOError(errno.EAGAIN, "locked")
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)


@mutant("lock-queue-in-order | fcntl() F_SETLKW | who waits is granted after all who waited before")
class LockQueueInOrder(Locking):
    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if self.conflict(asked) is not None:
                return
            if (unique, asked) in self.waiting:
                self.waiting.remove((unique, asked))
                self.put(asked)
                self.answer(unique, 0)


@mutant("lock-lost-at-directory-rename | rename() | the rename of a directory releases the locks below it")
class LockLostAtDirectoryRename(Locking):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        mode = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(mode):
            self.held = []


@mutant("lock-exchanged-by-name | RENAME_EXCHANGE | the locks of two files are exchanged with their names")
class LockExchangedByName(Locking):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        other = {}
        if flags & 2:  # RENAME_EXCHANGE
            first, second = self.node_at(self.fd(parent), old), self.node_at(self.fd(where), new)
            other = {first: second, second: first}
        super().rename(call, parent, old, where, new, flags)
        self.held = [replace(one, node=other.get(one.node, one.node)) for one in self.held]


@mutant("symlink-times-in-seconds | utimensat() | times of a symbolic link lose their nanoseconds")
class SymlinkTimesInSeconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if stat.S_ISLNK(os.fstat(self.fd(node)).st_mode) and isinstance(mtime, int):
            mtime -= mtime % 10**9
        super().utimens(call, node, atime, mtime)


@mutant("unlink-of-link-leaves-times | unlink() | of a symbolic link leaves mtime of the directory")
class UnlinkOfLinkLeavesTimes(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        found = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        before = os.fstat(self.fd(parent))
        super().unlink(call, parent, name)
        if stat.S_ISLNK(found.st_mode):
            self.reset_ids()
            os.utime(self.nodes[parent].path, ns=(before.st_atime_ns, before.st_mtime_ns))


@mutant("renamed-open-directory-empty | readdir() | an open directory has no entries after its rename")
class RenamedOpenDirectoryEmpty(PassThrough):
    def opendir(self, call: Call, node: int) -> Opened:
        opened = super().opendir(call, node)
        self.__dict__.setdefault("directories", {})[opened.handle] = node
        self.__dict__.setdefault("moved", set()).discard(opened.handle)
        return opened

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        node = self.node_at(self.fd(where), new)
        handles = {handle for handle, one in self.__dict__.get("directories", {}).items() if one == node}
        self.__dict__.setdefault("moved", set()).update(handles)

    def releasedir(self, call: Call, node: int, handle: int) -> None:
        self.__dict__.setdefault("directories", {}).pop(handle, None)
        super().releasedir(call, node, handle)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        if handle in self.__dict__.get("moved", ()):
            return []
        return super().readdir(call, node, handle, offset, size)


@mutant(
    "lock-chain-is-deadlock | fcntl(3p) [EDEADLK] | EDEADLK if the holder of the lock waits for any other"
)
class LockChainIsDeadlock(Locking):
    def would_wait_for_itself(self, asked: Held, seen: frozenset[int] = frozenset()) -> bool:
        holder = self.conflict(asked)
        return holder is not None and any(other.owner == holder.owner for _, other in self.waiting)
