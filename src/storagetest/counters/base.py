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
3. A name is for people and stands for the same thing in all samples: ``eth0 received``, ``READ rtt``. It
   holds no address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, ClassVar

from storagetest.measure.run import Unit
from storagetest.measure.series import Series
from storagetest.registry import Registry

__all__ = [
    "Kind",
    "Reading",
    "Snapshot",
    "Source",
    "all_sources",
    "numbers",
    "rate_between",
    "register",
    "sources",
    "to_series",
]


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


class Source(ABC):
    """One place to read counters from. Subclasses are stateless."""

    name: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    """Files to read, as globs."""

    lines: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """How the lines begin that matter, for paths of which not all do."""

    example: ClassVar[Mapping[str, str]]
    """Texts by path that the parser reads, as a kernel prints them."""

    @abstractmethod
    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings by name in ``texts`` (path → text of the files that :attr:`paths` names)."""

    def select(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of ``texts`` that are this source's."""
        return {path: text for path, text in texts.items() if _matches(path, self.paths)}


@lru_cache(maxsize=4096)  # the same few paths, once a second
def _matches(path: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, one) for one in globs)


sources: Registry[Source] = Registry("storagetest.counters")
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


def numbers(words: Sequence[str]) -> list[int]:
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
