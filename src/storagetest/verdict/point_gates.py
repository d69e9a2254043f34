"""Judge gates between the points of one curve (``iops rising over threads``). Pure.

Each repeat measures every point, so the values of a repeat belong together and drift of the target is in all
of them. A gate of a line (flat, rising, falling) is a set of *claims*: one point has at least ``bound`` times
the value of another. ``rising`` claims that of each point against all of lower levels, ``falling`` against
all of higher levels, ``flat`` both. So a slow decline over many points counts as a whole.

1. The sample of a claim is the logarithm of the ratio of its two points in a repeat; the test is Student's t.
2. The gate passes when all its claims do, each at the plain error: for a gate that should not pass, one claim
   is false, and that one is tested.
3. The gate fails if one claim fails. Claims share the gate's error of a false alarm evenly (Bonferroni).
4. A knee is judged on :func:`~storagetest.measure.scaling.knee_margin` of each repeat, against 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from storagetest.errors import ConfigError
from storagetest.measure.run import Metric, Run
from storagetest.measure.scaling import knee, knee_margin
from storagetest.measure.stats import Interval, mean
from storagetest.verdict.base import Outcome, PointRange, Shape, Threshold, Verdict
from storagetest.verdict.baseline_gates import positive, ratio_bin_error
from storagetest.verdict.formatting import format_metric, why_not_judgeable
from storagetest.verdict.point_threshold import format_level, point_metrics
from storagetest.verdict.sequential import (
    DecisionState,
    ErrorPlan,
    SequentialResult,
    Widen,
    sequential_test,
    single_test,
)

_Test = Callable[[Sequence[float], float, Widen, int], SequentialResult]

_ORDER = (
    DecisionState.FAILED,
    DecisionState.CONTRADICTED,
    DecisionState.ALARMED,
    DecisionState.OPEN,
    DecisionState.PASSED,
)
"""The state of a gate is the first of these that one of its claims has."""


def judge_points(
    run: Run,
    threshold: Threshold,
    points: PointRange,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
) -> Verdict:
    """Return the verdict of a gate between points of ``run``.

    Without ``plan`` the repeats that there are decide, at ``confidence``, and an alarm is accepted
    unconfirmed. Raises :class:`ConfigError` if the run has no point of the curve.
    """
    curve = _Curve.of(run, threshold, points)
    if reason := curve.why_not_judgeable():
        final = len(curve.levels) < 2 or bool(run.invalid)
        return Verdict(
            Outcome.INVALID, threshold, None, f"{_required(threshold)}: no verdict: {reason}", final=final
        )

    def test(values: Sequence[float], bound: float, widen: Widen, claims: int) -> SequentialResult:
        if plan is None:
            level = 1 - (1 - confidence) / claims
            return single_test(values, bound, higher=True, confidence=level, widen=widen)
        shared = replace(plan, gates=plan.gates * claims)
        return sequential_test(values, bound, higher=True, plan=shared, widen=widen)

    if points.shape is Shape.KNEE:
        return _judge_knee(curve, threshold, test)
    return _judge_line(curve, threshold, points.shape, test)


@dataclass(frozen=True, slots=True)
class _Curve:
    """The values of each level, ascending, one for each repeat."""

    run: Run
    parameter: str
    levels: Mapping[int, Metric]
    values: Mapping[int, Sequence[float]]

    @classmethod
    def of(cls, run: Run, threshold: Threshold, points: PointRange) -> _Curve:
        every = point_metrics(run.metrics, points)
        levels = {level: metric for level, metric in every.items() if run.values(metric)}
        if not levels and run.samples:
            raise ConfigError(
                f"threshold {threshold.text!r}: no {points.quantity} over {points.parameter} was measured",
                place=threshold.place or None,
            )
        return cls(
            run, points.parameter, levels, {level: run.values(metric) for level, metric in levels.items()}
        )

    def why_not_judgeable(self) -> str:
        reasons = (why_not_judgeable(self.run, metric) for metric in self.levels.values())
        if reason := next(filter(None, reasons), None):
            return reason.removeprefix("no verdict: ")
        if len(self.levels) < 2:
            measured = ", ".join(format_level(self.parameter, level) for level in self.levels) or "none"
            return f"it takes two levels or more, and of its range were measured: {measured}"
        if any(
            len(values) != len(self.run.samples) or not positive(values) for values in self.values.values()
        ):
            return "a point without a value above zero in a repeat has no ratio"
        return ""

    @property
    def metric(self) -> Metric:
        return next(iter(self.levels.values()))

    def shown(self, level: int, first: int, last: int) -> str:
        """Return the mean of a level over the repeats from ``first`` to ``last``."""
        return format_metric(mean(self.values[level][first:last]), self.metric.unit, 3)


@dataclass(frozen=True, slots=True)
class _Claim:
    """``point`` has at least the bound times the value of ``other``; with its test."""

    point: int
    other: int
    result: SequentialResult


def _judge_line(curve: _Curve, threshold: Threshold, shape: Shape, test: _Test) -> Verdict:
    pairs = [
        (point, other)
        for point, other in permutations(curve.levels, 2)
        if shape is Shape.FLAT or (point > other) is (shape is Shape.RISING)
    ]
    slack = ratio_bin_error(curve.metric)
    claims = []
    for point, other in pairs:
        ratios = [math.log(a / b) for a, b in zip(curve.values[point], curve.values[other], strict=True)]
        result = test(ratios, math.log(threshold.bound), _widen(slack), len(pairs))
        claims.append(_Claim(point, other, result))
    state, worst = _decisive(claims)
    interval = _exponential(worst.result.interval)
    last = worst.result.runs
    first = last - interval.count
    names = [format_level(curve.parameter, level) for level in (worst.point, worst.other)]
    values = [curve.shown(level, first, last) for level in (worst.point, worst.other)]
    measured = (
        f"the most different points are {values[0]} at {names[0]} and {values[1]} at {names[1]}:"
        f" {interval.mean:.3g} x ({interval.confidence * 100:.6g} % interval"
        f" {interval.low:.3g}..{interval.high:.3g} x, {interval.count} runs)"
    )
    alarms = [claim.result.alarmed_at for claim in claims if claim.result.state is state]
    return _verdict(threshold, state, interval, measured, alarms)


def _judge_knee(curve: _Curve, threshold: Threshold, test: _Test) -> Verdict:
    repeats = range(len(curve.run.samples))
    curves = [[(float(level), values[at]) for level, values in curve.values.items()] for at in repeats]
    margins = [knee_margin(each, threshold.bound, at_least=threshold.op == ">=") for each in curves]
    result = test(margins, 0.0, lambda interval: interval, 1)
    interval = result.interval
    averages = [(float(level), mean(values)) for level, values in curve.values.items()]
    at = knee(averages)
    found = f"no knee up to {format_level(curve.parameter, max(curve.levels))}"
    if at is not None:
        found = f"the knee is at {format_level(curve.parameter, at)}"
    measured = (
        f"{found}; margin {interval.mean:.3g} of the curve's height ({interval.confidence * 100:.6g} %"
        f" interval {interval.low:.3g}..{interval.high:.3g}, {interval.count} runs)"
    )
    return _verdict(threshold, result.state, interval, measured, [result.alarmed_at])


def _decisive(claims: Sequence[_Claim]) -> tuple[DecisionState, _Claim]:
    """Return the state of all claims together, and the claim that shows it best: of the lowest interval."""
    state = next(state for state in _ORDER if any(claim.result.state is state for claim in claims))
    of_state = [claim for claim in claims if claim.result.state is state]
    return state, min(of_state, key=lambda claim: claim.result.interval.low)


def _verdict(
    threshold: Threshold,
    state: DecisionState,
    interval: Interval,
    measured: str,
    alarms: Sequence[int | None],
) -> Verdict:
    alarmed_at = max((at for at in alarms if at is not None), default=None)
    outcome, why = Outcome.INVALID, ""
    match state:
        case DecisionState.PASSED:
            outcome, why = Outcome.PASS, "meets the threshold"
        case DecisionState.FAILED:
            outcome, why = Outcome.FAIL, "misses the requirement"
            if alarmed_at is not None:
                why += f", confirmed by {interval.count} fresh runs"
        case DecisionState.ALARMED:
            why = "undecided: alarmed, but not confirmed by the fresh runs so far"
        case DecisionState.CONTRADICTED:
            why = "undecided: alarmed, but the fresh runs meet the threshold: the target changed meanwhile"
        case _:
            why = f"undecided after {interval.count} runs; more or longer runs would narrow the interval"
    return Verdict(
        outcome,
        threshold,
        interval,
        f"{_required(threshold)}, measured: {measured}: {why}",
        alarmed_at=alarmed_at,
        final=state is DecisionState.CONTRADICTED,
    )


def _required(threshold: Threshold) -> str:
    return f"required {threshold.text}"


def _widen(slack: float) -> Widen:
    return lambda interval: replace(interval, low=interval.low - slack, high=interval.high + slack)


def _exponential(interval: Interval) -> Interval:
    """Convert logarithms to ratios."""

    def convert(value: float) -> float:
        return math.exp(value) if value < 700 else math.inf

    return replace(
        interval, mean=convert(interval.mean), low=convert(interval.low), high=convert(interval.high)
    )
