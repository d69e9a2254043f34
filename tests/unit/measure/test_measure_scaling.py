"""Knees of scaling curves, and fairness."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.measure.scaling import jain, knee

THREADS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def roof(limit: int, noise: float = 0.0, seed: int = 0) -> list[tuple[float, float]]:
    """Linear up to ``limit`` users, flat beyond."""
    draw = random.Random(seed)
    return [(n, 1000.0 * min(n, limit) * draw.uniform(1 - noise, 1 + noise)) for n in THREADS]


def usl(contention: float, coherence: float) -> list[tuple[float, float]]:
    """Gunther's universal scalability law, which rises and may fall."""
    return [(n, n / (1 + contention * (n - 1) + coherence * n * (n - 1))) for n in THREADS]


@pytest.mark.parametrize("limit", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_knee_is_where_the_roof_begins(limit, noise):
    assert all(knee(roof(limit, noise, seed)) == limit for seed in range(50))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_curve_that_still_rises_has_no_knee(noise):
    assert all(knee(roof(256, noise, seed)) is None for seed in range(50))


def test_a_knee_lies_before_the_peak_of_a_curve_that_falls_again():
    for coherence in (1e-4, 1e-3, 1e-2):
        curve = usl(0.02, coherence)
        peak = max(curve, key=lambda point: point[1])[0]
        assert knee(curve) <= peak


@given(st.lists(st.floats(0.01, 1e9), min_size=2, max_size=12))
def test_the_unit_of_the_throughput_does_not_matter_and_the_knee_is_a_point(rates):
    curve = list(enumerate(rates, 1))
    found = knee(curve)
    assert found is None or found in range(1, len(rates) + 1)
    assert found == knee([(x, y / 2) for x, y in curve])


def test_nothing_at_all_has_no_knee():
    assert knee([(1, 0.0), (2, 0.0)]) is None


@pytest.mark.parametrize("points", [[], [(1, 1.0)], [(2, 1.0), (1, 1.0)], [(0, 1.0), (1, 1.0)]])
def test_what_is_no_curve_is_refused(points):
    with pytest.raises(ValueError, match="ascending from above 0"):
        knee(points)


def test_fairness_is_that_of_the_paper():
    assert jain([5, 5, 5, 5]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([1, 1, 0, 0]) == 0.5  # "the index is k/n where k of n users share equally"
    assert jain([0, 0]) == 1


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=50))
def test_fairness_lies_between_a_share_of_one_and_one(shares):
    assert 1 / len(shares) * (1 - 1e-9) <= jain(shares) <= 1 + 1e-9


@pytest.mark.parametrize("shares", [[], [-1.0, 2.0]])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="not negative"):
        jain(shares)
