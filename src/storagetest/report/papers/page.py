"""The page of published experiments: one HTML file, with a section for each experiment.

Each section has the claims with what was found of them, the published tables with the measured values below
each row, and the published figures with the measured lines in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from storagetest.measure.run import Run
from storagetest.report.base import Record
from storagetest.report.chart import LOOKS, chart_svg, chart_table
from storagetest.report.page.chart_block import Chart
from storagetest.report.page.document import style_sheet
from storagetest.report.page.model import Section
from storagetest.report.papers.findings import claim_rows, counts_of
from storagetest.report.papers.published import (
    Experiment,
    Figure,
    PublishedRow,
    Table,
    Value,
    experiments,
)
from storagetest.report.papers.rerun import Rerun, reruns
from storagetest.report.papers.values import axis, lines, value_text
from storagetest.report.templates import render
from storagetest.report.timeline import timeline_svg
from storagetest.units import format_duration

_SEARCH = "search"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: published texts, or measured ones, each with its interval."""

    name: str
    here: bool
    cells: Sequence[tuple[str, str]]


def document(records: Iterable[Record], *, title: str) -> str:
    """Return the page. Raises :class:`~storagetest.errors.ResultError` for unreadable published data."""
    found = reruns(records)
    sections = [_summary(found)]
    sections += [_section(one, found[one.id]) for one in experiments() if one.id in found]
    page = render("page.html.j2", title=title, style=style_sheet(), sections=sections, empty=[], allure="")
    return f"{page}\n"


def table_rows(table: Table, rerun: Rerun) -> list[TableRow]:
    """Return each published row, and the measured row below it."""
    found = []
    for row in table.rows:
        if row.published:
            found.append(TableRow(row.name, False, [(text, "") for text in row.published]))
        if row.side:
            found.append(TableRow(row.name, True, _measured_cells(table, row, rerun)))
    return found


def _measured_cells(table: Table, row: PublishedRow, rerun: Rerun) -> list[tuple[str, str]]:
    values = (
        Value(side=row.side, point=row.point or column.point, metric=row.metric or column.metric)
        for column in table.columns
    )
    return [value_text(rerun, value) for value in values]


def _summary(found: Mapping[str, Rerun]) -> Section:
    missing = [data for data in experiments() if data.id not in found]
    body = render("papers_summary.html.j2", rows=counts_of(found), missing=missing)
    return Section("findings", "Findings", body)


def _section(data: Experiment, rerun: Rerun) -> Section:
    charts = [chart for n, figure in enumerate(data.figures) if (chart := _chart(data, rerun, figure, n))]
    body = render(
        "papers_experiment.html.j2",
        data=data,
        conditions=_conditions(rerun),
        sides=_sides(data, rerun),
        claims=claim_rows(data, rerun),
        tables=[(table, table_rows(table, rerun)) for table in data.tables],
        charts=charts,
        notes=[figure.note for figure in data.figures if figure.note],
        searches=_searches(data, rerun),
        timelines=_timelines(data, rerun),
    )
    return Section(data.id.lower(), f"{data.id}: {data.title}", body)


def _conditions(rerun: Rerun) -> list[str]:
    """Return for each case when it began, and how busy the controller was."""
    texts = []
    for case, (began, known) in rerun.conditions.items():
        name = f"{case.rpartition('::')[2]}: " if len(rerun.conditions) > 1 else ""
        text = f"{name}measured on {datetime.fromtimestamp(began, UTC):%Y-%m-%d at %H:%M} UTC"
        if known is None:
            texts.append(f"{text}; the load of the controller was not recorded")
            continue
        texts.append(
            f"{text}, in {format_duration(known.seconds)}; load average of the controller "
            f"({known.processors} processors): {known.load_before:.1f} before, {known.load_after:.1f} after"
        )
    return texts


def _sides(data: Experiment, rerun: Rerun) -> list[tuple[str, Run, int]]:
    """Return each side's name with one of its runs, and the least number of its repeats."""
    found: dict[str, list[Run]] = {}
    for (side, _), run in rerun.runs.items():
        found.setdefault(side, []).append(run)
    return [
        (data.sides.get(side, side), runs[0], min(len(run.samples) for run in runs))
        for side, runs in found.items()
    ]


def _chart(data: Experiment, rerun: Rerun, figure: Figure, number: int) -> Chart | None:
    shown = lines(rerun, figure)[:LOOKS]
    identity = f"{data.id.lower()}-figure-{number + 1}"
    ticks = tuple(sorted({x for line in shown for x, _ in line.points})) if figure.x.log else ()
    x, y = axis(figure.x, ticks=ticks), axis(figure.y)
    drawing = chart_svg(shown, x, y, title=figure.title, size=(560, 320), identity=identity)
    if not drawing:
        return None
    # chart_svg() escapes every text that it is given.
    return Chart(identity, figure.title, Markup(drawing), chart_table(shown, x, y))  # noqa: S704


def _searches(data: Experiment, rerun: Rerun) -> list[tuple[str, str]]:
    """Return the table of steps of each stepwise search."""
    return [
        (f"{data.sides.get(side, side)}, {point}", run.samples[0].evidence[_SEARCH])
        for (side, point), run in rerun.runs.items()
        if run.samples and _SEARCH in run.samples[0].evidence
    ]


def _timelines(data: Experiment, rerun: Rerun) -> list[tuple[str, Markup]]:
    """Return the drawings of what was sampled during the first repeat, if the experiment shows that."""
    if not data.timelines:
        return []
    drawn = []
    for (side, point), run in rerun.runs.items():
        if point in data.timelines and run.samples and run.samples[0].series:
            name = f"{data.sides.get(side, side)}, {point}"
            # timeline_svg() escapes every text that it is given.
            drawn.append((name, Markup(timeline_svg(run.samples[0].series, name))))  # noqa: S704
    return drawn
