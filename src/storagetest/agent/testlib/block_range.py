"""A range of a block device that one case uses exclusively, and system calls on it.

Blocks are logical blocks, numbered from 0 within the range; no method writes outside the range. Reads and
writes bypass the page cache (O_DIRECT), so reads return the device's data. Data are self-describing
(:mod:`storagetest.agent.testlib.block_patterns`): ``write`` writes a generation of blocks, and
``assert_generation`` reads them back and describes what is wrong.

The ioctls are those of linux/fs.h (BLKDISCARD, BLKZEROOUT, BLKFLSBUF, BLKSSZGET, BLKPBSZGET, BLKGETSIZE64);
the modes of fallocate(2) on a device are described there under FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import mmap
import os
import re
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager

from storagetest.agent import fsutil
from storagetest.agent.testlib import block_patterns

EDGE = 1 << 20
"""Bytes at a device's start and end that are in no range: they are wiped at every attach and detach."""

RANGE = 1 << 20
"""Bytes of a case's range."""

BLKFLSBUF = 0x1261
BLKSSZGET = 0x1268
BLKDISCARD = 0x1277
BLKPBSZGET = 0x127B
BLKZEROOUT = 0x127F
BLKGETSIZE64 = 0x80081272

FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_ZERO_RANGE = 0x10

RWF_DSYNC = 0x02

_HIDDEN = re.compile(r"(nvme\d+)c\d+(n\d+)")

# Linux, Documentation/block/stat.rst.
_STATISTICS = (
    *("read_ios", "read_merges", "read_sectors", "read_ticks"),
    *("write_ios", "write_merges", "write_sectors", "write_ticks"),
    *("in_flight", "io_ticks", "time_in_queue"),
    *("discard_ios", "discard_merges", "discard_sectors", "discard_ticks"),
    *("flush_ios", "flush_ticks"),
)


def disk_of(name: str) -> str:
    """Return the NVMe disk of the hidden path ``name`` (nvme0n1 of nvme0c1n1); else ``name`` itself."""
    hidden = _HIDDEN.fullmatch(name)
    return hidden[1] + hidden[2] if hidden else name


