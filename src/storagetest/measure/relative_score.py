"""Score each value relative to the best one; values whose intervals overlap are ties. Pure.

A value *ties* with the best if their confidence intervals overlap: these runs do not distinguish them,
whatever the means are. A value without an interval (one repeat) ties only with itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.run import Better
from storagetest.measure.stats import Estimate, Interval


@dataclass(frozen=True, slots=True)
class RelativeScore:
    """``share`` is the value relative to the best: 1 for the best, 0.5 for half as good."""

    share: float
    tie: bool


def relative_scores(figures: Sequence[Estimate | None], better: Better) -> list[RelativeScore | None]:
    """Return the score of each of ``figures``; None for a value without one.

    Only values above zero have a score, and at least two are needed.
    """
    fit = [one for one in figures if one is not None and _is_fit(one)]
    if len(fit) < 2:
        return [None] * len(figures)
    pick = max if better is Better.HIGHER else min
    best = pick(fit, key=lambda one: one.value)

    def score(one: Estimate) -> RelativeScore:
        share = one.value / best.value if better is Better.HIGHER else best.value / one.value
        return RelativeScore(share, one.value == best.value or _overlap(one.interval, best.interval))

    return [score(one) if one is not None and _is_fit(one) else None for one in figures]


def _is_fit(one: Estimate) -> bool:
    return 0 < one.value < math.inf


def _overlap(one: Interval | None, other: Interval | None) -> bool:
    if one is None or other is None:
        return False
    return one.low <= other.high and other.low <= one.high
