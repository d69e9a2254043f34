"""Judge gates on the confidence interval of a run's repeats, never on the mean alone.

This module judges absolute gates (``iops >= 20000``); :mod:`storagetest.verdict.relative_gates` those against
a baseline or another variant.

PASS if the whole interval lies on the good side of the bound (which itself is good), FAIL if the whole
interval lies on the bad side, else INVALID, with the precision that was reached. INVALID in any case if:

1. the run is invalid (:attr:`Run.invalid`);
2. fewer than three repeats have the metric, because two values do not show their spread;
3. a percentile has fewer I/Os, over all repeats, than 100/(1-q).

A percentile is shown as that of the merged bins. Its interval is that of the mean of the repeats'
percentiles, widened by the bins' error on both sides, because a latency may lie on either side of a bound
within its bucket.

Repeating until there is a verdict tests the data several times, and each interim test can err. An
:class:`ErrorPlan` corrects for the tests and for the suite's gates, and fresh runs must confirm an alarm
before it is FAIL (:mod:`storagetest.verdict.sequential`). Without a plan each test has the plain
``confidence``.
"""

from __future__ import annotations

from collections.abc import Iterable

from storagetest.errors import ConfigError
from storagetest.measure.histogram import RELATIVE_ERROR
from storagetest.measure.run import Run
from storagetest.measure.stats import Estimate, Interval, counted, estimate
from storagetest.verdict.base import BASELINE, Outcome, Threshold, Verdict
from storagetest.verdict.baseline import Reference
from storagetest.verdict.formatting import (
    MINIMUM_REPEATS,
    digits_for,
    format_bound,
    format_metric,
    relative_half_width,
    split_unit,
    why_not_judgeable,
)
from storagetest.verdict.relative_gates import judge_regression
from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    SequentialResult,
    sequential_test,
    widened,
)


def judge(
    run: Run,
    threshold: Threshold,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
    reference: Reference | None = None,
) -> Verdict:
    """Return the verdict of ``threshold``, by sequential tests if ``plan`` is given.

    ``reference`` is the baseline of the case's metric, for a threshold against it. Raises
    :class:`ConfigError` for a metric that was not measured.
    """
    metric = threshold.metric
    estimated = estimate(run, metric, confidence=confidence)
    if estimated is None and run.samples:
        measured = sorted({name for sample in run.samples for name in sample.values})
        raise ConfigError(
            f"threshold {threshold.text!r}: {metric.name} was not measured; {run.workload} measures"
            f" {', '.join(measured)}",
            place=threshold.place or None,
        )
    if threshold.against == BASELINE:
        return judge_regression(run, threshold, reference, confidence=confidence, plan=plan)
    if estimated is not None and estimated.interval is not None and metric.quantile is not None:
        estimated = Estimate(estimated.value, widened(estimated.interval, RELATIVE_ERROR))
    interval = estimated.interval if estimated else None
    sequential = _run_sequential_test(run, threshold, plan) if plan is not None else None
    if sequential is not None and sequential.interval is not None and estimated is not None:
        interval = sequential.interval
        estimated = Estimate(estimated.value, interval)
    outcome, reason = _decide(run, threshold, interval, sequential)
    return Verdict(
        outcome,
        threshold,
        interval,
        _reason(run, threshold, estimated, reason),
        alarmed_at=sequential.alarmed_at if sequential else None,
        final=sequential is not None and sequential.state is DecisionState.CONTRADICTED,
    )


def wants_more(run: Run, verdicts: Iterable[Verdict], *, max_repeats: int) -> bool:
    """Whether another repeat may decide an INVALID of ``verdicts``, within ``max_repeats``.

    An alarm has ``max_repeats`` fresh runs in addition to be confirmed. A contradicted alarm is not measured
    again, and neither is a gate that no run can decide.
    """
    repeats = len(run.samples)
    if run.invalid or not repeats or max_repeats < MINIMUM_REPEATS:
        return False
    return any(
        _wants_more(run, verdict, max_repeats + (verdict.alarmed_at or 0))
        for verdict in verdicts
        if verdict.outcome is Outcome.INVALID and not verdict.final
    )


def _wants_more(run: Run, verdict: Verdict, budget: int) -> bool:
    repeats, metric = len(run.samples), verdict.threshold.metric
    return repeats < budget and counted(run, metric) / repeats * budget >= metric.ios_required


def _run_sequential_test(run: Run, threshold: Threshold, plan: ErrorPlan) -> SequentialResult:
    metric = threshold.metric
    widen = RELATIVE_ERROR if metric.quantile is not None else 0.0
    higher = threshold.op == ">="
    return sequential_test(run.values(metric), threshold.bound, higher=higher, plan=plan, widen=widen)


_UNDECIDED = {
    DecisionState.ALARMED: "alarmed, but not confirmed by the fresh runs so far",
    DecisionState.CONTRADICTED: "alarmed, but the fresh runs meet the threshold: the target changed "
    "meanwhile",
}


def _decide(
    run: Run, threshold: Threshold, interval: Interval | None, sequential: SequentialResult | None = None
) -> tuple[Outcome, str]:
    reason = why_not_judgeable(run, threshold.metric)
    if reason is not None or interval is None:
        return Outcome.INVALID, reason or "no verdict: nothing was measured"
    state = sequential.state if sequential is not None else _state(threshold, interval)
    if state is DecisionState.PASSED:
        return Outcome.PASS, "meets the threshold"
    if state is DecisionState.FAILED:
        side = "below" if threshold.op == ">=" else "above"
        fresh = sequential.runs - (sequential.alarmed_at or 0) if sequential is not None else 0
        return Outcome.FAIL, f"{side} the threshold{f', confirmed by {fresh} fresh runs' * bool(fresh)}"
    reached = f"±{relative_half_width(interval)}"
    if state in _UNDECIDED:
        return Outcome.INVALID, f"undecided: {_UNDECIDED[state]}, {reached}"
    return Outcome.INVALID, (
        f"undecided: the threshold lies inside the interval, {reached} after"
        f" {interval.count} runs; more or longer runs would narrow it"
    )


def _state(threshold: Threshold, interval: Interval) -> DecisionState:
    """Return the state of a gate that is tested once."""
    higher = threshold.op == ">="
    worst, best = (interval.low, interval.high) if higher else (interval.high, interval.low)
    if worst >= threshold.bound if higher else worst <= threshold.bound:
        return DecisionState.PASSED
    if best < threshold.bound if higher else best > threshold.bound:
        return DecisionState.FAILED
    return DecisionState.OPEN


def _reason(run: Run, threshold: Threshold, estimated: Estimate | None, reason: str) -> str:
    unit = threshold.metric.unit
    required = f"{threshold.metric.name}: required {threshold.op} {format_bound(threshold.bound, unit)}"
    if estimated is None:
        return f"{required}, measured nothing: {reason}"
    runs = f"{len(run.samples)} run{'s' * (len(run.samples) != 1)}"
    interval = estimated.interval
    if interval is None:
        return f"{required}, measured {format_metric(estimated.value, unit, 3)} ({runs}): {reason}"
    digits = digits_for(threshold.bound, estimated.value, interval, unit)
    low, high = (format_metric(end, unit, digits) for end in (max(interval.low, 0.0), interval.high))
    number, symbol = split_unit(low)
    if split_unit(high)[1] == symbol:
        low = number
    return (
        f"{required}, measured {format_metric(estimated.value, unit, digits)}"
        f" ({interval.confidence * 100:.4g} % interval {low}..{high}, {runs}): {reason}"
    )
