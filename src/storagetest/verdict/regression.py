"""Two sets of runs of the same case: how far apart, and is it a regression. Pure.

The effect is the ratio of means minus one. Its interval is Welch's t on the logarithms; whether it is real is
a two-sided permutation test of the difference of mean logarithms, exact where the arrangements are few (up to
9999; then that many seeded draws). An effect smaller than ``floor`` is never reported as a change. Three runs
a side can reach p = 0.1 and no less, so below four a side nothing is ever a change: that is said, not hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from storagetest.measure.run import Better

__all__ = ["Change", "Comparison", "compare"]


class Change(Enum):
    """What B is against A."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "~"
    TOO_FEW = "too few runs"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``effect`` is B/A - 1, ``low`` and ``high`` its interval at 1 - alpha, ``p`` the two-sided p-value."""

    effect: float
    low: float
    high: float
    p: float
    change: Change


def compare(
    a: Sequence[float], b: Sequence[float], better: Better, *, alpha: float = 0.05, floor: float = 0.0
) -> Comparison | None:
    """Compare runs ``b`` with ``a``; None where a side has fewer than two or a value is not positive."""
    if min(len(a), len(b)) < 2 or not all(0 < value < math.inf for value in (*a, *b)):
        return None
    import numpy as np  # noqa: PLC0415 - slow to import
    from scipy import stats  # noqa: PLC0415

    x, y = np.log(np.asarray(a, dtype=float)), np.log(np.asarray(b, dtype=float))
    effect = float(np.mean(b) / np.mean(a) - 1)
    if float(np.ptp(x)) == 0 and float(np.ptp(y)) == 0:
        low = high = effect
    else:
        ci = stats.ttest_ind(y, x, equal_var=False).confidence_interval(1 - alpha)
        low, high = math.expm1(float(ci.low)), math.expm1(float(ci.high))
    tested = stats.permutation_test(
        (y, x),
        lambda one, two, axis: np.mean(one, axis=axis) - np.mean(two, axis=axis),
        vectorized=True,
        n_resamples=9999,
        random_state=np.random.default_rng(1),
    )
    p = float(tested.pvalue)
    return Comparison(
        effect, low, high, p, _change(effect, p, alpha, floor, better, math.comb(len(a) + len(b), len(a)))
    )


def _change(effect: float, p: float, alpha: float, floor: float, better: Better, ways: int) -> Change:
    # The smallest p there is: the arrangement seen and, with equal sides, its mirror image.
    if 2 / ways > alpha:
        return Change.TOO_FEW
    if p > alpha or abs(effect) < floor or effect == 0:
        return Change.SAME
    return Change.BETTER if (effect > 0) is (better is Better.HIGHER) else Change.WORSE
