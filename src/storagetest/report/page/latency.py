"""Latency against IOPS, and latency distributions: what a rate costs, and what the tail is like."""

from __future__ import annotations

from collections.abc import Sequence

from storagetest.measure.histogram import merge
from storagetest.measure.load_curves import metric_value, parameter_sweeps
from storagetest.measure.run import METRICS, Run
from storagetest.report.chart import LOOKS, Line
from storagetest.report.distributions import DESCRIBED, SHARES, TIMES, curves
from storagetest.report.page.figure import Charts
from storagetest.report.page.given import Given, Section, asked, case_of
from storagetest.report.page.scaling import axis_of, curves_of, usable

__all__ = ["section"]

_RATE, _LATENCY = METRICS["iops"], METRICS["latency_mean"]
_EXPLAINED = (
    "<p>Lower and further right is better. Where a case was measured at several loads, a line joins them, "
    "from the lightest to the heaviest; otherwise a variant is one point. Latencies are means; the tails are "
    "in the distributions below.</p>"
)


def section(found: Given) -> Section:
    """Return the section."""
    runs = usable(found)
    against, tails = Charts("latency"), Charts("tails")
    _against(against, runs)
    _distributions(tails, runs)
    body = (
        f"<h3>Latency against IOPS</h3>{_EXPLAINED}{against.html()}"
        if against
        else "<h3>Latency against IOPS</h3><p>No case in these results has both.</p>"
    )
    body += "<h3>Latency distributions</h3>" + (
        f"<p>{DESCRIBED} In brackets: how many I/Os.</p>{tails.html()}"
        if tails
        else "<p>No case in these results has kept its latencies.</p>"
    )
    return Section("latency", "Latency", body)


def _against(charts: Charts, runs: Sequence[Run]) -> None:
    x, y = axis_of(_RATE, "IOPS"), axis_of(_LATENCY, "mean latency", log=True)
    for (title, name), several in curves_of(runs).items():
        lines = []
        for one, run in several:
            both = [level.figures for level in one.levels if {"iops", "mean"} <= level.figures.keys()]
            points = tuple((each["iops"][1].value, each["mean"][1].value) for each in both)
            lines.append(Line(run.variant, points))
        charts.add(lines, x, y, title, f"A line for each variant, a point for each number of {name}.")
    joined: dict[tuple[str, ...], list[Line]] = {}
    for family in parameter_sweeps(runs):
        points = tuple(point for _, run in family.runs if (point := _point(run)))
        key = (family.workload, asked(family.fixed), family.parameter, family.client, family.profile)
        if len(points) > 1:
            joined.setdefault(key, []).append(Line(family.variant, points))
    for (workload, fixed, parameter, client, profile), lines in joined.items():
        title = ", ".join(filter(None, (workload, fixed, client, profile)))
        charts.add(lines, x, y, f"{title}, by {parameter}", f"A point for each value of {parameter}.")
    drawn = {id(run) for family in parameter_sweeps(runs) for _, run in family.runs}
    for title, alike in _alike([run for run in runs if id(run) not in drawn]).items():
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


def _alike(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs that were asked the same on the same client."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(f"{case_of(run)}, {run.client}, {run.profile}", []).append(run)
    return found


def _distributions(charts: Charts, runs: Sequence[Run]) -> None:
    for title, alike in _alike(runs).items():
        kept = {
            run.variant: merge(sample.latency for sample in run.samples if sample.latency is not None)
            for run in alike[: 2 * LOOKS]
        }
        lines = curves({variant: one for variant, one in kept.items() if one.count})
        if lines:
            charts.add(lines, SHARES, TIMES, title, DESCRIBED)
