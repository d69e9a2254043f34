"""Summary of a run as Markdown: for ``--st-markdown FILE``, and on GitHub always for the step's summary.

``GITHUB_STEP_SUMMARY`` is the file to which GitHub's steps append Markdown. If the summary cannot be written,
the terminal shows the error; no outcome changes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from storagetest.plugin.items import is_worker
from storagetest.plugin.output.results import Reporting
from storagetest.report.coverage import CaseRecord
from storagetest.report.formats.markdown import FailedCase, SessionSummary, markdown

GITHUB = "GITHUB_STEP_SUMMARY"
_PROBLEMS = ("failed", "error", "invalid", "warned", "xpassed")


def register(config: pytest.Config) -> None:
    """Register the hooks in the controller if a file is to be written."""
    named: str | None = config.option.st_markdown
    github = os.environ.get(GITHUB)
    if is_worker(config) or config.option.collectonly or not (named or github):
        return
    config.pluginmanager.register(MarkdownOutput(config, named, github), "storagetest-summary")


class MarkdownOutput:
    """The hooks."""

    def __init__(self, config: pytest.Config, named: str | None, github: str | None) -> None:
        self._config = config
        self._named, self._github = named, github
        self._counts: Counter[str] = Counter()
        self._problems: list[FailedCase] = []
        self._cases: list[CaseRecord] = []
        self._start = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case as the terminal does, and store the reason if it did not pass."""
        document = getattr(report, "storagetest_case", None)
        if document is not None:
            self._cases.append(CaseRecord.from_json(document))
        category: str = self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]
        if not category:
            return
        self._counts[category] += 1
        if category in _PROBLEMS:
            self._problems.append(FailedCase(category, report.nodeid, _message(report)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a collection error."""
        if report.failed:
            self._counts["error"] += 1
            self._problems.append(FailedCase("error", report.nodeid, report.longreprtext))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode
    ) -> None:
        """Write the files."""
        reporting = self._config.pluginmanager.get_plugin("storagetest-reporting")
        records = reporting.records if isinstance(reporting, Reporting) else ()
        session = SessionSummary(
            self._counts, time.monotonic() - self._start, int(exitstatus), self._problems
        )
        text = markdown(records, session=session, cases=self._cases)
        for path, mode in ((self._named, "w"), (self._github, "a")):
            if not path:
                continue
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                with Path(path).open(mode, encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                terminalreporter.write_line(f"summary NOT WRITTEN: {path}: {error.strerror}", red=True)


def _message(report: pytest.TestReport) -> str:
    """Return the exception's message if pytest has it, or else the report's full text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = getattr(crash, "message", None)
    document = getattr(report, "storagetest_case", None)
    if report.outcome == "passed" and document is not None:  # a violated SHOULD
        return str(document["message"])
    return str(message or report.longreprtext)