def range_count(size: int) -> int:
    """Return the number of ranges of a device of ``size`` bytes."""
    return max(0, (size - 2 * EDGE) // RANGE)


class BlockRange:
    """``length`` bytes from ``offset`` of ``device``. Use as a context manager, or call :meth:`close`.

    ``logical`` and ``physical`` are block sizes in bytes, ``count`` the logical blocks of the range, ``size``
    the bytes of the whole device. Raises OSError if the device cannot be opened, and ValueError if the range
    is not on the device or not whole blocks.
    """

    def __init__(self, device: str, offset: int, length: int, *, seed: int = 1) -> None:
        self.device, self.offset, self.length, self.seed = device, offset, length, seed
        self.fd = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        try:
            self.logical = self._number(BLKSSZGET, "=i")
            self.physical = self._number(BLKPBSZGET, "=I")
            self.size = self._number(BLKGETSIZE64, "=Q")
        except BaseException:
            os.close(self.fd)
            raise
        if offset % self.logical or length % self.logical or offset + length > self.size or length <= 0:
            os.close(self.fd)
            span = f"{length} bytes at {offset}"
            raise ValueError(f"{span} are not whole blocks of {self.logical} on {device} ({self.size} bytes)")
        self.count = length // self.logical
        number = os.stat(device).st_rdev
        self.sysfs = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"

    def __enter__(self) -> BlockRange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the device. Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def reopen(self, flags: int = 0) -> AbstractContextManager[int]:
        """Open the device again, read-write and with ``flags``; yield the descriptor."""
        return fsutil.open_fd(self.device, os.O_RDWR | os.O_CLOEXEC | flags)

    def last(self, count: int) -> BlockRange:
        """Return the last ``count`` blocks of the device: they are in no range; one case uses them."""
        if count * self.logical > EDGE:
            raise ValueError(f"{count} blocks are more than the device's edge that is in no range")
        first = self.size // self.logical - count
        return BlockRange(self.device, first * self.logical, count * self.logical, seed=self.seed)

    @staticmethod
    def buffer(data: bytes) -> memoryview:
        """Return a copy of ``data`` in memory for O_DIRECT: it starts on a page."""
        memory = mmap.mmap(-1, max(1, len(data)))
        memory[: len(data)] = data
        return memoryview(memory)[: len(data)]

    # Writes and reads.

    def write(
        self, first: int, count: int = 1, generation: int = 1, *, fd: int | None = None, flags: int = 0
    ) -> None:
        """Write a generation of blocks in one call, pwritev2(2) with ``flags``. Fails on a short write."""
        self.write_bytes(first, self.pattern(first, count, generation), fd=fd, flags=flags)

    def write_bytes(self, first: int, data: bytes, *, fd: int | None = None, flags: int = 0) -> None:
        """Write whole blocks of any data in one call. Fails on a short write."""
        offset = self.at(first, len(data) // self.logical)
        written = os.pwritev(self.fd if fd is None else fd, [self.buffer(data)], offset, flags)
        assert written == len(data), f"a write of {len(data)} bytes wrote {written}"

    def read(self, first: int, count: int = 1, *, fd: int | None = None) -> bytes:
        """Read blocks in one call. Fails on a short read."""
        offset, size = self.at(first, count), count * self.logical
        buffer = self.buffer(bytes(size))
        got = os.preadv(self.fd if fd is None else fd, [buffer], offset)
        assert got == size, f"a read of {size} bytes returned {got}"
        return bytes(buffer)

    def pattern(self, first: int, count: int, generation: int) -> bytes:
        """Return the data of a generation of blocks."""
        return block_patterns.make_blocks(self._number_of(first), count, generation, self.seed, self.logical)

    def assert_generation(
        self, first: int, count: int = 1, generation: int = 1, *, fd: int | None = None
    ) -> None:
        """Assert that all blocks are whole and of that generation."""
        data = self.read(first, count, fd=fd)
        wrong = block_patterns.describe_mismatches(
            data, self._number_of(first), generation, self.seed, self.logical
        )
        assert not wrong, wrong

    def assert_any_generation(self, first: int, count: int, generations: Sequence[int]) -> list[int]:
        """Assert that each block is whole and of one of ``generations`` (0: zeroes); return each block's."""
        data, result = self.read(first, count), []
        for index in range(count):
            block = data[index * self.logical : (index + 1) * self.logical]
            number = self._number_of(first) + index
            mismatches = {each: self._mismatch(block, number, each) for each in generations}
            matching = [each for each, mismatch in mismatches.items() if not mismatch]
            assert matching, f"block {number}: {mismatches[max(generations)]}"
            result.append(matching[0])
        return result

    def assert_zeroes(self, first: int, count: int = 1) -> None:
        """Assert that the blocks read as zeroes."""
        data = self.read(first, count)
        for offset in range(0, len(data) if any(data) else 0, self.logical):
            block = data[offset : offset + self.logical]
            if any(block):
                header = block_patterns.parse(block)
                content = (
                    f"generation {header.generation} of block {header.number}" if header else block[:16].hex()
                )
                number = self._number_of(first) + offset // self.logical
                raise AssertionError(f"block {number} holds {content} and not zeroes")

    def header(self, first: int) -> block_patterns.BlockHeader | None:
        """Return the header of one block, or None if it has none."""
        return block_patterns.parse(self.read(first))

    # Other requests to the device.

    def flush(self, fd: int | None = None) -> None:
        """Make all written data durable (fsync(2))."""
        os.fsync(self.fd if fd is None else fd)

    def discard(self, first: int, count: int) -> None:
        """BLKDISCARD: the blocks' contents are no longer needed."""
        self.range_ioctl(BLKDISCARD, first * self.logical, count * self.logical)

    def zero_out(self, first: int, count: int) -> None:
        """BLKZEROOUT: the blocks read as zeroes from now on."""
        self.range_ioctl(BLKZEROOUT, first * self.logical, count * self.logical)

    def range_ioctl(self, request: int, start: int, length: int) -> None:
        """Make an ioctl on a span of bytes; ``start`` is relative to the range."""
        if start < 0 or length < 0 or start + length > self.length:
            raise ValueError(f"{length} bytes at {start} of a range of {self.length}")
        fcntl.ioctl(self.fd, request, struct.pack("=QQ", self.offset + start, length))

    def fallocate(self, mode: int, first: int, count: int) -> None:
        """Punch or zero the blocks by system call; FALLOC_FL_KEEP_SIZE is added."""
        fallocate(self.fd, mode | FALLOC_FL_KEEP_SIZE, self.at(first, count), count * self.logical)

    def drop_cache(self) -> None:
        """BLKFLSBUF: write back and drop the device's pages from the page cache."""
        fcntl.ioctl(self.fd, BLKFLSBUF, 0)

    def attribute(self, name: str, default: str = "") -> str:
        """Return a file of the device's sysfs directory (``queue/write_cache``), stripped."""
        text = fsutil.read_text(f"{self.sysfs}/{name}")
        return default if text is None else text.strip()

    def list_sysfs(self, name: str) -> list[str]:
        """Return the entries of a directory in the device's sysfs directory; [] if it does not exist."""
        try:
            return sorted(os.listdir(f"{self.sysfs}/{name}"))
        except OSError:
            return []

    def statistics(self) -> dict[str, int]:
        """Return the counters of the block layer for the whole device, by name.

        For a device with several paths, the counters are the sums of the paths', which count the flushes.
        """
        counts: dict[str, int] = {}
        for directory in self._paths() or [self.sysfs]:
            numbers = fsutil.read_text(f"{directory}/stat") or ""  # "": the path was removed meanwhile
            for name, number in zip(_STATISTICS, numbers.split()):
                counts[name] = counts.get(name, 0) + int(number)
        return counts

    def _paths(self) -> list[str]:
        """Return the sysfs directories of the device's paths."""
        disk = os.path.basename(os.path.realpath(self.sysfs))
        hidden = glob.glob("/sys/class/nvme/*/nvme*c*n*") if disk.startswith("nvme") else []
        return [f"{self.sysfs}/slaves/{name}" for name in self.list_sysfs("slaves")] + [
            path for path in hidden if disk_of(os.path.basename(path)) == disk
        ]

    def cut_power(self) -> bool:
        """Cut the target's power and restore it; return whether there is a switch for it.

        Only a loop device can have one: a file with the name of its backing file and the suffix ``.power``.
        """
        switch = f"{self.attribute('loop/backing_file')}.power"
        if not os.path.exists(switch):
            return False
        with open(switch, "wb", buffering=0) as file:
            file.write(b"cut")
        return True

    def at(self, first: int, count: int) -> int:
        """Return the offset of block ``first`` on the device; ValueError if a block is not in the range."""
        if first < 0 or count < 1 or first + count > self.count:
            raise ValueError(f"blocks {first} to {first + count - 1} of a range of {self.count}")
        return self.offset + first * self.logical

    def _number_of(self, first: int) -> int:
        return self.offset // self.logical + first

    def _mismatch(self, block: bytes, number: int, generation: int) -> str:
        if generation == 0:
            return "no zeroes" if any(block) else ""
        return block_patterns.describe_mismatch(block, number, generation, self.seed)

    def _number(self, request: int, form: str) -> int:
        packed = fcntl.ioctl(self.fd, request, bytes(struct.calcsize(form)))
        return int(struct.unpack(form, packed)[0])


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Call the system call with a mode, which os.posix_fallocate does not have. Raises OSError."""
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    while call(descriptor, mode, offset, length) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
