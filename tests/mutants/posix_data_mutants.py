"""What is written is read: sizes, holes, mapped pages, flushes."""

import errno
import os
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import mutant, size_of

PUNCH_HOLE, KEEP_SIZE, COLLAPSE, ZERO = 2, 1, 8, 16
"""Modes of fallocate(2)."""


class _Truncating(PassThrough):
    """``resized`` gets the size before and after."""

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        path = self.nodes[node].path
        before = os.stat(path)
        tail = b""
        if before.st_size > size:
            with Path(path).open("rb") as file:
                file.seek(size)
                tail = file.read(1 << 20)
        super().truncate(call, node, handle, size)
        self.resized(call, node, before, size, tail)

    def resized(self, call: Call, node: int, before: os.stat_result, size: int, tail: bytes) -> None:
        raise NotImplementedError


@mutant("truncate-keeps-old-data | truncate(3p) | truncated data reappears when the file grows")
class TruncateKeepsOldData(_Truncating):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[int, tuple[int, bytes]] = {}

    def resized(self, call: Call, node: int, before: os.stat_result, size: int, tail: bytes) -> None:
        if tail:
            self.cut[node] = size, tail
        elif node in self.cut:
            start, tail = self.cut.pop(node)
            with Path(self.nodes[node].path).open("r+b") as file:
                file.seek(start)
                file.write(tail[: size - start])


@mutant("truncate-does-not-shrink | truncate(3p) | truncate to a smaller size does nothing")
class TruncateDoesNotShrink(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, max(size, size_of(self.fd(node))))


@mutant("truncate-does-not-grow | truncate(3p) | truncate to a larger size does nothing")
class TruncateDoesNotGrow(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, min(size, size_of(self.fd(node))))


