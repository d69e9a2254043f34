"""Compare two sets of runs of the same case: the effect, and whether it is a regression. Pure.

The effect is the ratio of means minus one. Its interval is Student's t on the logarithms. Its significance is
a two-sided permutation test of the difference of mean logarithms, exact for up to 9999 arrangements; beyond,
that many seeded draws. An effect smaller than ``floor`` is never a change. Three runs a side reach p = 0.1 at
best, so below four runs a side the result is ``TOO_FEW``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from storagetest.measure.run import Better
from storagetest.measure.stats import Interval

_RESAMPLES = 9999


class Direction(Enum):
    """The change from A to B."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "~"
    TOO_FEW = "too few runs"


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """``effect`` is B/A - 1, ``low`` and ``high`` its interval at 1 - alpha, ``p`` the two-sided p-value."""

    effect: float
    low: float
    high: float
    p: float
    direction: Direction


def compare(
    a: Sequence[float], b: Sequence[float], better: Better, *, alpha: float = 0.05, floor: float = 0.0
) -> ComparisonResult | None:
    """Compare runs ``b`` with ``a``; None if a side has fewer than two or a value is not positive."""
    if min(len(a), len(b)) < 2 or not all(0 < value < math.inf for value in (*a, *b)):
        return None
    x, y = (tuple(math.log(value) for value in side) for side in (a, b))
    around = ratio_interval(x, y, 1 - alpha)
    p = _permutation_p(y, x)
    effect = sum(b) / len(b) / (sum(a) / len(a)) - 1
    ways = math.comb(len(a) + len(b), len(a))
    return ComparisonResult(
        effect,
        math.expm1(min(around.low, 700.0)),
        math.expm1(min(around.high, 700.0)),
        p,
        _direction(effect, p, alpha, floor, better, ways),
    )


def ratio_interval(x: Sequence[float], y: Sequence[float], confidence: float) -> Interval:
    """Return the t interval of mean(y) - mean(x), two or more values each; of logarithms: of a ratio's.

    Both sides share one variance, as in the permutation test, under whose hypothesis they are alike.
    """
    import numpy as np  # noqa: PLC0415 - slow to import
    from scipy import stats  # noqa: PLC0415

    centre = float(np.mean(y) - np.mean(x))
    if float(np.ptp(x)) == 0 and float(np.ptp(y)) == 0:
        return Interval(centre, centre, centre, confidence, len(y))
    found = stats.ttest_ind(y, x, equal_var=True).confidence_interval(confidence)
    return Interval(centre, float(found.low), float(found.high), confidence, len(y))


def _permutation_p(y: tuple[float, ...], x: tuple[float, ...]) -> float:
    import numpy as np  # noqa: PLC0415 - slow to import
    from scipy import stats  # noqa: PLC0415

    tested = stats.permutation_test(
        (np.asarray(y), np.asarray(x)),
        lambda one, two, axis: np.mean(one, axis=axis) - np.mean(two, axis=axis),
        vectorized=True,
        n_resamples=_RESAMPLES,
        alternative="two-sided",
        random_state=np.random.default_rng(1),
    )
    return float(tested.pvalue)


def _direction(effect: float, p: float, alpha: float, floor: float, better: Better, ways: int) -> Direction:
    # The smallest p there is: the arrangement seen and, with equal sides, its mirror image.
    if 2 / ways > alpha:
        return Direction.TOO_FEW
    if p > alpha or abs(effect) < floor or effect == 0:
        return Direction.SAME
    return Direction.BETTER if (effect > 0) is (better is Better.HIGHER) else Direction.WORSE
