"""Fail, error and INVALID are three different things, in the terminal, in JUnit and in Allure alike.

- *failed*: an ``AssertionError``, a claim about the target that does not hold;
- *error*: a :class:`~storagetest.errors.StoragetestError`, wherever it was raised: our own line broke;
- *invalid*: :class:`Invalid`, nothing can be said. It counts as a failure for the exit code: never green.

pytest knows failed and error by the phase they happen in, so an error raised in the call phase is told apart
here by a word of its own.
"""

from __future__ import annotations

import pytest

from storagetest.errors import StoragetestError

__all__ = ["Invalid", "classify", "status_word"]

_ATTRIBUTE = "storagetest_outcome"


class Invalid(pytest.fail.Exception):  # type: ignore[misc,name-defined]  # made by a decorator
    """The measurement does not carry a verdict."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"INVALID: {reason}", pytrace=False)


def classify(report: pytest.TestReport, call: pytest.CallInfo[None], *, full_trace: bool) -> None:
    """Write on ``report`` what sort of not-passed it is, and replace a traceback that helps nobody."""
    if call.excinfo is None:
        return
    error = call.excinfo.value
    if isinstance(error, Invalid):
        setattr(report, _ATTRIBUTE, "invalid")
    elif isinstance(error, StoragetestError):
        setattr(report, _ATTRIBUTE, "error")
        if not full_trace:
            report.longrepr = f"{type(error).__name__}: {error}"


def status_word(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Return pytest's (category, letter, word), or None where pytest's own serve."""
    match getattr(report, _ATTRIBUTE, None):
        case "invalid":
            return "invalid", "I", "INVALID"
        case "error":
            return "error", "E", "ERROR"
    return None
