"""Gates against another variant that is measured alternately."""

from __future__ import annotations

import math

import pytest

from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import ErrorPlan, Outcome, Threshold, judge_pair, wants_more

PLAN = ErrorPlan(gates=20, max_repeats=12)


def run_of(values: list[float], *, metric: str = "iops", variant: str = "t-v", **more) -> Run:
    samples = tuple(Sample({metric: value}, 1.0, 100_000) for value in values)
    return Run("case", "load", "t", variant, "local", "c", {}, {}, samples, 0.0, **more)


def versus(op: str, factor: float, metric: str = "iops") -> Threshold:
    return Threshold(METRICS[metric], op, factor, f"{metric}: a {op} {factor} x b", "t.yaml:2:1", "b")


def pair(left: list[float], right: list[float], threshold: Threshold, **more):
    name = threshold.metric.name
    return judge_pair(
        run_of(left, metric=name, variant="a"), run_of(right, metric=name, variant="b"), threshold, **more
    )


def test_a_pair_is_judged_on_the_ratios_and_not_on_the_values():
    """Both drift by a factor of three: the ratio stands."""
    drift = [1.0, 1.5, 2.0, 3.0]
    left, right = (
        [1200 * each for each in drift],
        [1000 * each * tilt for each, tilt in zip(drift, (1, 1.01, 0.99, 1), strict=True)],
    )
    verdict = pair(left, right, versus(">=", 1.1), plan=PLAN)
    assert verdict.outcome is Outcome.PASS
    assert verdict.interval is not None
    assert verdict.interval.mean == pytest.approx(1.2, rel=0.01)
    assert verdict.reason.startswith("iops: required a >= 1.1 x b, measured 1,800/s against ")
    assert verdict.reason.endswith("3 pairs): meets the threshold")


def test_a_pair_that_misses_is_confirmed_by_fresh_pairs():
    left = [1000.0, 1010.0, 990.0, 1005.0]
    alarmed = pair(left, [1000.0] * 4, versus(">=", 1.5), plan=PLAN)
    assert (alarmed.outcome, alarmed.alarmed_at) == (Outcome.INVALID, 4)
    assert "not confirmed by the fresh pairs so far" in alarmed.reason
    assert wants_more(run_of(left), [alarmed], max_repeats=4)
    failed = pair(left * 2, [1000.0] * 8, versus(">=", 1.5), plan=PLAN)
    assert failed.outcome is Outcome.FAIL
    assert failed.reason.endswith("misses the requirement, confirmed by 4 fresh pairs")


def test_lower_is_better_for_a_latency():
    assert pair([0.5, 0.51, 0.49], [1.0] * 3, versus("<=", 0.8, "latency_mean")).outcome is Outcome.PASS
    assert pair([1.0, 1.01, 0.99], [1.0] * 3, versus("<=", 0.8, "latency_mean")).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], "measured 2 pairs: no verdict: it takes at least 3 runs"),
        ([1.0, 2.0, 0.0], [1.0] * 3, "no ratio"),
        ([1.0] * 3, [1.0, math.inf, 1.0], "no ratio"),
    ],
)
def test_pair_without_a_verdict_has_a_reason(left, right, message):
    verdict = pair(left, right, versus(">=", 1.0), plan=PLAN)
    assert verdict.outcome is Outcome.INVALID
    assert message in verdict.reason


def test_one_invalid_side_is_enough():
    verdict = judge_pair(run_of([1.0] * 3), run_of([1.0] * 3, invalid=("too busy",)), versus(">=", 1.0))
    assert "too busy" in verdict.reason


def test_that_one_is_worse_is_a_claim_like_any_other():
    """A latency at least 1.7 times the other's: shown by a slower left side, refuted by a quicker one."""
    claim = versus(">=", 1.7, "latency_mean")
    assert pair([2.0, 2.01, 1.99], [1.0] * 3, claim).outcome is Outcome.PASS
    refuted = pair([1.0, 1.01, 0.99], [1.0] * 3, claim)
    assert refuted.outcome is Outcome.FAIL
    assert refuted.reason.endswith("misses the requirement")
    assert pair([1000.0, 1010.0, 990.0], [2000.0] * 3, versus("<=", 0.6)).outcome is Outcome.PASS
