"""Tests of foreign suites that run on the controller."""

from __future__ import annotations

import pytest

from storagetest.config.implementations import Implementation
from storagetest.errors import DeadlineExceeded, RemoteProtocolError, WorkloadError
from storagetest.external.base import ControllerSuite, ItemOutcome, TargetInfo
from storagetest.hosts import LocalHost
from storagetest.plugin.conformance.known_issues import apply_known_issues
from storagetest.plugin.external.item import ExternalItem, report_result

_TARGETS = pytest.StashKey[dict[str, TargetInfo]]()


class ControllerItem(ExternalItem):
    """A test that runs on the controller."""

    suite: ControllerSuite

    def runtest(self) -> None:
        """Run the test and report its result."""
        info = self._target_info()
        found = Implementation(info.implementation, info.version)
        apply_known_issues(self, self.selection.known_issues, self.test, self.variant, found=found)
        run = self.suite.invocation(self.test, self.variant.options, may_erase=info.may_erase)
        argv = (self.program, *run.argv[1:]) if self.selection.program else run.argv
        try:
            with LocalHost() as host:
                done = host.run(argv, deadline=run.deadline, check=False, env=run.env)
        except DeadlineExceeded:
            self._query()
            raise
        self.add_report_section("call", "stdout", done.stdout)
        result = self.suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        if result.ended is ItemOutcome.BROKEN:
            self._query()
        report_result(result)

    def _target_info(self) -> TargetInfo:
        """Query the target once."""
        infos = self.config.stash.setdefault(_TARGETS, {})
        if self.variant.target not in infos:
            infos[self.variant.target] = self._query()
        return infos[self.variant.target]

    def _query(self) -> TargetInfo:
        """Query the target. Raises TargetDead if it is dead; its other tests are then skipped."""
        try:
            return self.suite.look(self.variant.options)
        except RemoteProtocolError as error:  # not a claim of the test, so no known issue excuses it
            raise WorkloadError(f"{self.variant.id}: the target cannot be identified: {error}") from error
