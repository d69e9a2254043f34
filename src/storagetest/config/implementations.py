"""Implementations of targets: their names, their versions, and ranges of versions.

A version is compared by its leading numbers: ``6.1.0-47-cloud-amd64`` is 6.1.0, and ``2:4.17.12+dfsg-0`` is
4.17.12. An epoch (``2:``), a leading ``v``, and everything after the numbers are ignored. Missing numbers are
zero: 6.1 equals 6.1.0. Text that does not begin with a number is no version.

A range is a list of conditions, all of which hold: ``>=6.1,<7``. The operators are >=, >, <=, < and ==.

Why: versions of kernels and packages have suffixes that PEP 440 does not know.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

_VERSION = re.compile(r"\s*(?:\d+:)?[vV]?(\d+(?:\.\d+)*)", re.ASCII)
_CONDITION = re.compile(r"\s*(>=|<=|==|>|<)\s*(\d+(?:\.\d+)*)\s*", re.ASCII)
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_COMPARED = 2
"""Numbers in which two sources of a version must agree; a target may cut its version short (chosen)."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """The software of a target; a name or a version that is not known is empty."""

    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def merge(self, found: Implementation) -> Implementation:
        """Return this implementation, completed by what the target itself reports.

        Raises :class:`ValueError` if the two contradict each other: in the name, or in the first two numbers
        of the version.
        """
        if not found.name:
            return self
        if self.name and self.name != found.name:
            raise ValueError(f"the target is {found.name!r}, and not {self.name!r}")
        mine, reported = numbers(self.version), numbers(found.version)
        if mine and reported and _order(mine[:_COMPARED], reported[:_COMPARED]):
            raise ValueError(f"{found.name} is version {found.version}, and not {self.version}")
        return Implementation(found.name, self.version if mine else found.version)


def numbers(version: str) -> tuple[int, ...] | None:
    """Return the leading numbers of a version, or None if it has none."""
    match = _VERSION.match(version)
    return tuple(map(int, match[1].split("."))) if match else None


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Conditions on a version, all of which hold."""

    conditions: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Return the range. Raises :class:`ValueError` if it is not one."""
        parts = [_CONDITION.fullmatch(part) for part in text.split(",")]
        if not all(parts):
            raise ValueError(f"expected a range of versions, such as >=6.1,<7 or ==1.0.85, not {text!r}")
        return cls(tuple((part[1], tuple(map(int, part[2].split(".")))) for part in parts if part))

    def contains(self, version: str) -> bool | None:
        """Whether the version is in the range; None if the version cannot be read."""
        found = numbers(version)
        if found is None:
            return None
        return all(_COMPARE[sign](_order(found, bound), 0) for sign, bound in self.conditions)


def _order(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return a number below, at or above zero: ``one`` is before, equal to or after ``other``."""
    pairs = zip_longest(one, other, fillvalue=0)
    return next((left - right for left, right in pairs if left != right), 0)
