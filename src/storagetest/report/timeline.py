"""A repeat's time series as one SVG drawing: the load above, counters below, one time axis for all.

A panel has the counters of one source in one unit, and its own axis that begins at zero. Only the lines with
the highest values of each panel are drawn. results.jsonl has all series.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit
from storagetest.report.chart import round_step
from storagetest.units import format_value

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e0a100", "#6a4c93", "#5c5c5c")
_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 80, 260, 30
_PANEL, _GAP, _LINE = 78, 30, 13
_TICKS = 8
_UNITS = list(Unit)


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    unit: Unit
    lines: tuple[Series, ...]
    left_out: int


def timeline_svg(series: Sequence[Series], title: str = "") -> str:
    """Return the drawing, a whole SVG document; nothing where no series has a point."""
    panels = _panels([one for one in series if one.times])
    if not panels:
        return ""
    since = min(one.times[0] for panel in panels for one in panel.lines)
    until = max(one.times[-1] for panel in panels for one in panel.lines)
    span = (min(since, 0.0), max(until, since + 1e-3, 1e-3))
    height = _TOP + len(panels) * (_PANEL + _GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"',
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 18, title, bold=True),
    ]
    parts += _axis(height - 20, span)
    for number, panel in enumerate(panels):
        parts += _drawn(panel, _TOP + number * (_PANEL + _GAP), span)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panels(series: Sequence[Series]) -> list[_Panel]:
    """Return the panels: the load's first, then by machine and source; each by unit."""
    places = sorted(
        dict.fromkeys((one.source != LOAD, one.host, one.source, _UNITS.index(one.unit)) for one in series)
    )
    found = []
    for _, host, source, unit in places:
        mine = [one for one in series if (one.host, one.source, one.unit) == (host, source, _UNITS[unit])]
        mine.sort(key=lambda one: max(one.values), reverse=True)
        shown = mine[: len(_COLOURS)]
        found.append(_Panel(f"{source} on {host}", _UNITS[unit], tuple(shown), len(mine) - len(shown)))
    return found


def _drawn(panel: _Panel, top: int, span: tuple[float, float]) -> list[str]:
    bottom, right = top + _PANEL, _WIDTH - _RIGHT
    most = max(max(one.values) for one in panel.lines) or 1.0
    parts = [
        _text(_LEFT, top + 9, panel.title, bold=True),
        f'<rect x="{_LEFT}" y="{top + 14}" width="{right - _LEFT}" height="{_PANEL - 14}"',
        'fill="none" stroke="#cccccc"/>',
        _text(_LEFT - 5, top + 22, format_value(most, panel.unit.value), end=True),
        _text(_LEFT - 5, bottom, "0", end=True),
    ]
    for number, one in enumerate(panel.lines):
        colour = _COLOURS[number]
        points = " ".join(
            f"{_across(at, span):.1f},{bottom - max(0.0, value) / most * (_PANEL - 16):.1f}"
            for at, value in zip(one.times, one.values, strict=True)
        )
        if len(one.times) == 1:
            dot_x, dot_y = points.split(",")
            parts.append(f'<circle cx="{dot_x}" cy="{dot_y}" r="2" fill="{colour}"/>')
        else:
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        parts.append(_text(right + 8, top + 22 + number * _LINE, one.name, colour=colour))
    if panel.left_out:
        y = top + 22 + len(panel.lines) * _LINE
        parts.append(_text(right + 8, y, f"and {panel.left_out} more that stay below", colour="#777777"))
    return parts


def _axis(y: int, span: tuple[float, float]) -> list[str]:
    parts = []
    step = round_step((span[1] - span[0]) / _TICKS)
    for number in range(math.ceil(span[0] / step), math.floor(span[1] / step) + 1):
        x = _across(number * step, span)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y - 12}" stroke="#eeeeee"/>')
        parts.append(_text(round(x) - 8, y, f"{number * step:.6g} s"))
    return parts


def _across(at: float, span: tuple[float, float]) -> float:
    return _LEFT + (at - span[0]) / (span[1] - span[0]) * (_WIDTH - _RIGHT - _LEFT)


def _text(
    x: int, y: int, text: str, *, bold: bool = False, end: bool = False, colour: str = "#222222"
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x}" y="{y}" fill="{colour}"{weight}{anchor}>{html.escape(text)}</text>'
