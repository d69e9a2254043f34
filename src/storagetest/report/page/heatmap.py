"""Targets side by side: a row for each case and metric, a column for each variant.

A cell says the figure and what it reaches of the row's best; its shade repeats that. Where the intervals of a
figure and of the best overlap, these runs do not tell them apart, and the cell says ``level``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storagetest.measure.relative_score import RelativeScore, relative_scores
from storagetest.measure.run import Better, Metric
from storagetest.measure.stats import Estimate
from storagetest.report.base import Record, Status
from storagetest.report.figures import Figure
from storagetest.report.page.given import Given, Section, case_of, escaped, group, identity, wide
from storagetest.units import format_ratio

__all__ = ["section"]

_STEPS = (0.9, 0.75, 0.5, 0.25)
"""Below each the shade is one darker."""

_EXPLAINED = (
    "<p>Each row is one metric of one case, measured on one client with one profile; each column is a "
    "variant. The share is what a figure reaches of the best in its row (for latencies: the best over it). "
    "<b>level</b>: its confidence interval overlaps with that of the best, so these runs do not tell the two "
    "apart. <b>one run</b>: no interval, so nothing can be said of the difference.</p>"
)


def section(found: Given) -> Section:
    """Return the section."""
    measured = [record for record in found.records if record.run.samples]
    if not measured:
        return Section("targets", "Targets side by side", "<p>Nothing was measured.</p>")
    parts = [_EXPLAINED, _legend()]
    workloads = group(measured, lambda record: (record.run.workload,))
    for number, ((workload,), records) in enumerate(workloads.items()):
        variants = list(dict.fromkeys(record.run.variant for record in records))
        cases = group(records, lambda record: (case_of(record.run), record.run.client, record.run.profile))
        body = "".join(_rows(found, key, own, variants) for key, own in cases.items())
        heads = "".join(f'<th scope="col">{escaped(variant)}</th>' for variant in variants)
        many = "s" * (len(cases) != 1), "s" * (len(variants) != 1)
        caption = f"{workload}: {len(cases):,} case{many[0]}, {len(variants)} variant{many[1]}"
        grid = (
            f'<table class="heat"><caption>{escaped(caption)}</caption><thead><tr><th scope="col">case</th>'
            f'<th scope="col">metric</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
        )
        is_open = " open" if len(records) <= 60 and number < 12 else ""
        parts.append(
            f"<details{is_open}><summary>{escaped(caption)}</summary>{wide(grid, caption)}</details>"
        )
    return Section("targets", "Targets side by side", "".join(parts))


def _rows(found: Given, key: tuple[str, ...], records: Sequence[Record], variants: Sequence[str]) -> str:
    title, client, profile = key
    by_variant = {record.run.variant: record for record in records}
    metrics = {
        name: record.run.metrics[name]
        for record in records
        for name in record.run.headline
        if name in record.run.metrics
    }
    rows = []
    for index, (name, metric) in enumerate(metrics.items()):
        head = (
            f'<th scope="rowgroup" rowspan="{len(metrics)}">{escaped(title)}<br><small>{escaped(client)}, '
            f"{escaped(profile)}</small></th>"
            if index == 0
            else ""
        )
        way = "↑" if metric.better is Better.HIGHER else "↓"
        said = "higher is better" if metric.better is Better.HIGHER else "lower is better"
        rows.append(
            f'<tr>{head}<th scope="row">{escaped(name)} <span title="{said}" aria-label="{said}">{way}</span>'
            f"</th>{_cells(found, metric, by_variant, variants)}</tr>"
        )
    return "".join(rows)


def _cells(found: Given, metric: Metric, by_variant: Mapping[str, Record], variants: Sequence[str]) -> str:
    records = [by_variant.get(variant) for variant in variants]
    shown = [found.figures(record).get(metric.name) if record else None for record in records]
    values = [
        Estimate(figure.value, figure.interval)
        if record and figure and figure.enough and _fit(record)
        else None
        for record, figure in zip(records, shown, strict=True)
    ]
    stands = relative_scores(values, metric.better)
    return "".join(map(_cell, records, shown, stands))


def _fit(record: Record) -> bool:
    """Whether the figures stand for something; what is INVALID by itself is compared with nothing."""
    return not record.run.invalid and record.status is not Status.ERROR


def _cell(record: Record | None, figure: Figure | None, stand: RelativeScore | None) -> str:
    if record is None or figure is None:
        return '<td class="none">-</td>'
    value = f'<a href="#{identity(record)}">{escaped(figure.text)}</a>'
    if not _fit(record):
        return f'<td class="none">{value} <small>INVALID</small></td>'
    if stand is None:
        return f"<td>{value}</td>"
    shade = "h0" if stand.level else f"h{1 + sum(stand.share < step for step in _STEPS)}"
    word = "best" if stand.share == 1 else "level" if stand.level else format_ratio(stand.share, digits=2)
    alone = " · one run" if figure.interval is None else ""
    return f'<td class="{shade}">{value} {word}{alone}</td>'


def _legend() -> str:
    words = ("best or level", "90 % or more", "75 % or more", "50 % or more", "25 % or more", "less")
    keys = "".join(f'<span class="key h{number}">{word}</span>' for number, word in enumerate(words))
    return f'<p class="keys">{keys}</p>'
