"""A seeded random sequence of data operations on one file, each compared with a :class:`ByteModel`.

Invariants: the model has made the same operations as the file; each operation is followed by a look at the
size and at the bytes around it, through another descriptor than the one that made it; a full comparison by a
new open ends the sequence. A mismatch is an AssertionError that names the last operations.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from storagetest.agent.testlib.byte_model import ByteModel, first_difference
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.outcomes import CannotRun

SIZES = (1, 2, 511, 512, 513, 4095, 4096, 4097, 8192, 12_289, 65_535, 65_536, 65_537, 131_073)
"""Lengths of writes and other ranges: around a sector, a page, and 64 KiB (chosen)."""
MOST = 400_000
"""Bytes of a file whose sequence begins at offset 0 (chosen)."""
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.ENOTTY)


class FileSequence:
    """Operations on ``directory``/f from ``base`` on. A context manager: it closes what it opened.

    ``base``: the offset around which the operations are; the file is sparse below it.
    """

    def __init__(self, directory: Path, seed: int, *, base: int = 0) -> None:
        self.directory, self.base = directory, base
        self.path = directory / "f"
        self.model, self.other = ByteModel(), ByteModel()
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.log: list[str] = []
        self.lacking: set[str] = set()
        self.fds: list[int] = []
        self.reused: list[tuple[int, int]] = []  # ranges that were used before
        self.names = 0
        self._sizes: dict[str, list[int]] = {}

    def __enter__(self) -> FileSequence:
        flags = (os.O_CREAT | os.O_RDWR, os.O_RDWR, os.O_RDWR | os.O_APPEND)
        self.fds = [os.open(self.path, flag, 0o644) for flag in flags]
        self.copy = os.open(self.directory / "copy", os.O_CREAT | os.O_RDWR, 0o644)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in [*self.fds, self.copy]:
            os.close(descriptor)

    def run(self, seconds: float, least: int) -> int:
        """Run until ``seconds`` have passed, but ``least`` operations; return how many ran."""
        operations = self.operations()
        until, count = time.monotonic() + seconds, 0
        while count < least or time.monotonic() < until:
            if count % len(operations) == 0:
                self.random.shuffle(operations)
            operation = operations[count % len(operations)]
            count += 1
            if operation.__name__ in self.lacking:
                continue
            if self.model.size <= self.base:
                operation = self.writes
            try:
                operation()
            except CannotRun:
                self.lacking.add(operation.__name__)
            except OSError as error:
                if operation.__name__ == "copies" and error.errno in _UNSUPPORTED:
                    self.lacking.add("copies")
                    continue
                raise AssertionError(f"{error} in {self._history()}") from error
            self.compare_size()
        self.compare_all()
        return count

    def operations(self) -> list[Callable[[], None]]:
        """Return the operations; those that occur more often are in the list more often."""
        return [
            self.writes, self.writes, self.writes, self.writes, self.appends, self.appends, self.cuts,
            self.grows, self.writes_past_the_end, self.reopens, self.flushes, self.punches, self.punches,
            self.zeroes, self.allocates, self.copies, self.copies, self.maps, self.maps, self.renames,
            self.links, self.changes_mode,
        ]  # fmt: skip

    # Operations

    def writes(self) -> None:
        """Write a range, often one that was used before."""
        offset, length = self._range(inside=False)
        if self.random.random() < 0.5:
            length = self._length("write")
        self._write(self.random.choice(self.fds[:2]), offset, length)

    def writes_past_the_end(self) -> None:
        """Write from beyond the end of the file on: the gap reads as zeroes."""
        self._write(
            self.fds[0],
            self.model.size + self.random.choice((1, 511, 4095, 4096, 70_000)),
            self._length("past"),
        )

    def appends(self) -> None:
        """Write with O_APPEND: at the end of the file, wherever that is now."""
        length = self.random.choice(SIZES[:8])
        data = self._data(length)
        self._say(f"a write of {length} bytes with O_APPEND at the end, {self.model.size}")
        at = self.model.size
        assert os.write(self.fds[2], data) == length, f"a short write in {self._history()}"
        self.model.write(at, data)
        self._look(at, length)

    def cuts(self) -> None:
        """Truncate to a smaller size, or to a larger one, and leave a gap behind it at times."""
        edges = [self.base, self.model.size - 1, self.model.size // 4096 * 4096, self.model.size - 5_000]
        self._truncate(max(self.base, self.random.choice([*edges, self._offset()])))
        if self.random.random() < 0.4:
            self.writes_past_the_end()

    def grows(self) -> None:
        """Truncate to a larger size, and append at times."""
        self._truncate(self.model.size + self.random.choice((1, 100, 4096, 10_000, 66_000)))
        if self.random.random() < 0.5:
            self.appends()

    def reopens(self) -> None:
        """Close the first two descriptors and open the file again."""
        self._say("close() and open()")
        for number in (0, 1):
            os.close(self.fds[number])
            self.fds[number] = os.open(self.path, os.O_RDWR)
        self._look(self.base, 8192)

    def flushes(self) -> None:
        """Flush the file."""
        self._say("fsync()")
        os.fsync(self.fds[0])

    def punches(self) -> None:
        """Punch a hole."""
        offset, length = self._range(inside=True)
        self._say(f"a hole of {length} bytes at {offset}")
        fallocate(self.fds[0], FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
        self.model.zero(offset, length)
        self._look(offset, length)

    def zeroes(self) -> None:
        """Zero a range; past the end it extends the file."""
        offset, length = self._range(inside=False)
        self._say(f"FALLOC_FL_ZERO_RANGE of {length} bytes at {offset}, size {self.model.size}")
        fallocate(self.fds[1], FALLOC_ZERO_RANGE, offset, length)
        self.model.zero(offset, length)
        self.model.extend(offset + length)
        self._look(offset, length)

    def allocates(self) -> None:
        """Allocate a range, inside the file or beyond its end."""
        offset, length = self._range(inside=self.random.random() < 0.7)
        self._say(f"fallocate() of {length} bytes at {offset}, size {self.model.size}")
        fallocate(self.fds[1], 0, offset, length)
        self.model.extend(offset + length)
        self._look(offset, length)

    def copies(self) -> None:
        """Copy a range to another file, change it there, and copy it again."""
        if not hasattr(os, "copy_file_range"):
            raise CannotRun
        offset, length = self._range(inside=True)
        to = self.random.choice((0, 0, 1, 4096, 20_000))
        self._say(f"copy_file_range() of {length} bytes at {offset} to {to} of another file")
        done = 0
        while done < length:
            step = os.copy_file_range(self.fds[0], self.copy, length - done, offset + done, to + done)
            assert step > 0, f"nothing was copied by {self._history()}"
            done += step
        self.other.write(to, self.model.read(offset, length))
        with _opened(self.directory / "copy") as descriptor:
            found = os.pread(descriptor, 1 << 20, 0)
        wrong = first_difference(found, self.other.read(0, 1 << 20))
        assert not wrong, f"the target of the copy has {wrong}, after {self._history()}"

    def maps(self) -> None:
        """Store to a page of a shared mapping, and msync()."""
        pages = (self.model.size - self.base) // mmap.PAGESIZE
        if not pages or self.base % mmap.PAGESIZE:
            return
        start = self.base + self.random.randrange(pages) * mmap.PAGESIZE
        at, data = self.random.randrange(4000), self._data(90)
        self._say(f"90 bytes stored through a mapping at {start + at}")
        with mmap.mmap(self.fds[0], mmap.PAGESIZE, offset=start) as mapped:
            mapped[at : at + 90] = data
            mapped.flush()
        self.model.write(start + at, data)
        self._look(start + at, 90)

    def renames(self) -> None:
        """Give the file another name; its descriptors stay."""
        self.names += 1
        new = self.directory / f"f{self.names % 2}"
        self._say(f"rename() to {new.name}")
        os.rename(self.path, new)
        self.path = new
        self._look(self.base, 4096)

    def links(self) -> None:
        """Make and remove a second name."""
        self._say("link() and unlink() of a second name")
        try:
            os.link(self.path, self.directory / "second")
        except OSError:
            raise CannotRun from None
        os.unlink(self.directory / "second")

    def changes_mode(self) -> None:
        """Change the permission bits."""
        self._say("fchmod()")
        os.fchmod(self.fds[0], self.random.choice((0o600, 0o644, 0o664)))

    # Mechanics

    def _write(self, descriptor: int, offset: int, length: int) -> None:
        data = self._data(length)
        self._say(f"a write of {length} bytes at {offset}, size {self.model.size}")
        assert os.pwrite(descriptor, data, offset) == length, f"a short write in {self._history()}"
        self.model.write(offset, data)
        self._look(offset, length)

    def _truncate(self, size: int) -> None:
        by_path = self.random.random() < 0.5
        self._say(f"{'truncate' if by_path else 'ftruncate'}() from {self.model.size} to {size}")
        if by_path:
            os.truncate(self.path, size)
        else:
            os.ftruncate(self.fds[1], size)
        self.model.truncate(size)
        self._look(max(self.base, size - 4096), 8192)

    def _data(self, length: int) -> bytes:
        return self.random.getrandbits(8 * length).to_bytes(length, "little")

    def _length(self, purpose: str) -> int:
        """Return the next of SIZES for a purpose: each of them before one comes again."""
        if not self._sizes.get(purpose):
            self._sizes[purpose] = self.random.sample(SIZES, len(SIZES))
        return self._sizes[purpose].pop()

    def _offset(self) -> int:
        """Return an offset: an edge of a page or of an earlier range, or any."""
        span = max(1, self.model.size - self.base)
        page = self.random.randrange(span // 4096 + 1) * 4096
        return self.base + max(
            0, self.random.choice((0, page, page + 1, page - 1, self.random.randrange(span)))
        )

    def _range(self, *, inside: bool) -> tuple[int, int]:
        """Return a range, one of three times one that was used before; ``inside``: below the file's end."""
        if self.reused and self.random.random() < 0.4:
            offset, length = self.random.choice(self.reused[-6:])
        else:
            offset, length = self._offset(), self._length("inside" if inside else "any")
            self.reused.append((offset, length))
        offset = min(offset, max(self.base, self.model.size - 1))
        if offset + length - self.base > MOST:
            offset = self.base
        if inside:
            length = max(1, min(length, self.model.size - offset))
        return offset, length

    def _look(self, offset: int, length: int) -> None:
        """Compare the bytes around a range, read by a new open or another descriptor."""
        start = max(0, offset - 4100)
        size = offset + length + 4100 - start
        if self.random.random() < 0.5:
            with _opened(self.path) as descriptor:
                found = os.pread(descriptor, size, start)
        else:
            found = os.pread(self.fds[1], size, start)
        wrong = first_difference(found, self.model.read(start, size))
        assert not wrong, f"a read of {size} bytes at {start} has {wrong}, after {self._history()}"

    def compare_size(self) -> None:
        """Compare the size that stat() and fstat() report."""
        for name, size in (
            ("stat()", os.stat(self.path).st_size),
            ("fstat()", os.fstat(self.fds[1]).st_size),
        ):
            assert size == self.model.size, (
                f"{name} reports {size} bytes instead of {self.model.size}, after {self._history()}"
            )

    def compare_all(self) -> None:
        """Compare the whole file from ``base`` on, read by a new open."""
        start = max(0, self.base - 8192)
        size = self.model.size - start + 1
        with _opened(self.path) as descriptor:
            found = b""
            while len(found) < size and (part := os.pread(descriptor, 1 << 20, start + len(found))):
                found += part
        wrong = first_difference(found, self.model.read(start, size))
        assert not wrong, f"the file from {start} on has {wrong} at the end of {self._history(20)}"

    def _say(self, operation: str) -> None:
        self.log.append(operation)

    def _history(self, last: int = 6) -> str:
        before: Sequence[str] = self.log[-last:-1]
        return self.log[-1] + (f" (before it: {'; '.join(before)})" if before else "")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
