"""Reading a gate as people write it: ``iops >= 20000``, ``p99 <= 5ms``, ``bandwidth >= 50MiB/s``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from storagetest.errors import ConfigError
from storagetest.measure.run import Better, Metric, Unit
from storagetest.units import parse_value
from storagetest.verdict.base import Threshold

__all__ = ["parse_threshold"]

_GATE = re.compile(r"\s*([A-Za-z][\w.-]*)\s*([<>=!~≤≥]+)\s*([^\s<>=!~≤≥].*?)\s*")
_GOOD_SIDE = {Better.HIGHER: ">=", Better.LOWER: "<="}


def parse_threshold(text: str, metrics: Mapping[str, Metric], *, place: str = "") -> Threshold:
    """Return the gate that ``text`` states on one of ``metrics``.

    Raises :class:`ConfigError`, led by ``place``, for text that is no gate, an unknown metric (it names the
    nearest), a value that cannot be read in the metric's unit, and for gates that are likely mistakes: on the
    wrong side (``iops <= 20000``), without effect (``iops >= 0``), or a share beyond the whole.
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise _error(text, 'a threshold reads like "iops >= 20000" or "p99 <= 5ms"', place)
    name, op, value = match.groups()
    metric = metrics.get(name)
    if metric is None:
        raise _error(text, f"there is no metric {name!r}{_nearest(name, metrics)}", place)
    good = _GOOD_SIDE[metric.better]
    if op not in _GOOD_SIDE.values():
        raise _error(text, f"{op!r} is not understood: write {name} {good} {value}", place)
    if op != good:
        why = f"{metric.better.value} is better for {name}, so this gate would fail what is good"
        raise _error(text, f"{why}: did you mean {name} {good} {value}?", place)
    return Threshold(metric, op, _bound(text, metric, value, place), text.strip(), place)


def _bound(text: str, metric: Metric, value: str, place: str) -> float:
    try:
        bound = parse_value(value, metric.unit.value)
    except ValueError as error:
        raise _error(text, str(error), place) from None
    if bound <= 0:
        never = "fail" if metric.better is Better.HIGHER else "pass"
        raise _error(text, f"this gate could never {never}", place)
    if metric.unit is Unit.RATIO and bound > 1 and not value.endswith("%"):
        raise _error(text, f"{value} is {bound:g} times the whole: for a share write {value}%", place)
    return bound


def _nearest(name: str, metrics: Mapping[str, Metric]) -> str:
    near = difflib.get_close_matches(name.lower(), list(metrics), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(metrics)}"


def _error(text: str, message: str, place: str) -> ConfigError:
    return ConfigError(f"threshold {text.strip()!r}: {message}", place=place or None)
