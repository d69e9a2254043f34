"""Robust location of runs, and what is conspicuous about them: two groups, or a drift. Pure.

Storage has runs that are far slower than the others (a rebuild, a garbage collection). Their number differs
from session to session by chance, so a mean moves although nothing has changed. Tukey's biweight gives no
weight to what lies far off, and next to the full precision of the mean where nothing does (95 % at normal
runs). Source: F. Mosteller, J. W. Tukey, Data Analysis and Regression (1977), chapter 10.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from storagetest.measure.stats import mean

_TUNING = 4.685  # biweight: 95 % efficient at the normal distribution
_SIGMA = 1.4826  # standard deviations in a median absolute deviation of normal values
_FINEST = 1e-4  # no scale of logarithms is finer: values repeat because counters and bins are coarse
_ROUNDS = 20
_GAP = 4.0
_FEWEST = 10


def robust_scale(sessions: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of a run about its session's median, from the median absolute deviation.

    The values are logarithms; each session has at least one.
    """
    away: list[float] = []
    for values in sessions:
        middle = statistics.median(values)
        away += [abs(value - middle) for value in values]
    degrees = len(away) - len(sessions)
    correction = math.sqrt(len(away) / degrees) if degrees > 0 else 1.0
    return max(_SIGMA * statistics.median(away) * correction, _FINEST)


def location(values: Sequence[float], scale: float) -> float:
    """Return the biweight location of ``values`` whose runs have the standard deviation ``scale``."""
    reach, centre = _TUNING * scale, statistics.median(values)
    for _ in range(_ROUNDS):
        weights = [max(0.0, 1 - ((value - centre) / reach) ** 2) ** 2 for value in values]
        if not any(weights):  # the median lies between two groups
            return centre
        moved = math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)
        if abs(moved - centre) < 1e-9:
            break
        centre = moved
    return centre


def conspicuous(values: Sequence[float]) -> str:
    """Return a remark on ``values`` (positive, in the order of measuring) that are no noise about one centre,
    or "".

    Ten or more values are examined. They fall into *two groups* if the gap between the groups is four times
    the standard deviation within them and each has two values; they *drift* if values that come later are
    larger (or smaller) so often that it happens by chance once in a thousand (Kendall's test).
    """
    if len(values) < _FEWEST or not all(0 < value < math.inf for value in values):
        return ""
    return _groups(sorted(values)) or _drift(values)


def _groups(ordered: Sequence[float]) -> str:
    cuts = range(2, len(ordered) - 1)
    cut = max(cuts, key=lambda at: ordered[at] / ordered[at - 1])
    low, high = ordered[:cut], ordered[cut:]
    squares = math.fsum((value - mean(part)) ** 2 for part in (low, high) for value in part)
    within = math.sqrt(squares / (len(ordered) - 2))
    if ordered[cut] - ordered[cut - 1] <= _GAP * within:
        return ""
    apart = mean(high) / mean(low) - 1
    return f"two groups of {len(high)} and {len(low)}, {apart * 100:.2g} % apart"


def _drift(values: Sequence[float]) -> str:
    count = len(values)
    score = sum(
        (later > earlier) - (later < earlier)
        for at, earlier in enumerate(values)
        for later in values[at + 1 :]
    )
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if abs(score) <= 3.29 * deviation:
        return ""
    half = count // 2
    moved = statistics.median(values[-half:]) / statistics.median(values[:half]) - 1
    return f"a drift of {moved * 100:+.2g} % from the first half to the second"
