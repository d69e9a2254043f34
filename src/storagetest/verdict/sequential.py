"""Stopping as soon as a verdict is certain, with an error rate for the whole suite. Pure.

Theory and rules, for one gate of ``gates`` in a suite and a budget of ``max_repeats`` runs:

1. From the third run on, each run is a look. All looks are replayed from the values in order, so the state is
   a function of the values alone and nothing has to be remembered between them.
2. An *alarm* is a one-sided t test against the bound; then *fresh* runs, of which none was seen by the alarm,
   must alarm as well: only that is FAIL. With independent runs the errors multiply, so each of the two stages
   may err with ``sqrt(false_alarm / gates)``. Gates add up by Bonferroni, and so do the looks of a stage,
   each of which gets an equal share (union bound: it holds however the looks depend on each other).
3. PASS is tested at ``miss`` (5 %) at each look, without correction: right at the bound a pass is more likely
   than that. What is promised is power at a distance from the bound:
   benchmarks/judging_simulation.py shows it.
4. An alarm that the fresh runs contradict, or do not confirm within the same budget again, is undecided.

The t test assumes independent, roughly normal runs. Runs that drift together break rule 2.
Source: the union bound over looks is the crudest alpha spending; K. K. G. Lan, D. L. DeMets, "Discrete
sequential boundaries for clinical trials", Biometrika 70 (1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from storagetest.measure.stats import Interval, mean_interval

__all__ = ["FIRST_LOOK", "Looked", "Plan", "State", "look"]

FIRST_LOOK = 3


class State(Enum):
    """Where a gate stands after the runs so far."""

    OPEN = "open"
    PASSED = "passed"
    ALARMED = "alarmed"
    FAILED = "failed"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Plan:
    """The error rates: ``false_alarm`` for the suite of ``gates``, ``miss`` for a look of one gate."""

    gates: int = 1
    max_repeats: int = 20
    false_alarm: float = 0.01
    miss: float = 0.05

    def __post_init__(self) -> None:
        if self.gates < 1 or not 0 < self.false_alarm < 1 or not 0 < self.miss < 0.5:
            raise ValueError(f"not a plan: {self}")

    @property
    def looks(self) -> int:
        """How often each of the two stages may look."""
        return max(1, self.max_repeats - FIRST_LOOK + 1)

    @property
    def alarm(self) -> float:
        """The one-sided error of a single look of a stage."""
        return math.sqrt(self.false_alarm / self.gates) / self.looks


@dataclass(frozen=True, slots=True)
class Looked:
    """``interval`` is two-sided, at the level of the test that decided; ``runs`` were used up to then."""

    state: State
    interval: Interval | None
    runs: int
    alarmed_at: int | None = None


def look(values: Sequence[float], bound: float, *, higher: bool, plan: Plan, widen: float = 0.0) -> Looked:
    """Replay the looks at ``values``, in order of measuring; runs after the decision do not change it.

    ``widen`` is the relative error of each value (histogram bins), added to the interval on both sides.
    """
    alarmed_at: int | None = None
    first = 0
    interval: Interval | None = None
    for end in range(FIRST_LOOK, len(values) + 1):
        if end - first < FIRST_LOOK or end - first > max(FIRST_LOOK, plan.max_repeats):
            continue
        seen = values[first:end]
        passing = _interval(seen, plan.miss, widen)
        if _good(passing, bound, higher=higher):
            state = State.PASSED if alarmed_at is None else State.CONTRADICTED
            return Looked(state, passing, end, alarmed_at)
        interval = _interval(seen, plan.alarm, widen)
        if _bad(interval, bound, higher=higher):
            if alarmed_at is not None:
                return Looked(State.FAILED, interval, end, alarmed_at)
            alarmed_at = first = end
    return Looked(State.OPEN if alarmed_at is None else State.ALARMED, interval, len(values), alarmed_at)


def _interval(values: Sequence[float], error: float, widen: float) -> Interval:
    found = mean_interval(values, 1 - 2 * error)
    if found is None:
        raise ValueError("an interval takes two runs")
    low, high = found.low / (1 + widen), found.high / (1 - widen)
    return Interval(found.mean, low, high, found.confidence, found.count)


def _good(interval: Interval, bound: float, *, higher: bool) -> bool:
    return interval.low >= bound if higher else interval.high <= bound


def _bad(interval: Interval, bound: float, *, higher: bool) -> bool:
    return interval.high < bound if higher else interval.low > bound
