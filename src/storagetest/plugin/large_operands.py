"""Explain a failed ``==`` of large values by its first difference.

pytest compares such values line by line if the environment has ``CI``, or with ``-v``. For 256 KiB that
differ in one byte this takes more than ten minutes of processor time, and the case keeps its client and
server locked. Small values keep pytest's explanation.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set, Sized
from dataclasses import fields, is_dataclass
from itertools import islice
from reprlib import Repr
from typing import Any

import pytest

_ITEMS, _CHARACTERS, _BYTES = 200, 4096, 256
"""Values with more than these are large (chosen: pytest's comparison takes a fraction of a second)."""
_DEPTH = 4  # levels of a value that are examined
_SHOWN_BYTES, _SHOWN_CHARACTERS, _SHOWN_ITEMS = 16, 40, 5
_UNITS = (
    ((bytes, bytearray, memoryview), "bytes"),
    (str, "characters"),
    ((list, tuple, Set, Mapping), "entries"),
)

_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 120


class _Explained(Exception):  # ends the call of the hook, not an error
    """The explanation of a comparison; it keeps pytest's implementation from being called."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines


def register(config: pytest.Config) -> None:
    """Register both hooks."""
    config.pluginmanager.register(_ExplainLarge(), "storagetest-explain-large")
    config.pluginmanager.register(_ReturnExplained(), "storagetest-return-explained")


class _ExplainLarge:
    @pytest.hookimpl(tryfirst=True)
    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> None:
        """Raise the explanation if an operand is large: pluggy would call all implementations otherwise."""
        if op == "==" and (is_large(left) or is_large(right)):
            raise _Explained([f"{_describe(left)} == {_describe(right)}", "", *first_difference(left, right)])


class _ReturnExplained:
    @pytest.hookimpl(wrapper=True)
    def pytest_assertrepr_compare(self) -> Generator[None, list[list[str] | None], list[list[str] | None]]:
        """Return what was raised, or else what the implementations return."""
        try:
            return (yield)
        except _Explained as explained:
            return [explained.lines]


def is_large(value: object, depth: int = _DEPTH) -> bool:
    """Return whether a line-by-line comparison of ``value`` would take long."""
    match value:
        case bytes() | bytearray() | memoryview():
            return len(value) > _BYTES
        case str():
            return len(value) > _CHARACTERS
        case Mapping():
            return len(value) > _ITEMS or (
                depth > 0 and any(is_large(one, depth - 1) for one in value.values())
            )
        case list() | tuple() | Set():
            return len(value) > _ITEMS or (depth > 0 and any(is_large(one, depth - 1) for one in value))
        case _ if _has_fields(value):
            return depth > 0 and any(is_large(one, depth - 1) for one in _field_values(value).values())
    return False


def first_difference(left: object, right: object) -> list[str]:
    """Return lines with the place of the first difference and both values there."""
    match left, right:
        case (bytes() | bytearray() | memoryview(), bytes() | bytearray() | memoryview()):
            return _in_bytes(bytes(left), bytes(right))
        case (str(), str()):
            return _in_text(left, right)
        case (list() | tuple(), list() | tuple()) if type(left) is type(right):
            return _in_sequences(left, right)
        case (Set(), Set()):
            return [*_only_in("left", left, right), *_only_in("right", right, left)]
        case (Mapping(), Mapping()):
            return _in_mappings(left, right, "[{!r}]")
        case _ if type(left) is type(right) and _has_fields(left):
            return _in_mappings(_field_values(left), _field_values(right), ".{}")
    return [f"left:  {_SHORT.repr(left)}", f"right: {_SHORT.repr(right)}"]


def _in_bytes(left: bytes, right: bytes) -> list[str]:
    at = _common_length(left, right)
    ends = slice(at, at + _SHOWN_BYTES)
    return [
        f"first difference at offset {at:,} ({at:#x})",
        f"left:  {left[ends].hex(' ') or 'ends there'}",
        f"right: {right[ends].hex(' ') or 'ends there'}",
    ]


def _in_text(left: str, right: str) -> list[str]:
    at = _common_length(left, right)
    shown = slice(max(0, at - _SHOWN_CHARACTERS), at + _SHOWN_CHARACTERS)
    return [
        f"first difference at character {at:,}; the text around it:",
        f"left:  {left[shown]!r}",
        f"right: {right[shown]!r}",
    ]


def _in_sequences(left: Sequence[object], right: Sequence[object]) -> list[str]:
    shorter = min(len(left), len(right))
    at = next((index for index in range(shorter) if left[index] != right[index]), shorter)
    if at < shorter:
        return [f"first difference at index {at:,}", *first_difference(left[at], right[at])]
    longer, name = (left, "left") if len(left) > len(right) else (right, "right")
    return [f"only the {name} one has index {at:,}: {_SHORT.repr(longer[at])}"]


def _in_mappings(left: Mapping[Any, object], right: Mapping[Any, object], place: str) -> list[str]:
    lines = [*_only_in("left", left.keys(), right.keys()), *_only_in("right", right.keys(), left.keys())]
    at = next((key for key in left if key in right and left[key] != right[key]), None)
    if at is not None:
        lines += [f"first difference at {place.format(at)}", *first_difference(left[at], right[at])]
    return lines


def _only_in(name: str, one: Set[Any], other: Set[Any]) -> list[str]:
    missing = sorted(map(repr, one - other))
    if not missing:
        return []
    shown = ", ".join(islice(missing, _SHOWN_ITEMS)) + (", ..." if len(missing) > _SHOWN_ITEMS else "")
    return [f"only in the {name} one, {len(missing):,}: {shown}"]


def _common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """Return the length of the longest common start, by bisection: slices compare fast."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _describe(value: object) -> str:
    """Return the start of ``value`` as Python shows it, for entries of known issues, and its length."""
    unit = next((unit for kinds, unit in _UNITS if isinstance(value, kinds)), None)
    text = _SHORT.repr(value[:_BYTES] if isinstance(value, bytes | bytearray | str) else value)
    return f"{text} ({len(value):,} {unit})" if unit and isinstance(value, Sized) else text


def _has_fields(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _field_values(value: Any) -> dict[str, object]:  # noqa: ANN401  # an instance of any dataclass
    return {field.name: getattr(value, field.name) for field in fields(value) if field.compare}
