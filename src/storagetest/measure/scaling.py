"""Scaling of a load with its users, and fairness between them: pure functions of measured values.

The *knee* of a scaling curve is the point beyond which more users gain little. It is found as in Kneedle: V.
Satopää, J. Albrecht, D. Irwin, B. Raghavan, Finding a "Kneedle" in a Haystack: Detecting Knee Points in
System Behavior, ICDCS Workshops (2011), section III, for a concave curve known as a whole. Both axes are
scaled to 0..1. The knee is the largest distance of the curve above its diagonal, if the distance falls from
there by ``sensitivity`` mean distances between neighbouring points.

Three choices of this implementation. The curve starts at the origin, so a flat curve has its knee at its
first point. One knee is returned, the most pronounced, although the paper allows several. Of points that are
nearly as far above the diagonal as the farthest, the one with the fewest users is the knee, because noise
would decide between them on a plateau.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

SENSITIVITY = 1.0
"""The paper's ``S``: how many points of a plateau it takes to see one."""

_NEARLY = 0.9
"""Of the largest distance from the diagonal."""


def knee(points: Sequence[tuple[float, float]], *, sensitivity: float = SENSITIVITY) -> float | None:
    """Return the x of the knee of ``points`` (users, throughput), ascending in x; None if there is none.

    None means that the curve still rises at its end as fast as on average. Raises :class:`ValueError` for
    fewer than two points, or if x does not ascend from above 0.
    """
    above = _above_diagonal(points)
    highest = max(above)
    if highest <= 0 or highest - sensitivity / len(points) < above[-1]:
        return None
    far = _NEARLY * highest
    return next(x for (x, _), distance in zip(points, above, strict=True) if distance >= far)


def knee_margin(
    points: Sequence[tuple[float, float]],
    at: float,
    *,
    at_least: bool,
    sensitivity: float = SENSITIVITY,
) -> float:
    """Return by how much the knee of ``points`` is at ``at`` or above (``at_least``), or at or below it.

    The margin is a distance in the scaled curve and negative if the knee is on the other side. A curve
    without a knee has it above all points. Unlike the knee itself it is continuous in the values, so that
    repeats of it have a mean and an interval. Raises :class:`ValueError` as :func:`knee` does.
    """
    above = _above_diagonal(points)
    far = _NEARLY * max(above)
    no_knee = above[-1] - (max(above) - sensitivity / len(points))
    left = [
        distance for (x, _), distance in zip(points, above, strict=True) if (x < at if at_least else x <= at)
    ]
    reached = max(left, default=-1.0) - far
    return max(-reached, no_knee) if at_least else min(reached, -no_knee)


def _above_diagonal(points: Sequence[tuple[float, float]]) -> list[float]:
    """Return the distance of each point above the diagonal of the scaled curve; zeros if no y is above 0."""
    xs = [0.0, *(float(x) for x, _ in points)]
    if len(points) < 2 or any(later <= before for before, later in itertools.pairwise(xs)):
        raise ValueError(f"a curve has two points or more, ascending from above 0, not {list(points)}")
    most = max(y for _, y in points)
    if most <= 0:
        return [0.0] * len(points)
    return [y / most - x / xs[-1] for x, y in points]


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all shares are equal, 1/n if one of n has everything.

    Source: R. Jain, D. Chiu, W. Hawe, A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems, DEC-TR-301 (1984): (Σx)² / (n·Σx²). Shares that are all 0 are
    equal. Raises :class:`ValueError` for no shares or a negative one.
    """
    if not shares or min(shares) < 0:
        raise ValueError(f"shares are not negative and there are some, not {list(shares)}")
    largest = max(shares)
    if not largest:
        return 1.0
    scaled = [share / largest for share in shares]  # or squares might leave a float's range
    return sum(scaled) ** 2 / (len(scaled) * sum(share * share for share in scaled))
