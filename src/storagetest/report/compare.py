"""Compare two results.jsonl or baselines, as benchstat does for Go: ``storagetest compare A B``.

Runs of the same case, workload, variant, client, profile and parameters are compared; the repeats of several
runs of a case are pooled. INVALID runs are left out and counted. If A is a baseline, an effect below its
noise floor is not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.run import Metric
from storagetest.report.baseline import BaselineFile, CaseKey
from storagetest.units import format_value
from storagetest.verdict.regression import ComparisonResult, Direction, compare

_CASE = 26


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case in both files; means in the metric's base unit."""

    key: CaseKey
    metric: Metric
    a: float
    b: float
    comparison: ComparisonResult

    @property
    def case(self) -> str:
        """The case's node id."""
        return self.key.case


def compare_stored(a: BaselineFile, b: BaselineFile, *, floor: float = 0.0) -> tuple[Row, ...]:
    """Return a row for each metric that both sides measured for the same case, in the order of ``a``."""
    rows = []
    for key, entry in a.entries.items():
        other = b.entries.get(key)
        if other is None:
            continue
        for name, metric in entry.metrics.items():
            before, after = entry.reference(name), other.reference(name).values
            learned = (before.floor if a.learned else None) or 0.0
            result = compare(before.values, after, metric.better, floor=max(floor, learned))
            if result is not None:
                means = sum(before.values) / len(before.values), sum(after) / len(after)
                rows.append(Row(key, metric, *means, result))
    return tuple(rows)


def status(rows: Sequence[Row], *, complete: bool = True) -> int:
    """Return 1 with a regression, else 2 if nothing or (not ``complete``) not all was compared, else 0."""
    judged = [row for row in rows if row.comparison.direction is not Direction.TOO_FEW]
    if any(row.comparison.direction is Direction.WORSE for row in judged):
        return 1
    return 0 if judged and complete and len(judged) == len(rows) else 2


def on_one_side(a: BaselineFile, b: BaselineFile) -> list[str]:
    """Return a line for each case that only one side has."""
    return [
        f"in {name} only: {key.case} ({key.workload}) on {key.variant}"
        for name, side, other in (("A", a, b), ("B", b, a))
        for key in side.entries
        if key not in other.entries
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines to print, of at most 100 columns."""
    lines = [f"{'case':{_CASE}} {'metric':12} {'A':>9} {'B':>9} {'effect':>7}  {'95 % interval':16} verdict"]
    for row in rows:
        result, unit = row.comparison, row.metric.unit.value
        case = row.case if len(row.case) <= _CASE else "…" + row.case[1 - _CASE :]
        a, b = (format_value(value, unit, digits=3) for value in (row.a, row.b))
        interval = f"{_percent(result.low)}..{_percent(result.high)}"
        lines.append(
            f"{case:{_CASE}} {row.metric.name[:12]:12} {a:>9} {b:>9} {_percent(result.effect):>7}"
            f"  {interval:16} {result.direction.value}"[:100]
        )
    return lines


def notes(a: BaselineFile, b: BaselineFile) -> list[str]:
    """Return the number of INVALID runs of each side that are left out."""
    return [
        f"{side.left_out} INVALID run{'s' * (side.left_out != 1)} of {name} left out"
        for name, side in (("A", a), ("B", b))
        if side.left_out
    ]


def _percent(value: float) -> str:
    return f"{value * 100:+.3g}%"
