"""Against the baseline: what became slower or faster, by the test of ``storagetest compare``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from storagetest.report.compare import Row
from storagetest.report.page.given import Given, Section, escaped, table
from storagetest.units import format_value
from storagetest.verdict import BASELINE, Outcome
from storagetest.verdict.regression import Direction

__all__ = ["section"]

_MOST = 500
_ORDER = (Direction.WORSE, Direction.BETTER, Direction.SAME, Direction.TOO_FEW)
_WORDS = {Direction.SAME: "no change shown", Direction.TOO_FEW: "too few runs to tell"}


def section(found: Given) -> Section:
    """Return the section."""
    parts = [_gates(found)]
    if not found.baseline:
        parts.append(
            "<p>No baseline was given, so nothing is said of change. Give one with "
            "<code>--baseline PATH</code>: what <code>pytest --st-save-baseline PATH</code> saved, or an "
            "older results.jsonl.</p>"
        )
    elif not found.rows:
        parts.append(
            f"<p>The baseline <code>{escaped(found.baseline)}</code> holds none of these cases with two runs "
            "or more, so nothing can be said of change.</p>"
        )
    else:
        parts.append(_compared(found.rows, found.baseline))
    return Section("regressions", "Against the baseline", "".join(parts))


def _gates(found: Given) -> str:
    rows = [
        [
            escaped(record.run.title or record.run.workload),
            escaped(record.run.variant),
            escaped(verdict.threshold.text),
            f'<b class="{verdict.outcome.value.lower()}">{verdict.outcome.value}</b>',
            escaped(verdict.reason),
        ]
        for record in found.records
        for verdict in record.verdicts
        if verdict.threshold.against == BASELINE and verdict.outcome is not Outcome.PASS
    ]
    if not rows:
        return ""
    heads = ["case", "variant", "gate", "verdict", "why"]
    return table(heads, rows[:_MOST], caption="Gates against a baseline that were not met")


def _compared(rows: Sequence[Row], baseline: str) -> str:
    counts = Counter(row.comparison.change for row in rows)
    said = ", ".join(f"{counts[each]:,} {_WORDS.get(each, each.value)}" for each in _ORDER if counts[each])
    ordered = sorted(rows, key=lambda row: (_ORDER.index(row.comparison.change), -abs(row.comparison.effect)))
    told = [row for row in ordered if row.comparison.change in (Direction.WORSE, Direction.BETTER)]
    rest = ordered[len(told) :]
    return (
        f"<p>Compared with <code>{escaped(baseline)}</code>: {said}. An effect below the noise floor that a "
        "baseline has learned is never reported as a change, and below four runs a side nothing is.</p>"
        + (_table(told, "Metrics that changed") if told else "")
        + (
            f"<details><summary>The others: {len(rest):,}</summary>{_table(rest, 'The others')}</details>"
            if rest
            else ""
        )
    )


def _table(rows: Sequence[Row], caption: str) -> str:
    heads = ["case", "variant", "metric", "before", "now", "effect", "95 % interval", "p", "verdict"]
    left = len(rows) - _MOST
    more = f"<p>And {left:,} more with less to say.</p>" if left > 0 else ""
    return table(heads, [_cells(row) for row in rows[:_MOST]], caption=caption, numbers=range(3, 8)) + more


def _cells(row: Row) -> list[str]:
    change, unit = row.comparison, row.metric.unit.value
    word = _WORDS.get(change.change, change.change.value)
    return [
        escaped(f"{row.key.workload} {_short(row.case)}"),
        escaped(row.key.variant),
        escaped(row.metric.name),
        escaped(format_value(row.a, unit)),
        escaped(format_value(row.b, unit)),
        _percent(change.effect),
        f"{_percent(change.low)} … {_percent(change.high)}",
        f"{change.p:.2g}",
        f'<b class="{change.change.name.lower()}">{escaped(word)}</b>',
    ]


def _short(case: str) -> str:
    """Return the node id from its test on."""
    return case.rpartition("::")[2]


def _percent(value: float) -> str:
    return f"{value * 100:+.3g} %"
