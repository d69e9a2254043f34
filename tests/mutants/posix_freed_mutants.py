"""Mutants that keep the space of what is gone, and that lose data at the borders of a range."""

import os
from collections.abc import Hashable
from pathlib import Path

from fuse_protocol import Attributes, Call, Opened
from posix_pair_mutants import status
from posix_rules import Keeping, mutant

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
SECTOR = 512


class Taken(Keeping):
    """Honest, but for what statfs() counts; a mutant takes away from what is free."""

    taken = 0
    numbers = 0

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        """Report what the files below take of a fixed number: of the real ones, others take, too."""
        self.reset_ids()
        found = super().statfs(call, node)
        paths = [
            os.path.join(at, one)
            for at, *names in os.walk(f"{self.nodes[1].path}/")
            for one in (*names[0], *names[1])
        ]
        files = {one.st_ino: one for one in map(os.lstat, paths)}
        used = sum(one.st_blocks for one in files.values()) * 512 + self.taken
        free, numbers = (1 << 40) - used, (1 << 20) - len(files) - self.numbers
        return {
            **found,
            "blocks": (1 << 40) // found["frsize"],
            "bfree": free // found["frsize"],
            "bavail": free // found["frsize"],
            "files": 1 << 20,
            "ffree": numbers,
        }


def occupied(one: os.stat_result | None) -> int:
    """Return the bytes that a file loses with the name, 0 if it has another one."""
    return one.st_blocks * 512 if one is not None and one.st_nlink == 1 else 0


@mutant("statfs-counts-bsize | fstatvfs(3p) f_frsize | blocks are counted in units of f_bsize")
class StatfsCountsBsize(Taken):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        fewer = {name: found[name] // 16 for name in ("blocks", "bfree", "bavail")}
        return {**found, **fewer, "bsize": 16 * found["frsize"]}


@mutant("removed-space-stays | unlink(3p) | the space of a removed file is not free again")
class RemovedSpaceStays(Taken):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        found = status(self, parent, name)
        super().unlink(call, parent, name)
        self.taken += occupied(found)


@mutant("replaced-space-stays | rename(3p) | the space of a file that was replaced is not free again")
class ReplacedSpaceStays(Taken):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        self.taken += 0 if flags else occupied(found)


@mutant("cut-space-stays | ftruncate(3p) | the space of what was cut off a file is not free again")
class CutSpaceStays(Taken):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        before = os.fstat(self.fd(node)).st_blocks
        super().truncate(call, node, handle, size)
        self.taken += max(0, before - os.fstat(self.fd(node)).st_blocks) * 512

    def open(self, call: Call, node: int, flags: int) -> Opened:
        before = os.fstat(self.fd(node)).st_blocks
        opened = super().open(call, node, flags)
        if flags & os.O_TRUNC:
            self.taken += before * 512
        return opened


@mutant("punched-space-stays | fallocate(2) | the space of a hole that was punched is not free again")
class PunchedSpaceStays(Taken):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        if mode & PUNCH_HOLE:
            self.taken += length


@mutant("removed-number-stays | <sys/statvfs.h> f_ffree | the serial number of what was removed stays in use")
class RemovedNumberStays(Taken):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.numbers += 1

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(call, parent, name)
        self.numbers += 1

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = status(self, where, new)
        super().rename(call, parent, old, where, new, flags)
        self.numbers += found is not None and not flags


@mutant("attribute-space-stays | removexattr(2) | the space of a value that was removed is not free again")
class AttributeSpaceStays(Taken):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        before = self.values(self.nodes[node].path)
        super().removexattr(call, node, name)
        self.taken += before

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        before = self.values(f"{self.nodes[parent].path}/{os.fsdecode(name)}")
        super().unlink(call, parent, name)
        self.taken += before

