"""Failure, error and INVALID in pytest's JUnit file, as GitLab and Jenkins read them.

pytest distinguishes errors by phase and writes an infrastructure error in a case as ``<failure>``. This
plugin changes it to ``<error>`` and sets the type: ``FAILED`` (the target does not meet a requirement),
``INVALID`` (no verdict), or the error's class. It changes the elements of pytest's writer, which has no hook
for this.
"""

from __future__ import annotations

import pytest
from _pytest.junitxml import xml_key  # it has no public name

from storagetest.plugin.items import is_worker
from storagetest.plugin.outcomes import outcome_of


def register(config: pytest.Config) -> None:
    """Register the hook if pytest writes a JUnit file."""
    if getattr(config.option, "xmlpath", None) and not is_worker(config):
        config.pluginmanager.register(Junit(config), "storagetest-junit")


class Junit:
    """The hook."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set tag and type of the element of a report that did not pass."""
        writer = self._config.stash.get(xml_key, None)
        if not report.failed or writer is None:
            return
        for node in writer.node_reporter(report).nodes:
            if node.tag == "failure" and outcome_of(report) == "error":
                node.tag = "error"
                writer.stats["failure"] -= 1
                writer.stats["error"] += 1
            if node.tag in ("failure", "error") and "type" not in node.attrib:
                node.set("type", _type(report))


def _type(report: pytest.TestReport) -> str:
    outcome = outcome_of(report)
    if outcome == "error":
        name = report.longrepr.partition(":")[0] if isinstance(report.longrepr, str) else ""
        return name if name.isidentifier() else "Error"
    return outcome.upper()
