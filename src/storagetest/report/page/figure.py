"""A chart in the page: its drawing, its caption, and behind it the table of what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from storagetest.report.chart import LOOKS, Axis, Line, chart_svg, chart_table
from storagetest.report.page.given import escaped

__all__ = ["MOST", "Charts", "chunks"]

MOST = 24
"""Charts in a section; a page of hundreds is read by nobody, and what is left out is counted."""


class Charts:
    """The charts of one section, in order; ``name`` tells their anchors from those of other sections."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._drawn: list[str] = []
        self._left_out = 0

    def add(self, lines: Sequence[Line], x: Axis, y: Axis, title: str, described: str = "") -> None:
        """Add a chart, or several where there are more lines than can be told apart."""
        for part in chunks(lines):
            if len(self._drawn) >= MOST:
                self._left_out += 1
                continue
            identity = f"{self._name}-{len(self._drawn) + 1}"
            drawing = chart_svg(
                part, x, y, title=title, described=described, size=(480, 270), identity=identity
            )
            if drawing:
                self._drawn.append(
                    f'<figure id="{identity}"><figcaption>{escaped(title)}</figcaption>{drawing}'
                    f"<details><summary>the figures</summary>{chart_table(part, x, y)}</details></figure>"
                )

    def __bool__(self) -> bool:
        return bool(self._drawn)

    def html(self) -> str:
        """Return all of them, and how many are left out."""
        left = f"<p>{self._left_out:,} more charts are left out.</p>" if self._left_out else ""
        return f'<div class="charts">{"".join(self._drawn)}</div>{left}'


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in parts that one chart can show."""
    kept = list(lines)
    for start in range(0, len(kept), LOOKS):
        yield kept[start : start + LOOKS]
