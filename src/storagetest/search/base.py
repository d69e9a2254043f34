"""What every strategy is, and what it finds."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.search.space import Point, Space

__all__ = ["SearchResult", "Strategy"]

WORTH_IT = 0.02
"""A difference that matters: 2 % of the best."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best point, what is to be expected there, and how many measurements it took.

    ``limits`` are the parameters that stand in the way of more: their last value is the best, and the one
    before it gives noticeably less, so that a further one might give more.
    """

    point: Point
    values: Mapping[str, object]
    value: float
    measurements: int
    limits: tuple[str, ...]


class Strategy(ABC):
    """Asks for points until it knows enough. Values are positive, and more is better.

    The one who measures calls :meth:`ask` and, with what was measured there, :meth:`tell`, in turns, until
    :meth:`ask` returns None.
    """

    def __init__(self, space: Space, *, budget: int) -> None:
        if budget < 1:
            raise ValueError(f"a budget of {budget} measurements finds nothing")
        self.space = space
        self.budget = budget
        self.measured: list[tuple[Point, float]] = []

    @abstractmethod
    def next_point(self) -> Point | None:
        """Return where to measure next; None: it knows enough, or the budget is spent."""

    @abstractmethod
    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return what is to be expected at ``points``; NaN where nothing is known."""

    def record(self, point: Point, value: float) -> None:
        """Take in what was measured. Raises ValueError for what cannot be a throughput."""
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"{value} at {self.space.values(point)}: a value is finite and above zero")
        self.measured.append((point, value))

    def means(self) -> dict[Point, float]:
        """Return the geometric mean of what was measured at each point."""
        logs: dict[Point, list[float]] = {}
        for point, value in self.measured:
            logs.setdefault(point, []).append(math.log(value))
        return {point: math.exp(statistics.fmean(values)) for point, values in logs.items()}

    def result(self) -> SearchResult:
        """Return the best so far. Raises ValueError where nothing was measured."""
        if not self.measured:
            raise ValueError("nothing was measured")
        best = self.best()
        (value,) = self.expected([best])
        return SearchResult(best, self.space.values(best), value, len(self.measured), self._limits(best))

    def best(self) -> Point:
        """Return the best of the points that were measured."""
        seen = list(dict.fromkeys(point for point, _ in self.measured))
        expected = dict(zip(seen, self.expected(seen), strict=True))
        return max(seen, key=lambda point: expected[point])

    def _limits(self, best: Point) -> tuple[str, ...]:
        names = []
        (here,) = self.expected([best])
        for number, parameter in enumerate(self.space.parameters):
            if best[number] != len(parameter.values) - 1 or best[number] == 0:
                continue
            before = (*best[:number], best[number] - 1, *best[number + 1 :])
            (less,) = self.expected([before])
            if less < here * (1 - WORTH_IT):
                names.append(parameter.name)
        return tuple(names)
