"""What a source of counters is, and how readings of it become series over time.

A source says which files it wants (:attr:`Source.paths`) and what their texts mean (:meth:`Source.parse`);
it never reads anything. Reading is done by the agent on the machine itself (many times, see
``agent/commands/sample.py``) or around a load by :mod:`storagetest.counters.snapshot` (twice).

Rules:

1. A parser takes whatever a kernel may print: a file that is not there, a line that is cut off or of a newer
   format gives fewer readings, never an error. What is beside the load must not stop the load.
2. A reading is what the kernel counts: cumulative values stay cumulative (:attr:`Kind.RATE`,
   :attr:`Kind.QUOTIENT`). Only :func:`follow` takes differences, so a counter that started anew (a new
   mount, a reboot) is found out in one place: that interval has no point.
3. What a source offers besides series it declares on its class: requests by kind, bytes that crossed to the
   target. Nothing else lists sources.
4. A name is for people and stands for the same thing in all samples: ``eth0 received``, ``READ rtt``. It
   holds no address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, ClassVar

from storagetest.measure.run import Unit
from storagetest.measure.series import Series
from storagetest.registry import Registry, get_registry

__all__ = [
    "DEVICE",
    "MOUNTS",
    "Kind",
    "Reading",
    "RequestCounts",
    "RequestKind",
    "Snapshot",
    "Source",
    "all_sources",
    "file_system",
    "leading_integers",
    "rate_between",
    "register",
    "sources",
    "to_series",
]

MOUNTS = "/proc/self/mountstats"
"""The file that names every mount point with the type of its file system."""

DEVICE = "device"
"""Stands among the types of file systems in :attr:`Source.counts_for` for a block device itself."""


class Kind(Enum):
    """What a reading's value is."""

    RATE = "rate"  # cumulative; shown as its increase a second
    QUOTIENT = "quotient"  # cumulative; shown as its increase over that of ``per``
    GAUGE = "gauge"  # as it is


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one moment. ``unit`` is that of what is shown. ``keep``: shown even where always zero."""

    value: float
    unit: Unit
    kind: Kind = Kind.RATE
    per: float = 0.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The texts of all files at one time: seconds of the machine's clock, path → text."""

    time: float
    texts: Mapping[str, str]


class RequestKind(Enum):
    """The purpose of a request."""

    QUERY = "ask"  # open, look up, get attributes: what is revalidated
    READ = "read"
    WRITE = "write"
    CHANGE = "change"  # make, remove, rename, set attributes
    LIST = "list"  # read a directory
    LOCK = "lock"  # take, test or release a lock


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests by kind, and which counter says so. A kind that is missing is one that no counter counts.

    A client may keep back requests of the kinds in ``put_off`` for as long as the target does not call for
    them.
    """

    counts: Mapping[RequestKind, int]
    counter: str
    deferred: frozenset[RequestKind] = frozenset()

    def since(self, before: RequestCounts) -> RequestCounts:
        """Return how many more there are than ``before``."""
        more = {kind: count - before.counts.get(kind, 0) for kind, count in self.counts.items()}
        return RequestCounts(more, self.counter, self.deferred)


class Source(ABC):
    """One place to read counters from. Subclasses are stateless."""

    name: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    """Files to read, as globs."""

    lines: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """How the lines begin that matter, for paths of which not all do."""

    counts_for: ClassVar[frozenset[str]] = frozenset()
    """Types of file systems, or :data:`DEVICE`, of which it counts the bytes that cross to the target."""

    transfers: ClassVar[tuple[str, str]] = ("", "")
    """Names of the readings that are the bytes read from the target, and written to it."""

    transfer_lines: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """How the lines begin that :meth:`transferred` needs, of paths of which it does not need all."""

    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {}
    """Names of the readings that make up each kind of requests; empty: it counts none."""

    deferred: ClassVar[frozenset[RequestKind]] = frozenset()
    """Kinds of requests that the client may keep back; see :class:`RequestCounts`."""

    counter: ClassVar[str] = ""
    """Whose counter it is, in messages: ``the SMB client's``."""

    example: ClassVar[Mapping[str, str]]
    """Texts by path that the parser reads, as a kernel prints them."""

    @abstractmethod
    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings by name in ``texts`` (path → text of the files that :attr:`paths` names)."""

    def select(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of ``texts`` that are this source's."""
        return {path: text for path, text in texts.items() if _matches(path, self.paths)}

    def transferred(self, texts: Mapping[str, str], point: str) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002
        """Return whose counter → the bytes read and written so far, for the file system mounted on ``point``.

        ``texts`` are this source's. Where several are returned, the one that moves most is right.
        """
        found = self.parse(texts)
        if not any(name in found for name in self.transfers):
            return {}
        read, written = (round(found[name].value) if name in found else 0 for name in self.transfers)
        return {self.counter: (read, written)}

    def count_requests(self, texts: Mapping[str, str], point: str) -> RequestCounts | None:  # noqa: ARG002
        """Return the requests so far for the file system mounted on ``point``, by this source's ``texts``."""
        found = self.parse(texts)
        counts = {
            kind: int(sum(found[name].value for name in names if name in found))
            for kind, names in self.requests.items()
            if any(name in found for name in names)
        }
        return RequestCounts(counts, self.counter, self.deferred)

    def lease_seconds(self, texts: Mapping[str, str], point: str) -> float | None:  # noqa: ARG002
        """Return the seconds of the lease that the server gave the mount on ``point``, if there is one."""
        return None


