"""Sequential testing: stop as soon as a verdict is certain, with an error rate for the whole suite. Pure.

Theory and rules, for one gate of ``gates`` in a suite and a budget of ``max_repeats`` runs:

1. From the third run on, each run is an interim test. All tests are replayed from the values in order, so the
   state is a function of the values alone.
2. An *alarm* is a one-sided test against the bound. Then *fresh* runs, which were not part of the alarm, must
   alarm as well: only that is FAIL. The errors of independent runs multiply, so each of the two stages may
   err with ``sqrt(false_alarm / gates)``. Gates add up by Bonferroni.
3. The interim tests of a stage add up as well, so each has a share of the stage's error: the test at n runs
   has one in proportion to the square of n - 2. The shares sum to one, hence the stage errs no more often
   than allowed, however the tests depend on each other (union bound). Later tests have more, because three
   runs show little at such levels and ten show much. Equal shares find a slowdown of 10 % at 3 % noise in 92
   % of the cases within ten runs, these in 97 %.
4. PASS is tested at ``miss`` (5 %) each time, without correction: at the bound itself a pass is more likely
   than that. The power at a distance from the bound is printed by benchmarks/judging_simulation.py.
5. An alarm that the fresh runs contradict, or do not confirm within the same budget again, is undecided.

Tests assume independent runs; runs that drift together break rule 2. So this judges what is measured now,
against a bound or in pairs; against a baseline the session is the sample
(:mod:`storagetest.verdict.baseline_gates`). Source: shares of the error are alpha spending; K. K. G. Lan, D.
L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from storagetest.measure.stats import Interval, mean_interval

FIRST_TEST = 3


class DecisionState(Enum):
    """State of a gate after the runs so far."""

    OPEN = "open"
    PASSED = "passed"
    ALARMED = "alarmed"
    FAILED = "failed"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class ErrorPlan:
    """Error rates: ``false_alarm`` for the suite of ``gates``, ``miss`` for each interim test of one gate."""

    gates: int = 1
    max_repeats: int = 20
    false_alarm: float = 0.01
    miss: float = 0.05

    def __post_init__(self) -> None:
        if self.gates < 1 or not 0 < self.false_alarm < 1 or not 0 < self.miss < 0.5:
            raise ValueError(f"not a plan: {self}")

    @property
    def stage(self) -> float:
        """The one-sided error of a stage, over all of its tests."""
        return math.sqrt(self.false_alarm / self.gates)

    @property
    def last(self) -> int:
        """The number of runs at the last test of a stage."""
        return max(FIRST_TEST, self.max_repeats)

    def alarm(self, runs: int) -> float:
        """The one-sided error of the test at ``runs`` runs of a stage."""
        shares = sum((each - 2) ** 2 for each in range(FIRST_TEST, self.last + 1))
        return self.stage * (runs - 2) ** 2 / shares


@dataclass(frozen=True, slots=True)
class SequentialResult:
    """``interval`` is two-sided, at the level of the last test; the last of its runs is run ``runs``."""

    state: DecisionState
    interval: Interval
    runs: int
    alarmed_at: int | None = None


Widen: TypeAlias = Callable[[Interval], Interval]
"""Adds the error of the values themselves (histogram bins) to an interval."""


def sequential_test(
    values: Sequence[float], bound: float, *, higher: bool, plan: ErrorPlan, widen: Widen
) -> SequentialResult:
    """Replay the tests of ``values`` in order of measuring; runs after the decision do not change it.

    The tests are one-sided t tests against ``bound``. Raises :class:`ValueError` for fewer than two values.
    """
    alarmed_at: int | None = None
    first, judged = 0, len(values)
    interval = _interval(values, plan.miss, widen)
    for end in range(FIRST_TEST, len(values) + 1):
        runs = end - first
        if not FIRST_TEST <= runs <= plan.last:
            continue
        judged, interval = end, _interval(values[first:end], plan.miss, widen)
        if interval.low >= bound if higher else interval.high <= bound:
            state = DecisionState.PASSED if alarmed_at is None else DecisionState.CONTRADICTED
            return SequentialResult(state, interval, end, alarmed_at)
        interval = _interval(values[first:end], plan.alarm(runs), widen)
        if interval.high < bound if higher else interval.low > bound:
            if alarmed_at is not None:
                return SequentialResult(DecisionState.FAILED, interval, end, alarmed_at)
            alarmed_at = first = end
    state = DecisionState.OPEN if alarmed_at is None else DecisionState.ALARMED
    return SequentialResult(state, interval, judged, alarmed_at)


def single_test(
    values: Sequence[float], bound: float, *, higher: bool, confidence: float, widen: Widen
) -> SequentialResult:
    """Test ``values`` once, and accept an alarm unconfirmed; ValueError for fewer than two values."""
    interval = _interval(values, (1 - confidence) / 2, widen)
    worst, best = (interval.low, interval.high) if higher else (interval.high, interval.low)
    state = DecisionState.OPEN
    if worst >= bound if higher else worst <= bound:
        state = DecisionState.PASSED
    elif best < bound if higher else best > bound:
        state = DecisionState.FAILED
    return SequentialResult(state, interval, len(values))


def _interval(values: Sequence[float], error: float, widen: Widen) -> Interval:
    interval = mean_interval(values, 1 - 2 * error)
    if interval is None:
        raise ValueError("an interval takes two runs")
    return widen(interval)


def widened(error: float) -> Widen:
    """Return how to widen the interval of values that have this relative error."""
    return lambda interval: replace(
        interval, low=interval.low / (1 + error), high=interval.high / (1 - error)
    )
