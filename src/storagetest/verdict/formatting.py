"""Format the values of a verdict with as many digits as distinguish them."""

from __future__ import annotations

import re

from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval, counted
from storagetest.measure.unit import Unit
from storagetest.units import format_value

MINIMUM_REPEATS = 3
"""Fewer repeats give a value, but no verdict."""

_NUMBER = re.compile(r"[-\d.,]+")


def why_not_judgeable(run: Run, metric: Metric) -> str | None:
    """Return why ``metric`` of ``run`` cannot have a verdict, whatever its values; None if it can."""
    if run.invalid:
        return f"no verdict: {'; '.join(run.invalid)}"
    if len(run.values(metric)) < MINIMUM_REPEATS:
        return f"no verdict: it takes at least {MINIMUM_REPEATS} runs"
    ios = counted(run, metric)
    if ios < metric.ios_required:
        return f"no verdict: not enough samples: {ios:,} of {metric.ios_required:,}"
    return None


def relative_half_width(interval: Interval) -> str:
    """Return half of the interval's width, as a share of its mean."""
    half = (interval.high - interval.low) / 2
    return f"{half / abs(interval.mean) * 100:.3g} %" if interval.mean else f"{half:.3g}"


def digits_for(bound: float, value: float, interval: Interval, unit: Unit) -> int:
    """Return the digits that distinguish the interval's ends and the value from the bound."""
    others = [other for other in (value, interval.low, interval.high) if other != bound]
    for digits in range(3, 9):
        if all(format_metric(other, unit, digits) != format_metric(bound, unit, digits) for other in others):
            return digits
    return 9


def format_metric(value: float, unit: Unit, digits: int) -> str:
    """Format for the user; a rate of I/Os in full, because ``18,412/s`` is more exact than ``18.4k/s``."""
    if unit is Unit.PER_SECOND and abs(value) >= 999.5:
        return f"{value:,.{max(0, digits - 6)}f}/s"
    return format_value(value, unit.value, digits=digits)


def format_bound(value: float, unit: Unit) -> str:
    """Format a user's bound without trailing zeros."""
    number, symbol = split_unit(format_metric(value, unit, 9))
    return (number.rstrip("0").rstrip(".") if "." in number else number) + symbol


def split_unit(shown: str) -> tuple[str, str]:
    """Return the number and its unit."""
    match = _NUMBER.match(shown)
    end = match.end() if match else 0
    return shown[:end], shown[end:]
