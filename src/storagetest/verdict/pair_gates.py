"""Judge gates against another variant that is measured alternately (``nfs-v4.2 >= 0.9 x nfs-v3``). Pure.

Runs come in pairs, measured one after the other in the order A B B A, so that slow drift affects both of a
pair. The sample is the logarithm of a pair's ratio, and the test is Student's t.
"""

from __future__ import annotations

import math
from dataclasses import replace

from storagetest.measure.run import Run
from storagetest.measure.stats import Interval, mean
from storagetest.verdict.base import Outcome, Threshold, Verdict
from storagetest.verdict.baseline_gates import positive, ratio_bin_error
from storagetest.verdict.formatting import format_metric, relative_half_width, why_not_judgeable
from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    SequentialResult,
    Widen,
    sequential_test,
    single_test,
)


def judge_pair(
    left: Run, right: Run, threshold: Threshold, *, confidence: float = 0.99, plan: ErrorPlan | None = None
) -> Verdict:
    """Return the verdict of a gate of ``left`` against ``right``; their runs are paired in order.

    Without ``plan`` the pairs that there are decide, at ``confidence``, and an alarm is accepted unconfirmed.
    """
    metric = threshold.metric
    pairs = list(zip(left.values(metric), right.values(metric), strict=False))
    factor = f"{threshold.bound:g} x " if threshold.bound != 1 else ""
    required = f"{metric.name}: required {left.variant} {threshold.op} {factor}{threshold.against}"
    reason_invalid = why_not_judgeable(left, metric) or why_not_judgeable(right, metric)
    if reason_invalid is None and not all(positive(pair) for pair in pairs):
        reason_invalid = "no verdict: a value that is not above zero has no ratio"
    if reason_invalid is not None:
        measured = f"{len(pairs)} pair{'s' * (len(pairs) != 1)}"
        return Verdict(Outcome.INVALID, threshold, None, f"{required}, measured {measured}: {reason_invalid}")
    ratios = [math.log(a / b) for a, b in pairs]
    bound, higher, widen = math.log(threshold.bound), threshold.op == ">=", _widen(threshold)
    if plan is None:
        result = single_test(ratios, bound, higher=higher, confidence=confidence, widen=widen)
    else:
        result = sequential_test(ratios, bound, higher=higher, plan=plan, widen=widen)
    interval = _ratios(result.interval)
    outcome, summary = _decide(result, interval)
    judged = pairs[result.runs - interval.count : result.runs]
    left_mean, right_mean = (mean([pair[side] for pair in judged]) for side in (0, 1))
    reason = (
        f"{required}, measured {format_metric(left_mean, metric.unit, 4)} against"
        f" {format_metric(right_mean, metric.unit, 4)}: {interval.mean:.3g} x"
        f" ({interval.confidence * 100:.4g} % interval {interval.low:.3g}..{interval.high:.3g} x,"
        f" {interval.count} pairs): {summary}"
    )
    return Verdict(
        outcome,
        threshold,
        interval,
        reason,
        alarmed_at=result.alarmed_at,
        final=result.state is DecisionState.CONTRADICTED,
    )


def _widen(threshold: Threshold) -> Widen:
    slack = ratio_bin_error(threshold.metric)
    return lambda interval: replace(interval, low=interval.low - slack, high=interval.high + slack)


def _decide(result: SequentialResult, interval: Interval) -> tuple[Outcome, str]:
    reached = f", ±{relative_half_width(interval)}"
    match result.state:
        case DecisionState.PASSED:
            return Outcome.PASS, "meets the threshold"
        case DecisionState.FAILED:
            fresh = result.runs - (result.alarmed_at or result.runs)
            return (
                Outcome.FAIL,
                f"misses the requirement{f', confirmed by {fresh} fresh pairs' * bool(fresh)}",
            )
        case DecisionState.ALARMED:
            reason = f": alarmed, but not confirmed by the fresh pairs so far{reached}"
        case DecisionState.CONTRADICTED:
            reason = (
                f": alarmed, but the fresh pairs meet the threshold: the target changed meanwhile{reached}"
            )
        case _:
            reason = f"{reached} after {result.runs} pairs; more or longer runs would narrow it"
    return Outcome.INVALID, f"undecided{reason}"


def _ratios(interval: Interval) -> Interval:
    """Convert logarithms to ratios."""
    return replace(interval, mean=_exp(interval.mean), low=_exp(interval.low), high=_exp(interval.high))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
