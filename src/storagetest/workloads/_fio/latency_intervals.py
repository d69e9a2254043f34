"""Percentiles of each interval of a load, from fio's histogram logs (fio(1), ``write_hist_log``).

A line is ``time (ms), direction, block size, count, count, …``: the I/Os of one direction of one worker that
completed since its line before, by completion latency. The counts are those of the buckets of
:mod:`storagetest.measure.histogram`, of which 2**k neighbours are one count (``log_hist_coarseness`` k). fio
has no such log of total latency. An interval that the runtime cuts short has no line.

Rules:

1. The counts of all workers in an interval are added up; percentiles are never averaged.
2. A percentile is left out of an interval with few I/Os (:func:`.has_percentile`).
3. A load of many workers has longer intervals (:attr:`.FioJob.histogram_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from storagetest.measure.histogram import BUCKETS, bucket_start
from storagetest.measure.series import LATENCY, QUANTILES, Series, has_percentile
from storagetest.measure.unit import Unit
from storagetest.workloads._fio.job import LOG

FILE = f"{LOG}_clat_hist.log"
"""fio's name of the log."""

_DIRECTIONS = {"0": "read", "1": "write"}
_NANOSECOND = 1e-9


def percentiles_over_time(text: str, host: str, *, start: float, interval: float) -> tuple[Series, ...]:
    """Return p50 and p99 of the completion latency of each direction, in seconds since ``start``.

    ``text`` is lines ``load_clat_hist.log<NUL>line``, ``start`` seconds since the epoch by the client's
    clock. Lines that cannot be read are left out.
    """
    slots: dict[tuple[str, int], list[int]] = {}
    for time, direction, counts in _lines(text):
        number = round((time - start) / interval)
        if number > 0:
            sums = slots.setdefault((direction, number), [0] * len(counts))
            if len(sums) == len(counts):
                sums[:] = map(int.__add__, sums, counts)
    found = []
    for direction in _DIRECTIONS.values():
        mine = {number: slots[way, number] for way, number in sorted(slots) if way == direction}
        found += [
            _series(f"{direction} completion {name}", q, mine, host, interval)
            for name, q in QUANTILES.items()
        ]
    return tuple(one for one in found if one.times)


def _series(name: str, q: float, slots: Mapping[int, Sequence[int]], host: str, interval: float) -> Series:
    points = [
        (round(number * interval, 6), _percentile(counts, q))
        for number, counts in slots.items()
        if has_percentile(sum(counts), q)
    ]
    return Series(
        LATENCY, name, Unit.SECONDS, host, tuple(at for at, _ in points), tuple(value for _, value in points)
    )


def _percentile(counts: Sequence[int], q: float) -> float:
    """Return the middle, in seconds, of the count in which the percentile of nearest rank lies."""
    rank = math.ceil(q * sum(counts) - 5e-10)
    index = next(index for index, seen in enumerate(accumulate(counts)) if seen >= rank)
    width = BUCKETS // len(counts)
    return (bucket_start(index * width) + bucket_start((index + 1) * width)) / 2 * _NANOSECOND


def _lines(text: str) -> Iterable[tuple[float, str, list[int]]]:
    for line in text.splitlines():
        name, _, rest = line.partition("\0")
        if name != FILE:
            continue
        time, *columns = rest.rstrip(", ").split(",")
        try:
            direction, _, *counts = map(int, columns)
            at = int(time) / 1000
        except ValueError:
            continue
        if str(direction) in _DIRECTIONS and counts and BUCKETS % len(counts) == 0 and min(counts) >= 0:
            yield at, _DIRECTIONS[str(direction)], counts
