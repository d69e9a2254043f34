"""Mutants of ranges: past 4 GiB a partial page has an offset of 32 bits or is left; a cut comes back."""

import os

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import mutant, size_of

PAGE = 4096
BORDER = 1 << 32
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 0x01, 0x02, 0x10


class _FarEdges(PassThrough):
    """A range past 4 GiB that has ``modes``: its whole pages are changed, and its edges at ``edge()``."""

    modes = 0

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not mode & self.modes or offset < BORDER:
            super().fallocate(call, node, handle, offset, length, mode)
            return
        end = offset + length
        first, last = -(-offset // PAGE) * PAGE, end // PAGE * PAGE
        if first < last:
            super().fallocate(call, node, handle, first, last - first, mode)
        edges = ((offset, min(first, end)), (max(last, offset), end)) if first <= last else ((offset, end),)
        for start, stop in edges:
            if start < stop:
                self.edge(handle, start, stop - start)

    def edge(self, handle: int, offset: int, length: int) -> None:
        """Change a part of a page, or leave it."""


@mutant("far-hole-edges-left | fallocate(2) FALLOC_FL_PUNCH_HOLE | past 4 GiB partial pages keep their bytes")
class FarHoleEdgesLeft(_FarEdges):
    modes = PUNCH_HOLE


@mutant(
    "far-hole-edges-32-bit | fallocate(2) FALLOC_FL_PUNCH_HOLE | partial pages past 4 GiB are zeroed lower"
)
class FarHoleEdges32Bit(_FarEdges):
    modes = PUNCH_HOLE

    def edge(self, handle: int, offset: int, length: int) -> None:
        os.pwrite(handle, bytes(length), offset % BORDER)


@mutant(
    "far-zeroes-edges-left | fallocate(2) FALLOC_FL_ZERO_RANGE | past 4 GiB partial pages keep their bytes"
)
class FarZeroesEdgesLeft(_FarEdges):
    modes = ZERO_RANGE


@mutant("far-cut-leaves-the-rest-of-a-page | ftruncate(3p) | past 4 GiB the rest of the last page comes back")
class FarCutLeavesTheRestOfAPage(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        kept: dict[int, tuple[int, bytes]] = self.__dict__.setdefault("kept", {})
        before = size_of(self.fd(node))
        if handle is None or size < BORDER:
            super().truncate(call, node, handle, size)
            return
        if size < before:
            kept[node] = size, os.pread(handle, -size % PAGE, size)
            super().truncate(call, node, handle, size)
            return
        super().truncate(call, node, handle, size)
        start, rest = kept.pop(node, (0, b""))
        if rest and start == before:
            os.pwrite(handle, rest[: size - start], start)


class _CutReturns(PassThrough):
    """A file that is cut by ``amount`` at a block's end has its former bytes when it grows again."""

    amount = 0

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        kept: dict[int, tuple[int, bytes]] = self.__dict__.setdefault("kept", {})
        before = size_of(self.fd(node))
        if handle is None:
            super().truncate(call, node, handle, size)
            return
        if before - size == self.amount and not size % self.amount:
            kept[node] = size, os.pread(handle, self.amount, size)
        super().truncate(call, node, handle, size)
        start, rest = kept.get(node, (0, b""))
        if size > before and rest and start == before:
            os.pwrite(handle, rest[: size - start], start)
            del kept[node]


@mutant("cut-of-a-kib-returns | ftruncate(3p) | the bytes of a cut by 1 KiB come back when the file grows")
class CutOfAKibReturns(_CutReturns):
    amount = 1024


@mutant("cut-of-4-kib-returns | ftruncate(3p) | the bytes of a cut by 4 KiB come back when the file grows")
class CutOf4KibReturns(_CutReturns):
    amount = 4096


class _FarCopy(PassThrough):
    def copy_file_range(
        self, call: Call, node: int, source: int, start: int, to_node: int, sink: int, to: int, length: int
    ) -> int:
        start, to = self.cut(start, to)
        return super().copy_file_range(call, node, source, start, to_node, sink, to, length)

    def cut(self, start: int, to: int) -> tuple[int, int]:
        raise NotImplementedError


@mutant("far-copy-source-32-bit | copy_file_range(2) | the offset in the source has 32 bits")
class FarCopySource32Bit(_FarCopy):
    def cut(self, start: int, to: int) -> tuple[int, int]:
        return start % BORDER, to


@mutant("far-copy-target-32-bit | copy_file_range(2) | the offset in the target has 32 bits")
class FarCopyTarget32Bit(_FarCopy):
    def cut(self, start: int, to: int) -> tuple[int, int]:
        return start, to % BORDER


class _CutLength(PassThrough):
    """The length of a hole is ``cut``; 0 becomes the whole length, because fallocate(2) refuses it."""

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & PUNCH_HOLE:
            length = self.cut(length) or length
        super().fallocate(call, node, handle, offset, length, mode)

    def cut(self, length: int) -> int:
        raise NotImplementedError


@mutant("hole-length-31-bit | fallocate(2) FALLOC_FL_PUNCH_HOLE | the length of a hole has 31 bits")
class HoleLength31Bit(_CutLength):
    def cut(self, length: int) -> int:
        return length & 0x7FFFFFFF


@mutant("hole-length-32-bit-odd | fallocate(2) FALLOC_FL_PUNCH_HOLE | an odd length of a hole has 32 bits")
class HoleLength32BitOdd(_CutLength):
    def cut(self, length: int) -> int:
        return length & 0xFFFFFFFF if length % PAGE else length
