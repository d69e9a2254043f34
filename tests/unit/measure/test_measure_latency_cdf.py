"""A histogram as a curve of shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.measure.histogram import Histogram
from storagetest.measure.latency_cdf import FARTHEST, distribution, nines


def test_nothing_has_no_points():
    assert distribution(Histogram()).points == ()


def test_each_point_is_a_bucket_and_the_share_up_to_it():
    found = distribution(Histogram.of([1e-3] * 90 + [5e-3] * 9 + [1.0]))
    assert [round(share, 6) for share, _ in found.points] == [0.9, 0.99, FARTHEST]
    assert found.points[0][1] == pytest.approx(1e-3, rel=0.01)
    assert found.points[-1][1] == pytest.approx(1.0, rel=0.01)
    assert found.count == 100
    assert found.trusted == 0.0


def test_it_is_trusted_as_far_as_gates_are():
    assert distribution(Histogram.of([1e-3] * 100_000)).trusted == pytest.approx(0.999)


@given(st.lists(st.floats(1e-9, 10), min_size=1, max_size=300))
def test_points_ascend_and_agree_with_the_percentiles(latencies):
    histogram = Histogram.of(latencies)
    points = distribution(histogram).points
    shares, times = [share for share, _ in points], [seconds for _, seconds in points]
    assert shares == sorted(set(shares))
    assert times == sorted(set(times))
    assert shares[-1] == FARTHEST
    for share, seconds in points:
        assert histogram.percentile(share) == seconds


def test_a_curve_of_many_buckets_stays_drawable():
    many = Histogram.of([number * 1e-6 for number in range(1, 200_000)])
    assert len(many.bins) > 500
    assert len(distribution(many).points) < 4 * 64 + 2


def test_nines():
    assert [nines(share) for share in (0.0, 0.9)] == [0.0, pytest.approx(1.0)]
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match="share"):
            nines(wrong)
