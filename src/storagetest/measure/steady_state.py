"""Steady-state detection: measurements before it show the past of caches, not the target's speed. Pure.

Two rules:

- ``pts``, for targets that need long (flash after a fill, tiers, caches that fill up): rounds are measured
  until the values of the last five lie within 20 % of their mean (largest less smallest), and the line fitted
  through them moves by at most 10 % of the mean. Source: SNIA, Solid State Storage Performance Test
  Specification, the definition of "Steady State".
- ``slope``, for short gates: within one round the line fitted through the load's timeline moves by at most 10
  % of its mean, from start to end. It is fio's rule of a least-squares slope (fio(1), ``steadystate``), with
  the limit for the whole round instead of a second.

Both apply to the throughput and to a latency: p99 between rounds, the mean latency within a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.measure.run import Sample
from storagetest.measure.series import combined
from storagetest.measure.stats import mean
from storagetest.measure.unit import Unit
from storagetest.units import format_ratio

WINDOW = 5
"""Rounds that ``pts`` compares."""

RANGE = 0.20
MOVE = 0.10
FEWEST = 5
"""Least number of points of a line within a round."""


@dataclass(frozen=True, slots=True)
class SteadyStateCheck:
    """Whether a target was in steady state, and a ``summary`` of the deviations."""

    steady: bool
    summary: str


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Largest less smallest of some values, and the movement of the fitted line, as shares of their mean."""

    range: float
    move: float


def fit(values: Sequence[float]) -> LinearFit:
    """Return how far equidistant values spread and move; :class:`ValueError` for fewer than two."""
    if len(values) < 2:
        raise ValueError("a line takes two values")
    centre, middle = mean(values), (len(values) - 1) / 2
    if centre <= 0:
        return LinearFit(0.0, 0.0) if not any(values) else LinearFit(float("inf"), float("inf"))
    over = sum((at - middle) * (value - centre) for at, value in enumerate(values))
    slope = over / sum((at - middle) ** 2 for at in range(len(values)))
    return LinearFit((max(values) - min(values)) / centre, abs(slope) * (len(values) - 1) / centre)


def by_rounds(rounds: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> SteadyStateCheck:
    """Judge the values of ``metrics`` (name → value) in the last five rounds by the rule ``pts``."""
    if len(rounds) < WINDOW:
        return SteadyStateCheck(False, f"{len(rounds)} of {WINDOW} rounds")
    steady, summaries = True, []
    for name in metrics:
        values = [one[name] for one in rounds[-WINDOW:] if name in one]
        if len(values) < WINDOW:
            continue
        line = fit(values)
        steady = steady and line.range <= RANGE and line.move <= MOVE
        summaries.append(f"{name} ranges over {format_ratio(line.range)}, moves by {format_ratio(line.move)}")
    if not summaries:
        return SteadyStateCheck(False, "no metric was measured in all of the last rounds")
    return SteadyStateCheck(steady, ", ".join(summaries))


def within_a_round(sample: Sample) -> SteadyStateCheck:
    """Judge the timeline of one round by the rule ``slope``."""
    steady, summaries = True, []
    for name, unit, combine in (("throughput", Unit.PER_SECOND, sum), ("mean latency", Unit.SECONDS, mean)):
        points = combined(sample.load_series(unit), combine)
        if len(points) < FEWEST:
            return SteadyStateCheck(False, f"{len(points)} points in time are too few: {FEWEST} are needed")
        line = fit([value for _, value in points])
        steady = steady and line.move <= MOVE
        summaries.append(f"{name} moves by {format_ratio(line.move)}")
    return SteadyStateCheck(steady, ", ".join(summaries))
