"""Gates, judged on the confidence interval of a run's repeats and never on the point.

What is said here holds for absolute gates (``iops >= 20000``); those against a baseline, or against another
variant, are :mod:`storagetest.verdict.relative_gates`'s.

PASS when the whole interval lies on the good side of the bound (which is itself good enough), FAIL when the
whole lies on the bad side, else INVALID, with the precision that was reached. INVALID in any case:

1. the run says so itself (:attr:`Run.invalid`);
2. fewer than three repeats have the metric: two values give no idea of their spread;
3. a percentile of fewer I/Os, over all repeats, than 100/(1-q).

A percentile is shown as that of the merged bins. Its interval is that of the mean of the repeats'
percentiles, widened by the bins' error on both sides: a bucket cannot tell on which side of a bound within
it a latency was.

Repeating until a verdict is reached looks at the data more than once, and each look can err. With a
:class:`Plan` the looks and the suite's gates are corrected for and an alarm is confirmed by fresh runs before
it is FAIL (:mod:`storagetest.verdict.sequential`); without one each look has the plain ``confidence``.
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
from storagetest.verdict.sequential import DecisionState, ErrorPlan, SequentialResult, sequential_test

__all__ = ["MINIMUM_REPEATS", "judge", "wants_more"]


def judge(
    run: Run,
    threshold: Threshold,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
    reference: Reference | None = None,
) -> Verdict:
    """Return what became of ``threshold``, by looks as ``plan`` says if one is given.

    ``reference`` is what the baseline holds of the case's metric, where the threshold is against it.
    Raises :class:`ConfigError` for a metric that nobody measured.
    """
    metric = threshold.metric
    found = estimate(run, metric, confidence=confidence)
    if found is None and run.samples:
        measured = sorted({name for sample in run.samples for name in sample.values})
        raise ConfigError(
            f"threshold {threshold.text!r}: nobody measured {metric.name}; {run.workload} measures"
            f" {', '.join(measured)}",
            place=threshold.place or None,
        )
    if threshold.against == BASELINE:
        return judge_regression(run, threshold, reference, confidence=confidence, plan=plan)
    if found is not None and found.interval is not None and metric.quantile is not None:
        found = Estimate(found.value, _widened(found.interval))
    interval = found.interval if found else None
    looked = _run_sequential_test(run, threshold, plan) if plan is not None else None
    if looked is not None and looked.interval is not None and found is not None:
        interval = looked.interval
        found = Estimate(found.value, interval)
    outcome, why = _decide(run, threshold, interval, looked)
    return Verdict(
        outcome,
        threshold,
        interval,
        _reason(run, threshold, found, why),
        alarmed_at=looked.alarmed_at if looked else None,
        final=looked is not None and looked.state is DecisionState.CONTRADICTED,
    )


def wants_more(run: Run, verdicts: Iterable[Verdict], *, max_repeats: int) -> bool:
    """Whether another repeat may turn an INVALID of ``verdicts`` into a verdict, within ``max_repeats``.

    An alarm has ``max_repeats`` fresh runs on top to be confirmed; one that they contradict is not measured
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
    values = [sample.values[metric.name] for sample in run.samples if metric.name in sample.values]
    widen = RELATIVE_ERROR if metric.quantile is not None else 0.0
    return sequential_test(values, threshold.bound, higher=threshold.op == ">=", plan=plan, widen=widen)


_UNDECIDED = {
    DecisionState.ALARMED: "alarmed, but not confirmed by the fresh runs so far",
    DecisionState.CONTRADICTED: "alarmed, but the fresh runs meet the threshold: something changed while measuring",
}


def _decide(
    run: Run, threshold: Threshold, interval: Interval | None, looked: SequentialResult | None = None
) -> tuple[Outcome, str]:
    why = why_not_judgeable(run, threshold.metric)
    if why is not None or interval is None:
        return Outcome.INVALID, why or "no verdict: nothing was measured"
    higher = threshold.op == ">="
    if looked is not None:
        if looked.state is DecisionState.PASSED:
            return Outcome.PASS, "meets the threshold"
        if looked.state is DecisionState.FAILED:
            side = "below" if higher else "above"
            fresh = looked.runs - (looked.alarmed_at or 0)
            return Outcome.FAIL, f"{side} the threshold, confirmed by {fresh} fresh runs"
        if looked.state in _UNDECIDED:
            return Outcome.INVALID, f"undecided: {_UNDECIDED[looked.state]}, ±{relative_half_width(interval)}"
        return Outcome.INVALID, (
            f"undecided: the threshold lies inside the interval, ±{relative_half_width(interval)} after"
            f" {interval.count} runs; more or longer runs would narrow it"
        )
    worst, best = (interval.low, interval.high) if higher else (interval.high, interval.low)
    if worst >= threshold.bound if higher else worst <= threshold.bound:
        return Outcome.PASS, "meets the threshold"
    if best < threshold.bound if higher else best > threshold.bound:
        return Outcome.FAIL, f"{'below' if higher else 'above'} the threshold"
    return Outcome.INVALID, (
        f"undecided: the threshold lies inside the interval, ±{relative_half_width(interval)} after"
        f" {interval.count} runs; more or longer runs would narrow it"
    )


def _widened(interval: Interval) -> Interval:
    low, high = interval.low / (1 + RELATIVE_ERROR), interval.high / (1 - RELATIVE_ERROR)
    return Interval(interval.mean, low, high, interval.confidence, interval.count)


def _reason(run: Run, threshold: Threshold, found: Estimate | None, why: str) -> str:
    unit = threshold.metric.unit
    asked = f"{threshold.metric.name}: asked {threshold.op} {format_bound(threshold.bound, unit)}"
    if found is None:
        return f"{asked}, measured nothing: {why}"
    runs = f"{len(run.samples)} run{'s' * (len(run.samples) != 1)}"
    interval = found.interval
    if interval is None:
        return f"{asked}, measured {format_metric(found.value, unit, 3)} ({runs}): {why}"
    digits = digits_for(threshold.bound, found.value, interval, unit)
    low, high = (
        format_metric(max(interval.low, 0.0), unit, digits),
        format_metric(interval.high, unit, digits),
    )
    number, symbol = split_unit(low)
    if split_unit(high)[1] == symbol:
        low = number
    return (
        f"{asked}, measured {format_metric(found.value, unit, digits)}"
        f" ({interval.confidence * 100:.4g} % interval {low}..{high}, {runs}): {why}"
    )
