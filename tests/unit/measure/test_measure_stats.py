"""Means, intervals and fences."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.measure.histogram import Histogram
from storagetest.measure.run import METRICS, Better, Metric, Run, Sample
from storagetest.measure.stats import counted, estimate, mean, mean_interval
from storagetest.measure.unit import Unit

STAT_P50 = Metric("stat_p50", Unit.SECONDS, Better.LOWER, 0.5, operation="stat")
finite = st.floats(-1e12, 1e12)


def test_the_interval_is_the_textbooks():
    """t(2 degrees, 95 %) = 4.303; s of 9, 10, 11 is 1."""
    interval = mean_interval([9, 10, 11], 0.95)
    assert (interval.mean, interval.count, interval.confidence) == (10, 3, 0.95)
    assert interval.high - 10 == pytest.approx(4.302653 / math.sqrt(3))
    assert interval.low + interval.high == pytest.approx(20)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_have_no_interval(values):
    assert mean_interval(values) is None


@settings(deadline=None)
@given(st.lists(finite, min_size=2, max_size=20))
def test_the_mean_lies_in_its_interval_and_more_confidence_is_wider(values):
    narrow, wide = mean_interval(values, 0.9), mean_interval(values, 0.99)
    assert wide.low <= narrow.low <= narrow.mean <= narrow.high <= wide.high


def test_interval_covers_the_true_value_at_its_confidence():
    """4,000 runs of five repeats: 95 % ± 1.5 %, and 99 % ± 0.7 %."""
    draw = random.Random(20240229)
    samples = [[draw.gauss(1000, 50) for _ in range(5)] for _ in range(4000)]
    for confidence, slack in ((0.95, 0.015), (0.99, 0.007)):
        intervals = [mean_interval(sample, confidence) for sample in samples]
        covered = sum(interval.low <= 1000 <= interval.high for interval in intervals) / len(samples)
        assert abs(covered - confidence) < slack


@pytest.mark.parametrize(
    ("values", "low", "high"), [([7.0, 7.0, 7.0], 7, 7), ([1.0, math.nan, 2.0], -math.inf, math.inf)]
)
def test_equal_values_have_no_width_and_what_is_no_number_has_an_interval_that_holds_everything(
    values, low, high
):
    interval = mean_interval(values)
    assert (interval.low, interval.high) == (low, high)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1, 2], confidence)


def test_the_mean_adds_without_error():
    assert mean([1e16, 1.0, -1e16, 1.0]) == 0.5


def run_of(*samples: Sample) -> Run:
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0)


def test_a_percentile_is_that_of_all_repeats_together_and_not_the_mean_of_theirs():
    quick, slow = Histogram.of([0.001] * 990), Histogram.of([0.1] * 10)
    run = run_of(Sample({"p99": 0.001}, 1, 990, quick), Sample({"p99": 0.1}, 1, 10, slow))
    found = estimate(run, METRICS["p99"])
    assert found.value == pytest.approx(0.001, rel=0.01)
    assert found.interval.mean == pytest.approx(0.0505)


def test_one_repeat_has_a_value_and_no_interval():
    found = estimate(run_of(Sample({"iops": 5.0}, 1, 5)), METRICS["iops"])
    assert (found.value, found.interval) == (5.0, None)


def test_the_interval_of_a_metric_has_no_values_below_0():
    found = estimate(run_of(Sample({"iops": 1.0}, 1, 1), Sample({"iops": 9.0}, 1, 9)), METRICS["iops"])
    assert (found.interval.mean, found.interval.low) == (5.0, 0.0)


def test_metric_without_values_has_no_estimate():
    assert estimate(run_of(Sample({"iops": 5.0}, 1, 5)), METRICS["p50"]) is None
    assert estimate(run_of(), METRICS["iops"]) is None


def test_importing_it_does_not_import_scipy():
    """SciPy takes half a second, and `pytest --collect-only` needs none of it."""
    code = "import sys, storagetest.verdict, storagetest.measure.stats; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_percentile_of_one_operation_is_that_of_its_own_merged_bins():
    """999 quick I/Os and a repeat with one slow I/O: the mean of their percentiles would be half of 1 s."""
    both = [Histogram.of([0.001] * 999), Histogram.of([1.0])]
    samples = [
        Sample({"stat_p50": each.percentile(0.5)}, 1.0, 10**6, operations={"stat": each, "open": each + each})
        for each in both
    ]
    run = run_of(*samples)
    assert estimate(run, STAT_P50).value == pytest.approx(0.001, rel=0.01)
    assert counted(run, STAT_P50) == 1000
    assert counted(run, METRICS["p50"]) == 0  # not measured


def test_an_operation_without_a_histogram_was_not_counted():
    run = run_of(Sample({"stat_p50": 1.0, "p50": 1.0}, 1.0, 500))
    assert counted(run, STAT_P50) == 0
    assert counted(run, METRICS["p50"]) == 500