def file_system(mountstats: str, path: str) -> tuple[str, str]:
    """Return mount point and type of the file system that ``path`` is on; two empty texts if unknown."""
    found = ("", "")
    for line in mountstats.splitlines():
        head, _, kind = line.partition(" with fstype ")
        point = head.partition(" mounted on ")[2]
        on_it = line.startswith("device ") and point and kind and PurePosixPath(path).is_relative_to(point)
        if on_it and len(point) >= len(found[0]):
            found = (point, kind.split()[0])
    return found


@lru_cache(maxsize=4096)  # the same few paths, once a second
def _matches(path: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, one) for one in globs)


sources: Registry[Source] = get_registry("storagetest.counters")
register = sources.register


def to_series(source: Source, host: str, moments: Sequence[Snapshot]) -> tuple[Series, ...]:
    """Return the series that ``source`` has in ``moments``, in the times of the moments.

    What was zero throughout is left out unless it is to be kept.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    shown: dict[str, Reading] = {}
    before: Mapping[str, Reading] = {}
    at = 0.0
    for moment in moments:
        now = source.parse(source.select(moment.texts))
        for name, reading in now.items():
            shown[name] = reading
            value = rate_between(before.get(name), reading, moment.time - at)
            if value is not None:
                points.setdefault(name, []).append((moment.time, value))
        before, at = now, moment.time
    found = []
    for name, pairs in points.items():
        reading = shown[name]
        if reading.keep or any(value for _, value in pairs):
            times, values = zip(*pairs, strict=True)
            found.append(Series(source.name, name, reading.unit, host, times, values))
    return tuple(found)


def rate_between(before: Reading | None, now: Reading, seconds: float) -> float | None:
    """Return what is shown of two readings that lie ``seconds`` apart; None where nothing can be said."""
    if now.kind is Kind.GAUGE:
        return now.value
    if before is None or now.value < before.value or now.per < before.per:
        return None  # it began anew
    more = now.value - before.value
    if now.kind is Kind.QUOTIENT:
        return more / (now.per - before.per) if now.per > before.per else None
    return more / seconds if seconds > 0 else None


def leading_integers(words: Sequence[str]) -> list[int]:
    """Return the leading whole numbers among ``words``."""
    found: list[int] = []
    for word in words:
        try:
            found.append(int(word, 0) if word[:2] == "0x" else int(word))
        except ValueError:
            break
    return found


def all_sources() -> tuple[Source, ...]:
    """Return one of every registered source, sorted by name."""
    made: list[Any] = [kind() for kind in sources]
    return tuple(made)
