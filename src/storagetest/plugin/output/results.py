"""Write results.jsonl, the terminal's table, the baseline and Allure's environment from the reports."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from storagetest import __version__
from storagetest.errors import ResultError
from storagetest.plugin.output import record_transport
from storagetest.report import baseline
from storagetest.report.allure import reporter as allure
from storagetest.report.base import Record
from storagetest.report.jsonl import JsonlReporter
from storagetest.report.terminal import summary_lines


class Reporting:
    """The hooks; registered in the controller only."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._path = Path(config.option.st_results)
        self._jsonl = JsonlReporter(self._path)
        self._records: list[Record] = []
        self._saved = ""

    @property
    def records(self) -> Sequence[Record]:
        """The records so far."""
        return tuple(self._records)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store a case's records and write them to results.jsonl."""
        for record in record_transport.read_records(report):
            self._records.append(record)
            self._jsonl.on_record(record)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Save the baseline, and write the environment to Allure's results."""
        saving: str | None = self._config.option.st_save_baseline
        if saving and self._records:
            try:
                cases = baseline.save(Path(saving), self._records)
                self._saved = f"{saving}: {cases} case{'s' * (cases != 1)} saved"
            except ResultError as error:
                self._saved = f"NOT SAVED: {error}"
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        directory: str | None = getattr(self._config.option, "allure_report_dir", None)
        if directory:
            allure.write_extras(Path(directory), self._environment())

    def _environment(self) -> dict[str, str]:
        environment = {
            "storagetest": __version__,
            "python": platform.python_version(),
            "controller": platform.platform(),
            "profile": self._config.option.st_profile,
        }
        for record in self._records:
            run = record.run
            environment.update({f"{run.client} {name}": text for name, text in run.versions.items()})
        return environment

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table of measured values."""
        if not self._records:
            return
        writer = terminalreporter._tw  # noqa: SLF001  # pytest has no public way to get the width
        terminalreporter.section("storagetest")
        for line in summary_lines(self._records, width=writer.fullwidth, colour=writer.hasmarkup):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"results: {self._path}")
        if self._saved:
            terminalreporter.write_line(f"baseline: {self._saved}")
