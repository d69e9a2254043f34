"""Mutants of rare flags, of large sizes and offsets, of files without a name and of what a rename leaves."""

import errno
import os
import stat
from collections import Counter
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import Attributes, Call, Opened
from posix_rules import Keeping, mutant

MIB, GIB4 = 1 << 20, 1 << 32
PUNCH_HOLE, ZERO_RANGE, EXCHANGE = 2, 16, 2
XATTR_CREATE, XATTR_REPLACE = 1, 2


# Rare flags


@mutant("xattr-remove-absent | removexattr(2) | the removal of an absent attribute succeeds")
class XattrRemoveAbsent(PassThrough):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        try:
            super().removexattr(call, node, name)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise


@mutant("sticky-ignored-by-rename | rename(3p) | another user's file in a sticky directory is renamed")
class StickyIgnoredByRename(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if os.fstat(self.fd(parent)).st_mode & stat.S_ISVTX:
            self.reset_ids()
            os.rename(old, new, src_dir_fd=self.fd(parent), dst_dir_fd=self.fd(where))
            return
        super().rename(call, parent, old, where, new, flags)


# Large sizes and offsets


@mutant("punch-first-mib | fallocate(2) | a hole of more than 1 MiB is punched in its first MiB")
class PunchFirstMib(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        kept = min(length, MIB) if mode & PUNCH_HOLE else length
        super().fallocate(call, node, handle, offset, kept, mode)


@mutant("zeroed-first-mib | fallocate(2) | FALLOC_FL_ZERO_RANGE of more than 1 MiB zeroes its first MiB")
class ZeroedFirstMib(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        kept = min(length, MIB) if mode & ZERO_RANGE else length
        super().fallocate(call, node, handle, offset, kept, mode)


@mutant("fallocate-32-bits | posix_fallocate(3p) | the offset of fallocate has 32 bits")
class Fallocate32Bits(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset % GIB4, length, mode)


@mutant("write-31-bits | pwrite(3p) | the offset of a write has 31 bits")
class Write31Bits(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return super().write(call, node, handle, offset % (1 << 31), data)


@mutant("write-256-lost | write(3p) | the 256th write through a descriptor is lost")
class Write256Lost(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.writes: Counter[int] = Counter()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        made = super().open(call, node, flags)
        self.writes[made.handle] = 0
        return made

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.writes[handle] += 1
        if self.writes[handle] == 256:
            return len(data)
        return super().write(call, node, handle, offset, data)


# Files without a name, and what an operation leaves


@mutant("unlinked-chmod-stale | fchmod(3p) | fchmod of a file without a name is ESTALE")
class UnlinkedChmodStale(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if not os.fstat(self.fd(node)).st_nlink:
            raise OSError(errno.ESTALE, "chmod")
        super().chmod(call, node, mode)


@mutant("unlink-keeps-ctime | unlink(3p) | the removal of one of two names does not mark ctime")
class UnlinkKeepsCtime(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.held: dict[tuple[int, int], tuple[int, int]] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        super().unlink(call, parent, name)
        if one.st_nlink > 1:
            key = one.st_dev, one.st_ino
            now = next(os.fstat(node.fd).st_ctime_ns for node in self.nodes.values() if node.key == key)
            self.held[key] = (now, one.st_ctime_ns)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        now, before = self.held.get(self.nodes[node].key, (0, 0))
        if found.ctime == now:
            found.ctime = before
        return found


@mutant("emptied-not-removed | rmdir(3p) | a directory that had more than 50 entries is not removed")
class EmptiedNotRemoved(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.made: Counter[tuple[int, int]] = Counter()

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int):  # type: ignore[no-untyped-def]
        self.made[self.nodes[parent].key] += 1
        return super().create(call, parent, name, flags, mode, umask)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        if self.made[one.st_dev, one.st_ino] > 50:
            raise OSError(errno.ENOTEMPTY, "rmdir")
        super().rmdir(call, parent, name)


@mutant("move-keeps-nlink | rename(3p) | the link count of the old parent of a directory stays")
class MoveKeepsNlink(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.more: Counter[int] = Counter()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        mode = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False).st_mode
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(mode) and parent != where:
            self.more[parent] += 1

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink += self.more[node]
        return found


@mutant("move-target-unmarked | rename(3p) | a move does not mark mtime of the directory that it moves to")
class MoveTargetUnmarked(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        before = os.fstat(self.fd(where))
        super().rename(call, parent, old, where, new, flags)
        if parent != where:
            self.reset_ids()
            os.utime(self.nodes[where].path, ns=(before.st_atime_ns, before.st_mtime_ns))


@mutant("grow-keeps-mtime | ftruncate(3p) | an ftruncate() that grows a file does not mark mtime")
class GrowKeepsMtime(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        before = os.fstat(self.fd(node))
        super().truncate(call, node, handle, size)
        if size > before.st_size:
            self.reset_ids()
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))
