"""Tests of foreign suites that run on the controller."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from storagetest.config.implementations import Implementation
from storagetest.errors import DataAtRisk, DeadlineExceeded, HostError, RemoteProtocolError, WorkloadError
from storagetest.external.base import ControllerSuite, ItemOutcome, ItemResult, TargetInfo
from storagetest.hosts import LocalHost
from storagetest.plugin.conformance.known_issues import apply_known_issues
from storagetest.plugin.external.item import ExternalItem, report_result

_TARGETS = pytest.StashKey[dict[tuple[str, str], TargetInfo]]()
_REFUSED = pytest.StashKey[set[tuple[str, str]]]()
_Found = TypeVar("_Found")
_log = logging.getLogger(__name__)


class RunOutput:
    """The output of one program as it streams: its lines, and the results that they end."""

    def __init__(self, suite: ControllerSuite) -> None:
        self.lines: list[str] = []
        self.results: list[tuple[str, ItemResult]] = []
        self._read = suite.reader()

    def feed(self, line: str) -> None:
        """Keep a line; log the result that it ends."""
        self.lines.append(line)
        ended = self._read(line)
        if ended is not None:
            self.results.append(ended)
            _log.info("%s", _text(*ended))

    @property
    def summary(self) -> str:
        """The results so far, one a line."""
        return "\n".join(_text(*each) for each in self.results)


def _text(name: str, result: ItemResult) -> str:
    return f"{name}: {result.ended.value}" + (f": {result.reason}" if result.reason else "")


def controller(suite: ControllerSuite, program: str, env: Mapping[str, str]) -> LocalHost:
    """Return this machine with the environment and the directory that the suite's program needs."""
    path = Path(shutil.which(program) or program).absolute()
    return LocalHost(environment=env, directory=path.parent if suite.beside_program else None)


class ControllerItem(ExternalItem):
    """A test that runs on the controller."""

    suite: ControllerSuite

    def runtest(self) -> None:
        """Run the test and report its result."""
        info = self._target_info()
        if info.at_risk:
            self._refuse(info.at_risk)
        found = Implementation(info.implementation, info.version)
        apply_known_issues(self, self.selection.known_issues, self.test, self.variant, found=found)
        run = self.suite.invocation(self.test, self.variant.options, info)
        argv = (self.program, *run.argv[1:]) if self.selection.program else run.argv
        output = RunOutput(self.suite)
        try:
            with controller(self.suite, self.program, run.env) as host:
                done = host.run(argv, deadline=run.deadline, check=False, on_line=output.feed)
        except HostError as error:
            self.add_report_section("call", "stdout", "\n".join(output.lines))
            if isinstance(error, DeadlineExceeded):
                self._query(self.suite.look_again)
            raise
        finally:
            if output.results:
                self.add_report_section("call", "results", output.summary)
        self.add_report_section("call", "stdout", done.stdout)
        result = self.suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        if result.ended is ItemOutcome.BROKEN:
            self._query(self.suite.look_again)
        report_result(self, result)

    def _refuse(self, reason: str) -> NoReturn:
        """Raise DataAtRisk at the target's first test, and skip the others because of it."""
        refused = self.config.stash.setdefault(_REFUSED, set())
        if self._key in refused:
            pytest.skip(f"{self.variant.target}: {reason}")
        refused.add(self._key)
        raise DataAtRisk(f"{self.variant.target}: {reason}")

    @property
    def _key(self) -> tuple[str, str]:
        return self.suite.name, self.variant.target

    def _target_info(self) -> TargetInfo:
        """Query the target once; undo at the end of the run what the query made."""
        infos = self.config.stash.setdefault(_TARGETS, {})
        if self._key not in infos:
            info = self._query(self.suite.look)
            self.config.add_cleanup(partial(self.suite.release, self.variant.options, info))
            infos[self._key] = info
        return infos[self._key]

    def _query(self, look: Callable[[Any], _Found]) -> _Found:
        """Query the target. Raises TargetDead if it is dead; its other tests are then skipped."""
        try:
            return look(self.variant.options)
        except RemoteProtocolError as error:  # not a claim of the test, so no known issue excuses it
            raise WorkloadError(f"{self.variant.id}: the target cannot be identified: {error}") from error
