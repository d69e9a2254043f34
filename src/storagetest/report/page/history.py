"""History of each case's values, session by session, over all given files."""

from __future__ import annotations

from datetime import UTC, datetime

from storagetest.measure.load_curves import metric_value
from storagetest.measure.run import Run
from storagetest.report.chart import Axis, Line
from storagetest.report.page.chart_block import ChartList
from storagetest.report.page.model import PageData, Section, case_title, group
from storagetest.report.page.scaling import axis_of, bar, usable
from storagetest.report.templates import render

_DAY = 86400.0


def section(data: PageData) -> Section:
    """Return the section."""
    charts = ChartList("history")
    sessions = [usable(records) for records in data.sessions.values()]
    repeated = [runs for runs in sessions if len(runs) > 1]
    for title, cases in group(repeated, lambda runs: case_title(runs[-1])).items():
        last = cases[0][-1]
        name = last.headline[0]
        if name in last.metrics:
            lines = [_line(runs, name) for runs in cases]
            metric = last.metrics[name]
            charts.add(
                [line for line in lines if len(line.points) > 1],
                _time_axis(cases),
                axis_of(metric),
                f"{title}: {name}",
                "A line for each variant, a point for each session; bars are 95 % intervals.",
            )
    body = render("history.html.j2", charts=charts)
    return Section("history", "History", body, empty=not charts.charts)


def _line(runs: list[Run], name: str) -> Line:
    values = [(run.started, metric_value(run, run.metrics[name])) for run in runs if name in run.metrics]
    points = [(at, value) for at, value in values if value is not None]
    return Line(
        runs[-1].variant,
        tuple((at, value.value) for at, value in points),
        ranges=tuple(bar(value) for _, value in points),
    )


def _time_axis(cases: list[list[Run]]) -> Axis:
    moments = sorted({run.started for runs in cases for run in runs})
    form = "%Y-%m-%d" if moments[-1] - moments[0] > 2 * _DAY else "%d %b %H:%M"
    step = max(1, len(moments) // 5)
    return Axis(
        "session (UTC)",
        lambda at: datetime.fromtimestamp(at, UTC).strftime(form),
        ticks=tuple(moments[::step]),
        from_zero=False,
    )
