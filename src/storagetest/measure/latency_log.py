"""Parse fio's logs of every single I/O (``write_lat_log`` without averaging) of ten million lines and more.

Theory (fio(1), "Log file formats"). A line is ``time, value, direction, block size[, offset][, priority]``:
milliseconds, nanoseconds, 0 (read), 1 (write) or 2 (trim). The text is parsed with array operations: first
the positions of all commas; then, for each value, the eight bytes before its comma as one integer, whose
digits are combined in three steps (two, four, eight at a time). A value of more than eight characters uses a
second such integer. A latency's bucket is computed from its floating-point form: fio's layout has 64 buckets
for each power of two, which are the six leading bits of the mantissa.

Rules:

1. The file is parsed in chunks of :data:`CHUNK` bytes, a few at a time, each in a thread: memory does not
   grow with the file.
2. All lines of a file have as many columns as the first. Another number of columns, an invalid character, or
   an incomplete last line is an error that names the line.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import Histogram, bucket, merge

CHUNK = 1 << 19
"""Bytes per chunk; the arrays made from it (about tenfold) should fit into a processor's caches."""

_DIRECTIONS = ("read", "write", "trim")
_PAD = 16  # bytes before a chunk, so that the bytes before a comma are always in the buffer
_COMMA, _SPACE, _NEWLINE, _ZERO, _NINE = b", \n09"
_IS_HEXADECIMAL = np.array([chr(code) in "xabcdefABCDEF" for code in range(256)])
_LEADING_BITS = 46  # a double's mantissa has 52 bits; the bucket uses six
_ONE = 1023 << 6  # these bits of 1.0, the shortest latency except 0
_KEYS = 1 + (64 << 6)  # 0, and 64 for each power of two
_LONGEST_LINE = 1000
_END = b"\n"
_MOST_THREADS = 4

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Positions = NDArray[np.intp]
_Counted = tuple[int, dict[int, NDArray[np.intp]]]


@dataclass(frozen=True, slots=True)
class LatencyLog:
    """The number of lines, and the latencies by direction (``read``, ``write``, ``trim``)."""

    lines: int
    directions: Mapping[str, Histogram] = field(default_factory=dict)

    @property
    def all(self) -> Histogram:
        """The latencies of all directions."""
        return merge(self.directions.values())


def read(path: Path) -> LatencyLog:
    """Parse the file. Raises :class:`WorkloadError` with the path and the line."""
    try:
        with path.open("rb", buffering=0) as file:
            return parse(iter(lambda: file.read(CHUNK), b""), str(path))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from None


def parse(chunks: Iterable[bytes], name: str = "latency log") -> LatencyLog:
    """Parse the chunks of a log, which may be cut anywhere."""
    counts = np.zeros((len(_DIRECTIONS), _KEYS), np.int64)
    lines = 0
    for found in _count_in_order(_whole_lines(chunks, name)):
        try:
            more, ways = found()
        except _DamageError as damage:
            raise WorkloadError(f"{name}:{lines + damage.line + 1}: {damage}") from None
        lines += more
        for way, latencies in ways.items():
            counts[way] += latencies
    found_ways = {way: _histogram(counts[at]) for at, way in enumerate(_DIRECTIONS) if counts[at].any()}
    return LatencyLog(lines, found_ways)


def _whole_lines(chunks: Iterable[bytes], name: str) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of whole lines, and the number of columns of the first line."""
    rest, lines, columns = b"", 0, 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        text, rest = (rest + chunk[:end], chunk[end:]) if end else (b"", rest + chunk)
        if len(rest) > _LONGEST_LINE:
            raise WorkloadError(f"{name}:{lines + text.count(_END) + 1}: the line does not end")
        if text:
            columns = columns or text[: text.index(b"\n")].count(b",")
            lines += text.count(_END)
            yield text, columns
    if rest:
        raise WorkloadError(f"{name}:{lines + 1}: the log ends in the middle of a line")


def _count_in_order(pieces: Iterable[tuple[bytes, int]]) -> Iterator[Callable[[], _Counted]]:
    """Yield a function that returns a piece's counts, in the order of the pieces, while threads count others.

    numpy releases the GIL while it works on arrays. At most as many pieces as threads are counted at a time,
    which limits the memory.
    """
    workers = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[_Counted]] = deque()
        for text, columns in pieces:
            pending.append(pool.submit(_count, text, columns))
            if len(pending) > workers:
                yield pending.popleft().result
        while pending:
            yield pending.popleft().result


class _DamageError(Exception):
    """A line that cannot be parsed; ``line`` counts from 0 in its chunk."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _count(text: bytes, columns: int) -> _Counted:
    """Return the number of lines, and the number of latencies of each key in each direction."""
    buffer = np.frombuffer(b"\0" * _PAD + text, np.uint8)
    table = _table(buffer, columns)
    first, second, third = (np.ascontiguousarray(table[:, column]) for column in range(3))
    words: Words = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
    values = _values(words, first, second)
    directions = buffer[second + 2] - np.uint8(_ZERO)
    bad = np.flatnonzero((directions >= len(_DIRECTIONS)) | (third - second != 3))
    if bad.size:
        raise _DamageError(int(bad[0]), "the third column is not a direction (0, 1 or 2)")
    keys = np.maximum((values.astype(np.float64).view(np.int64) >> _LEADING_BITS) - (_ONE - 1), 0)
    counts = {}
    for direction in np.flatnonzero(np.bincount(directions, minlength=len(_DIRECTIONS))):
        mask = directions == direction
        selected = keys if mask.all() else keys[mask]
        counts[int(direction)] = np.bincount(selected, minlength=_KEYS)
    return len(table), counts


