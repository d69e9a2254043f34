"""A gate, and what became of it: PASS, FAIL or INVALID, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from storagetest.measure.run import Metric
from storagetest.measure.stats import Interval

__all__ = ["Interval", "Outcome", "Threshold", "Verdict"]


class Outcome(Enum):
    """INVALID is not a pass: the measurement does not carry a verdict, and says why."""

    PASS = "PASS"  # noqa: S105  # no password
    FAIL = "FAIL"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Threshold:
    """An absolute gate such as ``iops >= 20000``: ``op`` is ``>=`` or ``<=``, ``bound`` in the base unit.

    ``text`` is what the user wrote and ``place`` where (``file:line:col``, or the marker's).
    """

    metric: Metric
    op: str
    bound: float
    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one gate. ``reason`` is one sentence for a person, with units."""

    outcome: Outcome
    threshold: Threshold
    interval: Interval | None
    reason: str