@mutant("truncate-rounds-up | truncate(3p) | a size is rounded up to a block of 512 bytes")
class TruncateRoundsUp(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, min(-(-size // 512) * 512, (1 << 63) - 1))


@mutant("hole-reads-garbage | lseek(3p), write(3p) | bytes that were never written do not read as zeroes")
class HoleReadsGarbage(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = bytearray(super().read(call, node, handle, offset, size))
        end, at = offset + len(data), offset
        while at < end:
            hole = min(os.lseek(handle, at, os.SEEK_HOLE), end)
            try:
                past = min(os.lseek(handle, hole, os.SEEK_DATA), end) if hole < end else end
            except OSError:  # ENXIO: nothing but a hole from here on
                past = end
            data[hole - offset : past - offset] = b"\xa5" * (past - hole)
            at = max(past, at + 1)
        return bytes(data)


@mutant("write-last-byte-lost | write(3p) | the last byte of a long write is not stored")
class WriteLastByteLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = data[:-1] if len(data) >= 4096 else data
        super().write(call, node, handle, offset, kept)
        return len(data)


@mutant("write-not-done | write(3p) | a write is acknowledged and not stored")
class WriteNotDone(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        nothing = b"\0" * len(data)
        return super().write(call, node, handle, offset, nothing)


@mutant("write-at-wrong-offset | pwrite(3p) | an offset beyond 4 GiB wraps round to 0")
class WriteAtWrongOffset(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return super().write(call, node, handle, offset & 0xFFFF_FFFF, data)


@mutant("large-offset-refused | write(3p) [EFBIG] | a write past 2 GiB is refused, a larger size is not")
class LargeOffsetRefused(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset + len(data) > 1 << 31:
            raise OSError(errno.EFBIG, "write")
        return super().write(call, node, handle, offset, data)


@mutant("mapped-write-lost | mmap(3p) MAP_SHARED, msync(3p) | writes to mapped pages are not stored")
class MappedWriteLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("read-stale | read(3p) | the first page of a file always reads as at the first read")
class ReadStale(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.first: dict[tuple[int, int], bytes] = {}

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        if offset:
            return found
        stale = self.first.setdefault((node, size), found)
        return (stale + found[len(stale) :])[: len(found)]


@mutant("seek-hole-in-data | lseek(2) SEEK_HOLE | SEEK_HOLE finds a hole in data")
class SeekHoleInData(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        return offset if whence == os.SEEK_HOLE else found


@mutant("seek-data-skips | lseek(2) SEEK_DATA | SEEK_DATA skips data")
class SeekDataSkips(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        return size_of(handle) - 1 if whence == os.SEEK_DATA and found < size_of(handle) - 1 else found


@mutant("seek-past-end-accepted | lseek(2) [ENXIO] | SEEK_DATA and SEEK_HOLE past the end succeed")
class SeekPastEndAccepted(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        try:
            return super().lseek(call, node, handle, offset, whence)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return offset


@mutant("seek-hole-at-end-accepted | lseek(2) [ENXIO] | SEEK_HOLE at the size of the file returns it")
class SeekHoleAtEndAccepted(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        if whence == os.SEEK_HOLE and offset == size_of(handle):
            return offset
        return super().lseek(call, node, handle, offset, whence)


@mutant("fallocate-ignored | posix_fallocate(3p) | allocating space succeeds and the file does not grow")
class FallocateIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant(
    "fallocate-size-not-kept | fallocate(2) FALLOC_FL_KEEP_SIZE | FALLOC_FL_KEEP_SIZE changes the file's size"
)
class FallocateSizeNotKept(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(
            call, node, handle, offset, length, mode & ~KEEP_SIZE if mode == KEEP_SIZE else mode
        )


@mutant("fallocate-erases | posix_fallocate(3p) | allocating space overwrites what is there")
class FallocateErases(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode in (0, KEEP_SIZE):
            super().fallocate(call, node, handle, offset, length, PUNCH_HOLE | KEEP_SIZE)


@mutant("punch-hole-ignored | fallocate(2) FALLOC_FL_PUNCH_HOLE | a punched hole keeps its data")
class PunchHoleIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not mode & PUNCH_HOLE:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("seek-data-of-a-hole | lseek(3p) [ENXIO] | SEEK_DATA in a file of one hole finds the offset itself")
class SeekDataOfAHole(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        try:
            return super().lseek(call, node, handle, offset, whence)
        except OSError:
            if whence == os.SEEK_DATA and offset < size_of(handle) and not os.fstat(handle).st_blocks:
                return offset
            raise


@mutant("zero-range-ignored | fallocate(2) FALLOC_FL_ZERO_RANGE | a zeroed range keeps its data")
class ZeroRangeIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not mode & ZERO:
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("zero-range-of-holes-ignored | fallocate(2) FALLOC_FL_ZERO_RANGE | nothing is allocated for a hole")
class ZeroRangeOfHolesIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & ZERO:
            super().fallocate(call, node, handle, offset, length, PUNCH_HOLE | KEEP_SIZE)


@mutant("copy-range-short | copy_file_range(2) | a copy reports more bytes than it copied")
class CopyRangeShort(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        wanted = min(length, max(0, size_of(source) - start))
        if wanted > 1:
            super().copy_file_range(call, node, source, start, to_node, sink, to, wanted // 2)
        return wanted


@mutant(
    "copy-ends-with-last-data | copy_file_range(2) | a hole at the end of the range leaves the target short"
)
class CopyEndsWithLastData(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        before = size_of(sink)
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, length)
        data = os.pread(source, done, start).rstrip(bytes(1))
        if to + done > before:
            os.ftruncate(sink, max(before, to + len(data)))
        return done


@mutant("fsync-refused | fsync(3p) | a regular file cannot be flushed")
class FsyncRefused(PassThrough):
    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        raise OSError(errno.EINVAL, "fsync")


@mutant("fsync-directory-refused | fsync(2) | a directory cannot be flushed")
class FsyncDirectoryRefused(PassThrough):
    def fsyncdir(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        raise OSError(errno.EIO, "fsync")
