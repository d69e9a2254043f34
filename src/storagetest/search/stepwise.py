"""Stepwise search: from a starting point, one parameter after the other, as long as it gets better.

Theory. Coordinate ascent: a parameter is raised step by step while each step gains noticeably
(:data:`~storagetest.search.base.WORTH_IT`); if its first step up gains nothing it is lowered in the same way.
Then it is the next parameter's turn, and the search ends when a round over all of them changes nothing. It
needs few measurements if the start is near the best, and finds the top of the hill on which it starts: a
better one elsewhere is not looked for (:class:`~storagetest.search.bayesian.BayesianSearch` does).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from storagetest.search.base import WORTH_IT, Strategy
from storagetest.search.space import Point, Space


class Stepwise(Strategy):
    """Steps from ``start`` (the smallest value of every parameter by default), ``repeats`` times a point."""

    def __init__(self, space: Space, *, budget: int, start: Point | None = None, repeats: int = 2) -> None:
        super().__init__(space, budget=budget)
        self._repeats = repeats
        self._at = start if start is not None else tuple(0 for _ in space.shape)
        self._steps = self._walk()

    def next_point(self) -> Point | None:
        """Return the next point of the walk."""
        return next(self._steps, None) if len(self.measured) < self.budget else None

    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return the means of the measurements at ``points``."""
        means = self.means()
        return [means.get(point, math.nan) for point in points]

    def _walk(self) -> Iterator[Point]:
        """Yield the points to measure; the caller records each before it asks for the next."""
        yield from self._lacking(self._at)
        changed = True
        while changed:
            changed = False
            for number in range(len(self._at)):
                before = self._at
                for step in (1, -1):
                    yield from self._along(number, step)
                    if self._at != before:
                        changed = True
                        break

    def _along(self, number: int, step: int) -> Iterator[Point]:
        """Step a parameter while the points get noticeably better."""
        while 0 <= self._at[number] + step < self.space.shape[number]:
            point = (*self._at[:number], self._at[number] + step, *self._at[number + 1 :])
            yield from self._lacking(point)
            means = self.means()
            if means[point] <= means[self._at] * (1 + WORTH_IT):
                return
            self._at = point

    def _lacking(self, point: Point) -> list[Point]:
        """Return the point as often as it still has to be measured."""
        counted = Counter(measured for measured, _ in self.measured)
        return [point] * (self._repeats - counted[point])
