"""Absolute gates: judged on the confidence interval of a run's repeats, never on the point.

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

import re
from collections.abc import Iterable

from storagetest.errors import ConfigError
from storagetest.measure.histogram import RELATIVE_ERROR, merge
from storagetest.measure.run import Metric, Run, Unit
from storagetest.measure.stats import Estimate, Interval, estimate
from storagetest.units import format_value
from storagetest.verdict.base import Outcome, Threshold, Verdict
from storagetest.verdict.sequential import Looked, Plan, State, look

__all__ = ["MINIMUM_REPEATS", "judge", "wants_more"]

MINIMUM_REPEATS = 3
"""With fewer there is a number, but no verdict."""

_NUMBER = re.compile(r"[-\d.,]+")


def judge(run: Run, threshold: Threshold, *, confidence: float = 0.99, plan: Plan | None = None) -> Verdict:
    """Return what became of ``threshold``, by looks as ``plan`` says if one is given.

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
    if found is not None and found.interval is not None and metric.quantile is not None:
        found = Estimate(found.value, _widened(found.interval))
    interval = found.interval if found else None
    looked = _looked(run, threshold, plan) if plan is not None else None
    if looked is not None and looked.interval is not None and found is not None:
        interval = looked.interval
        found = Estimate(found.value, interval)
    outcome, why = _decide(run, threshold, interval, looked)
    return Verdict(outcome, threshold, interval, _sentence(run, threshold, found, why))


def wants_more(run: Run, verdicts: Iterable[Verdict], *, max_repeats: int, plan: Plan | None = None) -> bool:
    """Whether another repeat may turn an INVALID of ``verdicts`` into a verdict, within ``max_repeats``.

    With a ``plan``, an alarm has ``max_repeats`` fresh runs on top to be confirmed; one that they contradict
    is not measured again.
    """
    repeats = len(run.samples)
    if plan is not None:
        return _plan_wants_more(run, verdicts, max_repeats, plan)
    if run.invalid or not 0 < repeats < max_repeats or max_repeats < MINIMUM_REPEATS:
        return False
    undecided = [verdict.threshold.metric for verdict in verdicts if verdict.outcome is Outcome.INVALID]
    return any(_ios(run, metric) / repeats * max_repeats >= metric.samples_wanted for metric in undecided)


def _plan_wants_more(run: Run, verdicts: Iterable[Verdict], max_repeats: int, plan: Plan) -> bool:
    for verdict in verdicts:
        if verdict.outcome is not Outcome.INVALID:
            continue
        looked = _looked(run, verdict.threshold, plan)
        if looked.state is State.CONTRADICTED:
            continue
        budget = max_repeats
        if looked.state is State.ALARMED and looked.alarmed_at is not None:
            budget = looked.alarmed_at + max(MINIMUM_REPEATS, max_repeats)
        if wants_more(run, [verdict], max_repeats=budget):
            return True
    return False


def _looked(run: Run, threshold: Threshold, plan: Plan) -> Looked:
    metric = threshold.metric
    values = [sample.values[metric.name] for sample in run.samples if metric.name in sample.values]
    widen = RELATIVE_ERROR if metric.quantile is not None else 0.0
    return look(values, threshold.bound, higher=threshold.op == ">=", plan=plan, widen=widen)


_UNDECIDED = {
    State.ALARMED: "alarmed, but not confirmed by the fresh runs so far",
    State.CONTRADICTED: "alarmed, but the fresh runs meet the threshold: something changed while measuring",
}