def _table(buffer: Bytes, columns: int) -> Positions:
    """Return the positions of the commas and, last, of the newline; one row per line.

    Raises :class:`_DamageError` unless each line has the columns, one space after each comma, and numbers.
    """
    if columns < 3:
        raise _DamageError(0, f"{columns + 1} columns are too few for a latency log")
    comma, newline, space = (buffer == code for code in (_COMMA, _NEWLINE, _SPACE))
    marks = np.flatnonzero(comma | newline)
    lines = np.count_nonzero(newline)
    if len(marks) != (columns + 1) * lines or not newline[marks[columns :: columns + 1]].all():
        commas_before = np.flatnonzero(newline[marks]) - np.arange(lines)
        per_line = np.diff(commas_before, prepend=0)
        raise _DamageError(
            int(np.flatnonzero(per_line != columns)[0]),
            f"expected {columns + 1} columns, as in the lines before",
        )
    table = marks.reshape(lines, columns + 1)
    if not np.array_equal(comma[:-1], space[1:]):
        wrong = int(np.flatnonzero(comma[:-1] != space[1:])[0]) + 1
        line = _line_at(wrong, table[:, -1])
        raise _DamageError(line, "a missing or an unexpected space")
    digits = np.count_nonzero(buffer >= _ZERO)
    if buffer.max() > _NINE or digits + lines * (2 * columns + 1) + _PAD != len(buffer):
        known = (buffer - np.uint8(_ZERO) <= 9) | space | comma | newline | _IS_HEXADECIMAL[buffer]
        known[:_PAD] = True
        unknown = np.flatnonzero(~known)
        if unknown.size:
            raise _DamageError(_line_at(unknown[0], table[:, -1]), "a character that is not part of a number")
    return table


def _line_at(position: Any, newlines: Positions) -> int:  # noqa: ANN401  # an array's item
    return int(np.searchsorted(newlines, position))


def _values(words: Words, first: Positions, second: Positions) -> NDArray[np.uint64]:
    """Return the numbers between the first and the second comma."""
    width = second - first - 2  # without the space
    longest = int(width.max())
    if longest > 2 * 8 or int(width.min()) < 1:
        bad = np.flatnonzero((width > 2 * 8) | (width < 1))
        raise _DamageError(int(bad[0]), "the second column is not a latency in nanoseconds")
    values = _eight_digits(words[second - 8], np.minimum(width, 8), 0)
    if longest > 8:
        long = np.flatnonzero(width > 8)
        high = _eight_digits(words[second[long] - 16], width[long] - 8, long)
        values[long] += high * np.uint64(10**8)
    return values


def _eight_digits(words: Words, width: Positions, line: Any) -> NDArray[np.uint64]:  # noqa: ANN401
    """Return the number in the last ``width`` bytes of each word; the first character is the lowest byte.

    The other bytes become zero; the lower four bits of a space are zero too.
    """
    shift = (64 - 8 * width).astype(np.uint64)
    words = words >> shift << shift
    if (words & np.uint64(0x4040404040404040)).any():  # letters have this bit, digits do not
        bad = int(np.flatnonzero(words & np.uint64(0x4040404040404040))[0])
        raise _DamageError(int(line[bad]) if np.ndim(line) else bad, "the second column is not a number")
    words &= np.uint64(0x0F0F0F0F0F0F0F0F)
    words = (words * np.uint64(10) + (words >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    words = (words * np.uint64(100) + (words >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (words * np.uint64(10000) + (words >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


def _histogram(counts: NDArray[np.int64]) -> Histogram:
    """Return the histogram of counts by the leading bits of the latency as a double."""
    keys = np.flatnonzero(counts)
    lowest = np.where(keys > 0, (keys + (_ONE - 1) << _LEADING_BITS).view(np.float64), 0.0)
    bins: dict[int, int] = {}
    for value, key in zip(lowest.tolist(), keys.tolist(), strict=True):
        ns = bucket(int(value))
        bins[ns] = bins.get(ns, 0) + int(counts[key])
    return Histogram.from_fio_bins(bins)
