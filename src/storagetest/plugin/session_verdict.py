"""Judge the run itself at its end: a green run has checked something, and no failed gate is hidden.

A run on targets is red (exit status 1), whatever its cases reported, if

- a gate failed in a case that did not end as failed (the test caught the exception, or is marked ``xfail``);
- no case on a target was run to its end: all were skipped (``nothing-checked``);
- a threshold of the targets file judged nothing, although the run measured or a case that passed has the
  fixture ``measure`` (``unused-thresholds``).

The last two are allowed by ``--st-allow``. A run that a user narrowed (``-k``, ``-m``, ``--st-target``, a
single file or test) leaves thresholds unused on purpose: they are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from storagetest.errors import ConfigError
from storagetest.plugin.items import fixtures_of, item_variant
from storagetest.plugin.output.record_transport import read_records, records_of
from storagetest.plugin.run_state import KEY
from storagetest.verdict import BASELINE, Outcome

if TYPE_CHECKING:
    from storagetest.config import Config
    from storagetest.plugin.run_state import RunState

_ON_TARGET = "storagetest_on_target"
_MEASURES = "storagetest_measures"
"""Whether a case on a target passed and uses the fixture ``measure``, which it may not have called."""
_PASSED = pytest.StashKey[bool]()


def note_case(report: pytest.TestReport, item: pytest.Item) -> None:
    """Note in ``report``, for the controller of xdist, whether the case runs on a target and may measure."""
    on_target = item_variant(item) is not None
    setattr(report, _ON_TARGET, on_target)
    called = report.passed and report.when == "call"
    setattr(report, _MEASURES, on_target and called and "measure" in fixtures_of(item))
    if report.when == "call":
        item.stash[_PASSED] = report.passed


def refuse_unused_gates(item: pytest.Item) -> None:
    """Raise :class:`ConfigError` if a case with gates by a mark passed and measured nothing."""
    texts = [text for mark in item.iter_markers("gate") for text in mark.args]
    passed: bool = item.stash.get(_PASSED, False)
    if texts and passed and not records_of(item):
        shown = ", ".join(map(repr, texts))
        raise ConfigError(f"@pytest.mark.gate({shown}) judged nothing: the test measured nothing")


class SessionVerdict:
    """The hooks; registered in the controller only, after the reporting."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = config.option
        self._config = config
        self._problems: list[str] = []
        self._checked = self._skipped = 0
        self._measured = False
        self._judged: set[tuple[str, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the cases, and find failed gates of cases that did not fail."""
        self._measured |= getattr(report, _MEASURES, False)
        for record in read_records(report):
            self._measured = True
            for verdict in record.verdicts:
                self._judged.add((verdict.threshold.place, verdict.threshold.text))
                if verdict.outcome is Outcome.FAIL and not report.failed:
                    hidden = f"a gate failed, and the test ended as {report.outcome}"
                    self._problems.append(f"{report.nodeid}: {hidden}: {verdict.reason}")
        if not getattr(report, _ON_TARGET, False):
            return
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped += 1
        elif report.when == "call" or report.failed:
            self._checked += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Make a green run red if it is not trustworthy."""
        state = self._config.stash[KEY]
        if self._options.collectonly or session.exitstatus == pytest.ExitCode.INTERRUPTED:
            return
        if self._skipped and not self._checked and "nothing-checked" not in self._options.st_allow:
            self._problems.append(
                f"nothing was checked: all {self._skipped} cases on the targets were skipped (why: -rs). "
                "Where that is expected: --st-allow nothing-checked"
            )
        if self._measured and state.loaded and "unused-thresholds" not in self._options.st_allow:
            self._problems += self._unused_thresholds(state, state.loaded)
        if self._problems and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _unused_thresholds(self, state: RunState, config: Config) -> Iterator[str]:
        if self._is_narrowed():
            return
        rules = [
            *config.thresholds,
            *(rule for variant in state.variants.values() for rule in variant.thresholds),
        ]
        for gate in dict.fromkeys(gate for rule in rules for gate in rule.gates):
            waits_for_baseline = BASELINE in gate.text and state.thresholds.baseline_path is None
            if (gate.place, gate.text) not in self._judged and not waits_for_baseline:
                yield (
                    f"threshold at {gate.place} judged nothing: {gate.text!r}. No case measured its workload "
                    "with its parameters, or another threshold replaced it. Where that is expected: "
                    "--st-allow unused-thresholds"
                )

    def _is_narrowed(self) -> bool:
        options = self._options
        selected = (options.keyword, options.markexpr, options.st_target, options.st_sample)
        files = any("::" in path or path.endswith(".py") for path in self._config.args)
        return any(selected) or files or bool(getattr(options, "lf", False) or options.deselect)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why the run is red."""
        if self._problems:
            terminalreporter.section("the run itself", red=True, bold=True)
        for problem in self._problems:
            terminalreporter.write_line(problem, red=True)
