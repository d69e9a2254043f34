"""Sequences of writes, sizes, copies and reads of several files, with a model of their bytes.

What a read has to return is what the writes before it have left, whatever their sizes, offsets, stability
and order are (RFC 1813 3.3.6 and 3.3.7, RFC 8881 18.22 and 18.32, MS-FSA 2.1.5.3 and 2.1.5.4). Bytes of a gap
and bytes between an old and a new end of file are zero. The steps never take the largest transfer of a server
into account: a driver makes several requests of one step if it has to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History

FILES = 3
"""Files of a sequence (chosen): a write of one changes none of the others."""

MOST = 200_000
"""Bytes of a file at most (chosen)."""

BORDER = 65536
"""A size of transfers, caches and extents of many servers."""

Verb = Literal["write", "read", "resize", "flush", "copy", "zero"]
Stability = Literal["unstable", "data", "file"]

SIZES = (1, 2, 3, 5, 7, 511, 513, 1003, 2049, 4095, 4096, 4097, 8191, 12345, 65535, 65536, 65537, 70001)
"""Bytes of a write: around powers of two, and each remainder of a division by 4 (chosen)."""

PLACES = ("inside", "odd", "aligned", "end", "gap", "across", "border", "again", "again")
"""Where a write begins: ``across`` the end, a few bytes before 64 KiB (``border``), where the last was."""

MUTATIONS: tuple[Verb, ...] = ("write",) * 9 + ("resize",) * 4 + ("flush",) * 2


@dataclass(frozen=True, slots=True)
class DataStep:
    """One operation on ``file``. ``data`` is written, or has to be read; ``source`` is that of a copy."""

    verb: Verb
    file: int
    offset: int = 0
    count: int = 0
    data: bytes = b""
    stability: Stability = "file"
    source: int = 0
    source_offset: int = 0
    at_end: bool = False
    """Whether a read reaches the end of the file."""
    size: int = 0
    """The size of the file after it."""

    @property
    def objects(self) -> tuple[str, ...]:
        """The files that it concerns."""
        return (f"file {self.file}", *([f"file {self.source}"] if self.verb == "copy" else []))

    def __str__(self) -> str:
        match self.verb:
            case "write":
                return (
                    f"write of {len(self.data)} bytes at {self.offset} of file {self.file}, {self.stability}"
                )
            case "read":
                return f"read of {self.count} bytes at {self.offset} of file {self.file}"
            case "resize":
                return f"size {self.size} of file {self.file}"
            case "copy":
                return (
                    f"copy of {self.count} bytes at {self.source_offset} of file {self.source} to "
                    f"{self.offset} of file {self.file}"
                )
            case "zero":
                return f"{self.count} bytes at {self.offset} of file {self.file} zeroed"
        return f"flush of file {self.file}"


class DataDriver(Protocol):
    """The operations in a protocol. Each raises AssertionError if the server refuses it."""

    def write(self, file: int, offset: int, data: bytes, stability: Stability) -> None:
        """Write all of ``data``."""

    def read(self, file: int, offset: int, count: int) -> tuple[bytes, bool | None]:
        """Return the bytes, fewer at the end of the file alone, and whether the reply states the end."""

    def resize(self, file: int, size: int) -> None:
        """Set the size."""

    def flush(self, file: int) -> None:
        """Make what was written stable."""

    def copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> None:
        """Copy on the server."""

    def zero(self, file: int, offset: int, count: int) -> None:
        """Zero a range of a file."""

    def size(self, file: int) -> int:
        """Return the size."""


@dataclass
class DataModel:
    """The bytes of each file."""

    files: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in range(FILES)])

    def apply(self, step: DataStep) -> None:
        """Do what ``step`` does."""
        held = self.files[step.file]
        match step.verb:
            case "write":
                self._put(held, step.offset, step.data)
            case "resize":
                held[:] = held[: step.size].ljust(step.size, b"\0")
            case "copy":
                source = self.files[step.source]
                self._put(held, step.offset, source[step.source_offset : step.source_offset + step.count])
            case "zero":
                end = min(len(held), step.offset + step.count)
                held[step.offset : end] = bytes(max(0, end - step.offset))

    @staticmethod
    def _put(held: bytearray, offset: int, data: bytes | bytearray) -> None:
        if data:
            held.extend(bytes(max(0, offset - len(held))))
            held[offset : offset + len(data)] = data


class _Plan:
    def __init__(self, seed: int, features: Collection[Verb]) -> None:
        self.dealer, self.model = Dealer(seed), DataModel()
        self.mutations = (
            MUTATIONS + ("copy", "copy") * ("copy" in features) + ("zero", "zero") * ("zero" in features)
        )
        self.last = (0, 1)

    def mutation(self) -> DataStep:
        """Return the next operation that may change a file, done in the model."""
        verb = self.dealer.deal("verb", self.mutations)
        file = self.dealer.deal("file", range(FILES))
        step = getattr(self, f"_{verb}")(file, len(self.model.files[file]))
        self.model.apply(step)
        return self._sized(step)

    def _sized(self, step: DataStep) -> DataStep:
        return DataStep(
            step.verb, step.file, step.offset, step.count, step.data, step.stability, step.source,
            step.source_offset, step.at_end, len(self.model.files[step.file]),
        )  # fmt: skip

    def _write(self, file: int, size: int) -> DataStep:
        count = self.dealer.deal("size of a write", SIZES)
        at = self._place(size, count)
        data = self.dealer.random.randbytes(count)
        self.last = at, count
        stability: Stability = self.dealer.deal("stability", ("unstable", "unstable", "data", "file"))
        return DataStep("write", file, at, count, data, stability)

    def _place(self, size: int, count: int) -> int:
        within = max(1, min(size, MOST - count))
        pick = self.dealer.random.randrange(within)
        few = self.dealer.deal("few", (1, 2, 3, 5))
        at = {
            "inside": pick,
            "odd": pick | 1,
            "aligned": pick & ~4095,
            "end": size,
            "gap": size + self.dealer.deal("gap", (1, 511, 4099, 20_001)),
            "across": max(0, size - max(1, count // 2)),
            "border": max(0, BORDER * self.dealer.deal("borders", (1, 2)) - min(count - count // 2, few)),
            "again": self.last[0] + self.dealer.deal("shift", (0, 1, -1)),
        }[self.dealer.deal("place", PLACES)]
        return max(0, min(at, MOST - count))

    def _resize(self, _file: int, size: int) -> DataStep:
        few = self.dealer.random.randrange(1, 9000)
        new = {
            "shorter": max(0, size - few),
            "longer": min(MOST, size + few),
            "half": size // 2 | 1,
            "same": size,
            "empty": 0,
            "page": size & ~4095,
        }[
            self.dealer.deal(
                "resize", ("shorter", "longer", "half", "longer", "same", "page", "longer", "empty")
            )
        ]
        self.last = min(size, new), abs(new - size) or 1
        return DataStep("resize", _file, size=new)

    def _flush(self, file: int, _size: int) -> DataStep:
        return DataStep("flush", file)

    def _copy(self, file: int, size: int) -> DataStep:
        source = (file + self.dealer.deal("source", (1, 2))) % FILES
        have = len(self.model.files[source])
        if not have:
            return self._write(file, size)
        start = self.dealer.random.randrange(have)
        count = min(have - start, self.dealer.deal("size of a copy", (1, 4097, 8192, 65537, 513)))
        at = min(self.dealer.random.randrange(size + 1), MOST - count)
        self.last = at, count
        return DataStep("copy", file, at, count, source=source, source_offset=start)

    def _zero(self, file: int, size: int) -> DataStep:
        if size < 2:
            return self._write(file, size)
        start = self.dealer.random.randrange(size - 1)
        count = min(size - start, self.dealer.deal("size of zeroes", (1, 513, 4096, 9001, 65537)))
        self.last = start, count
        return DataStep("zero", file, start, count)

    def reads(self, file: int) -> Iterator[DataStep]:
        """Yield reads around the last mutation, at another place, and of a neighbour."""
        first, count = self.last
        before, after = self.dealer.deal("around", ((0, 0), (1, 1), (3, 2), (0, 5), (2, 0), (7, 9)))
        start = max(0, first - before)
        yield self._read(file, start, first - start + count + after)
        kind = self.dealer.deal("read", ("odd", "end", "past", "far", "tail", "odd far"))
        size = len(self.model.files[file])
        length = self.dealer.deal("size of a read", (1, 3, 5, 1003, 4098, 9001, 66_003))
        start = {
            "odd": self.dealer.random.randrange(size + 1) | 1,
            "end": size,
            "past": size + length,
            "far": (1 << 32) + first,
            "tail": max(0, size - length),
            "odd far": min(size, BORDER) | 1,
        }[kind]
        yield self._read(file, start, length)
        neighbour = (file + 1) % FILES
        yield self._read(neighbour, max(0, first - 1), min(count + 2, 4099))

    def _read(self, file: int, offset: int, count: int) -> DataStep:
        held = self.model.files[file]
        data = bytes(held[offset : offset + count])
        return DataStep(
            "read", file, offset, count, data, at_end=offset + len(data) >= len(held), size=len(held)
        )

    def whole(self) -> Iterator[DataStep]:
        """Yield a read of each file, to its end."""
        for file, held in enumerate(self.model.files):
            yield self._read(file, 0, len(held) + 1)


def data_steps(seed: int, mutations: int, features: Collection[Verb] = ()) -> list[DataStep]:
    """Return a sequence of ``mutations`` operations that change files, each with three reads after it.

    ``features`` are the optional operations that the server has: ``copy`` and ``zero``.
    """
    plan = _Plan(seed, features)
    steps: list[DataStep] = []
    for _ in range(mutations):
        step = plan.mutation()
        steps += [step, *plan.reads(step.file)]
    return [*steps, *plan.whole()]


def run_data(driver: DataDriver, steps: list[DataStep], seed: int) -> None:
    """Make the steps, and compare what is read, and the size after each step, with the model."""
    history = History(seed, len(steps))
    for step in steps:
        with history.step(str(step), *step.objects):
            _make(driver, step)


def _make(driver: DataDriver, step: DataStep) -> None:
    match step.verb:
        case "write":
            driver.write(step.file, step.offset, step.data, step.stability)
        case "resize":
            driver.resize(step.file, step.size)
        case "flush":
            driver.flush(step.file)
        case "copy":
            driver.copy(step.source, step.source_offset, step.file, step.offset, step.count)
        case "zero":
            driver.zero(step.file, step.offset, step.count)
        case "read":
            data, at_end = driver.read(step.file, step.offset, step.count)
            compare(data, step.data, step.offset)
            assert at_end in (None, step.at_end), (
                f"the reply states {'' if at_end else 'no '}end of the file, which has {step.size} bytes"
            )
            return
    size = driver.size(step.file)
    assert size == step.size, f"the file has {size} bytes, not {step.size}"


def compare(found: bytes, wanted: bytes, offset: int = 0) -> None:
    """Claim that two strings are the same; the message has the first difference."""
    if found == wanted:
        return
    pairs = zip(found, wanted, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if at is None:
        raise AssertionError(f"{len(found)} bytes are returned, not {len(wanted)}")
    raise AssertionError(f"the byte at {offset + at} is {found[at]:#04x}, not {wanted[at]:#04x}")
