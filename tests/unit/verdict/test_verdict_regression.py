from __future__ import annotations

import pytest

from storagetest.measure.run import Better
from storagetest.verdict.regression import Direction, compare

A, SLOW = [100.0, 101.0, 99.0, 100.5], [90.0, 91.0, 89.0, 90.5]


def test_a_slowdown_is_worse_and_exact_at_four_a_side():
    found = compare(A, SLOW, Better.HIGHER)
    assert found is not None
    assert found.direction is Direction.WORSE
    assert found.p == pytest.approx(2 / 70)
    assert found.low < found.effect < found.high < 0


def test_lower_latency_is_better():
    assert compare(A, SLOW, Better.LOWER).direction is Direction.BETTER


def test_nothing_below_the_noise_floor_is_reported():
    assert compare(A, SLOW, Better.HIGHER, floor=0.2).direction is Direction.SAME


def test_a_against_itself_is_the_same():
    assert compare(A, A, Better.HIGHER).direction is Direction.SAME


def test_three_repeats_a_side_are_never_significant():
    assert compare(A[:3], SLOW[:3], Better.HIGHER).direction is Direction.TOO_FEW


def test_what_has_no_logarithm_is_not_compared():
    assert compare([0.0, 1.0], A, Better.HIGHER) is None
