"""Parameters, their values, and the grid of all combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

Point = tuple[int, ...]
"""One combination: for each parameter, in their order, the index of its value."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its values in an order in which neighbours are alike (small to large, mostly)."""

    name: str
    values: tuple[object, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.name}: a parameter requires at least one value")
        if len(set(map(str, self.values))) != len(self.values):
            raise ValueError(f"{self.name}: a value is listed twice")


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of ``parameters``, the most significant parameter first."""

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if not names or len(set(names)) != len(names):
            raise ValueError(
                f"a space requires parameters with distinct names, not: {', '.join(names) or 'none'}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return tuple(len(parameter.values) for parameter in self.parameters)

    def __len__(self) -> int:
        return prod(self.shape)

    def __iter__(self) -> Iterator[Point]:
        return product(*map(range, self.shape))

    def values(self, point: Point) -> Mapping[str, object]:
        """Return the value of each parameter at ``point``, by name."""
        return {one.name: one.values[at] for one, at in zip(self.parameters, point, strict=True)}

    def middle(self) -> Point:
        """Return the point in the middle of every parameter."""
        return tuple(count // 2 for count in self.shape)

    def scaled(self, points: Sequence[Point]) -> list[tuple[float, ...]]:
        """Return ``points`` with each parameter's values spread evenly from 0 to 1."""
        return [
            tuple(at / max(1, count - 1) for at, count in zip(point, self.shape, strict=True))
            for point in points
        ]
