"""File systems that break one rule of a directory each, unseen by a case that makes files and returns."""

import errno
import os
import stat
from pathlib import Path

from fuse_passthrough import Attributes, Bending, Call, Entries, PassThrough
from fuse_protocol import Opened


class ListedTwice(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        return [entry for entry in super().readdir(call, node, handle, offset, size) for _ in range(2)]


class ListedOnce(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.were_listed: set[bytes] = set()

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        again = [entry for entry in found if entry[3] not in self.were_listed]
        self.were_listed |= {name for *_, name in found if name == b"fifo"}
        return again


class GhostListed(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        if found and not offset:
            found = [*found, (found[-1][0], found[-1][1], stat.S_IFREG >> 12, b"removed")]
        return found


class FilesListedAsLinks(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [(ino, cookie, 10 if kind == 8 else kind, name) for ino, cookie, kind, name in found]


class FifosListedAsFiles(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [(ino, cookie, 8 if kind == 1 else kind, name) for ino, cookie, kind, name in found]


class NameNotCounted(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISREG(found.mode):
            found.nlink = 1


class OpenedOtherwise(PassThrough):
    opened = 0

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.opened += 1
        return super().open(call, node, flags)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.opened = 0
        super().release(call, node, handle, owner, flock=flock)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISREG(found.mode) and self.opened:
            found.uid += 1
        return found


class LastByteUnread(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return super().read(call, node, handle, offset, size)[:-1]


class DataInAHole(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        size = os.fstat(handle).st_size
        if size > 100 or offset >= size:
            return super().lseek(call, node, handle, offset, whence)
        if whence == os.SEEK_DATA and offset < size - 1:
            return size - 1
        return offset if whence == os.SEEK_DATA else size


class OtherWhenReadAgain(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.was_read: set[int] = set()

    def open(self, call: Call, node: int, flags: int) -> Opened:
        self.was_read.clear()
        return super().open(call, node, flags)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        again = bool(data) and handle in self.was_read
        self.was_read.add(handle)
        return bytes(len(data)) if again else data


class TextWithoutASize(Bending):
    def bend(self, found: Attributes) -> None:
        if stat.S_ISLNK(found.mode):
            found.size = 0


class LinkWithoutAText(PassThrough):
    def readlink(self, call: Call, node: int) -> bytes:
        raise OSError(errno.EINVAL, "readlink")


class RemovedAttributeListed(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        return [*super().listxattr(call, node), b"user.removed"]


class UnreadableAgain(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        raise OSError(errno.EIO, "open")


class NoDirectoryMade(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        if name != b"below":
            raise PermissionError(errno.EACCES, "mkdir")
        return super().mkdir(call, parent, name, mode, umask)


class NothingRemoved(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        raise PermissionError(errno.EPERM, "unlink")
