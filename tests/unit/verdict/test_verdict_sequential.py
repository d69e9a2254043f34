from __future__ import annotations

import pytest

from storagetest.verdict.sequential import DecisionState, ErrorPlan, sequential_test

PLAN = ErrorPlan(gates=20, max_repeats=10)
GOOD, BAD = [100.0, 101.0, 99.0, 100.5], [80.0, 81.0, 79.0, 80.5, 80.2, 79.8, 80.1]


def test_two_runs_are_not_looked_at():
    assert sequential_test([100.0, 100.0], 95, higher=True, plan=PLAN).state is DecisionState.OPEN


def test_pass_stops_at_the_first_look_and_later_runs_do_not_change_it():
    assert sequential_test(GOOD, 95, higher=True, plan=PLAN) == sequential_test(
        GOOD + BAD, 95, higher=True, plan=PLAN
    )
    assert sequential_test(GOOD, 95, higher=True, plan=PLAN).runs == 3


def test_an_alarm_is_red_only_when_fresh_runs_alarm_too():
    alarmed = sequential_test(BAD[:4], 95, higher=True, plan=PLAN)
    assert alarmed.state is DecisionState.ALARMED
    assert sequential_test(BAD[:4] + BAD, 95, higher=True, plan=PLAN).state is DecisionState.FAILED
    assert sequential_test(BAD[:4] + GOOD, 95, higher=True, plan=PLAN).state is DecisionState.CONTRADICTED


def test_lower_is_better_is_the_mirror():
    mirrored = sequential_test([-value for value in BAD], -95, higher=False, plan=PLAN)
    assert mirrored.alarmed_at == sequential_test(BAD, 95, higher=True, plan=PLAN).alarmed_at == 4


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
    assert sequential_test(values, 95.5, higher=True, plan=PLAN).state is DecisionState.PASSED
    assert sequential_test(values, 95.5, higher=True, plan=PLAN, widen=0.008).state is DecisionState.OPEN


@pytest.mark.parametrize("wrong", [{"gates": 0}, {"false_alarm": 0.0}, {"miss": 0.5}])
def test_what_is_no_plan_is_refused(wrong):
    with pytest.raises(ValueError, match="not a plan"):
        ErrorPlan(**wrong)
