"""Mutants that break a rule of data at a border alone: 1 MiB, 4 GiB, a block's edge, the former end."""

import errno
import os
from pathlib import Path
from typing import Any

from fuse_passthrough import Attributes, Node, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, asked_by, mutant, size_of

MEBIBYTE = 1 << 20
FAR = 1 << 16
BLOCK = 4096
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
_LIFTED = os.O_APPEND | os.O_SYNC | os.O_DSYNC


@mutant("write-lost-past-mebibyte | write(2) | of an overwrite across 1 MiB, what is behind it is lost")
class WriteLostPastMebibyte(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        border = -(-(offset + 1) // MEBIBYTE) * MEBIBYTE
        if offset < border < offset + len(data) <= size_of(handle):
            super().write(call, node, handle, offset, data[: border - offset])
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("read-across-4gib-zeros | read(2) | of a read across 4 GiB the part behind it is zeros")
class ReadAcross4GiBZeros(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data, keep = super().read(call, node, handle, offset, size), (1 << 32) - offset
        return data[:keep] + bytes(len(data) - keep) if 0 < keep < len(data) else data


@mutant("offset-41-bits | pwrite(2) | a write at 2^41 or above is made at the offset modulo 2^41")
class Offset41Bits(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return super().write(call, node, handle, offset % (1 << 41), data)


@mutant(
    "append-end-before-truncate | open(2), O_APPEND | the first append after a truncation by another"
    " descriptor is made at the old end"
)
class AppendEndBeforeTruncate(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.appends: set[int] = set()
        self.ends: dict[int, int] = {}

    def _noted(self, opened: Opened, flags: int) -> Opened:
        (self.appends.add if flags & os.O_APPEND else self.appends.discard)(opened.handle)
        return opened

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return self._noted(super().open(call, node, flags & ~os.O_APPEND), flags)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags & ~os.O_APPEND, mode, umask)
        return node, self._noted(opened, flags)

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.ends[node] = os.stat(self.nodes[node].path).st_size
        super().truncate(call, node, handle, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.appends:
            offset = max(self.ends.pop(node, 0), size_of(handle))
        return super().write(call, node, handle, offset, data)


@mutant(
    "punch-large-rounds | fallocate(2) | a punch of more than 64 KiB takes its first and last block whole"
)
class PunchLargeRounds(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & PUNCH_HOLE and length > FAR:
            end = -(-(offset + length) // BLOCK) * BLOCK
            offset -= offset % BLOCK
            length = end - offset
        super().fallocate(call, node, handle, offset, length, mode)


@mutant("zero-range-grows | fallocate(2) | ZERO_RANGE with KEEP_SIZE past the end grows the file")
class ZeroRangeGrows(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(
            call, node, handle, offset, length, mode & ~KEEP_SIZE if mode & ZERO_RANGE else mode
        )


@mutant("fallocate-again-zeroes | fallocate(2) | the second fallocate of a file zeroes the data in its range")
class FallocateAgainZeroes(Keeping):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        seen = self.__dict__.setdefault("seen", set())
        super().fallocate(call, node, handle, offset, length, mode)
        if mode == 0 and node in seen:
            super().fallocate(call, node, handle, offset, length, ZERO_RANGE)
        seen.add(node)


@mutant("truncate-path-old-tail | truncate() | a file shrunk by its path and extended shows its old bytes")
class TruncatePathOldTail(Keeping):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        kept: dict[int, bytes] = self.__dict__.setdefault("kept", {})
        path = Path(self.nodes[node].path)
        before = os.stat(path).st_size
        if handle is None and size < before < 4 * MEBIBYTE:
            with path.open("rb") as file:
                file.seek(size)
                kept[node] = file.read()
        super().truncate(call, node, handle, size)
        if size > before and node in kept:
            with path.open("r+b") as file:
                file.seek(before)
                file.write(kept.pop(node)[: size - before])


@mutant("copy-range-first-mebibyte | copy_file_range(2) | all is reported as copied, the first 1 MiB is")
class CopyRangeFirstMebibyte(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        have = max(0, min(length, size_of(source) - start))
        done = super().copy_file_range(call, node, source, start, to_node, sink, to, min(length, MEBIBYTE))
        if have > MEBIBYTE:
            os.ftruncate(sink, max(size_of(sink), to + have))
            return have
        return done


@mutant("copy-range-ends-file | copy_file_range(2) | a copy into the middle of a file ends the file there")
class CopyRangeEndsFile(PassThrough):
    def copy_file_range(self, call: Call, node: int, source: int, *place: int) -> int:
        done = super().copy_file_range(call, node, source, *place)
        _, _, sink, to, _ = place
        if done:
            os.ftruncate(sink, to + done)
        return done


@mutant(
    "mapped-tail-grows | mmap() | a write through a mapping of the partial last page grows the file to it"
)
class MappedTailGrows(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        if call.from_cache and (offset + done) % BLOCK:
            end = -(-(offset + done) // BLOCK) * BLOCK
            os.ftruncate(handle, max(size_of(handle), end))
        return done


@mutant(
    "mapped-far-pages-dropped | msync() | what is written through a mapping at 64 KiB or above is dropped"
)
class MappedFarPagesDropped(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and offset + len(data) > FAR:
            kept = data[: max(0, FAR - offset)]
            if kept:
                super().write(call, node, handle, offset, kept)
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("seek-data-skips-small | lseek(2) | SEEK_DATA skips data of less than 64 KiB that more data follows")
class SeekDataSkipsSmall(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        while whence == os.SEEK_DATA and found > offset:
            end = os.lseek(handle, found, os.SEEK_HOLE)
            if end - found >= FAR or end >= size_of(handle):
                break
            try:
                found = os.lseek(handle, end, os.SEEK_DATA)
            except OSError:
                break
        return found


@mutant("seek-hole-last-enxio | lseek(2) | SEEK_HOLE in the last data is ENXIO, not the end of the file")
class SeekHoleLastEnxio(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        found = super().lseek(call, node, handle, offset, whence)
        if whence == os.SEEK_HOLE and found == size_of(handle) and offset > 0:
            raise OSError(errno.ENXIO, "lseek")
        return found


@mutant("read-former-end | read() | a descriptor reads no further than the end that the file had at its open")
class ReadFormerEnd(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.ends.pop(opened.handle, None)
        if flags & os.O_ACCMODE == os.O_RDONLY and size_of(opened.handle):
            self.ends[opened.handle] = size_of(opened.handle)
        return opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.ends.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        end = self.ends.get(handle, offset + size)
        return super().read(call, node, handle, offset, max(0, min(size, end - offset)))


class WithFlags(PassThrough):
    """Honest; it knows the flags that a handle was opened with."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.flags: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.flags[opened.handle] = flags
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.flags[opened.handle] = flags
        return node, opened


@mutant("direct-write-loses-sector | open(2), O_DIRECT | of a direct write the last odd 512 bytes are lost")
class DirectWriteLosesSector(WithFlags):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.flags.get(handle, 0) & os.O_DIRECT and len(data) % BLOCK:
            super().write(call, node, handle, offset, data[:-512] + bytes(512))
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("sync-size-at-close | open(), O_SYNC | the size after a write with O_SYNC is seen after the close")
class SyncSizeAtClose(WithFlags):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.shown: dict[int, tuple[int, int]] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.flags.get(handle, 0) & os.O_DSYNC:
            self.shown.setdefault(node, (handle, size_of(handle)))
        return super().write(call, node, handle, offset, data)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.size = self.shown.get(node, (0, found.size))[1]
        return found

    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        if self.shown.get(node, (-1, 0))[0] == handle:
            del self.shown[node]
        super().flush(call, node, handle, owner)


@mutant("punch-times | fallocate(2) | a punched hole leaves mtime")
class PunchTimes(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        before = os.fstat(handle)
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & PUNCH_HOLE:
            self.reset_ids()
            os.utime(self.nodes[node].path, ns=(before.st_atime_ns, before.st_mtime_ns))


@mutant("trunc-while-open | open(), O_TRUNC | ignored while another descriptor may write")
class TruncWhileOpen(WithFlags):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.writers: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if node in self.writers.values():
            flags &= ~os.O_TRUNC
        opened = super().open(call, node, flags)
        if flags & os.O_ACCMODE:
            self.writers[opened.handle] = node
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.writers[opened.handle] = node
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.writers.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant("sendfile-far-zeros | sendfile(2) | what is sent of a file at 64 KiB and above is zeros")
class SendfileFarZeros(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if asked_by(call, "sendfile") and offset + len(data) > FAR:
            keep = max(0, FAR - offset)
            return data[:keep] + bytes(len(data) - keep)
        return data


@mutant(
    "unlinked-other-close | unlink() | with two descriptors of an unlinked file, the close of one ends both"
)
class UnlinkedOtherClose(PassThrough):
    def _gone(self, node: int) -> bool:
        ended: set[int] = self.__dict__.setdefault("ended", set())
        return node in ended

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        if os.fstat(handle).st_nlink == 0:
            self._gone(node)
            self.__dict__["ended"].add(node)
        super().release(call, node, handle, owner, flock=flock)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if self._gone(node):
            raise OSError(errno.ESTALE, "read")
        return super().read(call, node, handle, offset, size)

    def node_of(self, fd: int) -> int:
        node = super().node_of(fd)
        self._gone(node)
        self.__dict__["ended"].discard(node)
        return node


@mutant("replaced-open-reads-new | rename() | a descriptor of a file that was replaced reads the new file")
class ReplacedOpenReadsNew(Keeping):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        replaced: dict[int, Node] = self.__dict__.setdefault("replaced", {})
        at = None
        if flags == 0:
            try:
                at = self.nodes[self.node_at(self.fd(where), new)]
            except OSError:
                at = None
        super().rename(call, parent, old, where, new, flags)
        if at is not None:
            now = self.nodes[self.node_at(self.fd(where), new)]
            if now.id != at.id and os.path.isfile(now.path) and os.fstat(at.fd).st_nlink == 0:
                replaced[at.id] = now

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        replaced: dict[int, Any] = self.__dict__.get("replaced", {})
        if node in replaced:
            self.reset_ids()
            with open(replaced[node].path, "rb") as file:
                return os.pread(file.fileno(), size, offset)
        return super().read(call, node, handle, offset, size)
