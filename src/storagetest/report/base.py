"""Input of the reports: a :class:`Record` of every finished case.

Reports compute no values: values come from the samples, intervals from the verdicts, and aggregates from
:mod:`storagetest.measure`.

The process that runs a case creates its record; only the controlling process reports it, so one process
writes each file. The exception is Allure, whose hooks are called inside the running test, in the process that
runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from storagetest.measure.run import Run
from storagetest.verdict.base import Outcome, Verdict
from storagetest.verdict.baseline_gates import format_share, loss_word


class Status(Enum):
    """How a case ended. INVALID is neither a pass nor a fail; ERROR is a fault of our infrastructure.

    LEARNING: a gate's baseline has too few sessions, and no other gate is worse.
    """

    PASSED = "passed"
    LEARNING = "learning"
    FAILED = "failed"
    INVALID = "invalid"
    ERROR = "error"
    SKIPPED = "skipped"


_WORST_OUTCOME = {Status.FAILED: Outcome.FAIL, Status.LEARNING: Outcome.LEARNING}


@dataclass(frozen=True, slots=True)
class Record:
    """One finished case.

    ``failure`` is the message of a case that did not pass. ``artefacts`` (name → text) are diagnostics
    after a failure, such as ``dmesg`` and ``mountstats``. ``nodeid`` is pytest's.
    ``ended`` is set if the verdicts do not determine the outcome (a false claim, an error).
    """

    run: Run
    verdicts: tuple[Verdict, ...] = ()
    ended: Status | None = None
    failure: str | None = None
    artefacts: Mapping[str, str] = field(default_factory=dict)
    nodeid: str = ""

    @property
    def status(self) -> Status:
        """``ended``, else the worst of the verdicts; an invalid run without a verdict is INVALID."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        if self.ended is not None:
            return self.ended
        if Outcome.FAIL in outcomes:
            return Status.FAILED
        if Outcome.INVALID in outcomes or (self.run.invalid and not outcomes):
            return Status.INVALID
        return Status.LEARNING if Outcome.LEARNING in outcomes else Status.PASSED

    @property
    def insensitive(self) -> tuple[str, ...]:
        """A sentence for each gate that passed and finds only a loss of more than twice its margin."""
        return tuple(
            f"{verdict.threshold.text}: passed, and finds only {loss_word(verdict.threshold)} of"
            f" {format_share(verdict.visible_loss)} or more"
            for verdict in self.verdicts
            if verdict.outcome is Outcome.PASS
            and verdict.visible_loss is not None
            and verdict.visible_loss > 2 * abs(1 - verdict.threshold.bound)
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the case did not pass: its failure, its verdicts', or those of an invalid run."""
        if self.status in (Status.PASSED, Status.SKIPPED):
            return ()
        if self.failure:
            return (self.failure,)
        if self.status is Status.INVALID and self.run.invalid:
            return self.run.invalid  # one cause, and not once for each gate
        outcome = _WORST_OUTCOME.get(self.status, Outcome.INVALID)
        return tuple(verdict.reason for verdict in self.verdicts if verdict.outcome is outcome)
