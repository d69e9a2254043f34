"""Measured values of a rerun: text for tables, points and intervals for figures."""

from __future__ import annotations

from storagetest.measure.closed_queue import extrapolate
from storagetest.measure.load_curves import metric_value
from storagetest.measure.stats import Estimate
from storagetest.report.chart import Axis, Line
from storagetest.report.papers.published import Figure, FigureAxis, MeasuredLine, Value
from storagetest.report.papers.rerun import Rerun
from storagetest.units import format_size, format_value


def measured(rerun: Rerun, value: Value) -> Estimate | None:
    """Return the measured value; None if there is none, or too few I/Os for a percentile."""
    run = rerun.runs.get((value.side, value.point))
    metric = run.metrics.get(value.metric) if run is not None else None
    return metric_value(run, metric) if run is not None and metric is not None else None


def value_text(rerun: Rerun, value: Value) -> tuple[str, str]:
    """Return the measured value and its 95 % interval as texts; empty if there is none."""
    found = measured(rerun, value)
    if found is None:
        return "", ""
    unit = rerun.runs[value.side, value.point].metrics[value.metric].unit.value
    text = format_value(found.value, unit)
    if found.interval is None:
        return text, ""
    low, high = max(0.0, found.interval.low), found.interval.high
    return text, f"{format_value(low, unit)} … {format_value(high, unit)}"


def axis(data: FigureAxis, *, ticks: tuple[float, ...] = ()) -> Axis:
    """Return the chart's axis."""

    def text(value: float) -> str:
        if data.unit == "B":
            return format_size(int(value))
        return format_value(value, data.unit) if data.unit else f"{value:g}"

    return Axis(data.title, text, log=data.log, ticks=ticks)


def lines(rerun: Rerun, figure: Figure) -> list[Line]:
    """Return the figure's lines: the published ones, the measured ones with intervals, and the model's."""
    found = [Line(f"{line.name} (published)", line.points) for line in figure.published]
    for line in figure.measured:
        points = [(x, measured(rerun, value)) for x, value in line.values()]
        present = [(x, value) for x, value in points if value is not None]
        if not present:
            continue
        values = tuple((x, each.value) for x, each in present)
        found.append(Line(f"{line.name} (here)", values, ranges=tuple(_bar(each) for _, each in present)))
        if figure.model:
            found += _model(line, dict(values), figure.model)
    return found


def _model(line: MeasuredLine, values: dict[float, float], clients: int) -> list[Line]:
    by_number = {int(x): value for x, value in values.items()}
    try:
        rates = extrapolate(by_number, clients)
    except ValueError:
        return []
    points = tuple((float(number), rate) for number, rate in enumerate(rates, start=1))
    return [
        Line(f"{line.name} (model, not measured)", points, marks=False, dashed_from=float(max(by_number)))
    ]


def _bar(value: Estimate) -> tuple[float, float] | None:
    return None if value.interval is None else (max(0.0, value.interval.low), value.interval.high)
