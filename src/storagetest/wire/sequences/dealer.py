"""A seeded source of choices that leaves none of them out.

The seed selects an order, and not what occurs. Whatever a sequence varies is dealt from decks, one for each
purpose: each shape of a deck comes before one of them comes again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Dealer:
    """Deals shapes from decks; ``random`` is for what needs no deck."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self._decks: dict[str, list[Any]] = {}

    def deal(self, purpose: str, shapes: Sequence[T]) -> T:
        """Return the next shape of the deck of ``purpose``; an empty deck is made of ``shapes`` again."""
        deck = self._decks.setdefault(purpose, [])
        if not deck:
            deck += self.random.sample(shapes, len(shapes))
        shape: T = deck.pop()
        return shape
