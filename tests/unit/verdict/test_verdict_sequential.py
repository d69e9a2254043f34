from __future__ import annotations

import pytest

from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    SequentialResult,
    sequential_test,
    widened,
)

PLAN = ErrorPlan(gates=20, max_repeats=10)
GOOD, BAD = [100.0, 101.0, 99.0, 100.5], [80.0, 81.0, 79.0, 80.5, 80.2, 79.8, 80.1]


def judged(
    values: list[float], bound: float = 95, *, higher: bool = True, error: float = 0.0
) -> SequentialResult:
    return sequential_test(values, bound, higher=higher, plan=PLAN, widen=widened(error))


def test_two_runs_are_not_looked_at():
    assert judged([100.0, 100.0]).state is DecisionState.OPEN


def test_pass_stops_at_the_first_look_and_later_runs_do_not_change_it():
    assert judged(GOOD) == judged(GOOD + BAD)
    assert judged(GOOD).runs == 3


def test_an_alarm_is_red_only_when_fresh_runs_alarm_too():
    alarmed = judged(BAD[:4])
    assert alarmed.state is DecisionState.ALARMED
    assert judged(BAD[:4] + BAD).state is DecisionState.FAILED
    assert judged(BAD[:4] + GOOD).state is DecisionState.CONTRADICTED


@pytest.mark.parametrize(
    "values", [GOOD, BAD[:4], BAD[:4] + BAD, BAD[:4] + GOOD, [*BAD[:4], 100.0], [100.0, 80.0]]
)
def test_the_interval_is_that_of_its_own_runs(values):
    result = judged(values)
    runs = values[result.runs - result.interval.count : result.runs]
    assert result.interval.mean == pytest.approx(sum(runs) / len(runs))
    assert result.interval.low < result.interval.mean < result.interval.high


def test_lower_is_better_is_the_mirror():
    mirrored = judged([-value for value in BAD], -95, higher=False)
    assert mirrored.alarmed_at == judged(BAD).alarmed_at == 4


def test_more_gates_make_an_alarm_harder():
    assert ErrorPlan(gates=200).alarm(5) < ErrorPlan(gates=2).alarm(5)


@pytest.mark.parametrize("max_repeats", [1, 3, 10, 20])
def test_the_looks_of_both_stages_of_all_gates_err_no_more_than_the_suite_may(max_repeats):
    plan = ErrorPlan(gates=20, max_repeats=max_repeats)
    stage = sum(plan.alarm(runs) for runs in range(3, plan.last + 1))
    assert stage**2 * plan.gates == pytest.approx(plan.false_alarm)


def test_later_looks_have_the_larger_shares():
    shares = [PLAN.alarm(runs) for runs in range(3, 11)]
    assert shares == sorted(shares)


def test_bins_widen_the_interval():
    values = [96.0, 96.1, 95.9]
    assert judged(values, 95.5).state is DecisionState.PASSED
    assert judged(values, 95.5, error=0.008).state is DecisionState.OPEN


@pytest.mark.parametrize("wrong", [{"gates": 0}, {"false_alarm": 0.0}, {"miss": 0.5}])
def test_what_is_no_plan_is_refused(wrong):
    with pytest.raises(ValueError, match="not a plan"):
        ErrorPlan(**wrong)
