"""Mutants of the second time, of large sizes, and of what another operation leaves (second blind set)."""

import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from fuse_locks import READ, Held, Locking
from fuse_passthrough import ROOT, Entries, PassThrough
from fuse_protocol import Call, Opened
from posix_rules import Keeping, mutant

MIB = 1 << 20


class Remembering(Keeping):
    """``again`` counts an event and returns whether it happened before."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.times: Counter[Hashable] = Counter()

    def again(self, *what: Hashable) -> bool:
        self.times[what] += 1
        return self.times[what] > 1


@mutant("same-mode-keeps-ctime | chmod(3p) | chmod to the mode that a file has does not mark ctime")
class SameModeKeepsCtime(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if stat.S_IMODE(os.fstat(self.fd(node)).st_mode) != mode:
            super().chmod(call, node, mode)


@mutant("same-owner-keeps-ctime | chown(3p) | chown to the ids that a file has does not mark ctime")
class SameOwnerKeepsCtime(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        one = os.fstat(self.fd(node))
        if (one.st_uid, one.st_gid) != (uid, gid):
            super().chown(call, node, uid, gid)


@mutant(
    "moved-directory-old-parent | readdir(3p) | the entry .. of a moved directory has its old parent's inode"
)
class MovedDirectoryOldParent(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.parents: dict[tuple[int, int], int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        one = os.stat(old, dir_fd=self.fd(parent), follow_symlinks=False)
        super().rename(call, parent, old, where, new, flags)
        if stat.S_ISDIR(one.st_mode) and parent != where:
            self.parents[one.st_dev, one.st_ino] = os.fstat(self.fd(parent)).st_ino

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        old = self.parents.get(self.nodes[node].key)
        if old is None:
            return found
        return [(old if one[3] == b".." else one[0], *one[1:]) for one in found]


@mutant("dot-dot-is-the-root | readdir(3p) d_ino | the entry .. of each directory has the inode of the root")
class DotDotIsTheRoot(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        root = self.nodes[ROOT].key[1]
        found = super().readdir(call, node, handle, offset, size)
        return [(root if one[3] == b".." else one[0], *one[1:]) for one in found]


@mutant("copy-first-mib-repeated | copy_file_range(2) | a copy of more than 1 MiB repeats the first MiB")
class CopyFirstMibRepeated(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        for at in range(MIB, done, MIB):
            os.copy_file_range(source, sink, min(MIB, done - at), start, to + at)
        return done


@mutant("second-chown-clears-group | chown(3p) | the second chown that leaves the group sets it to 0")
class SecondChownClearsGroup(Remembering):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid)
        if gid == -1 and self.again(node):
            self.reset_ids()
            os.chown(self.nodes[node].path, -1, 0)


@mutant("open-trunc-of-empty-unmarked | open(3p) O_TRUNC | O_TRUNC of an empty file marks no time")
class OpenTruncOfEmptyUnmarked(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if os.fstat(self.fd(node)).st_size == 0:
            flags &= ~os.O_TRUNC
        return super().open(call, node, flags)


@mutant(
    "zeroed-past-end-extends | fallocate(2) FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE is ignored for a "
    "zeroed range"
)
class ZeroedPastEndExtends(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & 0x10:  # FALLOC_FL_ZERO_RANGE
            mode &= ~0x01  # FALLOC_FL_KEEP_SIZE
        super().fallocate(call, node, handle, offset, length, mode)


@mutant("omitted-atime-in-seconds | utimensat(3p) UTIME_OMIT | an omitted atime loses its nanoseconds")
class OmittedAtimeInSeconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if atime is None:
            before = os.fstat(self.fd(node)).st_atime_ns
            atime = before - before % 10**9
        super().utimens(call, node, atime, mtime)


@mutant("flock-downgrade-wakes-none | flock(2) | a conversion to a shared lock grants no request that waits")
class FlockDowngradeWakesNone(Locking):
    wakes = True

    def put(self, asked: Held) -> None:
        self.wakes = not (asked.whole and asked.kind == READ)
        super().put(asked)
        self.wakes = True

    def grant(self) -> None:
        if self.wakes:
            super().grant()


@mutant(
    "mknod-ignores-setgid | inode(7): S_ISGID | what mknod() makes in such a directory has the process' group"
)
class MknodIgnoresSetgid(PassThrough):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        node = super().mknod(call, parent, name, mode, device, umask)
        if os.fstat(self.fd(parent)).st_mode & stat.S_ISGID:
            self.reset_ids()
            os.chown(name, -1, call.gid, dir_fd=self.fd(parent), follow_symlinks=False)
        return node
