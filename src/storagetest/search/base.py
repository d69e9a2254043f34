"""Base class of search strategies, and their result."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.search.space import Point, Space

WORTH_IT = 0.02
"""Smallest relevant difference: 2 % of the best (chosen)."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best point, its expected value, and the number of measurements.

    ``limits`` are the parameters that prevent a higher value: their last value is the best, and the one
    before it is noticeably worse, so that a further one might be better.
    """

    point: Point
    values: Mapping[str, object]
    value: float
    measurements: int
    limits: tuple[str, ...]


class Strategy(ABC):
    """Proposes points until the maximum is known. Values are positive, and more is better.

    The caller alternates between :meth:`next_point` and, with the value measured there, :meth:`record`, until
    :meth:`next_point` returns None.
    """

    def __init__(self, space: Space, *, budget: int) -> None:
        if budget < 1:
            raise ValueError(f"a budget of {budget} measurements finds nothing")
        self.space = space
        self.budget = budget
        self.measured: list[tuple[Point, float]] = []

    @abstractmethod
    def next_point(self) -> Point | None:
        """Return the next point to measure; None if the search or its budget is finished."""

    @abstractmethod
    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return the expected values at ``points``; NaN if nothing is known."""

    def record(self, point: Point, value: float) -> None:
        """Record a measurement. Raises ValueError for a value that cannot be a throughput."""
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"{value} at {self.space.values(point)}: a value is finite and above zero")
        self.measured.append((point, value))

    def means(self) -> dict[Point, float]:
        """Return the geometric mean of the values measured at each point."""
        logs: dict[Point, list[float]] = {}
        for point, value in self.measured:
            logs.setdefault(point, []).append(math.log(value))
        return {point: math.exp(statistics.fmean(values)) for point, values in logs.items()}

    def result(self) -> SearchResult:
        """Return the result so far. Raises ValueError if nothing was measured."""
        if not self.measured:
            raise ValueError("nothing was measured")
        best = self.best()
        (value,) = self.expected([best])
        return SearchResult(best, self.space.values(best), value, len(self.measured), self._limits(best))

    def best(self) -> Point:
        """Return the best of the measured points."""
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
