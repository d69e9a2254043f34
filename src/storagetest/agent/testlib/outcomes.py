"""Outcomes of a case's body: assert an error number, record a legal alternative, skip the case."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NoReturn

OBSERVED: list[str] = []
"""The observations of the running case."""


class CannotRun(Exception):
    """The case cannot run here: a skip with its reason."""


def skip(reason: str) -> NoReturn:
    """End the case as skipped, because of ``reason``."""
    raise CannotRun(reason)


def record_observation(text: str) -> None:
    """Record which of several legal alternatives the target has chosen."""
    if text not in OBSERVED:
        OBSERVED.append(text)


def assert_errno(
    number: int | tuple[int, ...],
    call: Callable[..., Any],
    *arguments: Any,  # noqa: ANN401  # any system call's
    **named: Any,  # noqa: ANN401  # as above
) -> str:
    """Assert that ``call`` raises OSError with ``number``, one of errno(3) or several legal ones.

    Return the name of the error; if several are legal, record the one that was raised.
    """
    expected = number if isinstance(number, tuple) else (number,)
    names = " or ".join(name_of(each) for each in expected)
    name = getattr(call, "__name__", str(call)).lstrip("_").replace("<lambda>", "the call")
    try:
        result = call(*arguments, **named)
    except OSError as error:
        raised = name_of(error.errno or 0)
        if error.errno not in expected:
            raise AssertionError(f"{name} has to be refused by {names}; it was refused by {raised}") from None
        if len(expected) > 1:
            record_observation(f"{name} is refused by {raised}")
        return raised
    raise AssertionError(f"{name} has to be refused by {names}; it succeeded ({result!r})")


def name_of(number: int) -> str:
    """Return the name of an error number, such as ``ENOENT``."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, f"error {number}")
