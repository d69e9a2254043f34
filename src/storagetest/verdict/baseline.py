"""Stored runs of a case, and the noise floor between its sessions. Pure.

A *session* is one stored set of runs of one case. Saving into a baseline states that the target is unchanged,
so any two sessions of a case are an A/A pair, and their difference is noise: of the host, the network, the
day. The *noise floor* of a metric is the 95 % quantile, over all pairs of sessions, of the larger mean
divided by the smaller one, less one. It needs two sessions; with few it is practically the largest
difference. Halves of one session are no substitute: they share everything that changes from day to day.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.stats import mean

QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Reference:
    """The stored values of one metric of one case, by session, in its base unit; ``source`` is the file."""

    sessions: tuple[tuple[float, ...], ...]
    source: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all sessions."""
        return tuple(itertools.chain.from_iterable(self.sessions))

    @property
    def floor(self) -> float | None:
        """The noise floor as a share (0.03 is 3 %); None with fewer than two sessions."""
        return noise_floor(self.sessions)


def noise_floor(sessions: Sequence[Sequence[float]]) -> float | None:
    """Return the 95 % quantile of the effects between ``sessions``; None if there is no pair.

    A session without values, or whose mean is not a positive number, has no ratio and is left out.
    """
    means = [mean(values) for values in sessions if values]
    means = [each for each in means if 0 < each < math.inf]
    effects = sorted(max(a, b) / min(a, b) - 1 for a, b in itertools.combinations(means, 2))
    if not effects:
        return None
    below, part = divmod(QUANTILE * (len(effects) - 1), 1)
    low, high = effects[int(below)], effects[min(int(below) + 1, len(effects) - 1)]
    return low + part * (high - low)
