"""How figures of the same thing stand to the best of them: pure.

A figure is *level* with the best where their confidence intervals overlap: then these runs do not tell them
apart, whatever the two means are. A figure without an interval (one repeat) is level with nothing but itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.run import Better
from storagetest.measure.stats import Estimate, Interval

__all__ = ["RelativeScore", "relative_scores"]


@dataclass(frozen=True, slots=True)
class RelativeScore:
    """``share`` is what the figure reaches of the best: 1 for the best, 0.5 for half as good."""

    share: float
    tie: bool


def relative_scores(figures: Sequence[Estimate | None], better: Better) -> list[RelativeScore | None]:
    """Return how each stands to the best of them; None where there is none, or no share of it.

    Only values above zero have a share, and it takes two of them to compare.
    """
    fit = [one for one in figures if one is not None and 0 < one.value < math.inf]
    if len(fit) < 2:
        return [None] * len(figures)
    pick = max if better is Better.HIGHER else min
    best = pick(fit, key=lambda one: one.value)
    found: list[RelativeScore | None] = []
    for one in figures:
        if one is None or not 0 < one.value < math.inf:
            found.append(None)
            continue
        share = one.value / best.value if better is Better.HIGHER else best.value / one.value
        found.append(RelativeScore(share, one.value == best.value or _overlap(one.interval, best.interval)))
    return found


def _overlap(one: Interval | None, other: Interval | None) -> bool:
    if one is None or other is None:
        return False
    return one.low <= other.high and other.low <= one.high
