"""Gates against something measured: a stored baseline, or another variant measured in turns with this one.

*Against a baseline* (``iops >= baseline - 5 %``): a test of non-inferiority. The question is never "did it
change" but "is it worse than what was allowed". So the baseline's values are first scaled to the bound (by
0.95); PASS is a one-sided permutation test that the runs are better than that, an alarm one that they are
worse. All is done on logarithms: the effect is a ratio, and what disturbs a machine acts as a factor. An
alarm is tested against the noise floor where that is the wider: an effect smaller than what two sessions of
an unchanged target have shown is never reported. A percentile's bound is moved by the error of the bins, each
way for its test. The change that is told as detectable is twice the interval's half: at that distance from
the bound, 5 % of such runs would fail to show on which side they are. The baseline's own error is in both
stages of :mod:`storagetest.verdict.sequential` alike, so for a target that is exactly as much worse as is
allowed they do not quite multiply; benchmarks/judging_simulation.py prints what that costs, and that an
unchanged target is not concerned.

*Against a variant* (``nfs-v4.2 >= 0.9 x nfs-v3``): the runs come in pairs, measured one after the other in
the order A B B A, so what drifts slowly is in both of a pair. The sample is the logarithm of a pair's ratio,
and the test Student's t on those.

Source: non-inferiority by a shifted test is S. Wellek's, Testing Statistical Hypotheses of Equivalence and
Noninferiority (2nd ed., 2010); the permutation test is scipy's, exact up to 9999 arrangements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from storagetest.measure.histogram import RELATIVE_ERROR
from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval, mean, mean_interval
from storagetest.verdict.base import Outcome, Threshold, Verdict
from storagetest.verdict.baseline import Reference
from storagetest.verdict.formatting import (
    MINIMUM_REPEATS,
    format_metric,
    relative_half_width,
    why_not_judgeable,
)
from storagetest.verdict.regression import p_above, ratio_interval
from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    InterimTest,
    SequentialResult,
    Test,
    replay_tests,
)

__all__ = ["judge_pair", "judge_regression"]

Logs = tuple[float, ...]


def judge_regression(
    run: Run,
    threshold: Threshold,
    reference: Reference | None,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
) -> Verdict:
    """Return what became of a gate ``against`` the baseline; without ``reference`` it has none (INVALID)."""
    metric = threshold.metric
    values = _values(run, metric)
    asked = f"{metric.name}: asked {threshold.op} baseline {_margin(threshold)}"
    why = why_not_judgeable(run, metric) or _unfit_reference(reference, metric)
    if why is None and not _positive(values):
        why = "no verdict: a value that is not above zero has no ratio"
    if why is not None or reference is None:
        hopeless = why_not_judgeable(run, metric) is None
        measured = (
            f", measured {format_metric(mean(values), metric.unit, 3)}" if values else ", measured nothing"
        )
        return Verdict(Outcome.INVALID, threshold, None, f"{asked}{measured}: {why}", final=hopeless)
    logs, before = _logs(values), _logs(reference.values)
    looked = _test(logs, _against(before, threshold, reference.floor or 0.0), confidence, plan)
    around = ratio_interval(before, logs, 1 - 2 * plan.miss if plan else confidence)
    interval, detectable = _ratios(around), _exp(around.high - around.low) - 1
    effect = math.exp(mean(logs) - mean(before)) - 1
    outcome, said = _decide(looked, interval, worse=_describe_failure(threshold, reference))
    within = _within_floor(effect, threshold, reference)
    if looked.state is DecisionState.OPEN and within is not None:
        said = f"{said}; {within}"
    reason = (
        f"{asked}, measured {format_metric(mean(values), metric.unit, 4)} against"
        f" {format_metric(mean(reference.values), metric.unit, 4)} of {len(reference.values)} runs:"
        f" {effect * 100:+.3g} %{_format_interval(interval, len(values), 'run')[:-1]}, detectable"
        f" {detectable * 100:.2g} %): {said}"
    )
    return _verdict(outcome, threshold, interval, reason, looked)


def judge_pair(
    left: Run, right: Run, threshold: Threshold, *, confidence: float = 0.99, plan: ErrorPlan | None = None
) -> Verdict:
    """Return what became of a gate of ``left`` ``against`` ``right``; their runs are paired in order."""
    metric = threshold.metric
    pairs = list(zip(_values(left, metric), _values(right, metric), strict=False))
    factor = f"{threshold.bound:g} x " if threshold.bound != 1 else ""
    asked = f"{metric.name}: asked {left.variant} {threshold.op} {factor}{threshold.against}"
    why = why_not_judgeable(left, metric) or why_not_judgeable(right, metric)
    if why is None and not all(_positive(pair) for pair in pairs):
        why = "no verdict: a value that is not above zero has no ratio"
    if why is not None:
        measured = f"{len(pairs)} pair{'s' * (len(pairs) != 1)}"
        return Verdict(Outcome.INVALID, threshold, None, f"{asked}, measured {measured}: {why}")
    ratios = tuple(math.log(a / b) for a, b in pairs)
    looked = _test(ratios, _of_pairs(threshold), confidence, plan)
    interval = _ratios(looked.interval)
    outcome, said = _decide(looked, interval, what="pair")
    ours, theirs = (mean([pair[side] for pair in pairs]) for side in (0, 1))
    reason = (
        f"{asked}, measured {format_metric(ours, metric.unit, 4)} against {format_metric(theirs, metric.unit, 4)}:"
        f" {math.exp(mean(ratios)):.3g} x{_format_interval(interval, len(pairs), 'pair', factor=True)}: {said}"
    )
    return _verdict(outcome, threshold, interval, reason, looked)


def _test(values: Logs, test: Test, confidence: float, plan: ErrorPlan | None) -> SequentialResult:
    """Replay ``plan``; without one, look once at ``confidence``, and take an alarm at its word."""
    if plan is not None:
        return replay_tests(values, plan, test)
    seen = test(values, (1 - confidence) / 2, (1 - confidence) / 2)
    state = DecisionState.PASSED if seen.good else DecisionState.FAILED if seen.bad else DecisionState.OPEN
    return SequentialResult(state, seen.interval, len(values))


def _against(before: Logs, threshold: Threshold, floor: float) -> Test:
    higher = threshold.op == ">="
    good_enough = math.log(threshold.bound)
    allowed = max(abs(threshold.bound - 1), floor)
    worst = math.log(max(1 - allowed, 1e-9) if higher else 1 + allowed)
    slack = _bins(threshold.metric) * (1 if higher else -1)

    def test(values: Sequence[float], passing: float, alarm: float) -> InterimTest:
        seen = tuple(values)
        p_good = _p_better(seen, tuple(x + good_enough + slack for x in before), higher=higher)
        if p_good <= passing:
            return InterimTest(True, False)
        p_bad = _p_better(seen, tuple(x + worst - slack for x in before), higher=not higher)
        return InterimTest(False, p_bad <= alarm)

    return test


def _of_pairs(threshold: Threshold) -> Test:
    higher = threshold.op == ">="
    bound, slack = math.log(threshold.bound), _bins(threshold.metric)

    def test(values: Sequence[float], passing: float, alarm: float) -> InterimTest:
        seen = _widened(values, 1 - 2 * passing, slack)
        if seen.low >= bound if higher else seen.high <= bound:
            return InterimTest(True, False, seen)
        seen = _widened(values, 1 - 2 * alarm, slack)
        return InterimTest(False, seen.high < bound if higher else seen.low > bound, seen)

    return test


def _p_better(seen: Logs, before: Logs, *, higher: bool) -> float:
    if higher:
        return p_above(seen, before)
    return p_above(tuple(-y for y in seen), tuple(-x for x in before))


def _widened(values: Sequence[float], confidence: float, slack: float) -> Interval:
    found = mean_interval(values, confidence)
    if found is None:
        raise ValueError("an interval takes two pairs")
    return replace(found, low=found.low - slack, high=found.high + slack)


def _bins(metric: Metric) -> float:
    """The error of the logarithm of a ratio of two values that were read off bins."""
    return 0.0 if metric.quantile is None else math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))


def _decide(
    looked: SequentialResult, interval: Interval | None, *, worse: str = "worse than asked", what: str = "run"
) -> tuple[Outcome, str]:
    reached = f", ±{relative_half_width(interval)}" if interval is not None else ""
    match looked.state:
        case DecisionState.PASSED:
            return Outcome.PASS, "meets the threshold"
        case DecisionState.FAILED:
            fresh = looked.runs - looked.alarmed_at if looked.alarmed_at else 0
            return Outcome.FAIL, f"{worse}{f', confirmed by {fresh} fresh {what}s' * bool(fresh)}"
        case DecisionState.ALARMED:
            return (
                Outcome.INVALID,
                f"undecided: alarmed, but not confirmed by the fresh {what}s so far{reached}",
            )
        case DecisionState.CONTRADICTED:
            return Outcome.INVALID, (
                f"undecided: alarmed, but the fresh {what}s meet the threshold: something changed while"
                f" measuring{reached}"
            )
        case _:
            return Outcome.INVALID, (
                f"undecided{reached} after {looked.runs} {what}s; more or longer runs would narrow it"
            )


def _describe_failure(threshold: Threshold, reference: Reference) -> str:
    """Return what a failure says beside the effect: how it stands to the noise floor."""
    floor = reference.floor
    if floor is None:
        return "worse than asked (its noise floor is not known: the baseline has one session)"
    wider = ", which is wider than was asked" if floor > abs(threshold.bound - 1) else ""
    return f"worse than asked, and beyond its noise floor of {floor * 100:.2g} %{wider}"


def _within_floor(effect: float, threshold: Threshold, reference: Reference) -> str | None:
    """Return why an effect that is worse than asked for is none that can be told, if that is why."""
    floor, margin = reference.floor or 0.0, abs(threshold.bound - 1)
    worse = -effect if threshold.op == ">=" else effect
    if not margin < worse <= floor:
        return None
    return (
        f"it is worse than asked, but within its noise floor of {floor * 100:.2g} %, which is never reported"
    )


def _unfit_reference(reference: Reference | None, metric: Metric) -> str | None:
    if reference is None or not reference.values:
        source = f" {reference.source}" if reference is not None and reference.source else ""
        return f"no verdict: the baseline{source} has no {metric.name} of this case; save it first"
    if len(reference.values) < MINIMUM_REPEATS:
        return f"no verdict: the baseline has fewer than {MINIMUM_REPEATS} runs of this case"
    if not _positive(reference.values):
        return "no verdict: the baseline holds a value that is not above zero"
    return None


def _margin(threshold: Threshold) -> str:
    return f"{'-' if threshold.op == '>=' else '+'} {abs(threshold.bound - 1) * 100:.4g} %"


def _values(run: Run, metric: Metric) -> list[float]:
    return [sample.values[metric.name] for sample in run.samples if metric.name in sample.values]


def _positive(values: Sequence[float]) -> bool:
    return all(0 < value < math.inf for value in values)


def _logs(values: Sequence[float]) -> Logs:
    return tuple(math.log(value) for value in values)


def _ratios(interval: Interval | None) -> Interval | None:
    """From logarithms to ratios."""
    if interval is None:
        return None
    centre, low, high = (_exp(each) for each in (interval.mean, interval.low, interval.high))
    return Interval(centre, low, high, interval.confidence, interval.count)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _format_interval(interval: Interval | None, count: int, what: str, *, factor: bool = False) -> str:
    counted = f"{count} {what}{'s' * (count != 1)}"
    if interval is None:
        return f" ({counted})"
    if factor:
        shown = f"{interval.low:.3g}..{interval.high:.3g} x"
    else:
        shown = f"{(interval.low - 1) * 100:+.3g}..{(interval.high - 1) * 100:+.3g} %"
    return f" ({interval.confidence * 100:.4g} % interval {shown}, {counted})"


def _verdict(
    outcome: Outcome, threshold: Threshold, interval: Interval | None, reason: str, looked: SequentialResult
) -> Verdict:
    return Verdict(
        outcome,
        threshold,
        interval,
        reason,
        alarmed_at=looked.alarmed_at,
        final=looked.state is DecisionState.CONTRADICTED,
    )
