"""A histogram as a curve: which share of the I/Os took at most how long.

Drawn against ``nines``, the decades of what is left (1 is 90 %, 4 is 99.99 %), a tail that a linear axis
hides fills the picture. A quantile q means something from 100/(1-q) I/Os on (the rule that gates obey), so a
curve says up to where it is ``trusted``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storagetest.measure.histogram import Histogram

__all__ = ["FARTHEST", "Distribution", "distribution", "nines"]

FARTHEST = 0.9999
"""No curve goes on beyond this share: p99.99."""

_A_DECADE = 64
"""Points for each decade of what is left; more would not be seen."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """``points`` are (share of the I/Os, seconds that it did not exceed), both ascending.

    Of ``count`` I/Os the quantiles up to ``trusted`` have enough: 100 beyond each.
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
