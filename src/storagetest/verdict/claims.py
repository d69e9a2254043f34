"""Judge a claim of a publication: a comparison of two measured values, by the gates of pairs. Pure.

A claim relates a metric of one run to a metric of another, or of the same run: ``threads_256_iops`` of
NVMe/TCP to that of iSCSI. Both become runs of one metric, and :func:`storagetest.verdict.judge_pair` judges
their ratio with intervals. A claim may have two gates: that two values are level is a lower and an upper
bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from storagetest.errors import ConfigError
from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval
from storagetest.verdict.base import Outcome, Threshold, Verdict
from storagetest.verdict.pair_gates import judge_pair
from storagetest.verdict.sequential import ErrorPlan


class Finding(Enum):
    """What a rerun found of a claim."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNMEASURED = "could not be measured here"


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a claim: a metric of a run, which is called ``label`` (default: its variant)."""

    run: Run
    metric: str
    label: str = ""

    @property
    def name(self) -> str:
        """The side in texts."""
        return self.label or self.run.variant


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """``reason`` is one sentence; ``interval`` that of the ratio, None if there is none."""

    finding: Finding
    reason: str
    interval: Interval | None = None


Gates = Sequence[tuple[str, float]]
"""(``>=`` or ``<=``, factor): left must be so much of right."""


def claim_verdicts(
    left: Operand, right: Operand, gates: Gates, *, plan: ErrorPlan | None = None
) -> tuple[Verdict, ...]:
    """Return the verdict of each gate. Raises :class:`ConfigError` for a metric that a run does not have."""
    name = left.metric
    first, second = _projected(left, name), _projected(right, name)
    metric = first.metrics[name]
    if metric.unit is not second.metrics[name].unit:
        raise ConfigError(f"claim: {left.metric} and {right.metric} have different units")
    return tuple(
        judge_pair(first, second, _threshold(metric, gate, left, right), plan=plan) for gate in gates
    )


def claim_result(verdicts: Sequence[Verdict]) -> ClaimResult:
    """Return what the verdicts of a claim's gates say of it. FAIL of one is enough to differ."""
    by_outcome: Mapping[Outcome, Verdict] = {verdict.outcome: verdict for verdict in reversed(verdicts)}
    if Outcome.FAIL in by_outcome:
        decisive, finding = by_outcome[Outcome.FAIL], Finding.DIFFERS
    elif set(by_outcome) == {Outcome.PASS}:
        decisive, finding = by_outcome[Outcome.PASS], Finding.AGREES
    else:
        decisive = next(each for each in verdicts if each.outcome is not Outcome.PASS)
        finding = Finding.UNMEASURED
    return ClaimResult(finding, decisive.reason, decisive.interval)


def unmeasured(reason: str) -> ClaimResult:
    """Return the result of a claim without a measurement."""
    return ClaimResult(Finding.UNMEASURED, reason)


def _threshold(metric: Metric, gate: tuple[str, float], left: Operand, right: Operand) -> Threshold:
    op, factor = gate
    against = f"{right.name} {right.metric}" if right.metric != left.metric else right.name
    return Threshold(metric, op, factor, f"{left.name} {op} {factor:g} x {against}", "", against)


def _projected(side: Operand, name: str) -> Run:
    """Return the run with the side's metric only, called ``name`` as that of the other side."""
    metric = side.run.metrics.get(side.metric)
    if metric is None:
        raise ConfigError(f"claim: {side.run.workload} has no metric {side.metric!r}")
    samples = tuple(
        replace(sample, values={name: sample.values[side.metric]})
        for sample in side.run.samples
        if side.metric in sample.values
    )
    metrics = {name: replace(metric, name=name)}
    return replace(side.run, variant=side.name, samples=samples, metrics=metrics)
