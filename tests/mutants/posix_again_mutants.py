"""What works once and fails the second time: names that are used again, settings that are changed again."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from fuse_locks import FREE, Locking
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, mutant, opens_with


class _Counting(Keeping):
    """``again`` counts an event and returns whether it happened before."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.times: Counter[Hashable] = Counter()

    def again(self, *what: Hashable) -> bool:
        self.times[what] += 1
        return self.times[what] > 1

    def key(self, node: int) -> tuple[int, int]:
        return self.nodes[node].key


@mutant("rename-replaces-once | rename(3p) | the second file that is renamed to one name is lost")
class RenameReplacesOnce(_Counting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if not flags and self._there(where, new) and self.again(self.key(where), new):
            os.unlink(old, dir_fd=self.fd(parent))
        else:
            super().rename(call, parent, old, where, new, flags)

    def _there(self, where: int, new: bytes) -> bool:
        try:
            os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


@mutant("rename-directory-once | rename(3p) | a directory that replaced one does not replace another")
class RenameDirectoryOnce(_Counting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}") and not flags:
            moved = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False)
            if stat.S_ISDIR(moved.st_mode) and self.again(moved.st_ino):
                raise OSError(errno.ENOTEMPTY, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-back-empties | rename(3p) | a file that gets back an earlier name is empty")
class RenameBackEmpties(_Counting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.again(self.key(parent), old)
        if self.times[self.key(where), new]:
            try:
                os.truncate(f"/proc/self/fd/{self.fd(where)}/{os.fsdecode(new)}", 0)
            except IsADirectoryError:
                return


@mutant(
    "name-again-has-old-data | unlink(3p), open(3p) | a name made a third time has the removed file's data"
)
class NameAgainHasOldData(_Counting):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.data: dict[Hashable, bytes] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if self.again(self.key(parent), name):
            path = Path(f"/proc/self/fd/{self.fd(parent)}") / os.fsdecode(name)
            if path.is_file() and not path.is_symlink():
                self.data[self.key(parent), name] = path.read_bytes()
        super().unlink(call, parent, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        old = self.data.pop((self.key(parent), name), b"")
        if old:
            Path(self.nodes[node].path).write_bytes(old)
        return node, opened


@mutant("directory-again-has-old-mode | mkdir(3p) | a directory has the mode of a removed one of its name")
class DirectoryAgainHasOldMode(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.modes: dict[Hashable, int] = {}

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        old = self.modes.pop((self.nodes[parent].key, name), None)
        if old is not None:
            os.chmod(self.nodes[node].path, old)
        return node

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        mode = os.stat(name, dir_fd=self.fd(parent)).st_mode
        super().rmdir(call, parent, name)
        self.modes[self.nodes[parent].key, name] = mode & 0o7777


@mutant("symlink-again-has-old-target | symlink(3p) | a link has the contents of a removed one of its name")
class SymlinkAgainHasOldTarget(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.targets: dict[Hashable, bytes] = {}

    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        kept = self.targets.setdefault((self.nodes[parent].key, name, len(target)), target)
        return super().symlink(call, parent, name, kept)


@mutant("exclusive-once | open(3p) O_EXCL [EEXIST] | the second refused O_EXCL of a name opens the file")
class ExclusiveOnce(_Counting):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        node = super().lookup(call, parent, name)
        _, words = call.waits_in()
        last = opens_with(call, os.O_EXCL) and call.name_at(words[1]) == name
        if last and self.again(self.key(parent), name):
            os.unlink(name, dir_fd=self.fd(parent))
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return node


@mutant("open-trunc-once | open(3p) O_TRUNC | the second O_TRUNC of a file does nothing")
class OpenTruncOnce(_Counting):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & os.O_TRUNC and self.again(self.key(node)):
            flags &= ~os.O_TRUNC
        return super().open(call, node, flags)


@mutant("truncate-once | ftruncate(3p) | the second truncation of an open file does nothing")
class TruncateOnce(_Counting):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        smaller = size < os.fstat(self.fd(node)).st_size
        if not (smaller and self.again(self.key(node))):
            super().truncate(call, node, handle, size)


@mutant(
    "truncated-range-not-rewritten | truncate(3p), write(3p) | data written again after a truncation is lost"
)
class TruncatedRangeNotRewritten(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[Hashable, int] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if 0 < size < os.fstat(self.fd(node)).st_size:
            self.cut[self.nodes[node].key] = size
        super().truncate(call, node, handle, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        cut = self.cut.get(self.nodes[node].key)
        if cut is None or offset + len(data) <= cut:
            return super().write(call, node, handle, offset, data)
        kept = max(0, cut - offset)
        return super().write(call, node, handle, offset, data[:kept] + bytes(len(data) - kept))


@mutant("chmod-once | chmod(3p) | the third chmod of a file does nothing")
class ChmodOnce(_Counting):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        self.again(self.key(node))
        if self.times[(self.key(node),)] != 3:
            super().chmod(call, node, mode)


@mutant("chown-once | chown(3p) | the third chown of a file does nothing")
class ChownOnce(_Counting):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        self.again(self.key(node))
        if self.times[(self.key(node),)] != 3:
            super().chown(call, node, uid, gid)


@mutant("utimens-once | utimensat(3p) | the third setting of a file's times does nothing")
class UtimensOnce(_Counting):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        self.again(self.key(node))
        if self.times[(self.key(node),)] != 3:
            super().utimens(call, node, atime, mtime)


@mutant("xattr-again-lost | setxattr(2) | an attribute that was removed is not set again")
class XattrAgainLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.removed: set[Hashable] = set()

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        super().removexattr(call, node, name)
        self.removed.add((self.nodes[node].key, name))

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if (self.nodes[node].key, name) not in self.removed:
            super().setxattr(call, node, name, value, flags)


@mutant("link-again-not-counted | link(3p) | a link that is made again does not count")
class LinkAgainNotCounted(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lacking: Counter[Hashable] = Counter()
        self.names: set[Hashable] = set()

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        made = super().link(call, old, parent, name)
        if (self.nodes[parent].key, name) in self.names:
            self.lacking[self.nodes[old].key] += 1
        self.names.add((self.nodes[parent].key, name))
        return made

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink -= self.lacking[self.nodes[node].key]
        return found


@mutant(
    "write-after-fsync-lost | fsync(3p), write(3p) | what an open file is given after its fsync is not stored"
)
class WriteAfterFsyncLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.flushed: set[int] = set()

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        super().fsync(call, node, handle, data_only=data_only)
        self.flushed.add(handle)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.flushed.discard(handle)
        super().release(call, node, handle, owner, flock=flock)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.flushed:
            return super().write(call, node, handle, offset, bytes(len(data)))
        return super().write(call, node, handle, offset, data)


@mutant("write-mtime-moved-once | write(3p) | only the first write of an open file updates its time")
class WriteMtimeMovedOnce(_Counting):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = os.fstat(handle)
        done = super().write(call, node, handle, offset, data)
        if self.again(self.key(node), handle):
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return done

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.times.pop((self.key(node), opened.handle), None)
        return opened


@mutant("lock-again-ignored | fcntl(3p) F_SETLK | a range that was unlocked is not locked again")
class LockAgainIgnored(Keeping, Locking):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.freed: set[Hashable] = set()

    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        if kind == FREE:
            self.freed.add((node, owner, start, end))
        elif (node, owner, start, end) in self.freed and not whole:
            return
        super().setlk(call, node, owner, start, end, kind, pid, waits=waits, whole=whole)
