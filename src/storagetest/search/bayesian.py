"""Bayesian search: a model of the measurements chooses the next point, until only a small gain is expected.

Theory (Jones, Schonlau and Welch, Efficient Global Optimization, J. Global Optimization 13, 1998; with noise:
Gramacy and Lee, 2011). After some spread-out points a Gaussian process
(:mod:`storagetest.search.gaussian_process`) has, for every point of the grid, an expected value and its
error. The next point is the one with the largest expected improvement over the best: the expected value is
high, or uncertain. Points that are almost surely worse are never measured again.

Rules:

1. The first tenth of the budget, or a few points for each parameter, is spread out. Then the search continues
   while an improvement of :data:`MINIMUM_GAIN` of the best is expected somewhere, within the budget.
2. A value far below the expected one is measured again immediately, because a disturbance must not hide the
   best point. The same applies to a direct neighbour of the best that seems far worse.
3. Then points are measured without the model. From the best point, each parameter is stepped both ways until
   the value is clearly worse. A smooth model places the edge of a plateau too far inside, and without these
   steps it would accept a point beyond the edge.
4. The point with the smallest parameters of all that seem as good as the best (:data:`EQUIVALENT`) is
   measured too, and preferred at the end.
5. At the end, of the points that may be the best, the least certain is measured again, until all are certain
   to :data:`CERTAIN`, are worse, or were measured so often that they are too close to distinguish.
6. After each of these steps the search starts again with the first one.
7. The model chooses the best point from all measurements; the highest single value does not decide.
8. Everything follows from the seed and the recorded values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from storagetest.search.base import Strategy
from storagetest.search.gaussian_process import GaussianProcess
from storagetest.search.space import Point, Space

MINIMUM_GAIN = 0.005
"""Share of the best: a smaller expected improvement is not searched."""

EQUIVALENT = 0.006
"""Share of the best: points that lack no more than that are equivalent, and the smallest is preferred."""

CERTAIN = 0.005
"""Share: standard error of the best at which the race ends."""

_REMEASURE_BELOW = 2.0  # standard deviations below the expected value: measured again
_WORSE = 0.1  # of a logarithm below the best: two such measurements end the steps in a direction
_REFIT_INTERVAL = 5  # measurements after which lengths and noise are learned anew
_RACERS = 6
_RACES = 16  # measurements of one point; more would not distinguish the points

Array = NDArray[np.float64]


class BayesianSearch(Strategy):
    """Efficient global optimization on a grid, with noise and a termination rule."""

    def __init__(self, space: Space, *, budget: int, start: Point | None = None, seed: int = 1) -> None:
        super().__init__(space, budget=budget)
        self._grid = list(space)
        self._index = {point: at for at, point in enumerate(self._grid)}
        self._scaled = space.scaled(self._grid)
        self._process = GaussianProcess(space.shape)
        self._first = self._spread_out(seed, start if start is not None else space.middle())
        self._learned = 0
        self._again: Point | None = None

    def next_point(self) -> Point | None:
        """Return the point with the most to gain; at the end those of the race."""
        if len(self.measured) >= self.budget:
            return None
        if len(self.measured) < len(self._first):
            return self._first[len(self.measured)]
        if self._again is not None:
            again, self._again = self._again, None
            return again
        self._refit()
        gain = self._gain()
        if gain.max() >= MINIMUM_GAIN:
            return self._grid[int(np.argmax(gain))]
        return self._next_along_axes() or self._cheapest_unmeasured() or self._least_certain_rival()

    def record(self, point: Point, value: float) -> None:
        """Record a measurement; a value far below the expected one is measured once more."""
        super().record(point, value)
        at = self._index[point]
        if self._learned and sum(one == point for one, _ in self.measured) == 1:
            spread = math.hypot(float(self._error[at]), self._process.noise)
            if math.log(value) < float(self._mean[at]) - _REMEASURE_BELOW * spread:
                self._again = point
        self._process.add(point, value)

    def best(self) -> Point:
        """Return, of the points that are equivalent to the best, the one with the smallest parameters."""
        self._refit()
        seen = list(dict.fromkeys(point for point, _ in self.measured))
        high = max(map(self._log_mean, seen))
        good = [point for point in seen if self._log_mean(point) >= high - EQUIVALENT]
        return min(good, key=lambda point: (sum(self._scaled[self._index[point]]), point))

    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return the model's expected values."""
        if not self.measured:
            return [math.nan] * len(points)
        return [math.exp(self._log_mean(point)) for point in points]

    def _spread_out(self, seed: int, start: Point) -> list[Point]:
        """Return the first points: ``start``, and others each as far as possible from those before it."""
        few = max(2 * len(self.space.parameters) + 3, self.budget // 10)
        count = min(len(self._grid), self.budget, few)
        random = np.random.default_rng(seed)
        chosen = [start]
        pool = [self._grid[at] for at in random.permutation(len(self._grid))[:500]]
        while len(chosen) < count:
            here = np.asarray(self.space.scaled(chosen))
            there = np.asarray(self.space.scaled(pool))
            nearest = np.abs(there[:, None, :] - here[None, :, :]).sum(axis=2).min(axis=1)
            # Corners are far from all other points and least informative: prefer inner points a little.
            inside = 1.0 - 0.5 * np.abs(there - 0.5).mean(axis=1)
            chosen.append(pool[int(np.argmax(nearest * inside))])
        return list(dict.fromkeys(chosen))

    def _refit(self) -> None:
        """Fit lengths and noise again after enough new measurements."""
        if len(self.measured) >= self._learned + _REFIT_INTERVAL:
            self._learned = len(self.measured)
            self._process.learn()

    def _log_mean(self, point: Point) -> float:
        return float(self._mean[self._index[point]])

    @property
    def _mean(self) -> Array:
        return self._process.mean

    @property
    def _error(self) -> Array:
        return np.sqrt(self._process.variance)

    def _gain(self) -> Array:
        """Return the expected improvement at each point, as a share of the best value."""
        seen = list({self._index[point] for point, _ in self.measured})
        best = float(self._mean[seen].max())
        z = (self._mean - best) / self._error
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        improvement: Array = (self._mean - best) * ndtr(z) + self._error * density
        # A measured point is known as well as the noise allows: measuring it again gains less.
        noise = self._process.noise
        return improvement * (1.0 - noise / np.sqrt(noise**2 + self._error**2))

    def _next_along_axes(self) -> Point | None:
        """Return the nearest unmeasured point on the axes through the best; None if all are known."""
        taken = Counter(point for point, _ in self.measured)
        best = max(taken, key=self._log_mean)
        unknown: list[tuple[int, float, Point]] = []
        for number, step in product(range(len(best)), (-1, 1)):
            for far in range(1, self.space.shape[number]):
                point = (*best[:number], best[number] + far * step, *best[number + 1 :])
                if point not in self._index:
                    break
                worse = self._log_mean(best) - self._log_mean(point)
                if not taken[point] or (far == taken[point] == 1 and worse > _WORSE):
                    unknown.append((far, worse, point))
                if not taken[point] or worse > _WORSE:
                    break
        return min(unknown)[2] if unknown else None

    def _cheapest_unmeasured(self) -> Point | None:
        """Return the smallest point that seems as good as the best; None if it was measured."""
        seen = {point for point, _ in self.measured}
        high = max(map(self._log_mean, seen))
        good = np.flatnonzero(self._mean >= high - EQUIVALENT)
        least = self._grid[min(good, key=lambda at: sum(self._scaled[at]))]
        return None if least in seen else least

    def _least_certain_rival(self) -> Point | None:
        """Return the least certain point that may be the best; None if the best is known."""
        counts = Counter(self._index[point] for point, _ in self.measured)
        best = max(counts, key=lambda at: float(self._mean[at]))
        high = float(self._mean[best]) + math.log1p(MINIMUM_GAIN)
        order = np.argsort(self._mean)[::-1][:_RACERS]
        rivals = {best, *(int(at) for at in order if self._mean[at] + 2 * self._error[at] >= high)}
        unsure = [at for at in rivals if self._error[at] > CERTAIN and counts[at] < _RACES]
        return self._grid[max(unsure, key=lambda at: float(self._error[at]))] if unsure else None
