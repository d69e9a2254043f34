"""What a sequence has done so far, for the message of a claim that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LAST = 4
"""Operations on an object that a message lists (chosen)."""


class History:
    """The steps of a sequence of ``length`` steps, by the objects that they concern."""

    def __init__(self, seed: int, length: int) -> None:
        self.seed, self.length = seed, length
        self._done: list[tuple[frozenset[str], str]] = []

    @contextmanager
    def step(self, text: str, *objects: str) -> Iterator[None]:
        """Make one step; a claim that fails in it gets its number and what was done to the same objects."""
        concerned = frozenset(objects)
        before = [done for of, done in self._done if of & concerned][-LAST:]
        number = len(self._done) + 1
        self._done.append((concerned, text))
        try:
            yield
        except AssertionError as error:
            earlier = f"; on the same objects before: {'; '.join(before)}" if before else ""
            where = f"step {number} of {self.length} (seed {self.seed}), {text}"
            raise AssertionError(f"{where}: {error}{earlier}") from error
