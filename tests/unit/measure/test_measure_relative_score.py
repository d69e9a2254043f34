"""How figures stand to the best of them."""

from __future__ import annotations

import pytest

from storagetest.measure.relative_score import relative_scores
from storagetest.measure.run import Better
from storagetest.measure.stats import Estimate, Interval


def figure(value: float, half: float | None = None) -> Estimate:
    around = None if half is None else Interval(value, value - half, value + half, 0.95, 3)
    return Estimate(value, around)


def test_higher_is_better():
    found = relative_scores([figure(50.0, 1.0), None, figure(100.0, 1.0), figure(99.5, 1.0)], Better.HIGHER)
    assert found[1] is None
    assert [(one.share, one.tie) for one in found if one] == [(0.5, False), (1.0, True), (0.995, True)]


def test_lower_is_better():
    low, high = relative_scores([figure(2.0), figure(4.0)], Better.LOWER)
    assert (low.share, high.share) == (1.0, 0.5)


def test_without_an_interval_nothing_is_level_but_the_best():
    found = relative_scores([figure(100.0, 5.0), figure(99.0)], Better.HIGHER)
    assert [one.tie for one in found if one] == [True, False]


@pytest.mark.parametrize("figures", [[], [figure(1.0)], [figure(1.0), None], [figure(1.0), figure(0.0)]])
def test_it_takes_two_to_compare(figures):
    assert relative_scores(figures, Better.HIGHER) == [None] * len(figures)
