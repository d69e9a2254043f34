"""A gate and its verdict: PASS, FAIL, LEARNING or INVALID, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from storagetest.measure.run import Metric
from storagetest.measure.stats import Interval

BASELINE = "baseline"
"""The ``against`` of a gate that is relative to stored runs."""


class Outcome(Enum):
    """Outcome of a gate. INVALID is not a pass: the measurement allows no verdict, for a stated reason.

    LEARNING is neither: the baseline has too few sessions for a verdict. It fails no case, unless
    ``--st-strict``.
    """

    PASS = "PASS"  # noqa: S105  # no password
    FAIL = "FAIL"
    LEARNING = "LEARNING"
    INVALID = "INVALID"


class Shape(Enum):
    """Required relation of the points of a curve."""

    FLAT = "flat"
    RISING = "rising"
    FALLING = "falling"
    KNEE = "knee"


@dataclass(frozen=True, slots=True)
class PointRange:
    """The points of a gate: ``quantity`` over ``parameter`` at the levels from ``low`` to ``high``."""

    quantity: str
    parameter: str
    low: int
    high: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Threshold:
    """A gate such as ``iops >= 20000``: ``op`` is ``>=`` or ``<=``, ``bound`` in the base unit.

    If ``against`` is set, ``bound`` is a factor of its value: 0.95 for ``iops >= baseline - 5 %``
    (``against`` is :data:`BASELINE`), 1.1 for ``p99: nfs-v4.2 <= 1.1 x nfs-v3`` (a variant's id). ``text`` is
    the user's text and ``place`` its location (``file:line:col``, or the marker's).

    A gate between the ``points`` of a curve (:mod:`storagetest.verdict.point_threshold`) has the curve's
    parameter in ``against``; ``bound`` is the share of another point that a point has at least, or the knee's
    level. ``points`` is not stored.
    """

    metric: Metric
    op: str
    bound: float
    text: str
    place: str = ""
    against: str = ""
    points: PointRange | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of one gate. ``reason`` is one sentence for the user, with units.

    ``interval`` is the metric's, in its base unit; if the threshold is relative, it is the ratio's.
    ``alarmed_at`` is the number of runs after which a gate first alarmed. ``final`` means that no further run
    changes an INVALID. Both serve the decision on further runs and are not stored. ``visible_loss`` is the
    loss that a gate against a baseline finds, as a share of the baseline (0.18 is 18 % worse).
    """

    outcome: Outcome
    threshold: Threshold
    interval: Interval | None
    reason: str
    alarmed_at: int | None = field(default=None, compare=False)
    final: bool = field(default=False, compare=False)
    visible_loss: float | None = None
