"""Latency histogram as a cumulative distribution: which share of the I/Os took at most how long.

Drawn against ``nines``, the decades of the remaining share (1 is 90 %, 4 is 99.99 %), which shows the tail. A
quantile q needs 100/(1-q) I/Os (as gates do), so a curve states the share up to which it is ``trusted``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storagetest.measure.histogram import Histogram

FARTHEST = 0.9999
"""The last share of a curve: p99.99."""

_A_DECADE = 64
"""Points for each decade of the remaining share; more would not be visible."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """``points`` are (share of the I/Os, latency in seconds not exceeded), both ascending.

    The quantiles up to ``trusted`` have enough of the ``count`` I/Os: 100 beyond each.
    """

    points: tuple[tuple[float, float], ...]
    count: int
    trusted: float


def nines(share: float) -> float:
    """Return 0 for 0, 1 for 0.9, 2 for 0.99; raises :class:`ValueError` outside of 0 ≤ share < 1."""
    if not 0 <= share < 1:
        raise ValueError(f"a share of 0 or more and below 1, not {share}")
    return -math.log10(1 - share)


def distribution(histogram: Histogram, *, farthest: float = FARTHEST) -> Distribution:
    """Return the curve of ``histogram`` up to the share ``farthest``; without I/Os it has no points.

    Each point is a bucket's value and the share counted up to and with it; of points closer than 1/64 of a
    decade the last is kept. The curve ends in the quantile ``farthest`` itself, or in the last I/O.
    """
    count = histogram.count
    if not count:
        return Distribution((), 0, 0.0)
    points: list[tuple[float, float]] = []
    seen, slot = 0, -1
    for ns, number in histogram.bins:
        seen += number
        share = min(seen / count, farthest)
        here = math.floor(nines(share) * _A_DECADE)
        if here == slot:
            points.pop()
        points.append((share, ns * 1e-9))
        slot = here
        if share >= farthest:
            break
    return Distribution(tuple(points), count, max(0.0, 1 - 100 / count))
