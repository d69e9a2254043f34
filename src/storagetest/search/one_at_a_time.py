"""The published search: one parameter after the other, each over all its values.

Source: the search for a Lustre system's maximum by stripe size, then block size, then connections, then
clients (FSPoly, 2014; suites/papers). It needs as many points as the parameters have values in all, and finds
the best of a grid if parameters do not depend on each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from storagetest.search.base import Strategy
from storagetest.search.space import Point, Space


class OneAtATime(Strategy):
    """Sweeps each parameter in turn, with ``repeats`` measurements per value, and fixes it at its best value.

    The others are at their best value so far or, before their turn, at ``start`` (by default in the middle).
    """

    def __init__(self, space: Space, *, budget: int, start: Point | None = None, repeats: int = 3) -> None:
        super().__init__(space, budget=budget)
        self._repeats = repeats
        self._at = start if start is not None else space.middle()
        self._turn = 0

    def next_point(self) -> Point | None:
        """Return the next value of the current parameter."""
        while self._turn < len(self.space.parameters) and len(self.measured) < self.budget:
            counts = Counter(point for point, _ in self.measured)
            line = [
                (*self._at[: self._turn], value, *self._at[self._turn + 1 :])
                for value in range(self.space.shape[self._turn])
            ]
            for point in line:
                if counts[point] < self._repeats:
                    return point
            means = self.means()
            self._at = max(line, key=lambda point: means[point])
            self._turn += 1
        return None

    def expected(self, points: Sequence[Point]) -> Sequence[float]:
        """Return the means of the measurements at ``points``."""
        means = self.means()
        return [means.get(point, math.nan) for point in points]
