"""Comparison with the baseline: slower and faster cases, by the test of ``storagetest compare``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from storagetest.report.compare import Row
from storagetest.report.metric_values import case_text
from storagetest.report.page.model import PageData, Section
from storagetest.report.templates import render
from storagetest.units import format_value
from storagetest.verdict import BASELINE, Outcome
from storagetest.verdict.regression import Direction

_MOST = 500
_ORDER = (Direction.WORSE, Direction.BETTER, Direction.SAME, Direction.TOO_FEW)
_WORDS = {Direction.SAME: "no change shown", Direction.TOO_FEW: "too few runs to compare"}


def section(data: PageData) -> Section:
    """Return the section."""
    rows, counts = data.rows, Counter(row.comparison.direction for row in data.rows)
    ordered = sorted(
        rows, key=lambda row: (_ORDER.index(row.comparison.direction), -abs(row.comparison.effect))
    )
    changed = [row for row in ordered if row.comparison.direction in (Direction.WORSE, Direction.BETTER)]
    body = render(
        "regressions.html.j2",
        missed=_missed_gates(data)[:_MOST],
        baseline=data.baseline,
        compared=bool(rows),
        totals=", ".join(f"{counts[kind]:,} {_word(kind)}" for kind in _ORDER if counts[kind]),
        parts=[_table("Metrics that changed", changed), _table("The others", ordered[len(changed) :])],
    )
    empty = not (data.baseline or _missed_gates(data))
    return Section("regressions", "Against the baseline", body, empty=empty)


def _missed_gates(data: PageData) -> list[dict[str, str]]:
    return [
        {
            "case": case_text(record.run),
            "variant": record.run.variant,
            "gate": verdict.threshold.text,
            "outcome": verdict.outcome.value,
            "reason": verdict.reason,
        }
        for record in data.records
        for verdict in record.verdicts
        if verdict.threshold.against == BASELINE and verdict.outcome is not Outcome.PASS
    ]


def _table(caption: str, rows: Sequence[Row]) -> dict[str, object]:
    return {
        "caption": caption,
        "count": len(rows),
        "rows": [_cells(row) for row in rows[:_MOST]],
        "left_out": max(0, len(rows) - _MOST),
    }


def _cells(row: Row) -> dict[str, object]:
    comparison, unit = row.comparison, row.metric.unit.value
    return {
        "texts": (
            f"{row.key.workload} {row.case.rpartition('::')[2]}",
            row.key.variant,
            row.metric.name,
            format_value(row.a, unit),
            format_value(row.b, unit),
            _percent(comparison.effect),
            f"{_percent(comparison.low)} … {_percent(comparison.high)}",
            f"{comparison.p:.2g}",
        ),
        "kind": comparison.direction.name.lower(),
        "word": _word(comparison.direction),
    }


def _word(change: Direction) -> str:
    return _WORDS.get(change, change.value)


def _percent(value: float) -> str:
    return f"{value * 100:+.3g} %"