def _decide(
    run: Run, threshold: Threshold, interval: Interval | None, looked: Looked | None = None
) -> tuple[Outcome, str]:
    metric = threshold.metric
    if run.invalid:
        return Outcome.INVALID, f"no verdict: {'; '.join(run.invalid)}"
    if interval is None or interval.count < MINIMUM_REPEATS:
        return Outcome.INVALID, f"no verdict: it takes at least {MINIMUM_REPEATS} runs"
    ios = _ios(run, metric)
    if ios < metric.samples_wanted:
        return Outcome.INVALID, f"no verdict: not enough samples: {ios:,} of {metric.samples_wanted:,}"
    higher = threshold.op == ">="
    if looked is not None:
        if looked.state is State.PASSED:
            return Outcome.PASS, "meets the threshold"
        if looked.state is State.FAILED:
            side = "below" if higher else "above"
            fresh = looked.runs - (looked.alarmed_at or 0)
            return Outcome.FAIL, f"{side} the threshold, confirmed by {fresh} fresh runs"
        if looked.state in _UNDECIDED:
            return Outcome.INVALID, f"undecided: {_UNDECIDED[looked.state]}, ±{_precision(interval)}"
        return Outcome.INVALID, (
            f"undecided: the threshold lies inside the interval, ±{_precision(interval)} after"
            f" {interval.count} runs; more or longer runs would narrow it"
        )
    worst, best = (interval.low, interval.high) if higher else (interval.high, interval.low)
    if worst >= threshold.bound if higher else worst <= threshold.bound:
        return Outcome.PASS, "meets the threshold"
    if best < threshold.bound if higher else best > threshold.bound:
        return Outcome.FAIL, f"{'below' if higher else 'above'} the threshold"
    return Outcome.INVALID, (
        f"undecided: the threshold lies inside the interval, ±{_precision(interval)} after"
        f" {interval.count} runs; more or longer runs would narrow it"
    )


def _ios(run: Run, metric: Metric) -> int:
    """Return how many I/Os the metric is computed from, over all repeats."""
    samples = [sample for sample in run.samples if metric.name in sample.values]
    if all(sample.latency is not None for sample in samples):
        return merge(sample.latency for sample in samples if sample.latency is not None).count
    return sum(sample.ios for sample in samples)


def _widened(interval: Interval) -> Interval:
    low, high = interval.low / (1 + RELATIVE_ERROR), interval.high / (1 - RELATIVE_ERROR)
    return Interval(interval.mean, low, high, interval.confidence, interval.count)


def _precision(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2
    return f"{half / abs(interval.mean) * 100:.3g} %" if interval.mean else f"{half:.3g}"


def _sentence(run: Run, threshold: Threshold, found: Estimate | None, why: str) -> str:
    unit = threshold.metric.unit
    asked = f"{threshold.metric.name}: asked {threshold.op} {_round(threshold.bound, unit)}"
    if found is None:
        return f"{asked}, measured nothing: {why}"
    runs = f"{len(run.samples)} run{'s' * (len(run.samples) != 1)}"
    interval = found.interval
    if interval is None:
        return f"{asked}, measured {_text(found.value, unit, 3)} ({runs}): {why}"
    digits = _digits(threshold.bound, found.value, interval, unit)
    low, high = _text(max(interval.low, 0.0), unit, digits), _text(interval.high, unit, digits)
    number, symbol = _split(low)
    if _split(high)[1] == symbol:
        low = number
    return (
        f"{asked}, measured {_text(found.value, unit, digits)}"
        f" ({interval.confidence * 100:.4g} % interval {low}..{high}, {runs}): {why}"
    )


def _digits(bound: float, value: float, interval: Interval, unit: Unit) -> int:
    """Return how many digits it takes to tell the interval's ends and the value from the bound."""
    others = [other for other in (value, interval.low, interval.high) if other != bound]
    for digits in range(3, 9):
        if all(_text(other, unit, digits) != _text(bound, unit, digits) for other in others):
            return digits
    return 9


def _text(value: float, unit: Unit, digits: int) -> str:
    """Print for people; a rate of I/Os in full, because ``18,412/s`` says more than ``18.4k/s``."""
    if unit is Unit.PER_SECOND and abs(value) >= 1000:
        return f"{value:,.{max(0, digits - 6)}f}/s"
    return format_value(value, unit.value, digits=digits)


def _round(value: float, unit: Unit) -> str:
    """Print what somebody wrote: without the zeros behind the point that it did not have."""
    number, symbol = _split(_text(value, unit, 9))
    return (number.rstrip("0").rstrip(".") if "." in number else number) + symbol


def _split(text: str) -> tuple[str, str]:
    match = _NUMBER.match(text)
    end = match.end() if match else 0
    return text[:end], text[end:]
