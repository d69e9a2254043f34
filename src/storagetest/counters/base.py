"""Sources of counters, and the conversion of their readings to time series.

A source names its files (:attr:`CounterSource.paths`), or commands whose output has the counters
(:attr:`CounterSource.commands`), and parses their texts (:meth:`CounterSource.parse`); it does not read
them. The agent reads them on the host during a load
(``agent/commands/sample_counters.py``), and :mod:`storagetest.counters.snapshot` reads them before and after
a load.

Rules:

1. A parser accepts any kernel output: a missing file, a truncated line or a newer format results in fewer
   readings, not in an error. Counters must not stop the load.
2. A reading is the kernel's own value: cumulative values stay cumulative (:attr:`Kind.RATE`,
   :attr:`Kind.QUOTIENT`). Only :func:`to_series` computes differences, so one place detects a counter that
   restarted (a new mount, a reboot): this interval has no point.
3. A source declares further uses on its class: requests by kind, bytes transferred to the target. No other
   module lists sources.
4. A name is human-readable and means the same in all samples: ``eth0 received``, ``READ rtt``. It contains
   no address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, ClassVar

from storagetest.deprecation import warn_renamed
from storagetest.measure.series import Series
from storagetest.measure.unit import Unit
from storagetest.registry import Registry, get_registry

MOUNTS = "/proc/self/mountstats"
"""The file that names every mount point with the type of its file system."""

DEVICE = "device"
"""Entry for a block device itself among the file system types of :attr:`CounterSource.counts_for`."""


class Kind(Enum):
    """How a reading's value becomes a point of a series."""

    RATE = "rate"  # cumulative; the point is its increase per second
    QUOTIENT = "quotient"  # cumulative; the point is its increase divided by that of ``per``
    GAUGE = "gauge"  # the point is the value itself


@dataclass(frozen=True, slots=True)
class Reading:
    """One value at one time. ``unit`` is the unit of the series. ``keep``: keep a series of zeros."""

    value: float
    unit: Unit
    kind: Kind = Kind.RATE
    per: float = 0.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The texts of all files at one time: seconds of the host's clock, path → text."""

    time: float
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A command that prints counters to stdout.

    It runs at most every ``every`` seconds, never twice at the same time, and is ended after ten seconds. It
    runs only if the file ``if_exists`` does ("": always). A command that is missing, fails or hangs gives no
    readings.
    """

    argv: tuple[str, ...]
    every: float = 1.0
    if_exists: str = ""


class RequestKind(Enum):
    """The purpose of a request."""

    QUERY = "query"  # open, look up, get attributes: revalidation
    READ = "read"
    WRITE = "write"
    CHANGE = "change"  # make, remove, rename, set attributes
    LIST = "list"  # read a directory
    LOCK = "lock"  # take, test or release a lock

    @classmethod
    def _missing_(cls, value: object) -> RequestKind | None:
        """Accept the old name of QUERY for one release."""
        if value != "ask":
            return None
        warn_renamed("request kind", "ask", "query", "crossed_wire")
        return cls.QUERY


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Number of requests by kind, and the name of the counter. A kind without a counter is missing.

    A client may defer requests of the kinds in ``deferred`` until the target requests them.
    """

    counts: Mapping[RequestKind, int]
    counter: str
    deferred: frozenset[RequestKind] = frozenset()

    def since(self, before: RequestCounts) -> RequestCounts:
        """Return the increase of the counts since ``before``."""
        increases = {kind: count - before.counts.get(kind, 0) for kind, count in self.counts.items()}
        return RequestCounts(increases, self.counter, self.deferred)


