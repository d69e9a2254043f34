"""Latency histograms in the bins that fio counts in, so that they can be merged without loss.

Theory (fio's manual, ``json+``; the comment on ``FIO_IO_U_PLAT_BITS`` in its stat.h). Latencies are whole
nanoseconds. Buckets come in groups of 64. The first two groups have buckets 1 ns wide, so 0..127 ns are
exact. From there each group spans a power of two, ``2**k`` to ``2**(k+1)``, in 64 equal buckets, so a
bucket that starts at L is at most L/64 wide. A bucket is reported by its middle, which is therefore within
1/128 (0.78 %) of every latency that was counted in it. There are 29 groups; what took 2**34 ns (17.2 s) or
longer is counted in the last bucket, whose value is then only a lower bound.

Rules:

1. Merging adds counts, bucket by bucket. It is exact, associative and commutative: merging histograms equals
   pooling the latencies. Percentiles of different histograms are never averaged.
2. A percentile is that of nearest rank: the first bucket at which at least ``q`` of all I/Os are counted.
3. Nanoseconds inside (and in fio's JSON), seconds outside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RELATIVE_ERROR = 1 / 128
"""How far a bucket's value may be from a latency counted in it, as a share of that latency."""

_BITS = 6  # FIO_IO_U_PLAT_BITS: 2**6 buckets a group
_GROUPS = 29  # FIO_IO_U_PLAT_GROUP_NR
_LAYOUT = f"fio/{_BITS}/{_GROUPS}"
_TOP = (1 << (_BITS + _GROUPS - 1)) - 1

BUCKETS = _GROUPS << _BITS
"""Number of buckets."""

LONGEST = (_TOP + 1) * 1e-9
"""Latencies of this many seconds or more share the last bucket."""


def bucket(ns: int) -> int:
    """Return the value of the bucket that ``ns`` (0 or more) belongs to."""
    ns = min(ns, _TOP)
    shift = ns.bit_length() - _BITS - 1
    if shift <= 0:
        return ns
    return (ns >> shift << shift) + (1 << (shift - 1))


def bucket_start(index: int) -> int:
    """Return the shortest latency (ns) of bucket number ``index``, from 0; for :data:`BUCKETS` their end."""
    if index < 2 << _BITS:
        return index
    size = 1 << _BITS
    return (size + index % size) << (index // size - 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of I/Os by latency: ``bins`` are (bucket's value in ns, count), ascending, without zero counts.

    Create it with :meth:`from_fio_bins` or :meth:`of`; add two to merge them.
    """

    bins: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_fio_bins(cls, bins: Mapping[Any, Any]) -> Histogram:
        """Return the histogram of fio's ``bins`` object: nanoseconds → count, the keys as text or as int.

        Raises :class:`ValueError` for a count that is none, or for a key that is no bucket of fio's layout
        (the error stated here would not hold for it).
        """
        counts: dict[int, int] = {}
        for key, count in bins.items():
            ns = int(key)
            if type(count) is not int or count < 0:
                raise ValueError(f"bin {key}: {count!r} is not a count")
            if ns < 0 or bucket(ns) != ns or ns in counts:
                raise ValueError(f"bin {key}: not a bucket of fio's layout, or there twice")
            counts[ns] = count
        return cls._of_counts(counts)

    @classmethod
    def of(cls, latencies: Iterable[float]) -> Histogram:
        """Return the histogram of latencies in seconds. Raises :class:`ValueError` for a negative one."""
        counts: Counter[int] = Counter()
        for latency in latencies:
            ns = math.floor(latency * 1e9 + 0.5)
            if ns < 0:
                raise ValueError(f"a latency of {latency} s")
            counts[bucket(ns)] += 1
        return cls._of_counts(counts)

    @classmethod
    def _of_counts(cls, counts: Mapping[int, int]) -> Histogram:
        return cls(tuple(sorted((ns, count) for ns, count in counts.items() if count)))

    @property
    def count(self) -> int:
        """How many I/Os were counted."""
        return sum(count for _, count in self.bins)

    @property
    def mean(self) -> float:
        """The mean in seconds, within :data:`RELATIVE_ERROR`; NaN where nothing was counted."""
        count = self.count
        return sum(ns * n for ns, n in self.bins) / count * 1e-9 if count else math.nan

    @property
    def saturated(self) -> bool:
        """Whether an I/O took :data:`LONGEST` or more, so that the last bucket is only a lower bound."""
        return bool(self.bins) and self.bins[-1][0] == bucket(_TOP)

    def percentile(self, q: float) -> float:
        """Return the seconds that ``q`` (0 < q ≤ 1) of the I/Os did not exceed; NaN without I/Os."""
        if not 0 < q <= 1:
            raise ValueError(f"a quantile lies above 0 and is at most 1, not {q}")
        # In floats 0.07 * 100 is 7.000000000000001: so little of an I/O is no rank of its own.
        rank = math.ceil(q * self.count - 5e-10)
        seen = 0
        for ns, count in self.bins:
            seen += count
            if seen >= rank:
                return ns * 1e-9
        return math.nan

    def __add__(self, other: Histogram) -> Histogram:
        return merge((self, other))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; :meth:`from_json` is the exact inverse."""
        return {"layout": _LAYOUT, "unit": "ns", "bins": [[ns, count] for ns, count in self.bins]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Histogram:
        """Return the histogram of :meth:`to_json`; raises KeyError, TypeError or ValueError."""
        if document["layout"] != _LAYOUT or document["unit"] != "ns":
            raise ValueError(f"a histogram of layout {document['layout']!r} in {document['unit']!r}")
        pairs = [(ns, count) for ns, count in document["bins"]]
        if len({ns for ns, _ in pairs}) != len(pairs):
            raise ValueError("duplicate bin")
        return cls.from_fio_bins(dict(pairs))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Merge ``histograms`` into one; an empty histogram if there are none."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for ns, count in histogram.bins:
            counts[ns] = counts.get(ns, 0) + count
    return Histogram._of_counts(counts)  # noqa: SLF001  # the same module
