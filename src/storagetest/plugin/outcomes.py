"""The outcomes failed, error and INVALID, which the terminal, JUnit and Allure show as three different ones.

- *failed*: an ``AssertionError``: the target does not meet a requirement;
- *error*: a :class:`~storagetest.errors.StoragetestError` in any phase: the test setup failed;
- *invalid*: :class:`Invalid`: no verdict is possible. It counts as a failure for the exit code.

pytest distinguishes failed and error by the phase, so errors of the call phase are marked here; a failure of
the setup is marked by :mod:`storagetest.plugin.conformance.cases`.
"""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError, StoragetestError

_ATTRIBUTE = "storagetest_outcome"
_WORDS = {
    "invalid": ("invalid", "I", "INVALID"),
    "error": ("error", "E", "ERROR"),
    "failed": ("failed", "F", "FAILED"),
}


class Invalid(pytest.fail.Exception):  # type: ignore[misc,name-defined]  # made by a decorator
    """The measurement allows no verdict."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"INVALID: {reason}", pytrace=False)


def classify(item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Mark ``report`` as invalid or error, and replace the traceback of an error by its message.

    Neither is the failure that an ``xfail`` mark expects, unless the mark has ``raises``: the case fails.
    """
    if call.excinfo is None:
        return
    error, full_trace = call.excinfo.value, item.config.option.fulltrace
    setup_failed = isinstance(error, StoragetestError) and not isinstance(error, RemoteProtocolError)
    if (isinstance(error, Invalid) or setup_failed) and hasattr(report, "wasxfail"):
        if any(mark.kwargs.get("raises") for mark in item.iter_markers("xfail")):
            return
        report.outcome = "failed"
        del report.wasxfail
    if isinstance(error, Invalid):
        setattr(report, _ATTRIBUTE, "invalid")
    elif isinstance(error, StoragetestError):
        setattr(report, _ATTRIBUTE, "error")
        if not full_trace:
            report.longrepr = f"{type(error).__name__}: {error}"


def mark_failed(report: pytest.TestReport) -> None:
    """Mark ``report`` as failed, in whatever phase: the target does not meet a requirement.

    A report that passed or was expected to fail has no mark.
    """
    setattr(report, _ATTRIBUTE, "failed" if report.failed else None)


def outcome_of(report: pytest.TestReport) -> str:
    """Return invalid, error or failed for a report that did not pass."""
    return getattr(report, _ATTRIBUTE, None) or ("failed" if report.when == "call" else "error")


def status_word(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Return pytest's (category, letter, word) of a report that differs from its phase's, or None."""
    return _WORDS.get(getattr(report, _ATTRIBUTE, ""))


def print_invalid(reporter: pytest.TerminalReporter) -> None:
    """Print why each INVALID case has no verdict, as pytest does for failures."""
    reports = reporter.getreports("invalid")
    if reports:
        reporter.write_sep("=", "INVALID")
    for report in reports:
        reporter.write_sep("_", report.head_line or report.nodeid, yellow=True, bold=True)
        reporter.write_line(report.longreprtext)
