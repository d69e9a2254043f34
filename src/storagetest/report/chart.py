"""A chart as SVG: lines and points over two axes, each linear or logarithmic. Pure.

Why not a plotting library: a chart is drawn for every measured case while the suite runs, it must follow the
reader's colour scheme, and its parts must be readable by a screen reader; docs/adr/0004-charts.md has the
measurements.

Rules:

1. A chart has a title and a description; its values are also in a table (:func:`chart_table`).
2. Lines differ by colour, dash and mark, not only by colour. There are eight styles; more lines are refused.
3. A linear axis begins at zero unless a value lies below. A logarithmic one begins at the decade's 1, 2 or 5
   below the smallest value; values that are not above zero are left out.
4. The page's style sheet defines the colours (``--c1`` …, ``--ink``, ``--grid``); with ``alone`` the drawing
   defines them and a background, so that it can be opened as a file.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

LOOKS = 8
"""Maximum number of distinguishable lines in one chart."""

COLOURS = ("#0b62a4", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be185d", "#475569")
"""On white; each has a contrast of at least 4.5 to it."""

_DASHES = ("", "6 3", "2 3", "8 3 2 3", "", "6 3", "2 3", "8 3 2 3")
_LEFT, _RIGHT, _TOP, _BOTTOM = 116, 48, 14, 44
_LEGEND_LINE = 18
_LETTER = 6.6
"""Approximate width of a letter of the legend."""

_TINY, _HUGE = 1e-300, 1e300
"""Limits within which a ratio is a finite float."""

_ALONE = (
    "<style>text{fill:#222;font:12px sans-serif}.grid{stroke:#ddd}.frame{stroke:#888;fill:none}"
    + "".join(f".c{n}{{stroke:{c};color:{c}}}" for n, c in enumerate(COLOURS, start=1))
    + "</style>"
)


@dataclass(frozen=True, slots=True)
class Axis:
    """``text`` prints a value of it, ``ticks`` are those to mark (none: they are found).

    A linear axis begins at zero, unless not ``from_zero`` (moments have none).
    """

    title: str
    text: Callable[[float], str] = "{:g}".format
    log: bool = False
    ticks: tuple[float, ...] = ()
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) in their order. ``dashed_from`` is an x from which on the line is only faint.

    ``ranges`` are (low, high) around each y, drawn as a bar; None if a point has none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = True
    joined: bool = True
    dashed_from: float | None = None
    ranges: Sequence[tuple[float, float] | None] = field(default=())


@dataclass(frozen=True, slots=True)
class ChartTable:
    """The values of a chart: ``heads`` and ``rows`` of texts, the first column for the x axis."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    log: bool
    start: float
    length: float

    def __call__(self, value: float) -> float:
        ends = (value, self.low, self.high)
        at, low, high = map(math.log10, ends) if self.log else ends
        return round(self.start + (at - low) / (high - low) * self.length, 1)


def chart_svg(
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    title: str,
    described: str = "",
    alone: bool = False,
    size: tuple[int, int] = (640, 300),
    identity: str = "chart",
) -> str:
    """Return the drawing; "" if no line has a point within the axes.

    ``identity`` must differ between the charts of one page. Raises :class:`ValueError` for too many lines.
    """
    if len(lines) > LOOKS:
        raise ValueError(f"{len(lines)} lines in one chart; at most {LOOKS} are distinguishable")
    shown = [(number, _within_axes(line, x, y)) for number, line in enumerate(lines, start=1)]
    points = [point for _, line in shown for point in line.points]
    if not points:
        return ""
    width, height = size
    legend_height, legend = _legend([(number, line.name) for number, line in shown], width, height)
    full = height + legend_height
    range_ends = [end for _, line in shown for bar in line.ranges if bar for end in bar]
    across = _scale([at for at, _ in points], x, _LEFT, width - _LEFT - _RIGHT)
    up = _scale([*(value for _, value in points), *range_ends], y, height - _BOTTOM, _TOP + _BOTTOM - height)
    parts = [
        f'<svg class="chart" role="img" aria-labelledby="{identity}-t {identity}-d" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {full}"'
        + (f' width="{width}" height="{full}">' if alone else ">"),
        f'<title id="{identity}-t">{html.escape(title)}</title>',
        f'<desc id="{identity}-d">{html.escape(described)}</desc>',
        f'{_ALONE}<rect width="{width}" height="{full}" fill="#fff"/>' if alone else "",
    ]
    parts += _axes(x, y, across, up, (width, height))
    for number, line in shown:
        parts += _drawn(line, number, across, up)
    return "".join([*parts, *legend, "</svg>"])


