"""Scaling curves over number of users, block size, queue depth or number of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from storagetest.measure.load_curves import (
    Curve,
    CurvePoint,
    ParameterSweep,
    curves,
    metric_value,
    parameter_sweeps,
)
from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Estimate
from storagetest.report.base import Record
from storagetest.report.chart import Axis, Line
from storagetest.report.metric_values import parameter_text
from storagetest.report.page.chart_block import ChartList
from storagetest.report.page.model import PageData, Section, case_title, format_parameters, group
from storagetest.report.templates import render
from storagetest.units import format_value

RunCurve = tuple[Curve, Run]


def section(data: PageData) -> Section:
    """Return the section."""
    charts = ChartList("scaling")
    runs = usable(data.records)
    for (title, name), run_curves in curves_of(runs).items():
        _levels(charts, title, name, run_curves)
    for members in families(runs):
        _family(charts, members)
    body = render("scaling.html.j2", charts=charts)
    return Section("scaling", "Scaling", body, empty=not charts.charts)


def usable(records: Iterable[Record]) -> list[Run]:
    """Return the runs that figures may be drawn of: not those that are INVALID by themselves."""
    return [record.run for record in records if record.run.samples and not record.run.invalid]


def families(runs: Iterable[Run]) -> Iterable[list[ParameterSweep]]:
    """Return the sweeps among ``runs``; those that differ in the variant only are together."""

    def key(sweep: ParameterSweep) -> tuple[str, ...]:
        return sweep.workload, format_parameters(sweep.fixed), sweep.parameter, sweep.client, sweep.profile

    return group(parameter_sweeps(runs), key).values()


def curves_of(runs: Sequence[Run]) -> Mapping[tuple[str, str], list[RunCurve]]:
    """Return the curves measured level by level, by case and by the parameter of the levels."""
    every = [(curve, run) for run in runs for curve in curves(run)]
    return group(every, lambda pair: (case_title(pair[1]), pair[0].name))


def axis_of(metric: Metric, name: str = "", *, log: bool = False) -> Axis:
    """Return an axis of the metric's values."""
    return Axis(name or metric.name, lambda value: format_value(value, metric.unit.value), log=log)


def _levels(charts: ChartList, title: str, name: str, curves: Sequence[RunCurve]) -> None:
    first = curves[0][0].levels[0]
    for quantity in [name for name in ("iops", "bandwidth", "p99") if name in first.figures][:2]:
        metric = first.figures[quantity][0]
        lines = [_line(f"{run.variant}{_knee(run, name)}", curve.levels, quantity) for curve, run in curves]
        numbers = sorted({level.at for curve, _ in curves for level in curve.levels})
        x = Axis(name, "{:g}".format, log=True, ticks=tuple(map(float, numbers)))
        y = axis_of(metric, quantity, log=quantity == "p99")
        charts.add(lines, x, y, f"{title}: {quantity} by {name}", "A line for each variant.")


def _knee(run: Run, parameter: str) -> str:
    """Return where the curve has its knee, for the legend; "" if the workload finds none."""
    metric = run.metrics.get(f"knee_{parameter}")
    found = metric_value(run, metric) if metric else None
    return f", knee at {found.value:.3g}" if found else ""


def _line(variant: str, curve: Sequence[CurvePoint], quantity: str) -> Line:
    points = [(float(level.at), level.figures[quantity][1]) for level in curve if quantity in level.figures]
    return _with_bars(variant, points)


def _with_bars(name: str, points: Sequence[tuple[float, Estimate]]) -> Line:
    values = tuple((at, estimate.value) for at, estimate in points)
    return Line(name, values, ranges=tuple(bar(estimate) for _, estimate in points))


def bar(estimate: Estimate) -> tuple[float, float] | None:
    """Return the interval to draw: no figure here can be below zero, though t's interval can."""
    return None if estimate.interval is None else (max(0.0, estimate.interval.low), estimate.interval.high)


def _family(charts: ChartList, members: Sequence[ParameterSweep]) -> None:
    first = members[0]
    run = first.runs[0][1]
    for name in (run.headline[0], run.headline[-1]):
        metric = run.metrics.get(name)
        if metric is None:
            continue
        lines = []
        for family in members:
            values = [(at, metric_value(member, metric)) for at, member in family.runs]
            points = [(at, value) for at, value in values if value is not None]
            if len(points) > 1:
                lines.append(_with_bars(family.variant, points))
        if lines:
            numbers = sorted({at for family in members for at, _ in family.runs})
            log = numbers[0] > 0 and numbers[-1] / numbers[0] >= 8
            x = Axis(first.parameter, _texts(first.parameter), log=log, ticks=tuple(numbers) if log else ())
            title = ", ".join(filter(None, (format_parameters(first.fixed), first.client, first.profile)))
            charts.add(
                lines,
                x,
                axis_of(metric),
                f"{first.workload} ({title}): {name} by {first.parameter}",
                "A line for each variant; bars are 95 % intervals.",
            )


def _texts(parameter: str) -> Callable[[float], str]:
    return lambda value: parameter_text(parameter, int(value) if value.is_integer() else value)
