"""Every repeat as a point with the interval of all, and percentiles over time.

These are of each interval of the repeats, where the load has a log of them, else of each repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storagetest.measure.load_curves import metric_value
from storagetest.measure.run import Metric, Run
from storagetest.measure.series import LATENCY
from storagetest.measure.unit import Unit
from storagetest.report.base import Record
from storagetest.report.chart import Axis, Line
from storagetest.report.metric_values import MetricValue
from storagetest.report.page.chart_block import ChartList
from storagetest.report.page.model import PageData, Section, case_title, group
from storagetest.report.page.scaling import axis_of, usable
from storagetest.report.templates import render
from storagetest.units import format_value

_PERCENTILES = ("p50", "p95", "p99", "p99.9")
_MOST = 40
"""Strips on the page (chosen); the others are counted."""

_WIDTH, _EDGE = 300.0, 8.0
"""Width of a strip, and its margin on both sides, in the drawing's units."""


def section(data: PageData) -> Section:
    """Return the section."""
    usable_runs = {id(run) for run in usable(data.records)}
    records = [record for record in data.records if id(record.run) in usable_runs]
    repeated = [record for record in records if len(record.run.samples) > 1]
    strips = list(_strips(data, repeated))
    percentiles = ChartList("moments")
    for record in repeated:
        _percentiles(percentiles, record.run)
    body = render(
        "repeats.html.j2",
        strips=strips[:_MOST],
        left_out=max(0, len(strips) - _MOST),
        percentiles=percentiles,
    )
    return Section("repeats", "All repeats", body, empty=not strips)


def _strips(data: PageData, records: Sequence[Record]) -> Iterator[dict[str, object]]:
    """Yield the strips of each case and metric: a row for each variant, on one scale from zero."""
    for title, alike in group(records, lambda record: case_title(record.run)).items():
        for metric in _shown([record.run for record in alike]):
            rows = []
            for record in alike:
                value = data.values(record).get(metric.name)
                if value is not None and value.enough:
                    rows.append((record.run, value))
            ends = [point for run, _ in rows for point in run.values(metric)]
            ends += [value.interval.high for _, value in rows if value.interval is not None]
            highest = max(ends, default=0.0) or 1.0
            yield {
                "title": f"{title}: {metric.name}",
                "highest": format_value(highest, metric.unit.value),
                "rows": [
                    {
                        "variant": run.variant,
                        "value": value.text,
                        "range": _range(value),
                        "points": [_place(point, highest) for point in run.values(metric)],
                        "label": ", ".join(
                            format_value(point, metric.unit.value) for point in run.values(metric)
                        ),
                        "mean": _place(value.value, highest),
                        "bar": None
                        if value.interval is None
                        else (_place(value.interval.low, highest), _place(value.interval.high, highest)),
                    }
                    for run, value in rows
                ],
            }


def _range(value: MetricValue) -> str:
    """Return the interval that the band shows: no figure here can be below zero, though t's interval can."""
    if value.interval is None or value.range_text == "-":
        return ""
    unit, interval = value.metric.unit.value, value.interval
    low = format_value(max(0.0, interval.low), unit)
    return f"{low} … {format_value(interval.high, unit)} ({interval.confidence:.0%})"


def _place(value: float, highest: float) -> float:
    share = min(max(value / highest, 0.0), 1.0)
    return round(_EDGE + share * (_WIDTH - 2 * _EDGE), 1)


def _shown(runs: Sequence[Run]) -> Iterator[Metric]:
    """Yield the first metric of the headline, and the last one that has a value."""
    metrics: Mapping[str, Metric] = runs[0].metrics
    names = [name for name in runs[0].headline if name in metrics]
    kept = [name for name in names if any(metric_value(run, metrics[name]) for run in runs)]
    for name in dict.fromkeys([*kept[:1], *kept[-1:]]):
        yield metrics[name]


def _percentiles(charts: ChartList, run: Run) -> None:
    """Add the chart of a run's percentiles, if the times of its repeats are known."""
    begun = [sample.began for sample in run.samples if sample.began is not None]
    if len(begun) < len(run.samples):
        return
    x = Axis("seconds since the first repeat began", "{:g}".format)
    title = f"{run.variant}: {case_title(run)}"
    if intervals := list(_of_intervals(run, min(begun))):
        y = Axis("latency", _seconds, log=True)
        charts.add(intervals, x, y, title, "A point for each interval, at its end.")
        return
    names = [name for name in _PERCENTILES if name in run.metrics and metric_value(run, run.metrics[name])]
    lines = [Line(name, _over_time(run, name, min(begun))) for name in names]
    if lines:
        charts.add(
            lines,
            x,
            axis_of(run.metrics[names[0]], "latency", log=True),
            title,
            "A point for each repeat, at the time at which it began.",
        )


def _of_intervals(run: Run, start: float) -> Iterator[Line]:
    """Yield the points of each percentile, direction and client."""
    points: dict[str, list[tuple[float, float]]] = {}
    several = len({one.host for sample in run.samples for one in sample.series if one.source == LATENCY}) > 1
    for sample in run.samples:
        for one in sample.series if sample.began is not None else ():
            if one.source == LATENCY:
                name = f"{one.name}{f', {one.host}' * several}"
                at = (sample.began or 0.0) - start
                points.setdefault(name, []).extend(
                    (round(at + time, 3), value) for time, value in zip(one.times, one.values, strict=True)
                )
    for name, pairs in points.items():
        yield Line(name, tuple(pairs), joined=False)


def _seconds(value: float) -> str:
    return format_value(value, Unit.SECONDS.value)


def _over_time(run: Run, name: str, start: float) -> tuple[tuple[float, float], ...]:
    return tuple(
        (round(sample.began - start, 3), sample.values[name])
        for sample in run.samples
        if sample.began is not None and name in sample.values
    )
