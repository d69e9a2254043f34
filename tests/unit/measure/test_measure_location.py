"""Robust location of runs, two groups and drift."""

from __future__ import annotations

import math
import random

import pytest

from storagetest.measure.location import conspicuous, location, robust_scale


def normal(count: int, *, centre: float = 0.0, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(centre, 0.01) for _ in range(count)]


def test_without_outliers_it_is_close_to_the_mean():
    errors = [
        (location(values, 0.01), sum(values) / 12) for values in (normal(12, seed=s) for s in range(300))
    ]
    robust, plain = (math.sqrt(sum(each[side] ** 2 for each in errors) / 300) for side in (0, 1))
    assert robust < 1.06 * plain  # 95 % efficient: 2.6 % more, and chance


def test_up_to_half_of_the_runs_may_lie_far_off():
    values = normal(7) + [-0.2] * 5
    assert location(values, 0.01) == pytest.approx(location(normal(7), 0.01), abs=1e-6)


def test_a_median_between_two_groups_stays_there():
    assert location([-0.2, -0.2, 0.2, 0.2], 0.01) == 0


def test_the_scale_is_that_within_sessions_without_outliers():
    sessions = [[*normal(11, centre=day, seed=day), day + 5.0] for day in range(10)]
    assert robust_scale(sessions) == pytest.approx(0.01, rel=0.2)


def test_a_scale_is_never_zero():
    assert robust_scale([[1.0, 1.0], [2.0, 2.0]]) > 0
    assert robust_scale([[1.0]]) > 0


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        (
            [100.0 + each for each in (0, 1, 2, 1, 0, 2)] + [90.0, 91, 90, 89],
            "two groups of 6 and 4, 12 % apart",
        ),
        ([100.0 - at for at in range(12)], "a drift of -6.2 % from the first half to the second"),
        ([100.0, 101, 99, 100.5, 99.5, 102, 98, 100, 101, 99], ""),
        ([100.0, 50.0], ""),
        ([0.0] * 12, ""),
    ],
)
def test_what_is_conspicuous(values, remark):
    assert conspicuous(values) == remark


def test_noise_is_seldom_conspicuous():
    seen = [conspicuous([1 + each for each in normal(12, seed=seed)]) for seed in range(500)]
    assert sum(map(bool, seen)) <= 10
