"""Judge gates against a baseline: is this session worse than the margin, and than sessions differ anyway?
Pure.

The loss is how much worse this session's location is than the mean of the stored ones, as a logarithm of a
ratio; :meth:`Reference.next_session` has its standard deviation ``d`` for an unchanged target. With Student's
quantiles t:

1. The *limit* is the larger of ``t(alarm) * d``, which an unchanged target exceeds with its share of the
   suite's error (``false_alarm / gates``), and ``margin + t(miss) * d``, which a target at the margin exceeds
   with 5 %.
2. The *visible loss* is ``limit + t(miss) * d``: 95 % of the targets that lost so much exceed the limit. It
   is known before the run, from the baseline alone.
3. PASS as soon as the visible loss is excluded, with an error of 5 % at each run from the third on.
4. FAIL only after all runs, if the loss exceeds the limit. So there is one test that can fail an unchanged
   target, and a gate is always decided.
5. With one stored session nothing is known about sessions, and with fewer than five little: such a gate is
   LEARNING instead of PASS. From two sessions on it can FAIL by rule 4; with one,
   only if less than half of the performance is left.

6. A gate that would not find half of the performance lost, beyond its margin, is INVALID where it would pass.

A slowdown that is smaller than the visible loss is found less often. More sessions, longer runs and a quieter
machine lower it; more runs only where runs, and not days, are what differs. benchmarks/judging_simulation.py
prints what this costs and finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.histogram import RELATIVE_ERROR
from storagetest.measure.location import conspicuous, location
from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval, mean
from storagetest.verdict.base import Outcome, Threshold, Verdict
from storagetest.verdict.baseline import NextSession, Reference
from storagetest.verdict.formatting import MINIMUM_REPEATS, format_metric, why_not_judgeable
from storagetest.verdict.sequential import FIRST_TEST, ErrorPlan

MINIMUM_SESSIONS = 5
"""With fewer a gate does not pass: it is LEARNING."""

_BLIND = "the sessions differ so much that it would not find half of the performance lost"
GROSS_LOSS = math.log(2)
"""What no two sessions of an unchanged target differ by: the limit where there is only one."""


@dataclass(frozen=True, slots=True)
class LossLimits:
    """``limit`` and ``visible`` of the module's rules 1 and 2: logarithms, worse is positive."""

    limit: float
    visible: float


def judge_regression(
    run: Run,
    threshold: Threshold,
    reference: Reference | None,
    *,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
) -> Verdict:
    """Return the verdict of a gate against the baseline; INVALID without ``reference``.

    Without ``plan`` the runs that there are decide, with a false alarm of half of ``1 - confidence``.
    """
    metric, values = threshold.metric, run.values(threshold.metric)
    plan = plan or ErrorPlan(max_repeats=len(values), false_alarm=(1 - confidence) / 2)
    required = f"{metric.name}: required {threshold.op} baseline {_margin_text(threshold)}"
    unfit = why_not_judgeable(run, metric) or _unfit_reference(reference, metric)
    if unfit is None and not positive(values):
        unfit = "no verdict: a value that is not above zero has no ratio"
    if unfit is not None or reference is None:
        final = why_not_judgeable(run, metric) is None
        measured = format_metric(mean(values), metric.unit, 3) if values else "nothing"
        reason = f"{required}, measured {measured}: {unfit}"
        return Verdict(Outcome.INVALID, threshold, None, reason, final=final)
    logs = tuple(math.log(value) for value in values)
    if len(reference.sessions) == 1:
        return _first_comparison(threshold, reference, logs, plan, required)
    return _compare_session(threshold, reference, logs, plan, required)


def loss_limits(threshold: Threshold, reference: Reference, plan: ErrorPlan) -> LossLimits:
    """Return the limits of a gate with all of its runs; :class:`ValueError` for fewer than two sessions."""
    ahead = reference.next_session(plan.last)
    bins = ratio_bin_error(threshold.metric)
    margin = abs(math.log(threshold.bound))
    miss = _quantile(plan.miss, ahead) * ahead.deviation
    limit = max(_quantile(plan.false_alarm / plan.gates, ahead) * ahead.deviation, margin + miss) + bins
    return LossLimits(limit, limit + miss + bins)


def describe_gate(threshold: Threshold, reference: Reference, plan: ErrorPlan) -> str:
    """Return what the gate can find, as is known before the run from the baseline alone."""
    count = len(reference.sessions)
    sessions = f"{count} session{'s' * (count != 1)}"
    if _unfit_reference(reference, threshold.metric) is not None:
        return "no verdict: the baseline does not hold this case"
    if count < 2:
        return (
            f"learning: {sessions} of {MINIMUM_SESSIONS}; nothing is known of what differs between sessions"
        )
    limits = loss_limits(threshold, reference, plan)
    found = f"finds {_loss(limits.visible, threshold)} or more in {plan.last} runs ({sessions})"
    if count < MINIMUM_SESSIONS:
        return f"learning: {count} of {MINIMUM_SESSIONS} sessions; {found}"
    return f"{found}: {_BLIND}" if _is_blind(limits, threshold) else found


