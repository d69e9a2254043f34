"""The model behind the surrogate: its arithmetic against the textbook's, its noise, what was disturbed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from storagetest.search.gaussian_process import GaussianProcess

SHAPE = (5, 6, 4)


def observed(*, count=40, noise=0.03, slowed=(), seed=1):
    """Return a process that has observations of a hill at ``count`` random points."""
    random = np.random.default_rng(seed)
    process = GaussianProcess(SHAPE)
    for number in range(count):
        point = tuple(int(random.integers(values)) for values in SHAPE)
        log = 5 - 0.3 * abs(point[0] - 2) - 0.2 * point[1] + random.normal(0.0, noise)
        process.add(point, math.exp(log) * (0.5 if number in slowed else 1.0))
    return process


def test_one_after_the_other_is_the_same_as_all_at_once():
    process = observed()
    mean, variance = process.mean.copy(), process.variance.copy()
    process._rebuild()
    assert process.mean == pytest.approx(mean, abs=1e-9)
    assert process.variance == pytest.approx(variance, abs=1e-9)


def test_the_guess_is_the_textbooks():
    process = observed(count=12)
    across = np.array([process._row(point) for point in process._points])
    covariance = across[:, process._at] + process.noise**2 * np.eye(12)
    expected = process._centre + across.T @ np.linalg.solve(covariance, process._centred_logs())
    left = process._row((0, 0, 0))[0] - np.sum(across * np.linalg.solve(covariance, across), axis=0)
    assert process.mean == pytest.approx(expected, abs=1e-6)
    assert process.variance == pytest.approx(left, abs=1e-6)


def test_the_slopes_that_it_learns_by_are_those_of_what_it_learns():
    process = observed(slowed=(20,))
    theta = process._theta + np.linspace(-0.2, 0.2, len(process._theta))
    by_steps = approx_fprime(theta, lambda at: process._loss(at)[0], 1e-6)
    assert process._loss(theta)[1] == pytest.approx(by_steps, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_noise_is_learned(noise):
    process = observed(count=120, noise=noise)
    process.learn()
    assert noise / 1.5 < process.noise < noise * 1.5


def test_what_was_slowed_is_left_out_of_account():
    slowed, clean = observed(slowed=(20,)), observed()
    slowed.learn()
    clean.learn()
    assert slowed._disturbed == {20}
    assert clean._disturbed == set()
    assert slowed.mean[slowed._at[20]] == pytest.approx(clean.mean[clean._at[20]], abs=0.1)


def test_where_little_was_measured_less_is_known():
    process = GaussianProcess((9,))
    for _ in range(4):
        process.add((1,), 100.0)
    assert process.variance[1] < process.variance[2] < process.variance[8]
