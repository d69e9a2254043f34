"""The module that a case's module imports as ``pytest`` on a client: marks and fixtures that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from storagetest.agent.testlib.outcomes import CannotRun


class _Mark:
    """Any mark: called with one function it returns the function, else a decorator that does."""

    def __getattr__(self, name: str) -> _Mark:
        return self

    def __call__(self, *arguments: Any, **_: Any) -> Any:  # noqa: ANN401  # as in pytest
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self


mark = _Mark()


def param(*values: Any, **_: Any) -> tuple[Any, ...]:  # noqa: ANN401  # as in pytest
    """Return the values."""
    return values


def fixture(*arguments: Any, **_: Any) -> Callable[..., Any]:  # noqa: ANN401  # as in pytest
    """Return the function unchanged: fixtures are for the controller."""
    return arguments[0] if arguments else lambda function: function


def skip(reason: str = "") -> NoReturn:
    """End the case as skipped."""
    raise CannotRun(reason)


def fail(reason: str = "") -> NoReturn:
    """Fail the case."""
    raise AssertionError(reason)