def _compare_session(
    threshold: Threshold, reference: Reference, logs: Sequence[float], plan: ErrorPlan, required: str
) -> Verdict:
    limits = loss_limits(threshold, reference, plan)
    worse = -1 if threshold.op == ">=" else 1
    runs, outcome, summary = min(len(logs), plan.last), Outcome.INVALID, "undecided so far"
    for runs in range(FIRST_TEST, min(len(logs), plan.last) + 1):
        ahead = reference.next_session(runs)
        here = location(logs[:runs], reference.run_deviation)
        loss, width = worse * (here - ahead.centre), _quantile(plan.miss, ahead) * ahead.deviation
        if loss + width + ratio_bin_error(threshold.metric) <= limits.visible:
            outcome, summary = Outcome.PASS, "meets the threshold"
            break
        if runs == plan.last:
            outcome, summary = Outcome.FAIL, _failure(threshold, limits)
    effect = here - ahead.centre
    interval = Interval(
        math.exp(effect), math.exp(effect - width), math.exp(effect + width), 1 - 2 * plan.miss, runs
    )
    if outcome is Outcome.PASS and len(reference.sessions) < MINIMUM_SESSIONS:
        outcome, summary = Outcome.LEARNING, _learning(reference)
    blind = outcome is Outcome.PASS and _is_blind(limits, threshold)
    if blind:
        outcome, summary = Outcome.INVALID, f"no verdict: {_BLIND}"
    low, high = _percent(interval.low).removesuffix(" %"), _percent(interval.high)
    reason = (
        f"{required}, {_measured(threshold.metric, here, ahead.centre, reference)}:"
        f" {_percent(interval.mean)} ({interval.confidence * 100:.4g} % interval {low}..{high}, {runs} runs;"
        f" {_loss(limits.visible, threshold)} is found): {summary}{_remarks(logs, reference)}"
    )
    return Verdict(
        outcome, threshold, interval, reason, final=blind, visible_loss=_share(limits.visible, threshold)
    )


def _is_blind(limits: LossLimits, threshold: Threshold) -> bool:
    return limits.visible > abs(math.log(threshold.bound)) + GROSS_LOSS


def _first_comparison(
    threshold: Threshold, reference: Reference, logs: Sequence[float], plan: ErrorPlan, required: str
) -> Verdict:
    here, before = (location(each, reference.run_deviation) for each in (logs, *reference.log_sessions))
    loss = before - here if threshold.op == ">=" else here - before
    outcome, summary = Outcome.LEARNING, _learning(reference)
    if loss > max(GROSS_LOSS, abs(math.log(threshold.bound))):
        outcome, summary = Outcome.INVALID, "undecided so far"
        if len(logs) >= plan.last:
            outcome, summary = (
                Outcome.FAIL,
                "worse than required, and less than half as good as the only session",
            )
    measured = _measured(threshold.metric, here, before, reference)
    reason = f"{required}, {measured}: {_percent(math.exp(here - before))} ({len(logs)} runs): {summary}"
    return Verdict(outcome, threshold, None, reason)


def _learning(reference: Reference) -> str:
    return (
        f"learning: {len(reference.sessions)} of {MINIMUM_SESSIONS} sessions, too few to know how much"
        " sessions of an unchanged target differ; save more with --st-save-baseline"
    )


def _failure(threshold: Threshold, limits: LossLimits) -> str:
    limit = format_share(_share(limits.limit, threshold))
    return f"worse than required, and by more than the sessions differ ({limit})"


def _share(loss: float, threshold: Threshold) -> float:
    """Return the logarithm of a loss as a share of the baseline."""
    return -math.expm1(-loss) if threshold.op == ">=" else math.expm1(min(loss, 50.0))


def _loss(loss: float, threshold: Threshold) -> str:
    """Return the logarithm of a loss in words."""
    return f"{loss_word(threshold)} of {format_share(_share(loss, threshold))}"


def loss_word(threshold: Threshold) -> str:
    """Return what a change for the worse is called."""
    return "a loss" if threshold.op == ">=" else "a rise"


def format_share(share: float) -> str:
    """Return a share in percent: two digits, or whole numbers."""
    return f"{share * 100:,.0f} %" if share >= 1 else f"{share * 100:.2g} %"


def _remarks(logs: Sequence[float], reference: Reference) -> str:
    """Return what is conspicuous of the runs and of the baseline's sessions, with its separator, or ""."""
    runs = conspicuous([math.exp(value) for value in logs])
    sessions = conspicuous([math.exp(value) for value in reference.locations(len(logs))])
    return f"; the runs show {runs}" * bool(runs) + f"; the sessions show {sessions}" * bool(sessions)


def _measured(metric: Metric, here: float, before: float, reference: Reference) -> str:
    value, stored = (format_metric(math.exp(each), metric.unit, 4) for each in (here, before))
    count = len(reference.sessions)
    return f"measured {value} against {stored} of {count} session{'s' * (count != 1)}"


def _quantile(error: float, ahead: NextSession) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415  # slow to import

    return float(stdtrit(ahead.degrees, 1 - error))


def ratio_bin_error(metric: Metric) -> float:
    """The error of the logarithm of a ratio of two values that were read off bins."""
    return 0.0 if metric.quantile is None else math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))


def _unfit_reference(reference: Reference | None, metric: Metric) -> str | None:
    if reference is None or not reference.values:
        source = f" {reference.source}" if reference is not None and reference.source else ""
        return f"no verdict: the baseline{source} has no {metric.name} of this case; save it first"
    if len(reference.values) < MINIMUM_REPEATS:
        return f"no verdict: the baseline has fewer than {MINIMUM_REPEATS} runs of this case"
    if not positive(reference.values):
        return "no verdict: the baseline holds a value that is not above zero"
    return None


def positive(values: Sequence[float]) -> bool:
    """Whether all ``values`` have a logarithm."""
    return all(0 < value < math.inf for value in values)


def _margin_text(threshold: Threshold) -> str:
    return f"{'-' if threshold.op == '>=' else '+'} {abs(threshold.bound - 1) * 100:.4g} %"


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.3g} %"
