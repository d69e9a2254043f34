"""A Gaussian process over a grid: from noisy measurements at some points to a guess, and its error, at all.

Theory (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1 and section 5.4).
Values are taken as logarithms, so noise is a share of the value and a plateau is flat at any height. Points
that lie close together have similar values: how close is *similar* is a length for each parameter, found,
with the noise, by the largest marginal likelihood of what was measured. The kernel is Matérn's of order
5/2: smooth enough to guess from few points, rough enough for a knee.

The kernel has two parts (Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NIPS 2011): a sum
over the parameters, so that what is learned of one holds wherever the others stand, and a product, for
what they do to each other. Which of them matters how much is found like the lengths are.

The priors on the lengths and the noise keep a handful of points from being believed too much: without them
three measurements on a line are explained as well by no noise at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

__all__ = ["Process"]

Array = NDArray[np.float64]

_LENGTH, _LENGTH_SPREAD = np.log(0.6), 0.7  # of a parameter's whole range
_NOISE, _NOISE_SPREAD = np.log(0.04), 0.7  # 4 %, give or take a factor of two
_ALONE, _TOGETHER, _SIGNAL_SPREAD = np.log(0.7), np.log(0.3), 1.0
_BOUNDS_LENGTH, _BOUNDS_NOISE, _BOUNDS_SIGNAL = (np.log(0.08), np.log(6.0)), (-6.0, -1.0), (-4.0, 2.0)
_JITTER = 1e-9


class Process:
    """Fitted by :meth:`fit`, asked by :meth:`predict`. Points are rows of numbers from 0 to 1."""

    def __init__(self, parameters: int) -> None:
        self._theta: Array = np.array([_LENGTH] * parameters + [_ALONE, _TOGETHER, _NOISE])
        self._points: Array = np.empty((0, parameters))

    @property
    def noise(self) -> float:
        """How far measurements at one point lie apart: the standard deviation, as a share."""
        return float(np.exp(self._theta[-1]))

    def fit(self, points: Sequence[Sequence[float]], values: Sequence[float], *, learn: bool = True) -> None:
        """Take in all measurements; ``learn`` lengths and noise anew, or keep those that were learned."""
        self._points = np.asarray(points, float)
        logs = np.log(np.asarray(values, float))
        self._centre = float(np.median(logs))
        self._heights: Array = logs - self._centre
        if learn:
            self._theta = self._learned()
        self._factor = cho_factor(self._covariance(self._theta), lower=True)
        self._weights: Array = cho_solve(self._factor, self._heights)

    def surprises(self) -> Array:
        """Return how far each measurement lies from what all the others say, in standard deviations.

        Leave-one-out residuals (Rasmussen and Williams, section 5.4.2): negative is lower than expected.
        """
        inverse = cho_solve(self._factor, np.eye(len(self._points)))
        surprises: Array = self._weights / np.sqrt(np.diag(inverse))
        return surprises

    def predict(self, points: Sequence[Sequence[float]]) -> tuple[Array, Array]:
        """Return the expected logarithm and its standard deviation at ``points``; noise is not in it."""
        there = np.asarray(points, float)
        across = self._kernel(there, self._points, self._theta)
        mean = across @ self._weights + self._centre
        signal = _height(self._theta)
        explained = np.einsum("ij,ji->i", across, cho_solve(self._factor, across.T))
        return mean, np.sqrt(np.maximum(signal - explained, 1e-12))

    def _learned(self) -> Array:
        count = self._points.shape[1]
        bounds = [_BOUNDS_LENGTH] * count + [_BOUNDS_SIGNAL, _BOUNDS_SIGNAL, _BOUNDS_NOISE]
        done = minimize(self._badness, self._theta, method="L-BFGS-B", bounds=bounds, options={"maxiter": 15})
        return np.asarray(done.x, float)

    def _badness(self, theta: Array) -> float:
        """Return the negative logarithm of posterior probability, but for a constant."""
        try:
            factor = cho_factor(self._covariance(theta), lower=True)
        except np.linalg.LinAlgError:
            return 1e9
        fit = 0.5 * float(self._heights @ cho_solve(factor, self._heights))
        spread = float(np.log(np.diag(factor[0])).sum())
        lengths, (alone, together, noise) = theta[:-3], theta[-3:]
        prior = float((((lengths - _LENGTH) / _LENGTH_SPREAD) ** 2).sum())
        prior += ((alone - _ALONE) / _SIGNAL_SPREAD) ** 2 + ((together - _TOGETHER) / _SIGNAL_SPREAD) ** 2
        prior += ((noise - _NOISE) / _NOISE_SPREAD) ** 2
        return fit + spread + 0.5 * float(prior)

    def _covariance(self, theta: Array) -> Array:
        size = len(self._points)
        same: Array = self._kernel(self._points, self._points, theta)
        same[np.diag_indices(size)] += np.exp(2 * theta[-1]) + _JITTER
        return same

    @staticmethod
    def _kernel(some: Array, others: Array, theta: Array) -> Array:
        apart = np.abs(some[:, None, :] - others[None, :, :]) / np.exp(theta[:-3])
        alone, together = np.exp(2 * theta[-3]), np.exp(2 * theta[-2])
        mean = _matern(apart).mean(axis=2)
        whole: Array = alone * mean + together * _matern(np.sqrt((apart**2).sum(axis=2)))
        return whole


def _matern(apart: Array) -> Array:
    """Return Matérn's kernel of order 5/2 at distances in lengths."""
    distance = np.sqrt(5.0) * apart
    shape: Array = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return shape


def _height(theta: Array) -> float:
    """Return the variance at a point of which nothing is known."""
    return float(np.exp(2 * theta[-3]) + np.exp(2 * theta[-2]))
