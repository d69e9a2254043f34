"""Latency against IOPS, and latency distributions with their tails."""

from __future__ import annotations

from collections.abc import Sequence

from storagetest.measure.histogram import merge
from storagetest.measure.load_curves import metric_value, parameter_sweeps
from storagetest.measure.run import METRICS, Run
from storagetest.report.chart import LOOKS, Line
from storagetest.report.latency_chart import DESCRIBED, SHARES, TIMES, curves
from storagetest.report.page.chart_block import ChartList
from storagetest.report.page.model import PageData, Section, case_title, format_parameters, group
from storagetest.report.page.scaling import axis_of, curves_of, families, usable
from storagetest.report.templates import render

_RATE, _LATENCY = METRICS["iops"], METRICS["latency_mean"]


def section(data: PageData) -> Section:
    """Return the section."""
    runs = usable(data.records)
    against, distributions = ChartList("latency"), ChartList("tails")
    _against(against, runs)
    _distributions(distributions, runs)
    body = render("latency.html.j2", against=against, distributions=distributions, description=DESCRIBED)
    return Section("latency", "Latency", body, empty=not (against.charts or distributions.charts))


def _against(charts: ChartList, runs: Sequence[Run]) -> None:
    x, y = axis_of(_RATE, "IOPS"), axis_of(_LATENCY, "mean latency", log=True)
    for (title, name), run_curves in curves_of(runs).items():
        lines = []
        for curve, run in run_curves:
            levels = [level.figures for level in curve.levels if {"iops", "mean"} <= level.figures.keys()]
            points = tuple((figures["iops"][1].value, figures["mean"][1].value) for figures in levels)
            lines.append(Line(run.variant, points))
        charts.add(lines, x, y, title, f"A line for each variant, a point for each number of {name}.")
    for members in families(runs):
        first = members[0]
        points_of = {
            sweep.variant: tuple(point for _, run in sweep.runs if (point := _point(run)))
            for sweep in members
        }
        lines = [Line(variant, points) for variant, points in points_of.items() if len(points) > 1]
        title = ", ".join(
            filter(None, (first.workload, format_parameters(first.fixed), first.client, first.profile))
        )
        description = f"A point for each value of {first.parameter}."
        charts.add(lines, x, y, f"{title}, by {first.parameter}", description)
    drawn = {id(run) for family in parameter_sweeps(runs) for _, run in family.runs}
    for title, alike in group((run for run in runs if id(run) not in drawn), case_title).items():
        lines = [
            Line(run.variant, (point,), joined=False) for run in alike if (point := _point(run)) is not None
        ]
        if len(lines) > 1:
            charts.add(lines, x, y, title, "A point for each variant.")


def _point(run: Run) -> tuple[float, float] | None:
    if not {_RATE.name, _LATENCY.name} <= run.metrics.keys():
        return None
    rate, latency = (metric_value(run, run.metrics[metric.name]) for metric in (_RATE, _LATENCY))
    return (rate.value, latency.value) if rate and latency else None


def _distributions(charts: ChartList, runs: Sequence[Run]) -> None:
    for title, alike in group(runs, case_title).items():
        histograms = {
            run.variant: merge(sample.latency for sample in run.samples if sample.latency is not None)
            for run in alike[: 2 * LOOKS]
        }
        lines = curves({variant: histogram for variant, histogram in histograms.items() if histogram.count})
        if lines:
            charts.add(lines, SHARES, TIMES, title, DESCRIBED)
