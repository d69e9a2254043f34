"""Judge gates against a stored baseline, or against another variant that is measured alternately.

*Against a baseline* (``iops >= baseline - 5 %``): a test of non-inferiority, whether the runs are worse than
is allowed. The baseline's values are scaled to the bound (by 0.95). PASS is a one-sided permutation test that
the runs are better than that, an alarm one that they are worse. Values are logarithms, because the effect is
a ratio and disturbances act as factors. An alarm is tested against the noise floor if that is the wider
bound: an effect smaller than the difference between two sessions of an unchanged target is never reported. A
percentile's bound is moved by the error of the bins, each way for its test. The detectable change is twice
the half-width of the interval: at that distance from the bound, 5 % of such runs would not show on which side
they are. The baseline's error is in both stages of :mod:`storagetest.verdict.sequential`, so for a target
that is exactly as much worse as is allowed the error rates do not quite multiply;
benchmarks/judging_simulation.py prints the cost. An unchanged target is not affected.

*Against a variant* (``nfs-v4.2 >= 0.9 x nfs-v3``): runs come in pairs, measured one after the other in the
order A B B A, so that slow drift affects both of a pair. The sample is the logarithm of a pair's ratio, and
the test is Student's t.

Source: non-inferiority by a shifted test is S. Wellek's, Testing Statistical Hypotheses of Equivalence and
Noninferiority (2nd ed., 2010); the permutation test is scipy's, exact up to 9999 arrangements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from storagetest.measure.histogram import RELATIVE_ERROR
from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval, mean
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
    interval_test,
    replay_tests,
)

Logs = tuple[float, ...]


def judge_regression(
    run: Run,
    threshold: Threshold,
    reference: Reference | None,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
) -> Verdict:
    """Return the verdict of a gate against the baseline; INVALID without ``reference``."""
    metric = threshold.metric
    values = run.values(metric)
    required = f"{metric.name}: required {threshold.op} baseline {_margin(threshold)}"
    reason_invalid = why_not_judgeable(run, metric) or _unfit_reference(reference, metric)
    if reason_invalid is None and not _positive(values):
        reason_invalid = "no verdict: a value that is not above zero has no ratio"
    if reason_invalid is not None or reference is None:
        hopeless = why_not_judgeable(run, metric) is None
        measured = (
            f", measured {format_metric(mean(values), metric.unit, 3)}" if values else ", measured nothing"
        )
        return Verdict(
            Outcome.INVALID, threshold, None, f"{required}{measured}: {reason_invalid}", final=hopeless
        )
    logs, before = _logs(values), _logs(reference.values)
    sequential = _test(logs, _against(before, threshold, reference.floor or 0.0), confidence, plan)
    around = ratio_interval(before, logs, 1 - 2 * plan.miss if plan else confidence)
    interval, detectable = _ratios(around), _exp(around.high - around.low) - 1
    effect = math.exp(mean(logs) - mean(before)) - 1
    outcome, summary = _decide(sequential, interval, worse=_describe_failure(threshold, reference))
    within = _within_floor(effect, threshold, reference)
    if sequential.state is DecisionState.OPEN and within is not None:
        summary = f"{summary}; {within}"
    reason = (
        f"{required}, measured {format_metric(mean(values), metric.unit, 4)} against"
        f" {format_metric(mean(reference.values), metric.unit, 4)} of {len(reference.values)} runs:"
        f" {effect * 100:+.3g} %{_format_interval(interval, len(values), 'run')[:-1]}, detectable"
        f" {detectable * 100:.2g} %): {summary}"
    )
    return _verdict(outcome, threshold, interval, reason, sequential)


def judge_pair(
    left: Run, right: Run, threshold: Threshold, *, confidence: float = 0.99, plan: ErrorPlan | None = None
) -> Verdict:
    """Return the verdict of a gate of ``left`` against ``right``; their runs are paired in order."""
    metric = threshold.metric
    pairs = list(zip(left.values(metric), right.values(metric), strict=False))
    factor = f"{threshold.bound:g} x " if threshold.bound != 1 else ""
    required = f"{metric.name}: required {left.variant} {threshold.op} {factor}{threshold.against}"
    reason_invalid = why_not_judgeable(left, metric) or why_not_judgeable(right, metric)
    if reason_invalid is None and not all(_positive(pair) for pair in pairs):
        reason_invalid = "no verdict: a value that is not above zero has no ratio"
    if reason_invalid is not None:
        measured = f"{len(pairs)} pair{'s' * (len(pairs) != 1)}"
        return Verdict(Outcome.INVALID, threshold, None, f"{required}, measured {measured}: {reason_invalid}")
    ratios = tuple(math.log(a / b) for a, b in pairs)
    sequential = _test(ratios, _of_pairs(threshold), confidence, plan)
    interval = _ratios(sequential.interval)
    outcome, summary = _decide(sequential, interval, unit="pair")
    left_mean, right_mean = (mean([pair[side] for pair in pairs]) for side in (0, 1))
    reason = (
        f"{required}, measured {format_metric(left_mean, metric.unit, 4)} against"
        f" {format_metric(right_mean, metric.unit, 4)}: {math.exp(mean(ratios)):.3g} x"
        f"{_format_interval(interval, len(pairs), 'pair', factor=True)}: {summary}"
    )
    return _verdict(outcome, threshold, interval, reason, sequential)


def _test(values: Logs, test: Test, confidence: float, plan: ErrorPlan | None) -> SequentialResult:
    """Replay ``plan``; without one, test once at ``confidence``, and accept an alarm unconfirmed."""
    if plan is not None:
        return replay_tests(values, plan, test)
    interim = test(values, (1 - confidence) / 2, (1 - confidence) / 2)
    state = (
        DecisionState.PASSED if interim.good else DecisionState.FAILED if interim.bad else DecisionState.OPEN
    )
    return SequentialResult(state, interim.interval, len(values))


def _against(before: Logs, threshold: Threshold, floor: float) -> Test:
    higher = threshold.op == ">="
    good_enough = math.log(threshold.bound)
    allowed = max(abs(threshold.bound - 1), floor)
    worst = math.log(max(1 - allowed, 1e-9) if higher else 1 + allowed)
    slack = _bins(threshold.metric) * (1 if higher else -1)

    def test(values: Sequence[float], passing: float, alarm: float) -> InterimTest:
        interim = tuple(values)
        p_good = _p_better(interim, tuple(x + good_enough + slack for x in before), higher=higher)
        if p_good <= passing:
            return InterimTest(True, False)
        p_bad = _p_better(interim, tuple(x + worst - slack for x in before), higher=not higher)
        return InterimTest(False, p_bad <= alarm)

    return test


def _of_pairs(threshold: Threshold) -> Test:
    slack = _bins(threshold.metric)
    return interval_test(
        math.log(threshold.bound),
        higher=threshold.op == ">=",
        widen=lambda interval: replace(interval, low=interval.low - slack, high=interval.high + slack),
    )


def _p_better(interim: Logs, before: Logs, *, higher: bool) -> float:
    if higher:
        return p_above(interim, before)
    return p_above(tuple(-y for y in interim), tuple(-x for x in before))


def _bins(metric: Metric) -> float:
    """The error of the logarithm of a ratio of two values that were read off bins."""
    return 0.0 if metric.quantile is None else math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))


def _decide(
    sequential: SequentialResult,
    interval: Interval | None,
    *,
    worse: str = "worse than required",
    unit: str = "run",
) -> tuple[Outcome, str]:
    reached = f", ±{relative_half_width(interval)}" if interval is not None else ""
    match sequential.state:
        case DecisionState.PASSED:
            return Outcome.PASS, "meets the threshold"
        case DecisionState.FAILED:
            fresh = sequential.runs - sequential.alarmed_at if sequential.alarmed_at else 0
            return Outcome.FAIL, f"{worse}{f', confirmed by {fresh} fresh {unit}s' * bool(fresh)}"
        case DecisionState.ALARMED:
            reason = f": alarmed, but not confirmed by the fresh {unit}s so far{reached}"
        case DecisionState.CONTRADICTED:
            reason = (
                f": alarmed, but the fresh {unit}s meet the threshold: the target changed meanwhile{reached}"
            )
        case _:
            reason = f"{reached} after {sequential.runs} {unit}s; more or longer runs would narrow it"
    return Outcome.INVALID, f"undecided{reason}"


def _describe_failure(threshold: Threshold, reference: Reference) -> str:
    """Return the reason of a failure: how the effect compares with the noise floor."""
    floor = reference.floor
    if floor is None:
        return "worse than required (its noise floor is not known: the baseline has one session)"
    wider = ", which is wider than the margin" if floor > abs(threshold.bound - 1) else ""
    return f"worse than required, and beyond its noise floor of {floor * 100:.2g} %{wider}"


def _within_floor(effect: float, threshold: Threshold, reference: Reference) -> str | None:
    """Return the reason if an effect beyond the margin lies within the noise floor, else None."""
    floor, margin = reference.floor or 0.0, abs(threshold.bound - 1)
    worse = -effect if threshold.op == ">=" else effect
    if not margin < worse <= floor:
        return None
    return f"worse than required, but within its noise floor of {floor * 100:.2g} %, never reported"


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


def _positive(values: Sequence[float]) -> bool:
    return all(0 < value < math.inf for value in values)


def _logs(values: Sequence[float]) -> Logs:
    return tuple(math.log(value) for value in values)


def _ratios(interval: Interval | None) -> Interval | None:
    """Convert logarithms to ratios."""
    if interval is None:
        return None
    return replace(interval, mean=_exp(interval.mean), low=_exp(interval.low), high=_exp(interval.high))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _format_interval(interval: Interval | None, count: int, unit: str, *, factor: bool = False) -> str:
    counted = f"{count} {unit}{'s' * (count != 1)}"
    if interval is None:
        return f" ({counted})"
    if factor:
        shown = f"{interval.low:.3g}..{interval.high:.3g} x"
    else:
        shown = f"{(interval.low - 1) * 100:+.3g}..{(interval.high - 1) * 100:+.3g} %"
    return f" ({interval.confidence * 100:.4g} % interval {shown}, {counted})"


def _verdict(
    outcome: Outcome,
    threshold: Threshold,
    interval: Interval | None,
    reason: str,
    sequential: SequentialResult,
) -> Verdict:
    return Verdict(
        outcome,
        threshold,
        interval,
        reason,
        alarmed_at=sequential.alarmed_at,
        final=sequential.state is DecisionState.CONTRADICTED,
    )
