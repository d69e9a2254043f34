"""Tests of foreign suites that run on the machine that runs pytest."""

from __future__ import annotations

import pytest

from storagetest.errors import DeadlineExceeded, RemoteProtocolError, WorkloadError
from storagetest.external.base import ControllerSuite, ItemOutcome, TargetInfo
from storagetest.hosts import LocalHost
from storagetest.plugin.conformance.known_issues import apply_known_issues
from storagetest.plugin.external.item import ExternalItem, report_result

__all__ = ["ControllerItem"]

_TARGETS = pytest.StashKey[dict[str, TargetInfo]]()


class ControllerItem(ExternalItem):
    """A test that runs on the machine that runs pytest."""

    suite: ControllerSuite

    def runtest(self) -> None:
        """Run the test and report its result."""
        info = self._target_info()
        reported = {self.suite.reports: info.implementation}
        apply_known_issues(self, self.selection.known_issues, self.test, self.variant, **reported)
        run = self.suite.invocation(self.test, self.variant.options, may_erase=info.may_erase)
        argv = (self.program, *run.argv[1:]) if self.selection.program else run.argv
        try:
            with LocalHost() as host:
                done = host.run(argv, deadline=run.deadline, check=False, env=run.env)
        except DeadlineExceeded:
            self._query()
            raise
        self.add_report_section("call", "stdout", done.stdout)
        verdict = self.suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        if verdict.ended is ItemOutcome.BROKEN:
            self._query()
        report_result(verdict)

    def _target_info(self) -> TargetInfo:
        """Query the target once."""
        infos = self.config.stash.setdefault(_TARGETS, {})
        if self.variant.target not in infos:
            infos[self.variant.target] = self._query()
        return infos[self.variant.target]

    def _query(self) -> TargetInfo:
        """Query the target: a dead one raises TargetDead, and its other tests are skipped."""
        try:
            return self.suite.look(self.variant.options)
        except RemoteProtocolError as error:  # no claim of the test, so that no known issue excuses it
            raise WorkloadError(f"{self.variant.id}: the target cannot be identified: {error}") from error
