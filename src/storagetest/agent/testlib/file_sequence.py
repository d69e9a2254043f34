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
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.outcomes import CannotRun

SIZES = (1, 2, 511, 512, 513, 4095, 4096, 4097, 8192, 12_289, 65_535, 65_536, 65_537, 131_073)
"""Lengths of writes and other ranges: around a sector, a page, and 64 KiB (chosen)."""
MOST = 400_000
"""Bytes of a file whose sequence begins at offset 0 (chosen)."""
MOST_SECONDS = 10.0
"""Seconds after which a sequence ends on a slow target, with whatever it has done (chosen)."""
_OPTIONAL = (
    "copies",
    "copies_within",
    "seeks",
    "sends",
    "zeroes_keeping_size",
    "allocates_keeping_size",
    "writes_pages_directly",
    "writes_sectors_directly",
)
"""Operations that a file system may refuse, each with one of _UNSUPPORTED."""
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
        self.reader = os.open(self.path, os.O_RDONLY)
        self.kept = _kept(os.fstat(self.fds[0]))
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in [*self.fds, self.reader, self.copy]:
            os.close(descriptor)

    def run(self, seconds: float, least: int) -> int:
        """Run until ``seconds`` have passed, ``least`` operations or MOST_SECONDS; return the count."""
        operations = self.operations()
        began, count = time.monotonic(), 0
        while go_on(count, time.monotonic() - began, least, seconds):
            if count % len(operations) == 0:
                self.random.shuffle(operations)
            operation = operations[count % len(operations)]
            count += 1
            self._perform(operation)
        for operation in (self.cuts_and_grows, self.punches_past_the_end):
            self._perform(operation)
        self.compare_all()
        return count

    def _perform(self, operation: Callable[[], None]) -> None:
        """Make one operation and compare; one that the file system lacks is not made again."""
        if operation.__name__ in self.lacking:
            return
        if self.model.size <= self.base:
            operation = self.writes
        try:
            operation()
        except CannotRun:
            self.lacking.add(operation.__name__)
        except OSError as error:
            if operation.__name__ in _OPTIONAL and error.errno in _UNSUPPORTED:
                self.lacking.add(operation.__name__)
                return
            raise AssertionError(f"{error} in {self._history()}") from error
        self.compare_attributes()

    def operations(self) -> list[Callable[[], None]]:
        """Return the operations; those that occur more often are in the list more often."""
        return [
            self.writes, self.writes, self.writes, self.writes, self.appends, self.appends, self.cuts,
            self.grows, self.writes_past_the_end, self.reopens, self.flushes, self.punches, self.punches,
            self.zeroes, self.allocates, self.copies, self.copies, self.maps, self.maps, self.renames,
            self.links, self.changes_mode, self.zeroes_keeping_size, self.allocates_keeping_size, self.seeks,
            self.seeks, self.sends, self.empties, self.copies_within, self.writes_synced, self.writes_alike,
        ]  # fmt: skip

    # Operations

    def writes(self) -> None:
        """Write a range, often one that was used before."""
        offset, length = self._range(inside=False)
        if self.random.random() < 0.5:
            length = self._length("write")
        self._write(self.random.choice(self.fds[:2]), offset, length)

    def writes_synced(self) -> None:
        """Write with O_SYNC or O_DSYNC, and compare while the descriptor is open."""
        flag = self.random.choice((os.O_SYNC, os.O_DSYNC))
        try:
            descriptor = os.open(self.path, os.O_RDWR | flag)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise CannotRun("no synchronised I/O (open(), EINVAL)") from None
            raise
        try:
            self._say("O_SYNC" if flag == os.O_SYNC else "O_DSYNC")
            self._write(descriptor, self.model.size if self.random.random() < 0.5 else self._offset(), 4097)
            self.compare_attributes()
        finally:
            os.close(descriptor)

    def writes_alike(self) -> None:
        """Write a range again with another byte in its middle, and with another last byte to another file.

        A file system that compares or shares data by a part of them takes one for the other.
        """
        offset, length = self._offset(), self.random.choice((8192, 65_537, 131_072))
        if offset + length - self.base > MOST:
            offset = self.base
        data = self._data(length)
        for at in (None, length // 2, length - 1):
            if at is not None:
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            self._write(self.fds[0], offset, length, data)
        data = data[:-1] + bytes([data[-1] ^ 2])
        self._say(f"the same {length} bytes with another last one, written to another file")
        assert os.pwrite(self.copy, data, 0) == length, f"a short write in {self._history()}"
        self.other.write(0, data)
        self._look_at_other("another file, written with other data,")

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
        os.close(self.reader)
        self.reader = os.open(self.path, os.O_RDONLY)
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

    def cuts_and_grows(self) -> None:
        """Write, cut and extend three times to the same sizes: nothing of the cut data comes back."""
        start, end = self.base + 1000, self.base + 3000
        for _ in range(3):
            self._truncate(end)
            self._write(self.fds[0], start - 500, 2500)
            self._truncate(start)
            self._truncate(end)

    def punches_past_the_end(self) -> None:
        """Punch a hole that begins before the end and reaches beyond it: the size stays."""
        offset, length = max(self.base, self.model.size - 100), 8192
        self._say(f"a hole of {length} bytes at {offset}, size {self.model.size}")
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

    def zeroes_keeping_size(self) -> None:
        """Zero a range that may reach beyond the end: the size stays."""
        offset, length = self._range(inside=False)
        self._say(f"ZERO_RANGE | KEEP_SIZE of {length} bytes at {offset}, size {self.model.size}")
        fallocate(self.fds[0], FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, offset, length)
        self.model.zero(offset, length)
        self._look(offset, length)

    def allocates_keeping_size(self) -> None:
        """Allocate a range that may reach beyond the end: size and data stay."""
        offset, length = self._range(inside=False)
        self._say(f"fallocate(KEEP_SIZE) of {length} bytes at {offset}, size {self.model.size}")
        fallocate(self.fds[0], FALLOC_KEEP_SIZE, offset, length)
        self._look(offset, length)

    def seeks(self) -> None:
        """Find the next data and the next hole: what is skipped as no data reads as zeroes."""
        offset, last = min(self._offset(), self.model.size - 1), self.model.size - 1
        self._say(f"SEEK_DATA and SEEK_HOLE from {offset}, SEEK_DATA from {last}, size {self.model.size}")
        self._no_data_between(last, self._next_data(last))
        self._no_data_between(offset, self._next_data(offset))
        hole = os.lseek(self.fds[1], offset, os.SEEK_HOLE)
        assert offset <= hole <= self.model.size, f"a hole is found at {hole} by {self._history()}"
        if hole < self.model.size:
            self._no_data_between(hole, self._next_data(hole))

    def _next_data(self, offset: int) -> int:
        """Return where the next data are: the end of the file if there are none."""
        try:
            found = os.lseek(self.fds[1], offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.model.size
        assert found < self.model.size, (
            f"SEEK_DATA from {offset} returns {found}: there are no data from the end on, and a hole at "
            f"the end is ENXIO; after {self._history()}"
        )
        return found

    def _no_data_between(self, start: int, end: int) -> None:
        assert start <= end <= self.model.size, (
            f"data are found at {end} from {start} on by {self._history()}"
        )
        skipped = self.model.read(start, end - start)
        assert not skipped.strip(b"\0"), (
            f"no data are found from {start} to {end}, although byte {start + _first_set(skipped)} was "
            f"written, by {self._history()}"
        )

    def sends(self) -> None:
        """Send a range with sendfile()."""
        offset, length = self._range(inside=True)
        self._say(f"sendfile() of {length} bytes at {offset}")
        target = os.memfd_create("sent")
        try:
            done = 0
            while done < length and (step := os.sendfile(target, self.fds[0], offset + done, length - done)):
                done += step
            wrong = first_difference(os.pread(target, length, 0), self.model.read(offset, length))
        finally:
            os.close(target)
        assert not wrong, f"sendfile() sends {wrong}, by {self._history()}"

    def empties(self) -> None:
        """Truncate by an open with O_TRUNC, while others have the file open."""
        self._say(f"open(O_TRUNC), size {self.model.size}")
        os.close(os.open(self.path, os.O_WRONLY | os.O_TRUNC))
        self.model.truncate(0)
        self.writes()

    def copies_within(self) -> None:
        """Copy a range to another place of the same file."""
        if not hasattr(os, "copy_file_range"):
            raise CannotRun
        offset, length = self._range(inside=True)
        to = self._offset()
        if abs(to - offset) < length:
            to = max(self.model.size, offset + length)
        if to + length - self.base > MOST:
            return
        self._say(f"copy_file_range() of {length} bytes at {offset} to {to} of this file, {self.model.size}")
        done = 0
        while done < length:
            step = os.copy_file_range(self.fds[0], self.fds[1], length - done, offset + done, to + done)
            assert step > 0, f"nothing was copied by {self._history()}"
            done += step
        self.model.write(to, self.model.read(offset, length))
        self._look(to, length)

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
        self._look_at_other("the target of the copy")

    def maps(self) -> None:
        """Store to a page of a shared mapping, and msync()."""
        pages = (self.model.size - self.base) // mmap.PAGESIZE
        if not pages or self.base % mmap.PAGESIZE:
            return
        start = self.base + self.random.randrange(pages) * mmap.PAGESIZE
        at, data = self.random.randrange(4000), self._data(90)
        self._say(f"90 bytes stored through a mapping at {start + at}")
        with map_file(self.fds[0], mmap.PAGESIZE, offset=start) as mapped:
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
        self.kept = _kept(os.fstat(self.fds[0]))

    # Mechanics

    def _write(self, descriptor: int, offset: int, length: int, data: bytes = b"") -> None:
        data = data or self._data(length)
        self._say(f"a write of {length} bytes at {offset}, size {self.model.size}")
        third = length // 3 or length
        parts = [data[:third], data[third:]] if self.random.random() < 0.3 else [data]
        assert os.pwritev(descriptor, parts, offset) == length, f"a short write in {self._history()}"
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
        """Return random bytes, and sometimes zeroes or lines of text, which may be stored in another way."""
        kind = self.random.random()
        if kind < 0.08:
            return bytes(length)
        if kind > 0.94:
            return (b"line %.9f\r\n" % kind * (length // 18 + 1))[:length]
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
            found = os.pread(self.random.choice((self.fds[1], self.reader)), size, start)
        wrong = first_difference(found, self.model.read(start, size))
        assert not wrong, f"a read of {size} bytes at {start} has {wrong}, after {self._history()}"

    def _look_at_other(self, what: str) -> None:
        """Compare the other file, read by a new open."""
        with _opened(self.directory / "copy") as descriptor:
            found = os.pread(descriptor, 1 << 20, 0)
        wrong = first_difference(found, self.other.read(0, 1 << 20))
        assert not wrong, f"{what} has {wrong}, after {self._history()}"

    def compare_attributes(self) -> None:
        """Compare the size that stat() and fstat() report, and what no operation on data changes."""
        for name, one in (("stat()", os.stat(self.path)), ("fstat()", os.fstat(self.fds[1]))):
            assert one.st_size == self.model.size, (
                f"{name} reports {one.st_size} bytes instead of {self.model.size}, after {self._history()}"
            )
            for attribute, value in _kept(one).items():
                wanted = self.kept[attribute]
                assert value == wanted, (
                    f"{name} reports {attribute} {value:#o} instead of {wanted:#o}, after {self._history()}"
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


def go_on(count: int, elapsed: float, least: int, seconds: float) -> bool:
    """Whether a sequence goes on: until ``seconds`` have passed and ``least`` operations have been made.

    On a slow target it ends after MOST_SECONDS.
    """
    return elapsed < seconds or (count < least and elapsed < MOST_SECONDS)


def _kept(one: os.stat_result) -> dict[str, int]:
    """Return the attributes that operations on data leave, by name."""
    return {name: getattr(one, name) for name in ("st_mode", "st_ino", "st_uid", "st_gid")}


def _first_set(data: bytes) -> int:
    """Return the place of the first byte that is not zero."""
    return len(data) - len(data.lstrip(b"\0"))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
