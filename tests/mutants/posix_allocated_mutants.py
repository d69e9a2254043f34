"""Mutants of fallocate(2): they leave out a part of a range or take more, at data, at an odd end, later."""

import errno
import os

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import mutant, size_of

KEEP_SIZE = 0x01


class _Allocating(PassThrough):
    """``ranges`` yields what is allocated of a range; the size is set as it has to be."""

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if mode & ~KEEP_SIZE:
            super().fallocate(call, node, handle, offset, length, mode)
            return
        for start, count in self.ranges(node, handle, offset, length):
            super().fallocate(call, node, handle, start, count, KEEP_SIZE)
        if not mode and size_of(handle) < offset + length:
            os.ftruncate(handle, offset + length)

    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        raise NotImplementedError


def _next(handle: int, offset: int, whence: int) -> int | None:
    """Return where data or a hole begin, at ``offset`` or behind it; None if there are none."""
    try:
        return os.lseek(handle, offset, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


@mutant(
    "fallocate-before-data-ignored | fallocate(2): Allocating disk space | a range in front of data gets "
    "no space"
)
class FallocateBeforeDataIgnored(_Allocating):
    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        data = _next(handle, offset, os.SEEK_DATA)
        return [] if data is not None and data >= offset + length else [(offset, length)]


@mutant(
    "fallocate-takes-all-before | fallocate(2): Allocating disk space | all of the hole behind a range gets "
    "space, up to the next data"
)
class FallocateTakesAllBefore(_Allocating):
    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        data = _next(handle, offset, os.SEEK_DATA)
        return [(offset, length if data is None else max(length, data - offset))]


@mutant(
    "fallocate-ends-at-data | fallocate(2): Allocating disk space | a range gets space up to the first data "
    "that are in it"
)
class FallocateEndsAtData(_Allocating):
    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        hole = _next(handle, offset, os.SEEK_HOLE)
        data = _next(handle, offset if hole is None else hole, os.SEEK_DATA)
        return [(offset, length if data is None else max(1, min(length, data - offset)))]


@mutant(
    "fallocate-in-whole-pages | fallocate(2): Allocating disk space | only a range's whole pages get space"
)
class FallocateInWholePages(_Allocating):
    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        start, end = -(-offset // 4096) * 4096, (offset + length) // 4096 * 4096
        return [(start, end - start)] if start < end else []


@mutant("fallocate-second-ignored | fallocate(2): Allocating disk space | a file is given space once")
class FallocateSecondIgnored(_Allocating):
    def ranges(self, node: int, handle: int, offset: int, length: int) -> list[tuple[int, int]]:
        given: set[int] = self.__dict__.setdefault("given", set())
        first = handle not in given
        given.add(handle)
        return [(offset, length)] if first else []
