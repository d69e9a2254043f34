"""Gates between the points of one curve, as users write them: flat, rising, falling, a knee.

A *curve* is one quantity of a workload that measures several levels in one run. Its metrics are named
``PARAMETER_LEVEL_QUANTITY``: ``threads_4_iops``, ``block_size_65536_bandwidth``. The forms:

- ``bandwidth flat within 10 % over block_size from 64KiB to 1MiB``: no point is more than 10 % below another;
- ``iops rising within 5 % over threads``: no point is more than 5 % below one of a lower level;
- ``mean falling over block_size``: no point is above one of a lower level;
- ``iops knee at threads >= 8`` (or ``<=``): the knee of the curve (:mod:`storagetest.measure.scaling`).

``over PARAMETER`` may be left out if the workload has one curve of the quantity, ``from … to …`` if all
levels count. The limits of the range are levels of the workload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from storagetest.errors import ConfigError
from storagetest.measure.run import Better, Metric
from storagetest.measure.unit import Unit
from storagetest.units import format_size, parse_size
from storagetest.verdict.base import PointRange, Shape, Threshold

_NAME = re.compile(r"([a-z][a-z_]*?)_(\d+)_([a-z].*)")
_WITHIN = r"(?:\s+within\s+(?P<within>[0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%)?"
_RANGE = r"(?:\s+from\s+(?P<low>\S+(?:\s+[KMG]i?B)?)\s+to\s+(?P<high>\S+(?:\s+[KMG]i?B)?))?"
_LINE = re.compile(
    rf"\s*(?P<quantity>[A-Za-z][\w.]*)\s+(?P<shape>flat|rising|falling|monotone){_WITHIN}"
    rf"(?:\s+over\s+(?P<parameter>[a-z_]+))?{_RANGE}\s*"
)
_KNEE = re.compile(
    r"\s*(?P<quantity>[A-Za-z][\w.]*)\s+knee(?:\s+at\s+(?P<parameter>[a-z_]+))?"
    rf"\s*(?P<op>[<>]=)\s*(?P<at>\S+?){_RANGE}\s*"
)
_WORDS = re.compile(r"\s*\S+\s+(?:flat|rising|falling|monotone|knee)\b")
_FORMS = (
    '"bandwidth flat within 10 % over block_size from 64KiB to 1MiB", "iops rising over threads" or '
    '"iops knee at threads >= 8"'
)


def is_point_threshold(text: str) -> bool:
    """Whether ``text`` is meant as a gate between points."""
    return _WORDS.match(text) is not None


def parse_point_threshold(text: str, metrics: Mapping[str, Metric], *, place: str = "") -> Threshold:
    """Return the gate between points that ``text`` states on the curves among ``metrics``.

    Raises :class:`ConfigError`, led by ``place``, for another form, an unknown curve or level, and for gates
    that can never pass or never fail.
    """
    try:
        return _parse(text, _curves(metrics), place)
    except ValueError as error:
        raise ConfigError(f"threshold {text.strip()!r}: {error}", place=place or None) from None


def point_metrics(metrics: Mapping[str, Metric], points: PointRange) -> dict[int, Metric]:
    """Return the metrics of the curve's levels in the range, ascending."""
    return {
        level: metric
        for level, metric in sorted(_curves(metrics).get((points.parameter, points.quantity), {}).items())
        if points.low <= level <= points.high
    }


def format_level(parameter: str, level: float) -> str:
    """Return a level for people: ``64KiB`` of a ``…size``, else the number."""
    return format_size(int(level)) if parameter.endswith("size") else f"{level:g}"


def _parse(text: str, curves: Mapping[tuple[str, str], Mapping[int, Metric]], place: str) -> Threshold:
    match = _LINE.fullmatch(text) or _KNEE.fullmatch(text)
    if match is None:
        raise ValueError(f"a gate between points reads like {_FORMS}")
    given = match.groupdict()
    parameter = _parameter(given["quantity"], given["parameter"], curves)
    levels = curves[parameter, given["quantity"]]
    ends = (_level(given[name], parameter, levels) for name in ("low", "high"))
    low, high = (end if end is not None else default for end, default in zip(ends, (0, 1 << 62), strict=True))
    if low >= high:
        raise ValueError(f"a range ascends: from {given['high']} to {given['low']}")
    shown = f" {format_level(parameter, low)}..{format_level(parameter, high)}" if given["low"] else ""
    metric = Metric(f"{given['quantity']} over {parameter}{shown}", Unit.RATIO, Better.HIGHER)
    if "at" in given:
        at = _level(given["at"], parameter, levels)
        assert at is not None
        _check_knee(levels, given["op"], at)
        points = PointRange(given["quantity"], parameter, low, high, Shape.KNEE)
        return Threshold(metric, given["op"], float(at), text.strip(), place, parameter, points)
    if given["shape"] == "monotone":
        raise ValueError(f"monotone in which direction? Write {given['quantity']} rising, or falling")
    shape = Shape(given["shape"])
    points = PointRange(given["quantity"], parameter, low, high, shape)
    return Threshold(metric, shape.value, _factor(given), text.strip(), place, parameter, points)


def _factor(given: Mapping[str, str | None]) -> float:
    """Return 0.9 for ``within 10 %``: the share of another point that a point has at least."""
    within = float(given["within"] or 0) / 100
    if within >= 1:
        raise ValueError("this gate could never fail")
    if within == 0 and given["shape"] == Shape.FLAT.value:
        raise ValueError("equality can never be proven: write flat within 10 %")
    return 1 - within


def _check_knee(levels: Mapping[int, Metric], op: str, at: int) -> None:
    if next(iter(levels.values())).better is not Better.HIGHER:
        raise ValueError("a knee is that of a quantity of which more is better")
    useless = min(levels) if op == ">=" else max(levels)
    if at == useless:
        raise ValueError("this gate could never fail")


def _parameter(
    quantity: str, given: str | None, curves: Mapping[tuple[str, str], Mapping[int, Metric]]
) -> str:
    known = [parameter for parameter, each in curves if each == quantity]
    if not known:
        quantities = ", ".join(dict.fromkeys(each for _, each in curves)) or "none: it measures one level"
        raise ValueError(f"no curve of {quantity!r}; this workload has curves of: {quantities}")
    if given is None and len(known) > 1:
        raise ValueError(f"over which parameter? Write over {' or over '.join(known)}")
    if given is not None and given not in known:
        raise ValueError(f"no curve over {given!r}; {quantity} has one over: {', '.join(known)}")
    return given or known[0]


def _level(text: str | None, parameter: str, levels: Iterable[int]) -> int | None:
    if text is None:
        return None
    try:
        level = parse_size(text)
    except ValueError:
        level = -1
    if level not in levels:
        known = ", ".join(format_level(parameter, each) for each in levels)
        raise ValueError(f"{parameter} has no level {text!r}; it has {known}")
    return level


def _curves(metrics: Mapping[str, Metric]) -> dict[tuple[str, str], dict[int, Metric]]:
    """Return the metrics by parameter and quantity, then by level."""
    found: dict[tuple[str, str], dict[int, Metric]] = {}
    for name, metric in metrics.items():
        if match := _NAME.fullmatch(name):
            found.setdefault((match[1], match[3]), {})[int(match[2])] = metric
    return found
