"""Foreign suites whose program is not installed: the summary names them, also without ``-rs``."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

import pytest

from storagetest.plugin.items import is_worker

_PROPERTY = "not_installed"


def register(config: pytest.Config) -> None:
    """Register the summary; xdist's controller prints it."""
    if not is_worker(config):
        config.pluginmanager.register(_Summary(), "storagetest-absent-suites")


def skip_absent(item: pytest.Item, reason: str) -> NoReturn:
    """Skip ``item`` because a program is not installed; ``reason`` names program, machine and package."""
    item.user_properties.append((_PROPERTY, reason))
    pytest.skip(reason)


class _Summary:
    def __init__(self) -> None:
        self._skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that were skipped for each reason."""
        if report.skipped:
            self._skipped.update(str(value) for name, value in report.user_properties if name == _PROPERTY)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each reason once."""
        if self._skipped:
            terminalreporter.section("foreign suites that did not run")
        for reason, number in sorted(self._skipped.items()):
            terminalreporter.write_line(f"{reason} ({number} skipped)")
