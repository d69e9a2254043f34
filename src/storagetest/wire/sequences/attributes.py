"""Sequences of attributes that are set, alone and together, on two files, with a model of their values.

A value stays as it was set until it is set again, or until a change of another attribute may change it
(``disturbs``: a size sets times). Nothing of one file is that of its neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History

FILES = 2


@dataclass(frozen=True, slots=True)
class AttributeStep:
    """``values`` are set on ``file``; ``known`` are the values of each file after it."""

    file: int
    values: Mapping[str, int]
    known: tuple[Mapping[str, int], ...]

    @property
    def objects(self) -> tuple[str, ...]:
        """The file that it concerns."""
        return (f"file {self.file}",)

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value:#o}" if name == "mode" else f"{name} {value}" for name, value in
                          self.values.items())  # fmt: skip
        return f"{shown} set on file {self.file}"


class AttributeDriver(Protocol):
    """The operations in a protocol."""

    def set(self, file: int, values: Mapping[str, int]) -> None:
        """Set attributes with one request."""

    def get(self, file: int) -> Mapping[str, int]:
        """Return all attributes that the sequence sets."""


def attribute_steps(
    seed: int,
    count: int,
    domains: Mapping[str, Sequence[int]],
    disturbs: Mapping[str, Sequence[str]],
    *,
    together: Sequence[str] | None = None,
) -> list[AttributeStep]:
    """Return ``count`` steps. ``together`` are the attributes that one request can set; by default all."""
    dealer = Dealer(seed)
    joined = list(domains if together is None else together)
    subsets: list[tuple[str, ...]] = [(name,) for name in domains]
    subsets += [pair for size in (2, len(joined)) for pair in combinations(joined, size) if size > 1]
    known: list[dict[str, int]] = [{} for _ in range(FILES)]
    steps = []
    for _ in range(count):
        file = dealer.deal("file", range(FILES))
        names = dealer.deal("names", subsets)
        values = {name: dealer.deal(f"value of {name}", domains[name]) for name in names}
        for name in names:
            for other in disturbs.get(name, ()):
                known[file].pop(other, None)
        disturbed = {other for name in names for other in disturbs.get(name, ())}
        known[file] |= {name: value for name, value in values.items() if name not in disturbed}
        steps.append(AttributeStep(file, values, tuple(dict(one) for one in known)))
    return steps


def run_attributes(driver: AttributeDriver, steps: list[AttributeStep], seed: int) -> None:
    """Make the steps, and compare the attributes of the file, and now and then of its neighbour."""
    history = History(seed, len(steps))
    for number, step in enumerate(steps):
        with history.step(str(step), *step.objects):
            driver.set(step.file, step.values)
            for file in [step.file, *([1 - step.file] if number % 3 == 0 else [])]:
                _compare(driver.get(file), step.known[file], file)


def _compare(found: Mapping[str, int], known: Mapping[str, int], file: int) -> None:
    for name, value in known.items():
        shown = (oct(found[name]), oct(value)) if name == "mode" else (found[name], value)
        assert found[name] == value, f"{name} of file {file} is {shown[0]}, and {shown[1]} was set last"
