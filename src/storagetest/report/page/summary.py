"""Summary of the run: cases by target and outcome, cases that did not pass, and clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from storagetest.report.base import Status
from storagetest.report.coverage import CaseOutcome
from storagetest.report.metric_values import case_text
from storagetest.report.page.model import (
    STATUS_WORDS,
    PageData,
    Section,
    case_anchor,
    group,
    has_no_gate,
    plural,
)
from storagetest.report.templates import render

_MOST = 100
_BAD = (Status.FAILED, Status.ERROR, Status.INVALID)


def section(data: PageData) -> Section:
    """Return the section."""
    bad = [record for record in data.records if record.status in _BAD]
    bad.sort(key=lambda record: _BAD.index(record.status))
    again = sum(len(records) > 1 for records in data.sessions.values())
    body = render(
        "summary.html.j2",
        sources=data.sources,
        period=_period(data),
        again=plural(again, "case") if again else "",
        tables=[table for table in (_measured(data), _conformance(data)) if table["rows"]],
        bad=bad[:_MOST],
        left_out=max(0, len(bad) - _MOST),
        versions=_versions(data),
        words=STATUS_WORDS,
        case_text=case_text,
        case_anchor=case_anchor,
    )
    return Section("summary", "The run", body)


def _period(data: PageData) -> tuple[str, ...]:
    """Return the first and the last start (UTC); nothing if no record has one."""
    starts = [record.run.started for record in data.records if record.run.started > 0]
    if not starts:
        return ()
    ends = min(starts), max(starts)
    return tuple(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in ends)


def _measured(data: PageData) -> Mapping[str, object]:
    statuses = [status for status in Status if any(record.status is status for record in data.records)]
    rows = []
    for target, records in group(data.records, lambda record: record.run.target).items():
        counts = Counter(record.status for record in records)
        no_gate = sum(map(has_no_gate, records))
        counts[Status.PASSED] -= no_gate
        numbers = _counts([*(counts[status] for status in statuses), no_gate])
        rows.append([target, records[0].run.protocol, *numbers])
    words = (STATUS_WORDS[status] for status in statuses)
    heads = ["target", "protocol", *words, "measured, no gate"]
    return {"caption": "Measured cases", "heads": heads, "rows": rows, "numbers": range(2, len(heads))}


def _conformance(data: PageData) -> Mapping[str, object]:
    outcomes = [outcome for outcome in CaseOutcome if any(case.outcome is outcome for case in data.cases)]
    rows = []
    for target in sorted({case.target for case in data.cases}):
        counts = Counter(case.outcome for case in data.cases if case.target == target)
        rows.append([target or "-", *_counts([counts[outcome] for outcome in outcomes])])
    heads = ["target", *(outcome.value for outcome in outcomes)]
    return {"caption": "Conformance cases", "heads": heads, "rows": rows, "numbers": range(1, len(heads))}


def _counts(numbers: Sequence[int]) -> list[str]:
    return [f"{number:,}" if number else "" for number in numbers]


def _versions(data: PageData) -> list[tuple[str, str]]:
    """Return each client with the versions of its kernel and tools."""
    versions: dict[str, dict[str, str]] = {}
    for record in data.records:
        versions.setdefault(record.run.client, {}).update(record.run.versions)
    return [(client, ", ".join(map(" ".join, each.items()))) for client, each in sorted(versions.items())]
