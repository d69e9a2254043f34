"""Fail, error and INVALID in pytest's JUnit file, where GitLab and Jenkins look for them.

pytest knows an error by the phase it happens in. An error of ours in the middle of a case is written as
``<failure>``, so it is turned into ``<error>`` here, and what did not pass says of what type it is:
``BrokenPromise`` (an assertion about the target), ``INVALID`` (no verdict), or the error's class. That is
done on the elements that pytest's own writer has made; it offers no hook for it.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["Junit", "register"]


def register(config: pytest.Config) -> None:
    """Watch over pytest's writer, where there is one."""
    if getattr(config.option, "xmlpath", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Junit(config), "storagetest-junit")


class Junit:
    """The hook."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say on the element that pytest has just made what sort of not-passed it is."""
        writer = self._writer()
        if not report.failed or writer is None:
            return
        for node in writer.node_reporter(report).nodes:
            if node.tag == "failure" and _kind(report) == "error":
                node.tag = "error"
                writer.stats["failure"] -= 1
                writer.stats["error"] += 1
            if node.tag in ("failure", "error") and "type" not in node.attrib:
                node.set("type", _type(report))

    def _writer(self) -> Any:  # noqa: ANN401  # pytest keeps its class private
        from _pytest.junitxml import xml_key  # noqa: PLC0415  # nowhere public

        return self._config.stash.get(xml_key, None)


def _kind(report: pytest.TestReport) -> str:
    return getattr(report, "storagetest_outcome", None) or ("error" if report.when != "call" else "failed")


def _type(report: pytest.TestReport) -> str:
    match _kind(report):
        case "invalid":
            return "INVALID"
        case "error":
            name = str(report.longrepr).partition(":")[0] if isinstance(report.longrepr, str) else ""
            return name if name.isidentifier() else "Error"
    return "BrokenPromise"
