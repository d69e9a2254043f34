"""Mutants of full directories, whole files and long appends, of files without a name, and groups."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fuse_passthrough import Attributes, Bending, Entries, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, mutant

PUNCH_HOLE = 2  # FALLOC_FL_PUNCH_HOLE
LONG = 128 << 10
"""Bytes of an append of which all are stored."""
LISTED = 200
"""Entries that a renamed directory lists."""
NUMBERS = 500
"""Distinct file numbers."""


@mutant("directory-renamed-lists-200 | rename(3p), readdir(3p) | a renamed directory lists 200 entries")
class DirectoryRenamedLists200(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.renamed: set[tuple[int, int]] = set()
        self.before: dict[tuple[int, int], int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        if stat.S_ISDIR(one.st_mode):
            self.renamed.add((one.st_dev, one.st_ino))

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        if self.nodes[node].key not in self.renamed:
            return found
        before = self.before.get((handle, offset), 0) if offset else 0
        found = found[: max(0, LISTED - before)]
        for count, (_, cookie, _, _) in enumerate(found, before + 1):
            self.before[handle, cookie] = count
        return found


@mutant("directory-refilled-loses | readdir(3p) | an emptied directory does not list its first new name")
class DirectoryRefilledLoses(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.made: dict[int, int] = {}
        self.removed: dict[int, int] = {}
        self.first: dict[int, bytes] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.removed[parent] = self.removed.get(parent, 0) + 1

    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        made = self.made.get(parent, 0)
        if made > LISTED and made == self.removed.get(parent, 0):
            self.first[parent] = name
        self.made[parent] = made + 1
        return super().mknod(call, parent, name, mode, device, umask)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [one for one in found if one[3] != self.first.get(node)]


@mutant("inode-number-twice | <sys/stat.h> st_ino | of more than 500 files some have the number of another")
class InodeNumberTwice(Bending):
    def bend(self, found: Attributes) -> None:
        found.ino = self.number(found.ino)

    def number(self, inode: int) -> int:
        numbers: dict[int, int] = self.__dict__.setdefault("numbers", {})
        return numbers.setdefault(inode, NUMBERS + len(numbers) % NUMBERS)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [(self.number(inode), *more) for inode, *more in found]  # type: ignore[misc]  # four fields


@mutant(
    "punch-whole-file-empties | fallocate(2) FALLOC_FL_KEEP_SIZE | a hole over all of a file makes it empty"
)
class PunchWholeFileEmpties(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & PUNCH_HOLE and not offset and length >= os.fstat(handle).st_size:
            os.ftruncate(handle, 0)
        else:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("append-of-128k-cut | open(3p) O_APPEND | of an append the bytes after the first 128 KiB are zeroes")
class AppendOf128kCut(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.appending: dict[int, bool] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.appending[opened.handle] = bool(flags & os.O_APPEND)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.appending[opened.handle] = bool(flags & os.O_APPEND)
        return node, opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.appending[handle]:
            data = data[:LONG] + bytes(max(0, len(data) - LONG))
        return super().write(call, node, handle, offset, data)


@mutant("mapped-unlinked-lost | mmap(3p), unlink(3p) | a store through a mapping of a removed file is lost")
class MappedUnlinkedLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and os.fstat(handle).st_nlink == 0:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("setgid-refused-to-member | chmod(3p) S_ISGID | is cleared if the group is a supplementary one")
class SetgidRefusedToMember(PassThrough):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        one = os.fstat(self.fd(node))
        foreign = call.uid and stat.S_ISREG(one.st_mode) and one.st_gid != call.gid
        super().chmod(call, node, mode & ~stat.S_ISGID if foreign else mode)


@mutant(
    "full-directory-old-names | rename(3p), readdir(3p) | an entry of a directory of more than 200 that was "
    "renamed in it is listed by its old name, too"
)
class FullDirectoryOldNames(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.old: dict[int, bytes] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if parent == where and len(os.listdir(self.nodes[parent].path)) > LISTED:
            self.old[parent] = old

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        if offset == 0 and node in self.old and found:
            inode, cookie, kind, _ = found[-1]
            found[-1] = inode, cookie, kind, self.old[node]
        return found


@mutant(
    "full-directory-moved-lost | rename(3p), readdir(3p) | of more than 200 entries that were moved into a "
    "directory each 100th is not listed"
)
class FullDirectoryMovedLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moved: dict[int, list[bytes]] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if parent != where:
            self.moved.setdefault(where, []).append(new)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        lost = set(self.moved.get(node, ())[LISTED::100])
        return [one for one in super().readdir(call, node, handle, offset, size) if one[3] not in lost]
