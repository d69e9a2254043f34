"""Claims a body makes: a call is refused, a legal alternative was seen, something cannot be tried here."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

__all__ = ["OBSERVED", "CannotRun", "assert_errno", "record_observation", "skip"]

OBSERVED: list[str] = []
"""What this case's process has observed so far; it is forked empty."""


class CannotRun(Exception):
    """The case cannot be tried here: a skip with its reason."""


def skip(reason: str) -> None:
    """End the case as one that cannot be tried here, because of ``reason``."""
    raise CannotRun(reason)


def record_observation(what: str) -> None:
    """Record which of several legal alternatives was seen."""
    if what not in OBSERVED:
        OBSERVED.append(what)


def assert_errno(
    number: int | tuple[int, ...],
    call: Callable[..., Any],
    *arguments: Any,  # noqa: ANN401  # any system call's
    **named: Any,  # noqa: ANN401  # as above
) -> str:
    """Call, and claim that it is refused by ``number`` (one of errno(3), or several that are as good).

    Return the name of the error; where several would be as good, the one that came is observed.
    """
    wanted = number if isinstance(number, tuple) else (number,)
    names = " or ".join(name_of(each) for each in wanted)
    what = getattr(call, "__name__", str(call)).lstrip("_").replace("<lambda>", "the call")
    try:
        got = call(*arguments, **named)
    except OSError as error:
        came = name_of(error.errno or 0)
        if error.errno not in wanted:
            raise AssertionError(f"{what} was to be refused by {names}; it was refused by {came}") from None
        if len(wanted) > 1:
            record_observation(f"{what} is refused by {came}")
        return came
    raise AssertionError(f"{what} was to be refused by {names}; it succeeded ({got!r})")


def name_of(number: int) -> str:
    """Return the name of an error number, such as ``ENOENT``."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, f"error {number}")
