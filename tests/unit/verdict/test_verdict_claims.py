"""Claims of publications: a ratio of two measured values, and what is found of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import ErrorPlan, wants_more
from storagetest.verdict.claims import Finding, Operand, claim_result, claim_verdicts

PLAN = ErrorPlan(gates=5, max_repeats=12)
LEVEL = [(">=", 0.8), ("<=", 1.25)]
NOISE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.01)


def side(variant: str, metric: str = "iops", runs: int = 8, **values: float) -> Operand:
    values = values or {metric: 1000.0}
    samples = tuple(
        Sample({name: value * NOISE[at] for name, value in values.items()}, 1.0, 1000) for at in range(runs)
    )
    return Operand(Run("case", "load", "t", variant, "local", "c", {}, {}, samples, 0.0), metric)


def found(left: Operand, right: Operand, *gates):
    return claim_result(claim_verdicts(left, right, gates, plan=PLAN))


def test_a_claim_agrees_with_the_interval_of_its_ratio():
    result = found(side("nvme", iops=2000.0), side("iscsi"), (">=", 1.0))
    assert result.finding is Finding.AGREES
    assert result.interval is not None
    assert result.interval.low <= 2.0 <= result.interval.high
    assert "required nvme >= iscsi, measured" in result.reason


def test_a_claim_differs_in_the_other_direction():
    result = found(side("nvme", iops=500.0), side("iscsi"), (">=", 1.0))
    assert result.finding is Finding.DIFFERS
    assert "confirmed by" in result.reason


@pytest.mark.parametrize(("factor", "finding"), [(1.0, "agrees"), (1.5, "differs"), (0.5, "differs")])
def test_level_has_a_bound_on_either_side(factor, finding):
    result = found(side("a", iops=1000.0 * factor), side("b"), *LEVEL)
    assert result.finding.value == finding


def test_too_few_runs_are_no_finding():
    result = found(side("a", runs=2, iops=5000.0), side("b", runs=2), (">=", 1.0))
    assert result.finding is Finding.UNMEASURED
    assert "at least 3 runs" in result.reason


def test_one_gate_that_is_undecided_leaves_the_claim_undecided_and_asks_for_runs():
    wide = Run(
        "case", "load", "t", "a", "local", "c", {}, {},
        tuple(Sample({"iops": value}, 1.0, 1000) for value in (1000, 2000, 900)), 0.0,
    )  # fmt: skip
    verdicts = claim_verdicts(Operand(wide, "iops"), side("b", runs=3), [(">=", 0.1), (">=", 1.0)], plan=PLAN)
    assert claim_result(verdicts).finding is Finding.UNMEASURED
    assert wants_more(wide, verdicts, max_repeats=12)


def test_two_metrics_of_one_run_are_compared():
    run = side("a", "bandwidth", iops=100.0, bandwidth=400.0).run
    samples = tuple(
        replace(one, values={**one.values, "half": one.values["bandwidth"] / 2}) for one in run.samples
    )
    slower = replace(run, metrics={**METRICS, "half": METRICS["bandwidth"]}, samples=samples)
    result = found(Operand(slower, "bandwidth"), Operand(slower, "half"), (">=", 1.9), ("<=", 2.1))
    assert result.finding is Finding.AGREES
    assert "required a >= 1.9 x a half" in result.reason or "required a <= 2.1 x a half" in result.reason


def test_metrics_of_different_units_are_a_mistake():
    with pytest.raises(ConfigError, match="different units"):
        found(side("a"), side("b", "bandwidth", bandwidth=1.0), (">=", 1.0))


def test_a_metric_that_the_workload_does_not_have_is_a_mistake():
    with pytest.raises(ConfigError, match="has no metric 'speed'"):
        found(side("a"), Operand(side("b").run, "speed"), (">=", 1.0))


def test_a_label_distinguishes_two_runs_of_one_variant():
    left, right = (replace(side("a", iops=value), label=f"a ({value:g})") for value in (2000.0, 1000.0))
    assert "required a (2000) >= a (1000), measured" in found(left, right, (">=", 1.0)).reason
