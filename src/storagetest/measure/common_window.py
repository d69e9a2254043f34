"""When many were at work, and what each of them did in the time in which all were. Pure.

Each client's *span* says when its first and its last worker began, and when the first and the last of them
ended. The *window* of several spans on one clock is from when the last client began to when the first one
ended: only then were all at work. What a client did in the window follows from its own course over time where
it has one, and else is taken to be even; in both cases it adds up to what was counted over its whole span.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "ActivitySpan",
    "ClientSummary",
    "ConcurrencySummary",
    "Window",
    "outliers",
    "rate_in_window",
    "window",
]

_FEWEST_FOR_FENCES = 4


@dataclass(frozen=True, slots=True)
class ActivitySpan:
    """When a client was at work: its ``first`` worker began, its last one (``since``); the first of them
    ended (``until``), and the ``last`` one. In seconds by a monotonic clock.
    """

    first: float
    since: float
    until: float
    last: float

    def shifted(self, offset: float) -> ActivitySpan:
        """Return it by a clock that is ``offset`` seconds behind."""
        return ActivitySpan(self.first - offset, self.since - offset, self.until - offset, self.last - offset)


@dataclass(frozen=True, slots=True)
class Window:
    """When all were at work, from ``began`` to ``ended``; ``last`` is when the last one was done."""

    began: float
    ended: float
    last: float

    @property
    def seconds(self) -> float:
        """How long it is; 0 where there was no such time."""
        return max(0.0, self.ended - self.began)

    @property
    def tail(self) -> float:
        """The seconds from first done to last done."""
        return self.last - self.ended


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """One client of many in a repeat.

    ``values`` are the metrics of its summary. ``started`` is when its first I/O began and ``ended`` when it
    was done, in seconds after the instant that all had agreed on (None: not known); ``clock_error`` is how
    far its clock may be off (s).
    """

    client: str
    values: Mapping[str, float]
    started: float | None = None
    ended: float | None = None
    clock_error: float = 0.0


@dataclass(frozen=True, slots=True)
class ConcurrencySummary:
    """How many clients worked together in a repeat; times in seconds after the agreed instant.

    ``spread`` is the time between the first I/O of the first and of the last client (None: not known),
    ``limit`` what was allowed. All were at work for ``seconds``, until ``first_done``; ``last_done`` is the
    end of the last. ``outliers`` are the clients whose rate lies beyond Tukey's fences.
    """

    spread: float | None
    limit: float
    clock_error: float
    seconds: float
    first_done: float
    last_done: float
    members: tuple[ClientSummary, ...]
    outliers: tuple[str, ...] = ()


def window(spans: Sequence[ActivitySpan]) -> Window:
    """Return the window of ``spans``, of which there is at least one."""
    return Window(
        began=max(span.since for span in spans),
        ended=min(span.until for span in spans),
        last=max(span.last for span in spans),
    )


def rate_in_window(
    rate: float, span: ActivitySpan, common: Window, timeline: Sequence[tuple[float, float]] = ()
) -> float:
    """Return a client's mean rate in the window ``common``; 0 where that is empty.

    ``rate`` is its mean over its whole span, ``course`` its rate over time: each value is that of the time
    since the point before it, in seconds after the span's ``since``.
    """
    length = span.until - span.since
    if common.seconds <= 0 or length <= 0:
        return 0.0
    low, high = common.began - span.since, common.ended - span.since
    amount = sum(
        share * max(0.0, min(end, high) - max(begin, low)) / (end - begin)
        for begin, end, share in _shares(rate * length, length, timeline)
    )
    return rate * length * amount / common.seconds


def _shares(
    total: float, length: float, timeline: Sequence[tuple[float, float]]
) -> list[tuple[float, float, float]]:
    """Return (begin, end, share of ``total``) of pieces from 0 to ``length``; the shares add up to 1.

    What ``timeline`` does not cover gets what is missing in it. Amounts are divided before they are
    multiplied, because a product of numbers near the smallest float loses all its digits.
    """
    pieces: list[tuple[float, float, float]] = []
    covered = 0.0
    for time, value in timeline:
        end = min(time, length)
        if end > covered and value >= 0:
            pieces.append((covered, end, (end - covered) * value))
            covered = end
    counted = sum(amount for _, _, amount in pieces)
    if covered < length:
        pieces.append((covered, length, max(0.0, total - counted)))
        counted += pieces[-1][2]
    if counted <= 0:
        return [(0.0, length, 1.0)]
    return [(begin, end, amount / counted) for begin, end, amount in pieces]


def outliers(values: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names whose values lie beyond Tukey's fences (1.5 interquartile ranges off the quartiles).

    The farthest from the median comes first. Fewer than four values have no fences.
    """
    if len(values) < _FEWEST_FOR_FENCES:
        return ()
    low, middle, high = statistics.quantiles(values.values(), n=4, method="inclusive")
    reach = 1.5 * (high - low)
    beyond = [name for name, value in values.items() if value < low - reach or value > high + reach]
    return tuple(sorted(beyond, key=lambda name: -abs(values[name] - middle)))
