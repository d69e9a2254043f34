"""Disks that break one promise: files under a loop device, served over FUSE.

:class:`Disk` is honest. It has a volatile write cache, which a flush empties and which is lost when something
is written to the file ``disk.power`` in its directory: unflushed blocks return to their old data. Every other
class here breaks one rule, its ``section``; its docstring states how, and :data:`MUTANTS` has them by name.

The loop driver turns what the kernel asks of a block device into calls on the file: discards come as
``FALLOC_FL_PUNCH_HOLE``, zeroes as that or as ``FALLOC_FL_ZERO_RANGE``, flushes (and forced writes, which a
loop device does not know) as fsync(2).
"""

import os
import select
import threading
from pathlib import Path

from fuse_passthrough import PassThrough
from fuse_protocol import DIRECT_IO, Attributes, Call, Later, Opened, answer

DISK, POWER, ACTED = "disk", "disk.power", "acted"
SECTOR = 512
PARALLEL_DIRECT_WRITES = 1 << 6  # FOPEN_*: the kernel need not make one write wait for another
PUNCH_HOLE = 0x02


class Disk(PassThrough):
    """Nothing is broken."""

    section = ""
    description = ""

    def __init_subclass__(cls, section: str = "") -> None:
        cls.section, cls.description = section or cls.section, str(cls.__doc__)

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.below = below
        self._undo: list[tuple[int, bytes]] = []
        self._power = (below / POWER).stat().st_ino
        self.turn = 0
        self.handle = -1

    # What a mutant overrides.

    def get(self, offset: int, size: int) -> bytes:
        return os.pread(self.handle, size, offset)

    def put(self, offset: int, data: bytes) -> None:
        self.store(offset, data)

    def zero(self, offset: int, length: int) -> None:
        self.store(offset, bytes(length))

    def discard(self, offset: int, length: int) -> None:
        self.store(offset, bytes(length))

    def sync(self) -> None:
        self._undo.clear()

    # What a mutant calls.

    def store(self, offset: int, data: bytes) -> None:
        """Write, so that a power cut before the next flush takes it back."""
        self._undo.append((offset, os.pread(self.handle, len(data), offset)))
        os.pwrite(self.handle, data, offset)

    def every(self, count: int) -> bool:
        """Whether this is one of every ``count`` calls; if so, the mutant acts."""
        self.turn += 1
        return self.turn % count == 0 and self.acts()

    def acts(self) -> bool:
        (self.below / ACTED).touch()
        return True

    def cut(self) -> None:
        """Lose what was not flushed."""
        for offset, before in reversed(self._undo):
            os.pwrite(self.handle, before, offset)
        self._undo.clear()

    # What the kernel calls.

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        if os.fstat(opened.handle).st_ino != self._power:
            self.handle = opened.handle
        return Opened(opened.handle, DIRECT_IO | PARALLEL_DIRECT_WRITES)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return self.get(offset, size)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if os.fstat(handle).st_ino == self._power:
            self.cut()
        else:
            self.put(offset, data)
        return len(data)

    def fsync(self, call: Call, node: int, handle: int, *, data_only: bool) -> None:
        self.sync()

    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        (self.discard if mode & PUNCH_HOLE else self.zero)(offset, length)


class WriteLost(Disk, section="NVM 3.3.6"):
    """one write of seven is acknowledged and not executed"""

    def put(self, offset: int, data: bytes) -> None:
        if not self.every(7):
            self.store(offset, data)


