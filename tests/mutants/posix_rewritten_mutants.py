"""Data that are written again, cut and extended, appended, copied or cut by another, at sizes that matter.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- write(), pwrite(): each write of a range replaces its bytes; the number of bytes is any, also 64 KiB + 1.
- write(): bytes around a power of two (a page, 2 GiB, 4 GiB) are bytes as others.
- ftruncate(): what was cut reads as zeroes when the file grows, by a write past its end, too.
- open() O_APPEND: the offset is the end of the file at each write, whichever call moved it.
- mmap(): what is stored through a mapping is in the file, after a truncation and an extension, too.
- fallocate(2): each call acts on its range; ZERO_RANGE without KEEP_SIZE extends; plain allocation cuts
  nothing; copy_file_range(2): a copy replaces what an earlier copy left.
- unlink(): an open file that has no name any more is not the file that gets its name next.
"""

# ruff: noqa: E501  # a mutant is a row of a table

import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_data_mutants import KEEP_SIZE, PUNCH_HOLE, ZERO
from posix_pair_mutants import status
from posix_rules import Keeping, mutant, size_of

PAGE = 4096
GIB = 1 << 30


@mutant("third-write-of-page-lost | write(3p) | a page that is written a third time keeps its second data")
class ThirdWriteOfPageLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.writes: Counter[Hashable] = Counter()

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        where = self.nodes[node].key, offset // PAGE
        inside = offset % PAGE + len(data) <= PAGE and offset < size_of(handle)
        self.writes[where] += 1
        if inside and self.writes[where] == 3:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("write-of-65537-cut | write(3p) | the last byte of a write of 64 KiB and one byte is not stored")
