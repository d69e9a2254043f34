"""Gates against a baseline and against another variant: pass, fail and inconclusive."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import (
    BASELINE,
    ErrorPlan,
    Outcome,
    Reference,
    Threshold,
    judge,
    judge_pair,
    parse_threshold,
    wants_more,
)
from storagetest.verdict.baseline import noise_floor

PLAN = ErrorPlan(gates=20, max_repeats=12)
AROUND = [1.0, 0.99, 1.01, 1.005, 0.995, 1.002, 0.992, 1.008, 0.998, 1.003]
STEADY = Reference((tuple(1000 * each for each in AROUND),) * 3, "base.json")


def run_of(
    values: list[float], *, metric: str = "iops", ios: int = 100_000, variant: str = "t-v", **more
) -> Run:
    samples = tuple(Sample({metric: value}, 1.0, ios) for value in values)
    return Run("case", "load", "t", variant, "local", "c", {}, {}, samples, 0.0, **more)


def gate(text: str) -> Threshold:
    return parse_threshold(text, METRICS, place="t.yaml:1:1")


def sequentially(
    truth: float, text: str, reference: Reference, *, metric: str = "iops", seed: int = 1, noise: float = 0.01
):
    """Measure while more runs are required, as the runner does."""
    draw = random.Random(seed)
    values = [draw.gauss(truth, truth * noise) for _ in range(3)]
    while True:
        run = run_of(values, metric=metric)
        verdict = judge(run, gate(text), plan=PLAN, reference=reference)
        if not wants_more(run, [verdict], max_repeats=PLAN.max_repeats):
            return verdict, len(values)
        values.append(draw.gauss(truth, truth * noise))


@pytest.mark.parametrize(
    ("truth", "text", "outcome"),
    [
        (1000, "iops >= baseline - 5 %", Outcome.PASS),
        (1200, "iops >= baseline - 5 %", Outcome.PASS),
        (980, "iops >= baseline - 5 %", Outcome.PASS),
        (900, "iops >= baseline - 5 %", Outcome.FAIL),
        (900, "iops >= baseline - 20 %", Outcome.PASS),
        (300, "iops >= baseline - 5 %", Outcome.FAIL),
        (1000, "latency_mean <= baseline + 5 %", Outcome.PASS),
        (900, "latency_mean <= baseline + 5 %", Outcome.PASS),
        (1150, "latency_mean <= baseline + 5 %", Outcome.FAIL),
    ],
)
def test_no_worse_than_what_was_allowed_passes_and_worse_fails(truth, text, outcome):
    verdict, _ = sequentially(truth, text, STEADY, metric=text.split()[0])
    assert verdict.outcome is outcome, verdict.reason


def test_failure_is_confirmed_by_new_runs_and_described():
    verdict, runs = sequentially(800, "iops >= baseline - 5 %", STEADY)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.alarmed_at is not None
    assert runs >= verdict.alarmed_at + 3
    assert verdict.reason.startswith("iops: required >= baseline - 5 %, measured ")
    assert "/s against 1,000/s of 30 runs: -20" in verdict.reason
    assert ", detectable " in verdict.reason
    assert verdict.reason.endswith(f"confirmed by {runs - verdict.alarmed_at} fresh runs")
    assert verdict.interval is not None
    assert verdict.interval.low < verdict.interval.mean < verdict.interval.high < 0.95


def test_an_alarm_that_fresh_runs_contradict_is_undecided_and_final():
    run = run_of([800.0, 801.0, 799.0, 800.5, *(1000 * each for each in AROUND)])
    verdict = judge(run, gate("iops >= baseline - 5 %"), plan=PLAN, reference=STEADY)
    assert verdict.outcome is Outcome.INVALID
    assert "the target changed meanwhile" in verdict.reason
    assert not wants_more(run, [verdict], max_repeats=100)


def test_an_effect_below_the_noise_floor_is_never_a_failure():
    noisy = Reference((tuple(1000 * each for each in AROUND), tuple(800 * each for each in AROUND)))
    assert noisy.floor == pytest.approx(0.25)
    verdict, runs = sequentially(700, "iops >= baseline - 5 %", noisy)
    assert verdict.outcome is Outcome.INVALID
    assert "±" in verdict.reason
    assert verdict.reason.endswith("within its noise floor of 25 %, never reported")
    assert runs == PLAN.max_repeats
    verdict, _ = sequentially(500, "iops >= baseline - 5 %", noisy)
    assert verdict.outcome is Outcome.FAIL
    assert "beyond its noise floor of 25 %, which is wider than the margin" in verdict.reason


@pytest.mark.parametrize(
    ("run", "reference", "message", "final"),
    [
        (run_of([1000.0] * 3), None, "the baseline has no iops of this case; save it first", True),
        (run_of([1000.0] * 3), Reference((), "b.json"), "the baseline b.json has no iops of this case", True),
        (run_of([1000.0] * 3), Reference(((1.0, 2.0),)), "the baseline has fewer than 3 runs", True),
        (run_of([1000.0] * 3), Reference(((1.0, 0.0, 2.0),)), "the baseline holds a value that is not", True),
        (run_of([1000.0, 0.0, 1000.0]), STEADY, "a value that is not above zero has no ratio", True),
        (run_of([1000.0, 1000.0]), STEADY, "it takes at least 3 runs", False),
        (run_of([1000.0] * 3, invalid=("the client was busy",)), STEADY, "the client was busy", False),
        (run_of([]), STEADY, "measured nothing", False),
    ],
)
def test_missing_verdict_has_a_reason(run, reference, message, final):
    verdict = judge(run, gate("iops >= baseline - 5 %"), plan=PLAN, reference=reference)
    assert verdict.outcome is Outcome.INVALID
    assert message in verdict.reason
    assert verdict.final is final


def test_a_percentile_of_too_few_ios_carries_no_verdict_here_either():
    run = run_of([0.005] * 3, metric="p99", ios=100)
    verdict = judge(run, gate("p99 <= baseline + 10 %"), reference=Reference(((0.005,) * 5,)))
    assert "not enough samples: 300 of 10,000" in verdict.reason


def test_bins_move_the_bound_of_a_percentile_against_either_verdict():
    reference = Reference(((0.005, 0.00501, 0.00499, 0.005),) * 3)
    for values, outcome in (
        ([0.00546, 0.00547, 0.00545], Outcome.INVALID),
        ([0.00554, 0.00555, 0.00553], Outcome.INVALID),
        ([0.0052, 0.0053, 0.0052], Outcome.PASS),
    ):
        run = run_of(values * 2, metric="p99")
        assert judge(run, gate("p99 <= baseline + 10 %"), reference=reference).outcome is outcome


def test_relative_gate_on_a_missing_metric_is_a_configuration_error():
    with pytest.raises(ConfigError, match="p99 was not measured"):
        judge(run_of([1.0] * 3), gate("p99 <= baseline + 5 %"), reference=STEADY)


def test_a_baseline_of_three_runs_can_pass_a_case_and_never_fail_one():
    short = Reference(((1000.0, 1001.0, 999.0),))
    assert sequentially(1000, "iops >= baseline - 5 %", short)[0].outcome is Outcome.PASS
    verdict, _ = sequentially(500, "iops >= baseline - 5 %", replace(short), seed=2)
    assert verdict.outcome in (Outcome.INVALID, Outcome.FAIL)
    assert verdict.outcome is not Outcome.PASS


def test_how_often_it_errs_at_three_percent_of_noise():
    """50 cases each, seeded, against 30 stored runs: measured, not assumed."""
    draw = random.Random(5)
    outcomes: dict[float, list[Outcome]] = {1.0: [], 0.9: []}
    for truth, found in outcomes.items():
        for seed in range(50):
            stored = Reference((tuple(draw.gauss(1, 0.03) for _ in range(30)),))
            verdict, _ = sequentially(truth, "iops >= baseline - 5 %", stored, seed=seed, noise=0.03)
            found.append(verdict.outcome)
    assert outcomes[1.0].count(Outcome.FAIL) == 0
    assert outcomes[1.0].count(Outcome.PASS) >= 47
    assert outcomes[0.9].count(Outcome.PASS) == 0
    assert outcomes[0.9].count(Outcome.FAIL) >= 44


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
    assert verdict.reason.startswith("iops: required a >= 1.1 x b, measured 2,250/s against ")
    assert verdict.reason.endswith("4 pairs): meets the threshold")


def test_a_pair_that_misses_is_confirmed_by_fresh_pairs():
    left = [1000.0, 1010.0, 990.0, 1005.0]
    alarmed = pair(left, [1000.0] * 4, versus(">=", 1.5), plan=PLAN)
    assert (alarmed.outcome, alarmed.alarmed_at) == (Outcome.INVALID, 4)
    assert "not confirmed by the fresh pairs so far" in alarmed.reason
    assert wants_more(run_of(left), [alarmed], max_repeats=4)
    failed = pair(left * 2, [1000.0] * 8, versus(">=", 1.5), plan=PLAN)
    assert failed.outcome is Outcome.FAIL
    assert failed.reason.endswith("worse than required, confirmed by 4 fresh pairs")


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


@pytest.mark.parametrize(
    ("sessions", "floor"),
    [
        ([], None),
        ([[1.0, 1.0]], None),
        ([[1.0], [], [0.0]], None),
        ([[1.0, 3.0], [2.2]], 0.1),
        ([[2.2], [1.0, 3.0]], 0.1),
        ([[100.0], [101.0], [110.0]], 0.1 * 0.9 + (110 / 101 - 1) * 0.1),
    ],
)
def test_the_noise_floor_is_a_high_quantile_of_what_lies_between_sessions(sessions, floor):
    assert noise_floor(sessions) == (None if floor is None else pytest.approx(floor))


def test_against_names_the_reference_of_a_gate():
    assert gate("iops >= baseline - 5 %").against == BASELINE
    assert gate("iops >= 5").against == ""
