"""Judge gates on the confidence interval of a run's repeats, never on the mean alone.

This module judges absolute gates (``iops >= 20000``); :mod:`storagetest.verdict.baseline_gates` those against
a baseline, :mod:`storagetest.verdict.pair_gates` those against another variant,
:mod:`storagetest.verdict.point_gates` those between the points of a curve.

PASS if the whole interval lies on the good side of the bound (which itself is good), FAIL if the whole
interval lies on the bad side, else INVALID, with the precision that was reached. INVALID in any case if:

1. the run is invalid (:attr:`Run.invalid`);
2. fewer than three repeats have the metric, because two values do not show their spread;
3. a percentile has fewer I/Os, over all repeats, than 100/(1-q).

The value in a verdict is that of its interval, from the same runs: after an alarm, from the fresh ones. A
percentile is the mean of the runs' percentiles there ("on average"); reports show that of the merged bins.
Its interval is widened by the bins' error on both sides, because a latency may lie on either side of a bound
within its bucket.

Repeating until there is a verdict tests the data several times, and each interim test can err. An
:class:`ErrorPlan` corrects for the tests and for the suite's gates, and fresh runs must confirm an alarm
before it is FAIL (:mod:`storagetest.verdict.sequential`). Without a plan each test has the plain
``confidence``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storagetest.errors import ConfigError
from storagetest.measure.histogram import RELATIVE_ERROR
from storagetest.measure.run import Run
from storagetest.measure.stats import counted
from storagetest.verdict.base import BASELINE, Outcome, Threshold, Verdict
from storagetest.verdict.baseline import Reference
from storagetest.verdict.baseline_gates import judge_regression
from storagetest.verdict.formatting import (
    MINIMUM_REPEATS,
    digits_for,
    format_bound,
    format_metric,
    relative_half_width,
    split_unit,
    why_not_judgeable,
)
from storagetest.verdict.point_gates import judge_points
from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    SequentialResult,
    sequential_test,
    single_test,
    widened,
)

_LENGTH_MARGIN = 1.1
"""A target is not equally fast in all repeats (chosen)."""


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
    if threshold.points is not None:
        return judge_points(run, threshold, threshold.points, confidence=confidence, plan=plan)
    metric, values = threshold.metric, run.values(threshold.metric)
    if not values and run.samples:
        measured = sorted({name for sample in run.samples for name in sample.values})
        raise ConfigError(
            f"threshold {threshold.text!r}: {metric.name} was not measured; {run.workload} measures"
            f" {', '.join(measured)}",
            place=threshold.place or None,
        )
    if threshold.against == BASELINE:
        return judge_regression(run, threshold, reference, confidence=confidence, plan=plan)
    result = _test(values, threshold, confidence, plan) if len(values) > 1 else None
    outcome, reason = _decide(run, threshold, result)
    return Verdict(
        outcome,
        threshold,
        result.interval if result else None,
        _reason(values, threshold, result, reason),
        alarmed_at=result.alarmed_at if result else None,
        final=result is not None and result.state is DecisionState.CONTRADICTED,
    )


def _test(
    values: Sequence[float], threshold: Threshold, confidence: float, plan: ErrorPlan | None
) -> SequentialResult:
    widen = widened(RELATIVE_ERROR if threshold.metric.quantile is not None else 0.0)
    higher = threshold.op == ">="
    if plan is None:
        return single_test(values, threshold.bound, higher=higher, confidence=confidence, widen=widen)
    return sequential_test(values, threshold.bound, higher=higher, plan=plan, widen=widen)


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


def longer_repeats(
    run: Run, gates: Iterable[Threshold], *, repeats: int, max_repeats: int
) -> tuple[float, str]:
    """Return how many times as long the repeats have to be, so that ``repeats`` have the I/Os of percentiles.

    It is a tenth more than the rate of ``run`` requires, with the reason as text. It is 1 ("") if the repeats
    are long enough, and if ``max_repeats`` of the present length would not have the I/Os either.
    """
    count = max(repeats, MINIMUM_REPEATS)
    factor, reason = 1.0, ""
    if run.invalid:
        return factor, reason
    for metric in (gate.metric for gate in gates if gate.points is None):
        each = counted(run, metric) / max(1, len(run.samples))
        wanted = _LENGTH_MARGIN * metric.ios_required / (each * count) if each else 0.0
        if factor < wanted <= max_repeats / count:
            factor, reason = wanted, f"{metric.name} requires {metric.ios_required:,} I/Os in {count} repeats"
    return factor, reason


_UNDECIDED = {
    DecisionState.ALARMED: "alarmed, but not confirmed by the fresh runs so far",
    DecisionState.CONTRADICTED: "alarmed, but the fresh runs meet the threshold: the target changed "
    "meanwhile",
}


def _decide(run: Run, threshold: Threshold, result: SequentialResult | None) -> tuple[Outcome, str]:
    reason = why_not_judgeable(run, threshold.metric)
    if reason is not None or result is None:
        return Outcome.INVALID, reason or "no verdict: nothing was measured"
    if result.state is DecisionState.PASSED:
        return Outcome.PASS, "meets the threshold"
    if result.state is DecisionState.FAILED:
        side = "below" if threshold.op == ">=" else "above"
        fresh = result.runs - (result.alarmed_at or result.runs)
        return Outcome.FAIL, f"{side} the threshold{f', confirmed by {fresh} fresh runs' * bool(fresh)}"
    reached = f"±{relative_half_width(result.interval)}"
    if result.state in _UNDECIDED:
        return Outcome.INVALID, f"undecided: {_UNDECIDED[result.state]}, {reached}"
    return Outcome.INVALID, (
        f"undecided: the threshold lies inside the interval, {reached} after"
        f" {result.interval.count} runs; more or longer runs would narrow it"
    )


def _reason(
    values: Sequence[float], threshold: Threshold, result: SequentialResult | None, reason: str
) -> str:
    unit = threshold.metric.unit
    required = f"{threshold.metric.name}: required {threshold.op} {format_bound(threshold.bound, unit)}"
    if not values:
        return f"{required}, measured nothing: {reason}"
    if result is None:
        return f"{required}, measured {format_metric(values[0], unit, 3)} (1 run): {reason}"
    interval = result.interval
    digits = digits_for(threshold.bound, interval.mean, interval, unit)
    low, high = (format_metric(end, unit, digits) for end in (max(interval.low, 0.0), interval.high))
    number, symbol = split_unit(low)
    if split_unit(high)[1] == symbol:
        low = number
    average = " on average" if threshold.metric.quantile is not None else ""
    return (
        f"{required}, measured {format_metric(interval.mean, unit, digits)}{average}"
        f" ({interval.confidence * 100:.4g} % interval {low}..{high}, {interval.count} runs): {reason}"
    )
