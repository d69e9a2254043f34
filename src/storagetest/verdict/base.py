"""A gate, and what became of it: PASS, FAIL or INVALID, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from storagetest.measure.run import Metric
from storagetest.measure.stats import Interval

__all__ = ["BASELINE", "Interval", "Outcome", "Threshold", "Verdict"]

BASELINE = "baseline"
"""What a gate is against that allows for so much less than stored runs."""


class Outcome(Enum):
    """INVALID is not a pass: the measurement does not carry a verdict, and says why."""

    PASS = "PASS"  # noqa: S105  # no password
    FAIL = "FAIL"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A gate such as ``iops >= 20000``: ``op`` is ``>=`` or ``<=``, ``bound`` in the base unit.

    Where ``against`` is set, ``bound`` is a factor of what it names: 0.95 for ``iops >= baseline - 5 %``
    (``against`` is :data:`BASELINE`), 1.1 for ``p99: nfs-v4.2 <= 1.1 x nfs-v3`` (a variant's id).
    ``text`` is what the user wrote and ``place`` where (``file:line:col``, or the marker's).
    """

    metric: Metric
    op: str
    bound: float
    text: str
    place: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one gate. ``reason`` is one sentence for a person, with units.

    ``interval`` is the metric's, in its base unit; where the threshold is ``against`` something, the ratio's.
    ``alarmed_at`` is the number of runs after which a gate first alarmed, and ``final`` says of an INVALID
    that no further run changes it. Both are for whoever decides on a further run; they are not stored.
    """

    outcome: Outcome
    threshold: Threshold
    interval: Interval | None
    reason: str
    alarmed_at: int | None = field(default=None, compare=False)
    final: bool = field(default=False, compare=False)