def chart_table(lines: Sequence[Line], x: Axis, y: Axis, *, most: int = 40) -> ChartTable:
    """Return the chart's values as a table: a row for each x, a column for each line."""
    values = [dict(line.points) for line in lines]
    rows = sorted({at for line in lines for at, _ in line.points})
    if len(rows) > most:  # a curve of many points: its first and last and some between
        step = (len(rows) - 1) / (most - 1)
        rows = [rows[round(number * step)] for number in range(most)]
    return ChartTable(
        f"{y.title} by {x.title}",
        [x.title, *(line.name for line in lines)],
        [[x.text(at), *(y.text(points[at]) if at in points else "" for points in values)] for at in rows],
    )


def _within_axes(line: Line, x: Axis, y: Axis) -> Line:
    """Return the line without the points outside the axes."""
    ranges = line.ranges or (None,) * len(line.points)
    inside = [
        (point, bar if bar and _is_drawable(bar[0], y) and _is_drawable(bar[1], y) else None)
        for point, bar in zip(line.points, ranges, strict=True)
        if _is_drawable(point[0], x) and _is_drawable(point[1], y)
    ]
    return replace(line, points=[point for point, _ in inside], ranges=[bar for _, bar in inside])


def _is_drawable(value: float, axis: Axis) -> bool:
    return abs(value) < _HUGE and (value > _TINY or not axis.log)


def _scale(values: Sequence[float], axis: Axis, start: float, length: float) -> _Scale:
    low, high = min((*values, *axis.ticks)), max((*values, *axis.ticks))
    if axis.log:
        low, high = _below(low), _above(high)
        if low == high:
            high = low * 10
    else:
        if axis.from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low < _TINY:
            high = low + 1.0
        if not axis.ticks:
            step = round_step((high - low) / 5)
            low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    return _Scale(low, high, axis.log, start, length)


