"""Gaussian process over a grid: from noisy measurements at some points to a mean and its error at all.

Theory (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1 and section 5.4).
Values are logarithms, so noise is a share of the value and a plateau is flat at any height. Neighbouring
points have similar values. The distance of similarity is a length for each parameter, which is fitted, with
the noise, by the largest marginal likelihood. The kernel is Matérn's of order 5/2: smooth enough to predict
from few points, rough enough for a knee.

The kernel has two parts (Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NIPS 2011): a sum
over the parameters, so that results for one parameter apply to any value of the others, and a product for
their interactions. The weights of the parts are fitted like the lengths.

The priors on the lengths and the noise prevent overfitting of few points: without them, three measurements on
a line fit as well without noise.

The grid makes it fast. The similarity of two values of a parameter is one small table; a row of the
covariance is the outer sum and the outer product of the tables' rows. A further measurement adds one row to
the Cholesky factor and one to its solution over the grid, and nothing else changes
(:meth:`GaussianProcess.add`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from storagetest.search.space import Point

Array = NDArray[np.float64]

_LENGTH, _LENGTH_SPREAD = np.log(0.6), 0.7  # of a parameter's whole range
_NOISE, _NOISE_SPREAD = np.log(0.04), 0.7  # 4 %, give or take a factor of two
_ADDITIVE, _PRODUCT, _SIGNAL_SPREAD = np.log(0.7), np.log(0.3), 1.0
_BOUNDS_LENGTH, _BOUNDS_NOISE, _BOUNDS_SIGNAL = (np.log(0.08), np.log(6.0)), (-6.0, -1.0), (-4.0, 2.0)
_LEVEL = 1.0  # variance of the common level, in logarithms: hardly anything is known beforehand
_JITTER = 1e-9
_DISTURBED = 3.5  # standard deviations below the prediction of all others: disturbed
_IGNORED = 4.0  # variance that is added to disturbed measurements, which ignores them
_SPARE_ROWS = 32  # further measurements before all arrays are allocated again
_OPTIMIZER_OPTIONS = {"maxiter": 15}


class GaussianProcess:
    """Process over the grid of ``shape``: :meth:`add` measurements, :meth:`learn` lengths and noise.

    :attr:`mean` and :attr:`variance` have one number for each point of the grid; the last parameter varies
    fastest. Memory: eight bytes for each measurement and each point of the grid.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._theta: Array = np.array([_LENGTH] * len(self._shape) + [_ADDITIVE, _PRODUCT, _NOISE])
        self._points: list[Point] = []
        self._at: list[int] = []
        self._logs: list[float] = []
        self._disturbed: set[int] = set()
        self._rebuild()

    @property
    def mean(self) -> Array:
        """The expected logarithm at each point of the grid."""
        return self._mean

    @property
    def variance(self) -> Array:
        """Variance of :attr:`mean`, without the noise of a measurement."""
        return np.maximum(self._variance, _JITTER)

    @property
    def noise(self) -> float:
        """Standard deviation of measurements at one point, as a share."""
        return float(np.exp(self._theta[-1]))

    def add(self, point: Point, value: float) -> None:
        """Add one measurement; lengths and noise do not change."""
        self._points.append(point)
        self._at.append(int(np.ravel_multi_index(point, self._shape)))
        self._logs.append(float(np.log(value)))
        number = len(self._logs) - 1
        if number and number < len(self._solved):
            self._extend(number)
        else:
            self._rebuild()
        if self._find_disturbed():
            self._rebuild()

    def learn(self) -> None:
        """Fit lengths and noise to all measurements."""
        bounds = [_BOUNDS_LENGTH] * len(self._shape) + [_BOUNDS_SIGNAL, _BOUNDS_SIGNAL, _BOUNDS_NOISE]
        for _ in range(2):  # the second time without the disturbed measurements of the first
            found = minimize(
                self._loss,
                self._theta,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options=_OPTIMIZER_OPTIONS,
            )
            self._theta = np.asarray(found.x, float)
            self._rebuild()
            if not self._find_disturbed():
                return
        self._rebuild()

    def _rebuild(self) -> None:
        """Compute everything again with the present lengths and noise."""
        size, count = int(np.prod(self._shape)), len(self._logs)
        additive, product_weight, _ = np.exp(2 * self._theta[-3:])
        # An unmeasured point is expected to be as good as the best, so that the search tries it.
        self._centre = max(self._logs, default=0.0)
        self._tables, _ = _tables(self._shape, self._theta)
        self._mean: Array = np.full(size, self._centre)
        self._variance: Array = np.full(size, _LEVEL + additive + product_weight)
        self._rows: Array = np.empty((count + _SPARE_ROWS, size))
        self._factor: Array = np.zeros((count + _SPARE_ROWS, count + _SPARE_ROWS))
        self._solved: Array = np.empty(count + _SPARE_ROWS)
        if not count:
            return
        across = np.array([self._row(point) for point in self._points])
        factor = np.linalg.cholesky(across[:, self._at] + np.diag(self._noises(self.noise)))
        rows = solve_triangular(factor, across, lower=True, check_finite=False)
        solved = solve_triangular(factor, self._centred_logs(), lower=True, check_finite=False)
        self._factor[:count, :count], self._rows[:count], self._solved[:count] = factor, rows, solved
        self._mean += solved @ rows
        self._variance -= (rows**2).sum(axis=0)

    def _extend(self, number: int) -> None:
        """Add the row of measurement ``number`` to the factor, the mean and the variance."""
        at, before = self._at[number], slice(0, number)
        row = self._rows[before, at].copy()
        covariance = self._row(self._points[number])
        root = float(np.sqrt(covariance[at] + self._noises(self.noise)[number] - row @ row))
        self._factor[number, before], self._factor[number, number] = row, root
        self._rows[number] = (covariance - row @ self._rows[before]) / root
        self._solved[number] = (self._centred_logs()[number] - row @ self._solved[before]) / root
        self._mean += self._rows[number] * self._solved[number]
        self._variance -= self._rows[number] ** 2

    def _centred_logs(self) -> Array:
        return np.array(self._logs) - self._centre

    def _noises(self, noise: float) -> Array:
        """Return the variance of each measurement."""
        noises = np.full(len(self._logs), noise**2 + _JITTER)
        noises[sorted(self._disturbed)] += _IGNORED
        return noises

    def _find_disturbed(self) -> bool:
        """Find disturbed measurements; return whether they changed.

        A disturbed measurement lies far below the prediction of all others: leave-one-out residuals
        (Rasmussen and Williams, section 5.4.2), in standard deviations. Disturbed measurements are tested as
        if they were not.
        """
        factor = self._factor[: len(self._logs), : len(self._logs)]
        inverse = cho_solve((factor, True), np.eye(len(factor)), check_finite=False)
        spread = 1 / np.diag(inverse)
        ignored = self._noises(self.noise) - self.noise**2
        far = (inverse @ self._centred_logs()) * spread / np.sqrt(np.maximum(spread - ignored, _JITTER))
        before, self._disturbed = self._disturbed, {int(one) for one in np.flatnonzero(far < -_DISTURBED)}
        return self._disturbed != before

    def _row(self, point: Point) -> Array:
        """Return the covariance of the value at ``point`` with the value at each point of the grid."""
        additive, product_weight, _ = np.exp(2 * self._theta[-3:])
        lines = [table[value] for table, value in zip(self._tables, point, strict=True)]
        total = reduce(np.add.outer, lines) * (additive / len(lines))
        row: Array = (_LEVEL + total + product_weight * reduce(np.multiply.outer, lines)).ravel()
        return row

    def _loss(self, theta: Array) -> tuple[float, Array]:
        """Return the negative log posterior, up to a constant, and its gradient."""
        heights, lines = self._centred_logs(), np.array(self._points).T
        tables, slopes = _tables(self._shape, theta)
        count = len(tables)
        parts = [table[np.ix_(line, line)] for table, line in zip(tables, lines, strict=True)]
        steep = [table[np.ix_(line, line)] for table, line in zip(slopes, lines, strict=True)]
        total, product = reduce(np.add, parts), reduce(np.multiply, parts)
        additive, product_weight, noise = np.exp(2 * theta[-3:])
        noises = np.diag(self._noises(math.exp(theta[-1])))
        factor = np.linalg.cholesky(_LEVEL + additive / count * total + product_weight * product + noises)
        inverse = cho_solve((factor, True), np.eye(len(heights)), check_finite=False)
        weights = inverse @ heights
        gap = inverse - np.outer(weights, weights)  # section 5.4.1, equation 5.9
        slope = np.empty(len(theta))
        for number in range(count):
            others = reduce(np.multiply, parts[:number] + parts[number + 1 :], np.ones(()))
            slope[number] = 0.5 * (gap * steep[number] * (additive / count + product_weight * others)).sum()
        slope[-3] = additive / count * (gap * total).sum()
        slope[-2] = product_weight * (gap * product).sum()
        slope[-1] = noise * np.trace(gap)
        middles = np.array([_LENGTH] * count + [_ADDITIVE, _PRODUCT, _NOISE])
        spreads = np.array([_LENGTH_SPREAD] * count + [_SIGNAL_SPREAD] * 2 + [_NOISE_SPREAD])
        off = (theta - middles) / spreads
        badness = 0.5 * float(heights @ weights) + float(np.log(np.diag(factor)).sum())
        return badness + 0.5 * float(off @ off), slope + off / spreads


def _tables(shape: Sequence[int], theta: Array) -> tuple[list[Array], list[Array]]:
    """Return for each parameter Matérn's kernel of order 5/2 between its values; and its slopes by length."""
    tables, slopes = [], []
    for count, length in zip(shape, theta[:-3], strict=True):
        values = np.arange(count) / max(1, count - 1)
        distance = np.sqrt(5.0) * np.abs(values[:, None] - values[None, :]) / np.exp(length)
        tables.append((1.0 + distance + distance**2 / 3.0) * np.exp(-distance))
        slopes.append(distance**2 * (1.0 + distance) / 3.0 * np.exp(-distance))
    return tables, slopes
