"""A measurement belongs to its case: one that outlives the case, in a thread, is an error.

The verdict of such a measurement could not be reported. So none may start after the case's teardown, and a
case whose teardown ends while one runs has an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from storagetest.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
_RUNNING = pytest.StashKey[list[None]]()
_ENDED = pytest.StashKey[bool]()
_JOIN = "join the thread before the test ends"


def within_case(measure: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return the method ``measure`` of a fixture with ``_item``; after the case it raises ConfigError."""

    @wraps(measure)
    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> R:  # noqa: ANN401  # any fixture's class
        __tracebackhide__ = True
        item: pytest.Item = self._item
        if item.stash.get(_ENDED, False):
            raise ConfigError(f"{item.nodeid}: a measurement started after the end of its test: {_JOIN}")
        running = item.stash.setdefault(_RUNNING, [])
        running.append(None)
        try:
            return measure(self, *arguments, **more)
        finally:
            running.pop()

    return call


def begin_case(item: pytest.Item) -> None:
    """Allow measurements, also if the case runs once more."""
    item.stash[_ENDED] = False


def end_case(item: pytest.Item) -> None:
    """Refuse further measurements. Raises :class:`ConfigError` if one still runs."""
    item.stash[_ENDED] = True
    if item.stash.get(_RUNNING, []):
        raise ConfigError(f"a measurement still runs in a thread of the test, and has no verdict: {_JOIN}")