class CounterSource(ABC):
    """A source of counters. Subclasses are stateless."""

    name: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    """Files to read, as globs."""

    commands: ClassVar[Mapping[str, HostCommand]] = {}
    """Commands by the name under which :meth:`parse` gets their output. They are sampled only: there is no
    reading before and after each load."""

    on_controller: ClassVar[bool] = False
    """Whether the commands run once on the controller, for the counters of a device such as an array; and not
    on the client and on the server."""

    lines: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Path → prefixes of the relevant lines, for files of which only some lines are relevant."""

    counts_for: ClassVar[frozenset[str]] = frozenset()
    """File system types, or :data:`DEVICE`, for which the source counts bytes transferred to the target."""

    transfers: ClassVar[tuple[str, str]] = ("", "")
    """Names of the readings with the bytes read from the target and written to it."""

    transfer_lines: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Path → prefixes of the lines that :meth:`transferred` needs, for files of which it needs only some."""

    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {}
    """Names of the readings that add up to each kind of requests; empty: the source counts no requests."""

    deferred: ClassVar[frozenset[RequestKind]] = frozenset()
    """Kinds of requests that the client may defer; see :class:`RequestCounts`."""

    counter: ClassVar[str] = ""
    """The counter's owner in messages: ``the SMB client's``."""

    example: ClassVar[Mapping[str, str]]
    """Path → text in the kernel's format, for the tests."""

    @abstractmethod
    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings by name in ``texts`` (path → text of the files that :attr:`paths` names)."""

    def select(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return the entries of ``texts`` that belong to this source."""
        return {
            path: text for path, text in texts.items() if path in self.commands or _matches(path, self.paths)
        }

    def transferred(self, texts: Mapping[str, str], point: str) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002
        """Return counter → total bytes read and written, for the file system mounted on ``point``.

        ``texts`` are this source's. If there are several counters, the one with the largest increase applies.
        """
        readings = self.parse(texts)
        if not any(name in readings for name in self.transfers):
            return {}
        read, written = (round(readings[name].value) if name in readings else 0 for name in self.transfers)
        return {self.counter: (read, written)}

    def count_requests(self, texts: Mapping[str, str], point: str) -> RequestCounts | None:  # noqa: ARG002
        """Return the total requests for the file system mounted on ``point``; ``texts`` are this source's."""
        readings = self.parse(texts)
        counts = {
            kind: int(sum(readings[name].value for name in names if name in readings))
            for kind, names in self.requests.items()
            if self.counts_kind(kind, texts, readings)
        }
        return RequestCounts(counts, self.counter, self.deferred)

    def counts_kind(
        self,
        kind: RequestKind,
        texts: Mapping[str, str],  # noqa: ARG002
        readings: Mapping[str, Reading],
    ) -> bool:
        """Whether requests of ``kind`` are counted in ``texts``, from which ``readings`` were parsed."""
        return any(name in readings for name in self.requests[kind])

    def lease_seconds(self, texts: Mapping[str, str], point: str) -> float | None:  # noqa: ARG002
        """Return the lease time in seconds of the mount on ``point``, or None if it has no lease."""
        return None


def file_system(mountstats: str, path: str) -> tuple[str, str]:
    """Return mount point and type of the file system of ``path``; two empty strings if unknown."""
    result = ("", "")
    for line in mountstats.splitlines():
        head, _, kind = line.partition(" with fstype ")
        point = head.partition(" mounted on ")[2]
        matches = line.startswith("device ") and point and kind and PurePosixPath(path).is_relative_to(point)
        if matches and len(point) >= len(result[0]):
            result = (point, kind.split()[0])
    return result


@lru_cache(maxsize=4096)  # the same few paths, once a second
def _matches(path: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


sources: Registry[CounterSource] = get_registry("storagetest.counters")
register = sources.register


def to_series(source: CounterSource, host: str, snapshots: Sequence[Snapshot]) -> tuple[Series, ...]:
    """Return the time series of ``source`` in ``snapshots``, with the snapshots' times.

    A series of zeros is omitted unless :attr:`Reading.keep` is set.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    latest: dict[str, Reading] = {}
    before: Mapping[str, Reading] = {}
    time_before = 0.0
    for snapshot in snapshots:
        now = source.parse(source.select(snapshot.texts))
        for name, reading in now.items():
            latest[name] = reading
            value = rate_between(before.get(name), reading, snapshot.time - time_before)
            if value is not None:
                points.setdefault(name, []).append((snapshot.time, value))
        before, time_before = now, snapshot.time
    series = []
    for name, pairs in points.items():
        reading = latest[name]
        if reading.keep or any(value for _, value in pairs):
            times, values = zip(*pairs, strict=True)
            series.append(Series(source.name, name, reading.unit, host, times, values))
    return tuple(series)


def rate_between(before: Reading | None, now: Reading, seconds: float) -> float | None:
    """Return the series value for two readings ``seconds`` apart, or None if it is undefined."""
    if now.kind is Kind.GAUGE:
        return now.value
    if before is None or now.value < before.value or now.per < before.per:
        return None  # the counter restarted
    increase = now.value - before.value
    if now.kind is Kind.QUOTIENT:
        return increase / (now.per - before.per) if now.per > before.per else None
    return increase / seconds if seconds > 0 else None


def leading_integers(words: Sequence[str]) -> list[int]:
    """Return the integers (decimal or 0x…) at the start of ``words``."""
    values: list[int] = []
    for word in words:
        try:
            values.append(int(word, 0) if word[:2] == "0x" else int(word))
        except ValueError:
            break
    return values


def paths_of(sources: Iterable[CounterSource]) -> tuple[str, ...]:
    """Return the files of ``sources`` and :data:`MOUNTS`, as globs, each once."""
    return tuple(dict.fromkeys((MOUNTS, *(path for source in sources for path in source.paths))))


def all_sources() -> tuple[CounterSource, ...]:
    """Return an instance of every registered source, sorted by name."""
    instances: list[Any] = [cls() for cls in sources]
    return tuple(instances)
