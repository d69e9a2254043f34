"""What works for small sizes, numbers and counts, and fails for large ones."""

import fcntl
import os

from fuse_locks import LAST, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Attributes, Call
from posix_directory_mutants import DOTS, whole
from posix_rules import mutant, size_of

GIB = 1 << 30
PUNCH_HOLE = 2  # FALLOC_FL_PUNCH_HOLE
LOW = 0xFFFF_FFFF
"""The 32 bits that are left of a larger number."""


@mutant("large-read-wraps | pread(3p) | a read beyond 4 GiB returns the data at the offset's lower 32 bits")
class LargeReadWraps(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return super().read(call, node, handle, offset & LOW, size)


@mutant("large-truncate-wraps | ftruncate(3p) | a size over 4 GiB loses its upper 32 bits")
class LargeTruncateWraps(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size & LOW if size < 1 << 40 else size)


@mutant("large-file-not-shrunk | ftruncate(3p) | a file over 2 GiB does not become smaller")
class LargeFileNotShrunk(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if not 0 < size < size_of(self.fd(node)) or size_of(self.fd(node)) < 2 * GIB:
            super().truncate(call, node, handle, size)


@mutant("large-write-lost | write(3p) | data beyond 16 MiB of a file is stored as zeroes")
class LargeWriteLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = 16 << 20 <= offset < 2 * GIB
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)


@mutant("large-append-lost | open(3p) O_APPEND | data appended to a file over 4 GiB is stored as zeroes")
class LargeAppendLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = offset > 4 * GIB and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_APPEND
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)


@mutant("large-overwrite-lost | write(3p) | of an overwrite over 256 KiB only the first 256 KiB are stored")
class LargeOverwriteLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        inside = offset + len(data) <= size_of(handle)
        super().write(call, node, handle, offset, data[: 256 << 10] if inside else data)
        return len(data)


@mutant("large-punch-ignored | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole beyond 2 GiB keeps its data")
class LargePunchIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not mode & 2 or offset < 2 * GIB:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("large-seek-wraps | lseek(3p) SEEK_DATA | SEEK_DATA and SEEK_HOLE find nothing beyond 4 GiB")
class LargeSeekWraps(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        return super().lseek(call, node, handle, offset, whence) & LOW


@mutant("large-copy-wraps | copy_file_range(2) | a copy from beyond 4 GiB is of the lower 32 bits")
class LargeCopyWraps(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        return super().copy_file_range(call, node, source, start & LOW, to_node, sink, to, length)


@mutant("large-lock-wraps | fcntl(3p) l_start | a lock beyond 4 GiB is on the lower 32 bits")
class LargeLockWraps(Locking):
    def put(self, asked: Held) -> None:
        super().put(self._cut(asked))

    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(self._cut(asked))

    @staticmethod
    def _cut(asked: Held) -> Held:
        from dataclasses import replace

        if asked.end == LAST or asked.whole:
            return asked
        return replace(asked, start=asked.start & LOW, end=asked.end & LOW)


@mutant("time-after-2038-wraps | utimensat(3p) | a time after 2038 becomes one before 1970")
class TimeAfter2038Wraps(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        super().utimens(call, node, atime, self._wrapped(mtime))

    @staticmethod
    def _wrapped(when: int | str | None) -> int | str | None:
        if not isinstance(when, int):
            return when
        second, rest = divmod(when, 10**9)
        return ((second + (1 << 31)) % (1 << 32) - (1 << 31)) * 10**9 + rest


@mutant("time-before-1970-nanoseconds | utimensat(3p) | the nanoseconds of a time before 1970 are lost")
class TimeBefore1970Nanoseconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if isinstance(mtime, int) and mtime < 0:
            mtime = -(-mtime // 10**9) * 10**9
        super().utimens(call, node, atime, mtime)


@mutant("time-before-1970-wraps | utimensat(3p) | a time before 1970 is 2^32 seconds later")
class TimeBefore1970Wraps(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if isinstance(mtime, int) and mtime < 0:
            mtime += 2**32 * 10**9
        super().utimens(call, node, atime, mtime)


@mutant("symlink-target-1024 | symlink(3p) | a link's contents are truncated after 1,024 bytes")
class SymlinkTarget1024(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target[:1024])


@mutant("directory-of-250 | readdir(3p) | the entries of a directory after the 250th are not listed")
class DirectoryOf250(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        shown = {name for *_, name in whole(handle)[:252]}
        return [one for one in super().readdir(call, node, handle, offset, size) if one[3] in shown]


@mutant("readdir-loses-far-entry | readdir(3p) | one entry in the middle of a directory of 300 is not listed")
class ReaddirLosesFarEntry(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        every = [name for *_, name in whole(handle) if name not in DOTS]
        lost = every[222] if len(every) > 222 else None
        return [one for one in super().readdir(call, node, handle, offset, size) if one[3] != lost]


@mutant("links-in-a-byte | <sys/stat.h> st_nlink | more than 255 links are counted from 0 again")
class LinksInAByte(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.nlink &= 0xFF
        return found


@mutant("xattr-list-cut | listxattr(2) | a list of attributes over 1,000 bytes is cut")
class XattrListCut(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        names = super().listxattr(call, node)
        while sum(len(name) + 1 for name in names) > 1000:
            names.pop()
        return names


@mutant("vector-of-many-cut | writev(3p) | nothing is stored of a write after its first 512 KiB")
class VectorOfManyCut(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = data[: 512 << 10]
        return super().write(call, node, handle, offset, kept + bytes(len(data) - len(kept)))


@mutant("owner-in-16-bits | chown(3p) | a group ID over 65,535 loses its upper bits")
class OwnerIn16Bits(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        super().chown(call, node, uid, gid & 0xFFFF if gid >= 0 and os.fstat(self.fd(node)).st_size else gid)


@mutant("punch-length-32-bits | fallocate(2) | of the length of a hole the lower 32 bits are used")
class PunchLength32Bits(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        short = length & LOW or 1
        super().fallocate(call, node, handle, offset, short if mode & PUNCH_HOLE else length, mode)
