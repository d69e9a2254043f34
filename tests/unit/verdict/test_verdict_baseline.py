"""Gates against a baseline: pass, fail, learning and inconclusive."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import (
    BASELINE,
    ErrorPlan,
    Outcome,
    Reference,
    Threshold,
    Verdict,
    describe_gate,
    judge,
    parse_threshold,
    wants_more,
)
from storagetest.verdict.baseline import noise_floor

PLAN = ErrorPlan(gates=20, max_repeats=12)
AROUND = [1.0, 0.99, 1.01, 1.005, 0.995, 1.002, 0.992, 1.008, 0.998, 1.003, 1.001, 0.997]
STEADY = Reference(
    tuple(tuple(day * each for each in AROUND) for day in (1000, 1002, 998, 1001, 999)), "b.json"
)
FIVE_PERCENT = "iops >= baseline - 5 %"


def run_of(values: list[float], *, metric: str = "iops", ios: int = 100_000, **more) -> Run:
    samples = tuple(Sample({metric: value}, 1.0, ios) for value in values)
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0, **more)


def gate(text: str) -> Threshold:
    return parse_threshold(text, METRICS, place="t.yaml:1:1")


def measured(
    next_value: Callable[[], float], text: str, reference: Reference, *, plan: ErrorPlan = PLAN
) -> tuple[Verdict, int]:
    """Measure while more runs are required, as the runner does; return the verdict and the number of runs."""
    threshold = gate(text)
    values = [next_value() for _ in range(3)]
    while True:
        run = run_of(values, metric=threshold.metric.name)
        verdict = judge(run, threshold, plan=plan, reference=reference)
        if not wants_more(run, [verdict], max_repeats=plan.max_repeats):
            return verdict, len(values)
        values.append(next_value())


def around(truth: float, *, seed: int = 1, noise: float = 0.01) -> Callable[[], float]:
    draw = random.Random(seed)
    return lambda: draw.gauss(truth, truth * noise)


def sessions(days: list[float], *, seed: int = 1, noise: float = 0.01, runs: int = 12) -> Reference:
    draw = random.Random(seed)
    return Reference(tuple(tuple(draw.gauss(day, day * noise) for _ in range(runs)) for day in days))


@pytest.mark.parametrize(
    ("truth", "text", "outcome"),
    [
        (1000, FIVE_PERCENT, Outcome.PASS),
        (1200, FIVE_PERCENT, Outcome.PASS),
        (980, FIVE_PERCENT, Outcome.PASS),
        (900, FIVE_PERCENT, Outcome.FAIL),
        (900, "iops >= baseline - 20 %", Outcome.PASS),
        (300, FIVE_PERCENT, Outcome.FAIL),
        (1000, "latency_mean <= baseline + 5 %", Outcome.PASS),
        (900, "latency_mean <= baseline + 5 %", Outcome.PASS),
        (1150, "latency_mean <= baseline + 5 %", Outcome.FAIL),
    ],
)
def test_no_worse_than_what_was_allowed_passes_and_worse_fails(truth, text, outcome):
    verdict, _ = measured(around(truth), text, STEADY)
    assert verdict.outcome is outcome, verdict.reason


def test_a_pass_ends_early_and_a_failure_uses_all_runs_and_is_described():
    assert measured(around(1000), FIVE_PERCENT, STEADY)[1] == 3
    verdict, runs = measured(around(800), FIVE_PERCENT, STEADY)
    assert (verdict.outcome, runs) == (Outcome.FAIL, 12)
    assert verdict.reason.startswith("iops: required >= baseline - 5 %, measured 798.4/s")
    assert " against 1,000/s of 5 sessions: -20.2 % (90 % interval -20.5..-19.9 %" in verdict.reason
    assert ", 12 runs; a loss of 5.7 % is found" in verdict.reason
    assert "worse than required, and by more than the sessions differ (5.4 %)" in verdict.reason
    assert verdict.interval is not None
    assert verdict.interval.low < verdict.interval.mean < verdict.interval.high < 0.85


def test_a_loss_that_sessions_show_anyway_is_no_failure():
    """Days differ by 5 %, of which the runs of one day show nothing."""
    days = sessions([1000, 950, 1060, 980, 1040, 930, 1010, 990])
    verdict, _ = measured(around(930), FIVE_PERCENT, days)
    assert verdict.outcome is Outcome.PASS
    assert "a loss of 2" in verdict.reason  # what it can find: over 20 %
    assert measured(around(600), FIVE_PERCENT, days)[0].outcome is Outcome.FAIL


def test_the_other_cases_of_a_baseline_show_what_this_one_has_not_met():
    """All eight sessions met the fast one of two modes, which are 8 % apart; other cases met both."""
    lucky = sessions([1000] * 8)
    both = [sessions([1000, 920] * 4, seed=seed).session_ratio for seed in range(7)]
    warned = Reference(lucky.sessions, other_ratios=tuple(ratio for ratio in both if ratio is not None))
    assert len(warned.other_ratios) == 7
    assert measured(around(920), FIVE_PERCENT, lucky)[0].outcome is Outcome.FAIL
    assert measured(around(920), FIVE_PERCENT, warned)[0].outcome is Outcome.PASS


def test_slow_runs_now_and_then_move_nothing():
    """One in six runs takes twice as long, in the baseline and now; a mean would fall by 8 % more or less."""
    draw = random.Random(4)

    def one(truth: float) -> float:
        return draw.gauss(truth, truth * 0.01) * (0.5 if draw.random() < 1 / 6 else 1)

    stored = Reference(tuple(tuple(one(1000) for _ in range(12)) for _ in range(8)))
    assert measured(lambda: one(1000), FIVE_PERCENT, stored)[0].outcome is Outcome.PASS
    assert measured(lambda: one(900), FIVE_PERCENT, stored)[0].outcome is Outcome.FAIL


def test_a_gate_that_would_not_find_half_of_the_performance_lost_passes_nothing():
    wild = sessions([1000, 700, 1400, 850, 1200])
    assert "would not find half of the performance lost" in describe_gate(gate(FIVE_PERCENT), wild, PLAN)
    verdict, runs = measured(around(1000), FIVE_PERCENT, wild)
    assert (verdict.outcome, verdict.final, runs) == (Outcome.INVALID, True, 3)
    assert verdict.reason.endswith("would not find half of the performance lost")
    assert measured(around(10), FIVE_PERCENT, wild)[0].outcome is Outcome.FAIL


@pytest.mark.parametrize("count", [1, 2, 4])
def test_with_few_sessions_a_gate_is_learning(count):
    stored = Reference(STEADY.sessions[:count])
    verdict, _ = measured(around(1000), FIVE_PERCENT, stored)
    assert verdict.outcome is Outcome.LEARNING
    assert f"learning: {count} of 5 sessions" in verdict.reason
    assert describe_gate(gate(FIVE_PERCENT), stored, PLAN).startswith(f"learning: {count} ")


@pytest.mark.parametrize(
    ("truth", "outcome", "runs"),
    [(900, Outcome.LEARNING, 3), (510, Outcome.LEARNING, 3), (490, Outcome.FAIL, 12)],
)
def test_against_one_session_only_half_of_the_performance_is_a_failure(truth, outcome, runs):
    verdict, used = measured(around(truth, noise=0.001), FIVE_PERCENT, Reference(STEADY.sessions[:1]))
    assert (verdict.outcome, used) == (outcome, runs)


def test_what_a_gate_can_find_is_known_before_the_run():
    assert (
        describe_gate(gate(FIVE_PERCENT), STEADY, PLAN)
        == "finds a loss of 5.7 % or more in 12 runs (5 sessions)"
    )
    noisy = sessions([1000, 900, 1100, 950, 1050])
    found = describe_gate(gate(FIVE_PERCENT), noisy, PLAN)
    assert float(found.split()[4]) > 20
    assert "does not hold this case" in describe_gate(gate(FIVE_PERCENT), Reference(()), PLAN)


def test_two_groups_of_runs_and_a_drift_are_remarked():
    groups = [1000 * each * (0.92 if at % 2 else 1) for at, each in enumerate(AROUND)]
    reason = judge(run_of(groups), gate(FIVE_PERCENT), plan=PLAN, reference=STEADY).reason
    assert "; the runs show two groups of 6 and 6, 8." in reason
    drifting = [1000 - 8 * at for at in range(12)]
    reason = judge(run_of(drifting), gate(FIVE_PERCENT), plan=PLAN, reference=STEADY).reason
    assert "; the runs show a drift of -4." in reason
    assert (
        "show" not in judge(run_of([1000 * x for x in AROUND]), gate(FIVE_PERCENT), reference=STEADY).reason
    )


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
    verdict = judge(run, gate(FIVE_PERCENT), plan=PLAN, reference=reference)
    assert verdict.outcome is Outcome.INVALID
    assert message in verdict.reason
    assert verdict.final is final


def test_a_percentile_of_too_few_ios_carries_no_verdict_here_either():
    run = run_of([0.005] * 3, metric="p99", ios=100)
    verdict = judge(run, gate("p99 <= baseline + 10 %"), reference=Reference(((0.005,) * 5,)))
    assert "not enough samples: 300 of 10,000" in verdict.reason


def test_a_percentile_has_the_error_of_its_bins_on_top():
    stored = tuple(tuple(0.005 * each for each in AROUND) for _ in range(5))
    fine, coarse = (
        describe_gate(gate(f"{metric} <= baseline + 10 %"), Reference(stored), PLAN)
        for metric in ("latency_mean", "p99")
    )
    assert (fine.split()[4], coarse.split()[4]) == ("10", "13")
    assert fine.startswith("finds a rise of")  # twice 1/128 on each of two values


def test_relative_gate_on_a_missing_metric_is_a_configuration_error():
    with pytest.raises(ConfigError, match="p99 was not measured"):
        judge(run_of([1.0] * 3), gate("p99 <= baseline + 5 %"), reference=STEADY)


def test_how_often_it_errs_at_three_percent_of_noise():
    """50 cases each, seeded, against 8 stored sessions: measured, not assumed."""
    outcomes: dict[float, list[Outcome]] = {1.0: [], 0.9: []}
    for truth, found in outcomes.items():
        for seed in range(50):
            stored = sessions([1] * 8, seed=1000 + seed, noise=0.03)
            found.append(measured(around(truth, seed=seed, noise=0.03), FIVE_PERCENT, stored)[0].outcome)
    assert set(outcomes[1.0]) == {Outcome.PASS}
    assert outcomes[0.9].count(Outcome.FAIL) >= 45
    assert set(outcomes[0.9]) <= {Outcome.PASS, Outcome.FAIL}


@pytest.mark.parametrize(
    ("stored", "floor"),
    [
        ([], None),
        ([[1.0, 1.0]], None),
        ([[1.0], [], [0.0]], None),
        ([[1.0, 3.0], [2.2]], 0.1),
        ([[2.2], [1.0, 3.0]], 0.1),
        ([[100.0], [101.0], [110.0]], 0.1 * 0.9 + (110 / 101 - 1) * 0.1),
    ],
)
def test_the_noise_floor_is_a_high_quantile_of_what_lies_between_sessions(stored, floor):
    assert noise_floor(stored) == (None if floor is None else pytest.approx(floor))


def test_the_session_ratio_needs_two_sessions_and_values_above_zero():
    assert Reference(((1.0, 2.0),)).session_ratio is None
    assert Reference(((1.0, 2.0), (0.0, 1.0))).session_ratio is None
    ratio = sessions([1000] * 20, noise=0.02).session_ratio
    assert ratio is not None
    assert math.isclose(ratio, 0, abs_tol=0.1)  # sessions differ by what their runs explain


def test_against_names_the_reference_of_a_gate():
    assert gate(FIVE_PERCENT).against == BASELINE
    assert gate("iops >= 5").against == ""
