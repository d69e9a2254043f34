"""What was seen over time beside a load, and the load itself: values at seconds since the measuring began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storagetest.measure.unit import Unit

__all__ = ["LOAD", "Series", "cut"]

LOAD = "load"
"""The source of what the load generator says of itself."""


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over time.

    ``source`` is where it was read (``load``, ``cpu``, ``nic`` …), ``host`` on which machine, ``name`` what
    it is (``eth0 received``). ``times`` are seconds since the measuring began (negative: in the ramp),
    ascending; a rate or a share is that of the time since the point before it, and stands at its end.
    ``values`` are in the base unit.
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


def cut(series: Iterable[Series], since: float, until: float) -> tuple[Series, ...]:
    """Return the parts between two times; what has no point there is left out."""
    found = []
    for one in series:
        kept = [(at, value) for at, value in zip(one.times, one.values, strict=True) if since <= at <= until]
        if kept:
            times, values = zip(*kept, strict=True)
            found.append(Series(one.source, one.name, one.unit, one.host, times, values))
    return tuple(found)