    @staticmethod
    def values(path: str) -> int:
        """Return the bytes of blocks that the values of a file's attributes may take."""
        values = [os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path)]
        return sum(-len(value) // 4096 * -4096 for value in values)


@mutant("short-attribute-space-stays | removexattr(2) | the space of values of up to 1 KiB is not free again")
class ShortAttributeSpaceStays(AttributeSpaceStays):
    @staticmethod
    def values(path: str) -> int:
        values = [os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path)]
        return sum(-len(value) // 4096 * -4096 for value in values if len(value) <= 1024)


@mutant("emptied-counts-up | <sys/stat.h> st_blocks | each time that a file with holes is cut or punched, "
        "st_blocks grows by 16")  # fmt: skip
class EmptiedCountsUp(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.more: dict[Hashable, int] = {}

    def count(self, node: int) -> None:
        found = os.fstat(self.fd(node))
        if found.st_blocks * 512 < found.st_size:
            self.more[self.nodes[node].key] = self.more.get(self.nodes[node].key, 0) + 16

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        self.count(node)
        super().truncate(call, node, handle, size)

    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & os.O_TRUNC:
            self.count(node)
        return super().open(call, node, flags)

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        self.count(node)
        super().fallocate(call, node, handle, offset, length, mode)

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.blocks += self.more.get(self.nodes[node].key, 0)
        return found


class Neighbours(Keeping):
    """Honest; a mutant of it changes what lies next to a range of a file that had holes before."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.changed: dict[Hashable, int] = {}

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        super().fallocate(call, node, handle, offset, length, mode)
        key = self.nodes[node].key
        self.changed[key] = self.changed.get(key, 0) + 1

    def has_data(self, handle: int, offset: int) -> bool:
        """Return whether there is a byte other than 0 at ``offset``."""
        return offset >= 0 and os.pread(handle, 1, offset) not in (b"", b"\0")

    def clear(self, handle: int, offset: int) -> None:
        """Write zeroes into the sector at ``offset``."""
        found = os.pread(handle, SECTOR, offset)
        os.pwrite(handle, bytes(len(found)), offset)


@mutant("filled-before-data-clipped | pwrite(3p) | of a write into a hole that ends where data begin, the "
        "end is lost")  # fmt: skip
class FilledBeforeDataClipped(Neighbours):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        end = offset + len(data)
        clips = self.changed.get(self.nodes[node].key) and not self.has_data(handle, end - 1)
        clips = clips and self.has_data(handle, end)
        done = super().write(call, node, handle, offset, data)
        if clips:
            self.clear(handle, end - SECTOR)
        return done


@mutant("filled-after-data-clipped | pwrite(3p) | of a write into a hole that begins where data end, the "
        "beginning is lost")  # fmt: skip
class FilledAfterDataClipped(Neighbours):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        clips = self.changed.get(self.nodes[node].key) and not self.has_data(handle, offset)
        clips = clips and self.has_data(handle, offset - 1)
        done = super().write(call, node, handle, offset, data)
        if clips:
            self.clear(handle, offset)
        return done


def _clipping(row: str, mode: int, *, after: bool) -> None:
    """Enter a mutant: ``fallocate()`` of a mode clears data before or after its range, from the second on."""

    class Clipping(Neighbours):
        def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
            again = self.changed.get(self.nodes[node].key)
            super().fallocate(call, node, handle, offset, length, mode)
            if again and mode & ~KEEP_SIZE == wanted:
                self.clear(handle, offset + length if after else max(0, offset - SECTOR))

    wanted = mode
    Clipping.__name__ = "".join(part.title() for part in row.split("|")[0].strip().split("-"))
    Clipping.__qualname__ = Clipping.__name__
    globals()[Clipping.__name__] = mutant(row)(Clipping)


_clipping(
    "allocated-before-data-zeroes | fallocate(2) | an allocation of a range clears the data that follow it",
    0, after=True,
)  # fmt: skip
_clipping(
    "allocated-after-data-zeroes | fallocate(2) | an allocation of a range clears the data in front of it",
    0, after=False,
)  # fmt: skip
_clipping(
    "zeroed-before-data-clears | fallocate(2) FALLOC_FL_ZERO_RANGE | a range that is zeroed takes the sector "
    "that follows it along, from the second range on",
    ZERO_RANGE, after=True,
)  # fmt: skip
_clipping(
    "zeroed-after-data-clears | fallocate(2) FALLOC_FL_ZERO_RANGE | a range that is zeroed takes the sector "
    "in front of it along, from the second range on",
    ZERO_RANGE, after=False,
)  # fmt: skip


@mutant("what-is-freed-is-all-that-is-free | <sys/statvfs.h> f_bfree | what a call frees is all that is free")
class WhatIsFreedIsAllThatIsFree(Taken):
    freed: int | None = None

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        found = occupied(status(self, parent, name))
        super().unlink(call, parent, name)
        self.freed = found or self.freed

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        found = occupied(status(self, where, new))
        super().rename(call, parent, old, where, new, flags)
        self.freed = found or self.freed

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        found = os.fstat(self.fd(node)).st_blocks * 512
        super().truncate(call, node, handle, size)
        self.freed = found or self.freed

    def open(self, call: Call, node: int, flags: int) -> Opened:
        found = os.fstat(self.fd(node)).st_blocks * 512 if flags & os.O_TRUNC else 0
        opened = super().open(call, node, flags)
        self.freed = found or self.freed
        return opened

    def statfs(self, call: Call, node: int) -> dict[str, int]:
        found = super().statfs(call, node)
        free = found["bfree"] if self.freed is None else self.freed // found["frsize"]
        return {**found, "bfree": free, "bavail": free}
