"""``storagetest compare A B``: two results.jsonl side by side, as benchstat does for Go benchmarks.

Runs of the same case, workload, parameters, client and profile are compared; a case recorded more than once
in a file has its repeats pooled. Runs that are INVALID by themselves are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storagetest.measure.run import Metric, Run
from storagetest.report.base import Record
from storagetest.units import format_value
from storagetest.verdict.regression import Change, Comparison, compare

__all__ = ["Row", "compare_records", "status", "table"]

Key = tuple[str, ...]
_CASE = 26


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case in both files; means in the metric's base unit."""

    case: str
    metric: Metric
    a: float
    b: float
    comparison: Comparison


def compare_records(a: Iterable[Record], b: Iterable[Record], *, floor: float = 0.0) -> tuple[Row, ...]:
    """Return a row for each metric that both sides measured for the same case, in the order of ``a``."""
    ours, theirs = _pooled(a), _pooled(b)
    rows = []
    for key, (run, values) in ours.items():
        other = theirs[key][1] if key in theirs else {}
        for name, before in values.items():
            metric, after = run.metrics.get(name), other.get(name)
            if metric is None or after is None:
                continue
            found = compare(before, after, metric.better, floor=floor)
            if found is not None:
                means = sum(before) / len(before), sum(after) / len(after)
                rows.append(Row(run.case, metric, *means, found))
    return tuple(rows)


def status(rows: Sequence[Row]) -> int:
    """Return 0 without a regression, 1 with one, 2 where nothing could be compared."""
    judged = [row for row in rows if row.comparison.change is not Change.TOO_FEW]
    if not judged:
        return 2
    return int(any(row.comparison.change is Change.WORSE for row in judged))


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines to print, of at most 100 columns."""
    lines = [f"{'case':{_CASE}} {'metric':12} {'A':>9} {'B':>9} {'effect':>7}  {'95 % interval':16} verdict"]
    for row in rows:
        found, unit = row.comparison, row.metric.unit.value
        case = row.case if len(row.case) <= _CASE else "…" + row.case[1 - _CASE :]
        a, b = (format_value(value, unit, digits=3) for value in (row.a, row.b))
        interval = f"{_percent(found.low)}..{_percent(found.high)}"
        lines.append(
            f"{case:{_CASE}} {row.metric.name[:12]:12} {a:>9} {b:>9} {_percent(found.effect):>7}"
            f"  {interval:16} {found.change.value}"[:100]
        )
    return lines


def _percent(value: float) -> str:
    return f"{value * 100:+.3g}%"


def _pooled(records: Iterable[Record]) -> dict[Key, tuple[Run, dict[str, list[float]]]]:
    pooled: dict[Key, tuple[Run, dict[str, list[float]]]] = {}
    for record in records:
        run = record.run
        if run.invalid:
            continue
        parameters = repr(sorted(run.parameters.items()))
        key = (run.case, run.workload, run.variant, run.client, run.profile, parameters)
        _, values = pooled.setdefault(key, (run, {}))
        for sample in run.samples:
            for name, value in sample.values.items():
                values.setdefault(name, []).append(value)
    return pooled