class WriteTorn(Disk, section="NVM 3.3.6"):
    """a write of several blocks does not change the second half of them"""

    def put(self, offset: int, data: bytes) -> None:
        blocks = len(data) // SECTOR
        self.store(offset, data[: (blocks + 1) // 2 * SECTOR] if blocks > 1 and self.acts() else data)


class WriteHalfABlock(Disk, section="NVM 2.1.4"):
    """one written block of three keeps its old second half"""

    def put(self, offset: int, data: bytes) -> None:
        self.store(offset, data[: -SECTOR // 2] if self.every(3) else data)


class WriteMisplaced(Disk, section="NVM 3.3.6"):
    """one write of five goes to the block after the requested one"""

    def put(self, offset: int, data: bytes) -> None:
        self.store(offset + (SECTOR if self.every(5) else 0), data)


class WriteSpillsOver(Disk, section="NVM 3.3.6"):
    """a write also changes the block after its last one"""

    def put(self, offset: int, data: bytes) -> None:
        self.acts()
        self.store(offset, data)
        self.store(offset + len(data), data[-SECTOR:])


class WriteSwapped(Disk, section="NVM 3.3.6"):
    """two adjacent blocks that are written in quick succession get each other's data"""

    SOON = 64  # writes: more than a case has threads, so that how they take turns makes no difference

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.recent: dict[int, bytes] = {}

    def put(self, offset: int, data: bytes) -> None:
        self.recent.pop(offset, None)
        self.store(offset, data)
        if len(data) != SECTOR:
            return
        for where in (offset - SECTOR, offset + SECTOR):
            if where in self.recent and self.acts():
                self.store(offset, self.recent.pop(where))
                self.store(where, data)
                return
        self.recent[offset] = data
        if len(self.recent) > self.SOON:
            del self.recent[next(iter(self.recent))]


class WriteLate(Disk, section="NVM 3.3.6"):
    """of two overlapping consecutive writes, the older one is executed last"""

    before = (0, b"")

    def put(self, offset: int, data: bytes) -> None:
        where, what = self.before
        self.store(offset, data)
        if where < offset + len(data) and offset < where + len(what) and self.acts():
            self.store(where, what)
        self.before = (offset, data)


class WriteAgain(Disk, section="NVM Base 9.6"):
    """every write is executed again two writes later, like a retry of a successful write"""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.before: list[tuple[int, bytes]] = []

    def put(self, offset: int, data: bytes) -> None:
        self.store(offset, data)
        self.before.append((offset, data))
        if len(self.before) > 2 and self.acts():
            self.store(*self.before.pop(0))


class WriteCutShort(Disk, section="NVM 3.3.6"):
    """a write across a boundary of 64 KiB is executed up to the boundary"""

    def put(self, offset: int, data: bytes) -> None:
        space = 65536 - offset % 65536
        if space < len(data) and self.acts():
            data = data[:space]
        self.store(offset, data)


class FlipOnWrite(Disk, section="NVM 3.3.6"):
    """one written block of eight is stored with a flipped bit"""

    def put(self, offset: int, data: bytes) -> None:
        changed = bytearray(data)
        for block in range(len(data) // SECTOR):
            if self.every(8):
                changed[block * SECTOR + 300] ^= 0x10
        self.store(offset, bytes(changed))


class FlipOnRead(Disk, section="NVM 3.3.4"):
    """one read of twenty returns a flipped bit"""

    def get(self, offset: int, size: int) -> bytes:
        data = bytearray(super().get(offset, size))
        if self.every(20):
            data[-5] ^= 0x01
        return bytes(data)


class ReadStale(Disk, section="NVM 3.3.4"):
    """a second read of a block comes from a cache that writes do not update"""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.cache: dict[int, bytes] = {}

    def get(self, offset: int, size: int) -> bytes:
        data = bytearray(super().get(offset, size))
        for at in range(0, size, SECTOR):
            old = self.cache.setdefault(offset + at, bytes(data[at : at + SECTOR]))
            if old != data[at : at + SECTOR] and self.acts():
                data[at : at + SECTOR] = old
        return bytes(data)


class ReadNextBlock(Disk, section="NVM 3.3.4"):
    """a read of a single block that is not the first of eight returns the block after it"""

    def get(self, offset: int, size: int) -> bytes:
        off = size == SECTOR and offset // SECTOR % 8 and self.acts()
        return super().get(offset + (SECTOR if off else 0), size)


class ReadSwapped(Disk, section="NVM Base 3.3.1"):
    """one of four concurrent reads returns the data of another"""

    before = (0, 0)

    def get(self, offset: int, size: int) -> bytes:
        concurrent = self.before[1] == size and self.before[0] != offset and waiting(0.004)
        place = self.before[0] if concurrent and self.every(4) else offset
        self.before = (offset, size)
        return super().get(place, size)


class ReadShort(Disk, section="NVM 3.3.4"):
    """a read of more than 32 KiB returns zeroes after the first 32 KiB"""

    def get(self, offset: int, size: int) -> bytes:
        data = super().get(offset, size)
        return data[:32768] + bytes(len(data) - 32768) if len(data) > 32768 and self.acts() else data


class ZeroesInstead(Disk, section="NVM 3.3.6"):
    """a block that was written once reads as zeroes until a second write"""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.seen: set[int] = set()

    def put(self, offset: int, data: bytes) -> None:
        if offset in self.seen:
            self.store(offset, data)
        else:
            self.acts()
            self.seen.add(offset)
            self.store(offset, bytes(len(data)))


class ZeroesNowAndThen(Disk, section="NVM 3.3.4"):
    """one read of thirty returns zeroes"""

    def get(self, offset: int, size: int) -> bytes:
        return bytes(size) if self.every(30) else super().get(offset, size)


class CompressesBadly(Disk, section="NVM 3.3.6"):
    """a write of a repeated byte changes every block that equals its first block"""

    def put(self, offset: int, data: bytes) -> None:
        if data and data == data[:1] * len(data) and data[:1] not in b"\0" and self.acts():
            data = data[:-SECTOR] + bytes(SECTOR)
        self.store(offset, data)


class WriteLostUnderLoad(Disk, section="NVM Base 3.3.1"):
    """one of six concurrent writes is acknowledged and not executed"""

    def put(self, offset: int, data: bytes) -> None:
        if not (waiting(0.004) and self.every(6)):
            self.store(offset, data)


class TearsWhileRead(Disk, section="NVM 2.1.4"):
    """a read during a write of a block returns half of the write"""

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        half = bytes(data[: SECTOR // 2])
        self.store(offset, half)
        if not waiting(0.004):
            self.store(offset + len(half), data[len(half) :])
            return len(data)
        threading.Timer(0.004, self._finish, (call.unique, handle, offset, data)).start()
        self.acts()
        raise Later

    def _finish(self, unique: int, handle: int, offset: int, data: bytes) -> None:
        os.pwrite(handle, data, offset)
        answer(device(), unique, 0, len(data).to_bytes(8, "little"))


class FlushIgnored(Disk, section="NVM Base 7.2"):
    """a flush is acknowledged and not executed"""

    def sync(self) -> None:
        self.acts()


class FlushFails(Disk, section="NVM Base 7.2"):
    """every flush fails with an input/output error"""

    def sync(self) -> None:
        self.acts()
        raise OSError(5, "flush")


class FlushLoses(Disk, section="NVM Base 7.2"):
    """a flush reverts the write before it"""

    def sync(self) -> None:
        if self._undo and self.acts():
            offset, before = self._undo[-1]
            os.pwrite(self.handle, before, offset)
        super().sync()


class DiscardMisplaced(Disk, section="NVM 3.3.3"):
    """a discard affects the blocks after the requested ones"""

    def discard(self, offset: int, length: int) -> None:
        self.acts()
        self.store(offset + length, bytes(length))


class DiscardSpills(Disk, section="NVM 3.3.3"):
    """a discard also affects the block before its first"""

    def discard(self, offset: int, length: int) -> None:
        self.acts()
        self.store(offset - SECTOR, bytes(length + SECTOR))


class DiscardRoundsUp(Disk, section="NVM 3.3.3"):
    """a discard affects whole units of 4 KiB, even if only a part is requested"""

    def discard(self, offset: int, length: int) -> None:
        self.acts()
        start, end = offset // 4096 * 4096, -(-(offset + length) // 4096) * 4096
        self.store(start, bytes(end - start))


class DiscardGivesOthers(Disk, section="NVM 3.3.3.2.1"):
    """a discarded block reads as the contents of the blocks before the discarded ones"""

    def discard(self, offset: int, length: int) -> None:
        self.acts()
        self.store(offset, os.pread(self.handle, SECTOR, offset + length) * (length // SECTOR))


class DiscardUnsteady(Disk, section="NVM 3.3.3.2.1"):
    """a discarded block returns other data on each read"""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.gone: list[tuple[int, int]] = []

    def discard(self, offset: int, length: int) -> None:
        super().discard(offset, length)
        self.gone.append((offset, offset + length))

    def get(self, offset: int, size: int) -> bytes:
        if any(start <= offset < end for start, end in self.gone) and self.every(2):
            return b"\xff" * size
        return super().get(offset, size)


class DiscardLate(Disk, section="NVM 3.3.3"):
    """a discard is executed after the write that follows it"""

    held: tuple[int, int] | None = None

    def discard(self, offset: int, length: int) -> None:
        self.held = (offset, length)

    def put(self, offset: int, data: bytes) -> None:
        self.store(offset, data)
        if self.held is not None and self.acts():
            self.store(self.held[0], bytes(self.held[1]))
            self.held = None


class ZeroingIgnored(Disk, section="NVM 3.3.8"):
    """zeroes are acknowledged and not written"""

    def zero(self, offset: int, length: int) -> None:
        self.acts()

    discard = zero


class ZeroingShort(Disk, section="NVM 3.3.8"):
    """the last of the blocks to be zeroed is omitted"""

    def zero(self, offset: int, length: int) -> None:
        self.acts()
        self.store(offset, bytes(length - SECTOR))

    discard = zero


class ZeroingSpills(Disk, section="NVM 3.3.8"):
    """the block after those to be zeroed is also zeroed"""

    def zero(self, offset: int, length: int) -> None:
        self.acts()
        self.store(offset, bytes(length + SECTOR))


class ZeroingRoundsDown(Disk, section="NVM 3.3.8"):
    """only whole units of 4 KiB are zeroed"""

    def zero(self, offset: int, length: int) -> None:
        start, end = -(-offset // 4096) * 4096, (offset + length) // 4096 * 4096
        if (start, end) != (offset, offset + length):
            self.acts()
        self.store(start, bytes(max(0, end - start)))


class ZeroingLate(Disk, section="NVM 3.3.8"):
    """zeroes are written after the write that follows"""

    held: tuple[int, int] | None = None

    def zero(self, offset: int, length: int) -> None:
        self.held = (offset, length)

    def get(self, offset: int, size: int) -> bytes:
        if self.held is not None and self.acts():
            self.store(self.held[0], bytes(self.held[1]))
            self.held = None
        return super().get(offset, size)


class SizeLiesAndWraps(Disk, section="NVM Identify NSZE"):
    """the disk reports twice its size, and wraps round at its end"""

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if found.ino != self._power and found.size:
            self.real, found.size = found.size, 2 * found.size
        return found

    def get(self, offset: int, size: int) -> bytes:
        return super().get(offset % self.real, size)

    def put(self, offset: int, data: bytes) -> None:
        self.acts()
        self.store(offset % self.real, data)


class SizeLiesAndFails(SizeLiesAndWraps):
    """the disk reports twice its size, and returns errors past its end"""

    def get(self, offset: int, size: int) -> bytes:
        self._held(offset, size)
        return super().get(offset, size)

    def put(self, offset: int, data: bytes) -> None:
        self._held(offset, len(data))
        super().put(offset, data)

    def _held(self, offset: int, size: int) -> None:
        if offset + size > self.real and self.acts():
            raise OSError(5, "past the end")


def device() -> int:
    """Return the descriptor of /dev/fuse that this process serves."""
    listed = Path("/proc/self/fd").iterdir()
    return next(int(one.name) for one in listed if one.is_symlink() and str(one.readlink()) == "/dev/fuse")


def waiting(seconds: float = 0.0) -> bool:
    """Whether the kernel has another request to make, or does within so many seconds."""
    return bool(select.select([device()], [], [], seconds)[0])


def _name(kind: type) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in kind.__name__).lstrip("-")


def _below(kind: type[Disk]) -> list[type[Disk]]:
    return [each for one in kind.__subclasses__() for each in (one, *_below(one))]


MUTANTS: dict[str, type[Disk]] = {_name(kind): kind for kind in _below(Disk)}
