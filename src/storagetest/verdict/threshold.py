"""Parse gates as users write them.

Four kinds: ``iops >= 20000``, ``p99 <= 5ms`` (a value with its unit); ``iops >= baseline - 5 %``, ``p99 <=
baseline + 10 %`` (relative to stored runs); ``iops rising over threads`` (between the points of a curve,
:mod:`storagetest.verdict.point_threshold`); and, between two variants that are measured alternately,
``nfs-v4.2 <= 1.1 x nfs-v3`` (:func:`parse_comparison`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import ConfigError
from storagetest.measure.run import Better, Metric
from storagetest.measure.unit import Unit
from storagetest.units import parse_value
from storagetest.verdict.base import BASELINE, Threshold
from storagetest.verdict.point_threshold import is_point_threshold, parse_point_threshold

_GATE = re.compile(r"\s*([A-Za-z][\w.-]*)\s*([<>=!~≤≥]+)\s*([^\s<>=!~≤≥].*?)\s*")
_BASELINE = re.compile(r"baseline\b\s*(.*)", re.IGNORECASE)
_MARGIN = re.compile(r"([-+])\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%")
_COMPARISON = re.compile(r"\s*(\S+)\s+([<>=!~≤≥]+)\s+(?:([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*[x*]\s+)?(\S+)\s*")
_GOOD_SIDE = {Better.HIGHER: ">=", Better.LOWER: "<="}


def parse_threshold(text: str, metrics: Mapping[str, Metric], *, place: str = "") -> Threshold:
    """Return the gate that ``text`` states on one of ``metrics``.

    Raises :class:`ConfigError`, led by ``place``, for text that is no gate, an unknown metric (with the
    nearest name), a value that cannot be parsed in the metric's unit, and for likely mistakes: a gate on the
    wrong side (``iops <= 20000``), without effect (``iops >= 0``), or a share beyond the whole.
    """
    if is_point_threshold(text):
        return parse_point_threshold(text, metrics, place=place)
    match = _GATE.fullmatch(text)
    if match is None:
        raise _error(text, 'a threshold reads like "iops >= 20000" or "p99 <= 5ms"', place)
    name, op, value = match.groups()
    metric = metrics.get(name)
    if metric is None:
        raise _error(text, f"unknown metric {name!r}{_nearest(name, metrics)}", place)
    good = _GOOD_SIDE[metric.better]
    if op not in _GOOD_SIDE.values():
        raise _error(text, f"unknown operator {op!r}: write {name} {good} {value}", place)
    if op != good:
        reason = f"{metric.better.value} is better for {name}, so this gate would fail good values"
        raise _error(text, f"{reason}: did you mean {name} {good} {value}?", place)
    if _BASELINE.match(value):
        return Threshold(metric, op, _factor(text, metric, value, place), text.strip(), place, BASELINE)
    return Threshold(metric, op, _bound(text, metric, value, place), text.strip(), place)


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """``left`` must have at least (``>=``) or at most (``<=``) ``factor`` times the value of ``right``."""

    left: str
    op: str
    factor: float
    right: str


def parse_comparison(text: str, *, place: str = "") -> VariantComparison:
    """Return the comparison of two variants that ``text`` states: ``iscsi >= 1.0 x nfs``.

    Either side may be the better one: that NFS has at least 1.7 times the latency of iSCSI is a claim that a
    measurement can confirm or refute.

    Raises :class:`ConfigError`, led by ``place``, for other text, a comparison of one with itself and a
    factor of nothing.
    """
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise _error(text, 'a comparison reads like "iscsi >= 1.0 x nfs"', place)
    left, op, factor, right = match.groups()
    if op not in _GOOD_SIDE.values():
        raise _error(text, f"unknown operator {op!r}: write {left} >= {factor or 1} x {right}, or <=", place)
    if left == right:
        raise _error(text, f"{left} is compared with itself", place)
    if float(factor or 1) == 0:
        raise _error(text, "a factor of 0 compares nothing", place)
    return VariantComparison(left, op, float(factor or 1), right)


def _factor(text: str, metric: Metric, value: str, place: str) -> float:
    """Return 0.95 for ``baseline - 5 %``: the factor of the baseline that is good enough."""
    sign = "-" if metric.better is Better.HIGHER else "+"
    match = _MARGIN.fullmatch(value[len("baseline") :].strip())
    if match is None:
        raise _error(text, f"a gate against a baseline states the allowed loss: baseline {sign} 5 %", place)
    given, margin = match[1], float(match[2]) / 100
    if margin == 0:
        raise _error(text, f"equality can never be proven: write baseline {sign} 5 %", place)
    if given != sign:
        reason = (
            f"{metric.better.value} is better for {metric.name}, and this requires more than the baseline"
        )
        raise _error(text, f"{reason}: did you mean baseline {sign} {match[2]} %?", place)
    if sign == "-" and margin >= 1:
        raise _error(text, "this gate could never fail", place)
    return 1 - margin if sign == "-" else 1 + margin


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
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(metrics)}"


def _error(text: str, message: str, place: str) -> ConfigError:
    return ConfigError(f"threshold {text.strip()!r}: {message}", place=place or None)
