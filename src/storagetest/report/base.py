"""What a report is given: one :class:`Record` for every finished case, and a :class:`Summary` at the end.

Reports subscribe and print. None of them computes a figure: values come from the samples, intervals from the
verdicts, and what must be aggregated is aggregated by :mod:`storagetest.measure`.

Records are made where the case runs and reported by the controlling process alone, so one process writes each
file. The one exception is Allure, which must be spoken to inside the running test, in the process that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from storagetest.measure.run import Run
from storagetest.verdict.base import Verdict

__all__ = ["Record", "Reporter", "Status", "Summary"]


class Status(Enum):
    """How a case ended. INVALID is neither a pass nor a fail; ERROR says that our own line broke."""

    PASSED = "passed"
    FAILED = "failed"
    INVALID = "invalid"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Record:
    """One finished case.

    ``failure`` is the message of a case that did not pass. ``artefacts`` (name → text) is what was collected
    for a person to look at, such as ``dmesg`` and ``mountstats`` after a failure. ``nodeid`` is pytest's.
    """

    run: Run
    status: Status
    verdicts: tuple[Verdict, ...] = ()
    failure: str | None = None
    artefacts: Mapping[str, str] = field(default_factory=dict)
    nodeid: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a session: cases by status, wall ``seconds``, and the ``environment`` (name → value)."""

    counts: Mapping[Status, int] = field(default_factory=dict)
    seconds: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)


class Reporter(Protocol):
    """A subscriber. Called in the controlling process only, from one thread."""

    def on_record(self, record: Record) -> None:
        """Take one finished case."""

    def on_finish(self, summary: Summary) -> None:
        """Finish; no record follows."""
