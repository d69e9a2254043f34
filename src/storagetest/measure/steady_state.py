"""Whether a target has settled: what is measured before that is the past of its caches, not its speed. Pure.

Two rules:

- ``pts``, for a target that takes long to settle (flash after a fill, tiers, caches that fill up): rounds are
  measured until, over the last five, the values lie within 20 % of their mean (largest less smallest), and
  the line fitted through them moves by 10 % of the mean at most. Source: SNIA, Solid State Storage
  Performance Test Specification, the definition of "Steady State".
- ``slope``, for short gates: within one round the line fitted through what the load did moves by 10 % of its
  mean at most, from beginning to end. It is fio's rule of a least-squares slope (fio(1), ``steadystate``),
  with the limit stated for the whole round and not for a second of it.

Both are asked of the throughput and of how bad it gets: p99 by rounds, and within a round the mean latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.measure.run import Sample
from storagetest.measure.series import LOAD
from storagetest.measure.stats import mean
from storagetest.measure.unit import Unit
from storagetest.units import format_ratio

__all__ = ["WINDOW", "SteadyStateCheck", "by_rounds", "fit", "within_a_round"]

WINDOW = 5
"""Rounds that ``pts`` looks at."""

RANGE = 0.20
MOVE = 0.10
FEWEST = 5
"""Points in time that a line within a round takes."""


@dataclass(frozen=True, slots=True)
class SteadyStateCheck:
    """Whether it was steady, and in words how steady."""

    steady: bool
    summary: str


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Of some values, as shares of their mean: largest less smallest, and how far the fitted line moves."""

    range: float
    move: float


def fit(values: Sequence[float]) -> LinearFit:
    """Return how far values at even distances spread and move; :class:`ValueError` for fewer than two."""
    if len(values) < 2:
        raise ValueError("a line takes two values")
    centre, middle = mean(values), (len(values) - 1) / 2
    if centre <= 0:
        return LinearFit(0.0, 0.0) if not any(values) else LinearFit(float("inf"), float("inf"))
    over = sum((at - middle) * (value - centre) for at, value in enumerate(values))
    slope = over / sum((at - middle) ** 2 for at in range(len(values)))
    return LinearFit((max(values) - min(values)) / centre, abs(slope) * (len(values) - 1) / centre)


def by_rounds(rounds: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> SteadyStateCheck:
    """Judge the last five rounds' values of ``metrics`` (name → value) by the rule ``pts``."""
    if len(rounds) < WINDOW:
        return SteadyStateCheck(False, f"{len(rounds)} of {WINDOW} rounds")
    steady, said = True, []
    for name in metrics:
        values = [one[name] for one in rounds[-WINDOW:] if name in one]
        if len(values) < WINDOW:
            continue
        found = fit(values)
        steady = steady and found.range <= RANGE and found.move <= MOVE
        said.append(f"{name} ranges over {format_ratio(found.range)} and moves by {format_ratio(found.move)}")
    if not said:
        return SteadyStateCheck(False, "no metric was measured in all of the last rounds")
    return SteadyStateCheck(steady, ", ".join(said))


def within_a_round(sample: Sample) -> SteadyStateCheck:
    """Judge one round's own course by the rule ``slope``."""
    steady, said = True, []
    for name, unit, together in (("throughput", Unit.PER_SECOND, sum), ("mean latency", Unit.SECONDS, mean)):
        points: dict[float, list[float]] = {}
        for one in sample.series:
            if one.source == LOAD and one.unit is unit:
                for at, value in zip(one.times, one.values, strict=True):
                    points.setdefault(at, []).append(value)
        if len(points) < FEWEST:
            return SteadyStateCheck(False, f"{len(points)} points in time are too few: {FEWEST} are needed")
        found = fit([together(values) for _, values in sorted(points.items())])
        steady = steady and found.move <= MOVE
        said.append(f"{name} moves by {format_ratio(found.move)}")
    return SteadyStateCheck(steady, ", ".join(said))
