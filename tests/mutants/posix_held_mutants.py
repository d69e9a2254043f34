"""Mutants of inode numbers in use, and of positions inside a hole."""

from __future__ import annotations

import os
import stat

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call, Created
from posix_rules import Keeping, mutant


class _Reused(Keeping):
    """A new file gets the inode number of one that was removed, which may still be open."""

    def gone(self, inode: int) -> None:
        """Note the number of a removed file."""
        self.__dict__.setdefault("free", []).append(inode)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        free: list[int] = self.__dict__.setdefault("free", [])
        if free:
            self.__dict__.setdefault("numbers", {})[self.nodes[node].key] = free.pop()
        return node, opened

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.ino = self.__dict__.get("numbers", {}).get(self.nodes[node].key, found.ino)
        return found

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        numbers = self.__dict__.get("numbers", {})
        device = self.nodes[node].key[0]
        return [
            (numbers.get((device, inode), inode), cookie, kind, name)
            for inode, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant("unlinked-inode-reused | <sys/stat.h> st_ino | a new file has the number of a removed open file")
class UnlinkedInodeReused(_Reused):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False)
        super().unlink(call, parent, name)
        if one.st_nlink == 1 and stat.S_ISREG(one.st_mode):
            self.gone(one.st_ino)


@mutant("replaced-inode-reused | <sys/stat.h> st_ino | a new file has the number of a replaced open file")
class ReplacedInodeReused(_Reused):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        try:
            one = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        except FileNotFoundError:
            one = None
        super().rename(call, parent, old, where, new, flags)
        if one is not None and not flags and one.st_nlink == 1 and stat.S_ISREG(one.st_mode):
            self.gone(one.st_ino)


def _is_hole(handle: int, offset: int) -> bool:
    return os.lseek(handle, offset, os.SEEK_HOLE) == offset


@mutant("seek-hole-leaves-hole | lseek(3p) SEEK_HOLE | from inside a hole, the next hole is found")
class SeekHoleLeavesHole(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        if whence != os.SEEK_HOLE or found != offset or not offset or not _is_hole(handle, offset - 1):
            return found
        try:
            return os.lseek(handle, os.lseek(handle, offset, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError:  # no data behind it
            return os.fstat(handle).st_size


@mutant("seek-data-late-in-hole | lseek(3p) SEEK_DATA | from inside a hole, data one page too late are found")
class SeekDataTooLate(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        if whence == os.SEEK_DATA and found > offset and offset and _is_hole(handle, offset - 1):
            return min(found + 4096, os.fstat(handle).st_size - 1)
        return found