def _below(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(factor * power for factor in (1, 2, 5) if factor * power <= value * (1 + 1e-9))


def _above(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def round_step(least: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _ticks(axis: Axis, scale: _Scale) -> list[float]:
    if axis.ticks:
        return list(axis.ticks)
    if not axis.log:
        step = round_step((scale.high - scale.low) / 5)
        first = round(scale.low / step)
        return [round(number * step, 12) for number in range(first, round(scale.high / step) + 1)]
    decades = math.log10(scale.high / scale.low)
    factors = (1, 2, 5) if decades <= 3 else (1,)
    powers = range(math.floor(math.log10(scale.low)) - 1, math.ceil(math.log10(scale.high)) + 1)
    candidates = [factor * 10.0**power for power in powers for factor in factors]
    return [at for at in candidates if scale.low * (1 - 1e-9) <= at <= scale.high * (1 + 1e-9)]


def _axes(x: Axis, y: Axis, across: _Scale, up: _Scale, size: tuple[int, int]) -> list[str]:
    width, height = size
    floor = height - _BOTTOM
    parts = []
    for at in _ticks(y, up):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{up(at)}" y2="{up(at)}"/>')
        parts.append(_text(_LEFT - 6, up(at) + 4, y.text(at), "end"))
    occupied = -math.inf
    for at in _ticks(x, across):
        left, text = across(at), x.text(at)
        half = len(text) * _LETTER / 2
        parts.append(f'<line class="grid" x1="{left}" x2="{left}" y1="{_TOP}" y2="{floor}"/>')
        if left - half < occupied:  # it would overlap its neighbour's text
            continue
        parts.append(_text(min(left, width - half - 2), floor + 16, text, "middle"))
        occupied = left + half + 6
    parts.append(f'<path class="frame" fill="none" d="M{_LEFT} {_TOP}V{floor}H{width - _RIGHT}"/>')
    parts.append(_text((_LEFT + width - _RIGHT) / 2, height - 8, x.title, "middle"))
    middle = (_TOP + floor) / 2
    parts.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{html.escape(y.title)}</text>"
    )
    return parts


def _drawn(line: Line, number: int, across: _Scale, up: _Scale) -> list[str]:
    positions = [(across(at), up(value)) for at, value in line.points]
    dash = f' stroke-dasharray="{_DASHES[number - 1]}"' if _DASHES[number - 1] else ""
    parts = [f'<g class="c{number}" fill="none" stroke-width="1.8">']
    if line.joined and len(positions) > 1:
        limit = math.inf if line.dashed_from is None else line.dashed_from
        solid = [position for position, (at, _) in zip(positions, line.points, strict=True) if at <= limit]
        faint = positions[max(0, len(solid) - 1) :] if line.dashed_from is not None else []
        if len(solid) > 1:
            parts.append(f'<polyline points="{_path(solid)}"{dash}/>')
        if len(faint) > 1:
            parts.append(f'<polyline points="{_path(faint)}" stroke-dasharray="1 4" opacity=".8"/>')
    for (left, _), bar in zip(positions, line.ranges, strict=True):
        if bar is not None:
            low, high = up(bar[0]), up(bar[1])
            ends = f"M{left - 3} {low}h6M{left - 3} {high}h6"
            parts.append(f'<path d="M{left} {low}V{high}{ends}" opacity=".6"/>')
    if line.marks or len(positions) == 1:
        parts += [_mark(number, position) for position in positions]
    return [*parts, "</g>"]


def _path(positions: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{left},{top}" for left, top in positions)


def _mark(number: int, position: tuple[float, float]) -> str:
    left, top = position
    match (number - 1) % 4:
        case 0:
            return f'<circle cx="{left}" cy="{top}" r="3" fill="currentColor"/>'
        case 1:
            return f'<rect x="{left - 3}" y="{top - 3}" width="6" height="6" fill="currentColor"/>'
        case 2:
            return f'<path d="M{left} {top - 4}l4 7h-8z" fill="currentColor"/>'
    return f'<path d="M{left} {top - 4}l4 4l-4 4l-4 -4z"/>'


def _legend(names: Sequence[tuple[int, str]], width: int, below: int) -> tuple[int, list[str]]:
    """Return the height that the legend takes and its parts, which are ``below`` the axes."""
    parts, left, row = [], float(_LEFT), 0
    for number, name in names:
        entry_width = 34 + len(name) * _LETTER + 12
        if left > _LEFT and left + entry_width > width - _RIGHT:
            left, row = float(_LEFT), row + 1
        top = below + row * _LEGEND_LINE + 10
        dash = f' stroke-dasharray="{_DASHES[number - 1]}"' if _DASHES[number - 1] else ""
        parts.append(
            f'<g class="c{number}" fill="none" stroke-width="1.8" transform="translate({left:.0f} 0)">'
            f'<line x1="0" x2="26" y1="{top - 4}" y2="{top - 4}"{dash}/>{_mark(number, (13, top - 4))}</g>'
            f'<text x="{left + 32:.0f}" y="{top}">{html.escape(name)}</text>'
        )
        left += entry_width
    return (row + 1) * _LEGEND_LINE + 4, parts


def _text(left: float, top: float, text: str, anchor: str) -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
