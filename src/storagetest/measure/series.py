"""Time series of a load and of sampled counters: values at seconds since the measuring began."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from storagetest.measure.unit import Unit

LOAD = "load"
"""The source of series that the load generator reports."""

LATENCY = "latency"
"""The source of percentiles over time. Those of several hosts are never combined: percentiles cannot be."""

QUANTILES = {"p50": 0.5, "p99": 0.99}
"""The percentiles over time."""


def has_percentile(count: int, q: float) -> bool:
    """Whether ``count`` latencies of an interval are enough to draw the percentile ``q``: ``1/(1-q)`` are.

    These are points of a drawing; verdicts use the histograms of whole repeats.
    """
    return count * (1 - q) >= 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over time.

    ``source`` is where it was read (``load``, ``latency``, ``cpu``, ``nic`` …), ``host`` on which host,
    ``name`` the quantity (``eth0 received``). ``times`` are seconds since the measuring began (negative: in
    the ramp), ascending. A rate or share is that of the time since the point before it. ``values`` are in the
    base unit.
    """

    source: str
    name: str
    unit: Unit
    host: str
    times: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.values):
            raise ValueError(f"{self.name}: {len(self.times)} times, {len(self.values)} values")


def combined(
    series: Iterable[Series], combine: Callable[[list[float]], float]
) -> tuple[tuple[float, float], ...]:
    """Return (time, value) in order of time; ``combine`` makes one value of those at the same time."""
    points: dict[float, list[float]] = {}
    for one in series:
        for at, value in zip(one.times, one.values, strict=True):
            points.setdefault(at, []).append(value)
    return tuple((at, combine(values)) for at, values in sorted(points.items()))


def cut(series: Iterable[Series], since: float, until: float) -> tuple[Series, ...]:
    """Return the parts between two times; a series without a point there is left out."""
    parts = []
    for one in series:
        points = [(at, n) for at, n in zip(one.times, one.values, strict=True) if since <= at <= until]
        if points:
            times, values = zip(*points, strict=True)
            parts.append(Series(one.source, one.name, one.unit, one.host, times, values))
    return tuple(parts)