class WriteOf65537Cut(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        super().write(call, node, handle, offset, data[:65536] if len(data) == 65537 else data)
        return len(data)


@mutant("last-byte-of-page-plus-one | read(3p) | a byte that is alone in a file's last page reads as zero")
class LastByteOfPagePlusOne(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        end = offset + len(data)
        alone = data and end % PAGE == 1 and end > PAGE and end == size_of(handle)
        return data[:-1] + b"\0" if alone else data


@mutant("write-across-2-gib-cut | write(3p) | of a write across 2 GiB, the part beyond is stored as zeroes")
class WriteAcross2GibCut(PassThrough):
    edge = 2 * GIB

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = self.edge - offset
        if 0 < kept < len(data):
            data = data[:kept] + bytes(len(data) - kept)
        return super().write(call, node, handle, offset, data)


@mutant("write-across-4-gib-wraps | write(3p) | of a write across 4 GiB, the part beyond is stored at 0")
class WriteAcross4GibWraps(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        kept = 4 * GIB - offset
        if not 0 < kept < len(data):
            return super().write(call, node, handle, offset, data)
        os.ftruncate(handle, max(size_of(handle), offset + len(data)))
        super().write(call, node, handle, 0, data[kept:])
        super().write(call, node, handle, offset, data[:kept])
        return len(data)


@mutant(
    "gap-has-cut-data | ftruncate(3p), write(3p) | a gap up to a write past the end has data that were cut"
)
class GapHasCutData(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[Hashable, tuple[int, bytes]] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        with Path(self.nodes[node].path).open("rb") as file:
            file.seek(size)
            tail = file.read(1 << 18)
        super().truncate(call, node, handle, size)
        if tail and size:
            self.cut[self.nodes[node].key] = size, tail

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        start, tail = self.cut.pop(self.nodes[node].key, (0, b""))
        if tail and start == size_of(handle) and offset > start:
            super().write(call, node, handle, start, tail[: offset - start])
        return super().write(call, node, handle, offset, data)


class _Appending(Keeping):
    """``appends`` has the handles that were opened with O_APPEND, and the end that each knows of."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags & ~os.O_APPEND)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = size_of(opened.handle)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags & ~os.O_APPEND, mode, umask)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = 0
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.ends.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant("append-after-extension | open(3p) O_APPEND | after ftruncate() to a larger size, data are appended at "
        "the end before it")  # fmt: skip
class AppendAfterExtension(_Appending):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.before: dict[Hashable, int] = {}

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        old = size_of(self.fd(node))
        super().truncate(call, node, handle, size)
        if size > old > 0:
            self.before[self.nodes[node].key] = old

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        old = self.before.pop(self.nodes[node].key, None)
        if handle in self.ends:
            offset = size_of(handle) if old is None else old
        return super().write(call, node, handle, offset, data)


@mutant("append-after-rename | rename(3p), open(3p) O_APPEND | after a rename, data are appended at the end that "
        "the file had then")  # fmt: skip
class AppendAfterRename(_Appending):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.at: dict[Hashable, int] = {}

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = status(self, where, new)
        if one is not None and stat.S_ISREG(one.st_mode):
            self.at[one.st_dev, one.st_ino] = one.st_size

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.ends:
            offset = self.at.get(self.nodes[node].key, size_of(handle))
        return super().write(call, node, handle, offset, data)


@mutant("mapped-after-truncate-lost | mmap(3p), ftruncate(3p) | what is stored through a mapping after the file was "
        "cut and extended is lost")  # fmt: skip
class MappedAfterTruncateLost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: set[Hashable] = set()

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if size < size_of(self.fd(node)):
            self.cut.add(self.nodes[node].key)
        super().truncate(call, node, handle, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.from_cache and self.nodes[node].key in self.cut:
            return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("punch-third-ignored | fallocate(2) FALLOC_FL_PUNCH_HOLE | the third hole of a file keeps its data")
class PunchThirdIgnored(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.holes: Counter[Hashable] = Counter()

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & PUNCH_HOLE:
            self.holes[self.nodes[node].key] += 1
            if self.holes[self.nodes[node].key] == 3:
                return
        super().fallocate(call, node, handle, offset, length, mode)


@mutant(
    "punch-across-end-grows | fallocate(2) FALLOC_FL_KEEP_SIZE | a hole that reaches beyond the end extends the file"
)
class PunchAcrossEndGrows(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & PUNCH_HOLE and offset < size_of(handle) < offset + length:
            os.ftruncate(handle, offset + length)


@mutant(
    "second-extension-stale | ftruncate(3p) | what was cut is back when a file has a size for the second time"
)
class SecondExtensionStale(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cut: dict[Hashable, tuple[int, bytes]] = {}
        self.extensions: Counter[Hashable] = Counter()

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        key, fd = self.nodes[node].key, self.fd(node)
        before = size_of(fd)
        if size < before:
            self.cut[key] = size, os.pread(fd, min(before - size, GIB >> 10), size)
        super().truncate(call, node, handle, size)
        if size > before:
            self.extensions[key, size] += 1
            at, data = self.cut.get(key, (0, b""))
            if handle is not None and at == before and self.extensions[key, size] == 2:
                os.pwrite(handle, data[: size - at], at)


@mutant(
    "zero-range-not-extended | fallocate(2) FALLOC_FL_ZERO_RANGE | a zeroed range past the end extends nothing"
)
class ZeroRangeNotExtended(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode | KEEP_SIZE if mode & ZERO else mode)


@mutant("punch-edge-of-page | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole ends at the end of its last page")
class PunchEdgeOfPage(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & PUNCH_HOLE and length > PAGE:
            length = -(-(offset + length) // PAGE) * PAGE - offset
        super().fallocate(call, node, handle, offset, length, mode)


@mutant(
    "allocation-inside-cuts | posix_fallocate(3p) | the second allocation inside a file cuts it at its end"
)
class AllocationInsideCuts(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.seen: set[Hashable] = set()

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if not mode and self.nodes[node].key in self.seen and offset + length < size_of(handle):
            os.ftruncate(handle, offset + length)
        if not mode:
            self.seen.add(self.nodes[node].key)


@mutant("copy-again-stale | copy_file_range(2) | a copy to a range that has a copy changes nothing")
class CopyAgainStale(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.copied: set[Hashable] = set()

    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        where = self.nodes[to_node].key, to
        if where in self.copied and to + length <= size_of(sink):
            return min(length, max(0, size_of(source) - start))
        self.copied.add(where)
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)


@mutant("append-at-page-zeroes | write(3p) | a write that begins at the end of a file of whole pages clears the byte "
        "before it")  # fmt: skip
class AppendAtPageZeroes(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if offset == size_of(handle) and offset and offset % PAGE == 0:
            return super().write(call, node, handle, offset - 1, b"\0" + data) - 1
        return super().write(call, node, handle, offset, data)


@mutant("unlinked-writes-into-successor | unlink(3p) | writes of a removed open file go to the file that has its "
        "name now")  # fmt: skip
class UnlinkedWritesIntoSuccessor(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.had: dict[Hashable, tuple[str, tuple[int, int]]] = {}

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        one = status(self, parent, name)
        super().unlink(call, parent, name)
        if one is not None and one.st_nlink == 1:
            place = os.readlink(f"/proc/self/fd/{self.fd(parent)}")
            self.had[one.st_dev, one.st_ino] = f"{place}/{os.fsdecode(name)}", (one.st_dev, one.st_ino)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        path, _ = self.had.get(self.nodes[node].key, ("", (0, 0)))
        if path and Path(path).is_file() and os.fstat(handle).st_nlink == 0:
            self.reset_ids()
            with Path(path).open("r+b", buffering=0) as file:
                return os.pwrite(file.fileno(), data, offset)
        return super().write(call, node, handle, offset, data)
