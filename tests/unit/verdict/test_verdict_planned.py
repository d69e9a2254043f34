"""judge and wants_more with a plan: as the runner uses them, run by run."""

from __future__ import annotations

import random
from dataclasses import replace

from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import ErrorPlan, Outcome, Verdict, judge, parse_threshold, wants_more

PLAN = ErrorPlan(gates=20, max_repeats=12)
GATE = parse_threshold("iops >= 950", METRICS)
GOOD, BAD = [1000.0, 1001.0, 999.0, 1000.5], [800.0, 801.0, 799.0]


def run_of(values: list[float]) -> Run:
    samples = tuple(Sample({"iops": value}, 1.0, 1000) for value in values)
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0)


def verdict_of(values: list[float]) -> Verdict:
    return judge(run_of(values), GATE, plan=PLAN)


def more(values: list[float], *, max_repeats: int = PLAN.max_repeats) -> bool:
    return wants_more(run_of(values), [verdict_of(values)], max_repeats=max_repeats)


def test_a_pass_ends_it():
    assert verdict_of(GOOD[:3]).outcome is Outcome.PASS
    assert not more(GOOD[:3])


def test_an_alarm_is_invalid_until_fresh_runs_alarm_too():
    alarmed = verdict_of(BAD)
    assert (alarmed.outcome, alarmed.alarmed_at, alarmed.final) == (Outcome.INVALID, 3, False)
    assert "alarmed, but not confirmed by the fresh runs so far" in alarmed.reason
    assert more(BAD)
    failed = verdict_of(BAD + BAD)
    assert failed.outcome is Outcome.FAIL
    assert failed.reason.endswith("below the threshold, confirmed by 3 fresh runs")
    assert not more(BAD + BAD)


def test_an_alarm_has_the_budget_once_more_and_no_longer():
    straddling = [700.0, 1250.0] * 6
    assert verdict_of(BAD + straddling).outcome is Outcome.INVALID
    assert more(BAD + straddling[:-1])
    assert not more(BAD + straddling)


def test_a_contradicted_alarm_is_not_measured_again():
    verdict = verdict_of(BAD + GOOD)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.final
    assert "the fresh runs meet the threshold: the target changed meanwhile" in verdict.reason
    assert not more(BAD + GOOD, max_repeats=100)


def test_undecided_gate_uses_the_budget_and_reports_its_precision():
    values = [900.0, 1000.0] * 6
    assert more(values[:-1])
    assert not more(values)
    assert "±" in verdict_of(values).reason


def test_an_invalid_run_is_not_measured_again():
    run = replace(run_of(BAD), invalid=("so",))
    assert not wants_more(run, [judge(run, GATE, plan=PLAN)], max_repeats=12)


def test_runs_after_the_decision_do_not_change_it():
    assert verdict_of(GOOD[:3] + BAD * 3).outcome is Outcome.PASS
    assert verdict_of(BAD + BAD + GOOD * 3).outcome is Outcome.FAIL


def test_how_often_it_errs_in_a_suite_of_twenty_gates_at_three_percent_of_noise():
    """500 gates each (seeded): measured, not assumed. The benchmark simulates a hundred times as many."""
    draw = random.Random(3)

    def simulate(truth: float) -> tuple[Outcome, int]:
        values = [draw.gauss(truth, truth * 0.03) for _ in range(3)]
        while more(values):
            values.append(draw.gauss(truth, truth * 0.03))
        return verdict_of(values).outcome, len(values)

    good, runs = zip(*(simulate(1000.0) for _ in range(500)), strict=True)
    bad = [simulate(900.0)[0] for _ in range(500)]
    assert good.count(Outcome.FAIL) == 0
    assert good.count(Outcome.PASS) >= 490
    assert bad.count(Outcome.PASS) == 0
    assert bad.count(Outcome.FAIL) >= 475
    assert sum(runs) / 500 <= 5
