"""Every measured case: what was asked, what was measured with its interval, its gates, and who limited it.

Folded by variant and workload, so that a page of ten thousand cases is laid out only where it is opened. A
browser's own search opens what it finds.
"""

from __future__ import annotations

from storagetest.report.base import Record
from storagetest.report.figures import Figure
from storagetest.report.page.given import WORDS, Given, Section, case_of, escaped, group, identity, wide

__all__ = ["section"]


def section(found: Given) -> Section:
    """Return the section."""
    title = "All measured cases"
    if not found.records:
        return Section("cases", title, "<p>Nothing was measured.</p>")
    parts = []
    for (variant, workload), records in group(
        found.records, lambda record: (record.run.variant, record.run.workload)
    ).items():
        names = list(dict.fromkeys(name for record in records for name in record.run.headline))
        heads = "".join(f'<th scope="col">{escaped(name)}</th>' for name in names)
        body = "".join(_row(found, record, names) for record in records)
        caption = f"{variant}: {workload}, {len(records):,} case{'s' * (len(records) != 1)}"
        grid = (
            f'<table><caption>{escaped(caption)}</caption><thead><tr><th scope="col">case</th>'
            f'<th scope="col">outcome</th>{heads}<th scope="col">gates, and why</th></tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        parts.append(f"<details><summary>{escaped(caption)}</summary>{wide(grid, caption)}</details>")
    return Section("cases", title, "".join(parts))


def _row(found: Given, record: Record, names: list[str]) -> str:
    run = record.run
    shown = found.figures(record)
    cells = "".join(f'<td class="n">{_cell(shown.get(name))}</td>' for name in names)
    said = [f"{verdict.threshold.text}: {verdict.outcome.value}" for verdict in record.verdicts]
    said += record.reasons
    if run.limited_by is not None:
        said.append(f"limited by the {run.limited_by.who.value}: {run.limited_by.why}")
    why = "<br>".join(escaped(line) for line in said)
    return (
        f'<tr id="{identity(record)}"><th scope="row">{escaped(case_of(run))}<br>'
        f"<small>{escaped(run.client)}, {escaped(run.profile)}, {len(run.samples)} runs</small></th>"
        f'<td><b class="{record.status.value}">{WORDS[record.status]}</b></td>{cells}<td>{why}</td></tr>'
    )


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.range_text == "-":
        return escaped(figure.text)
    return f"{escaped(figure.text)}<small>{escaped(figure.range_text)}</small>"
