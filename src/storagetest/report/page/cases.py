"""Every measured case: its parameters, its values with intervals, its gates, and its bottleneck.

Cases are folded by variant and workload, so that a browser lays out only the open parts of ten thousand
cases. The browser's search opens folded parts.
"""

from __future__ import annotations

from storagetest.report.base import Record
from storagetest.report.metric_values import case_text
from storagetest.report.page.model import PageData, Section, case_anchor, group, plural, status_word
from storagetest.report.templates import render


def section(data: PageData) -> Section:
    """Return the section."""
    groups = group(data.records, lambda record: (record.run.variant, record.run.workload))
    tables = []
    for (variant, workload), records in groups.items():
        metrics = list(dict.fromkeys(name for record in records for name in record.run.headline))
        tables.append(
            {
                "caption": f"{variant}: {workload}, {plural(len(records), 'case')}",
                "metrics": metrics,
                "cases": [
                    (record, [data.values(record).get(name) for name in metrics]) for record in records
                ],
            }
        )
    body = render(
        "cases.html.j2",
        tables=tables,
        word=status_word,
        case_text=case_text,
        case_anchor=case_anchor,
        remarks=_remarks,
    )
    return Section("cases", "All measured cases", body, empty=not tables)


def _remarks(record: Record) -> list[str]:
    """Return the outcome of each gate, why the case did not pass, and its bottleneck."""
    lines = [f"{verdict.threshold.text}: {verdict.outcome.value}" for verdict in record.verdicts]
    lines += record.reasons
    limit = record.run.limited_by
    return lines if limit is None else [*lines, f"limited by the {limit.limiter.value}: {limit.reason}"]
