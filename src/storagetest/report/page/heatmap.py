"""Targets side by side: a row for each case and metric, a column for each variant.

A cell has the value and its ratio to the row's best; its shade repeats the ratio. If the intervals of a
value and of the best overlap, these runs do not distinguish them, and the cell shows ``level``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storagetest.measure.relative_score import RelativeScore, relative_scores
from storagetest.measure.run import Better, Metric
from storagetest.measure.stats import Estimate
from storagetest.report.base import Record, Status
from storagetest.report.metric_values import MetricValue, case_text
from storagetest.report.page.model import PageData, Section, case_anchor, group, plural
from storagetest.report.templates import render
from storagetest.units import format_ratio

_Case = tuple[str, str, str]
"""Text of the case, client, profile."""

_STEPS = (0.9, 0.75, 0.5, 0.25)
"""Limits of the shades: below each, the shade is one step darker."""

_LEGEND = ("best or level", "90 % or more", "75 % or more", "50 % or more", "25 % or more", "less")
_OPEN_RECORDS, _OPEN_TABLES = 60, 12
"""A table of more records, or after that many tables, is folded (chosen)."""


def section(data: PageData) -> Section:
    """Return the section."""
    measured = [record for record in data.records if record.run.samples]
    compared = _compared(measured)
    single = len(measured) - len(compared)
    measured = compared or measured
    workloads = group(measured, lambda record: record.run.workload)
    tables: list[dict[str, Any]] = []
    for number, (workload, records) in enumerate(workloads.items()):
        variants = list(dict.fromkeys(record.run.variant for record in records))
        cases = group(records, _case)
        tables.append(
            {
                "caption": f"{workload}: {plural(len(cases), 'case')}, {plural(len(variants), 'variant')}",
                "variants": variants,
                "open": len(records) <= _OPEN_RECORDS and number < _OPEN_TABLES,
                "cases": [(key, list(_rows(data, members, variants))) for key, members in cases.items()],
            }
        )
    tables.sort(key=lambda table: -len(table["variants"]))
    return Section(
        "targets",
        "Targets side by side",
        render("heatmap.html.j2", tables=tables, legend=_LEGEND, single=single if compared else 0),
        empty=not tables,
    )


def _compared(records: Sequence[Record]) -> list[Record]:
    """Return the records of cases that ran on two variants or more."""
    variants: dict[_Case, set[str]] = {}
    for record in records:
        variants.setdefault(_case(record), set()).add(record.run.variant)
    return [record for record in records if len(variants[_case(record)]) > 1]


def _case(record: Record) -> _Case:
    return case_text(record.run), record.run.client, record.run.profile


def _rows(data: PageData, records: Sequence[Record], variants: Sequence[str]) -> Iterator[dict[str, object]]:
    by_variant = {record.run.variant: record for record in records}
    metrics = {
        name: record.run.metrics[name]
        for record in records
        for name in record.run.headline
        if name in record.run.metrics
    }
    for name, metric in metrics.items():
        higher = metric.better is Better.HIGHER
        yield {
            "metric": name,
            "arrow": "↑" if higher else "↓",
            "direction": "higher is better" if higher else "lower is better",
            "cells": _cells(data, metric, by_variant, variants),
        }


def _cells(
    data: PageData, metric: Metric, by_variant: Mapping[str, Record], variants: Sequence[str]
) -> list[dict[str, str]]:
    records = [by_variant.get(variant) for variant in variants]
    shown = [data.values(record).get(metric.name) if record else None for record in records]
    estimates = [
        Estimate(value.value, value.interval)
        if record and value and value.enough and _comparable(record)
        else None
        for record, value in zip(records, shown, strict=True)
    ]
    return list(map(_cell, records, shown, relative_scores(estimates, metric.better)))


def _comparable(record: Record) -> bool:
    """Whether the values mean something; a run that is INVALID by itself is compared with nothing."""
    return not record.run.invalid and record.status is not Status.ERROR


def shade(score: RelativeScore | None) -> str:
    """Return the class of a cell of that score: from ``h0``, best or level, to ``h5``."""
    if score is None:
        return ""
    return "h0" if score.tie else f"h{1 + sum(score.share < step for step in _STEPS)}"


def _cell(record: Record | None, value: MetricValue | None, score: RelativeScore | None) -> dict[str, str]:
    """Return the class of a cell, its text (empty: no value), its link, and the text after it."""
    if record is None or value is None:
        return {"class": "none", "text": "", "note": ""}
    cell = {"class": "", "text": value.text, "anchor": case_anchor(record), "note": "", "words": ""}
    if not _comparable(record):
        return {**cell, "class": "none", "note": "INVALID"}
    if score is None:
        return cell
    words = "best" if score.share == 1 else "level" if score.tie else format_ratio(score.share, digits=2)
    return {**cell, "class": shade(score), "words": words + (" · one run" if value.interval is None else "")}
