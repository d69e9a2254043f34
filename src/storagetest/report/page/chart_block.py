"""A chart in the page: its drawing, its caption, and behind it the table of its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from storagetest.report.chart import LOOKS, Axis, ChartTable, Line, chart_svg, chart_table

MOST = 24
"""Charts in a section (chosen); the others are counted."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart with its anchor."""

    id: str
    title: str
    drawing: Markup
    table: ChartTable


@dataclass(slots=True)
class ChartList:
    """The charts of one section, in order; ``name`` makes their anchors unique in the page."""

    name: str
    charts: list[Chart] = field(default_factory=list)
    left_out: int = 0

    def add(self, lines: Sequence[Line], x: Axis, y: Axis, title: str, described: str = "") -> None:
        """Add a chart, or several if there are more lines than one chart can distinguish."""
        for part in chunks(lines):
            if len(self.charts) >= MOST:
                self.left_out += 1
                continue
            anchor = f"{self.name}-{len(self.charts) + 1}"
            drawing = chart_svg(
                part, x, y, title=title, described=described, size=(480, 270), identity=anchor
            )
            if drawing:
                # chart_svg() escapes every text that it is given.
                svg = Markup(drawing)  # noqa: S704
                self.charts.append(Chart(anchor, title, svg, chart_table(part, x, y)))


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in parts that one chart can show."""
    every = list(lines)
    for start in range(0, len(every), LOOKS):
        yield every[start : start + LOOKS]
