"""The time in which all clients were active, and the rate of each client within it. Pure.

Each client's *span* states when its first and its last worker started, and when the first and the last of
them ended. The *window* of several spans on one clock is from the start of the last client to the end of the
first: only then all were active. A client's amount in the window follows from its own timeline. Without a
timeline its rate is taken as constant. In both cases the amounts over the whole span add up to what was
counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_FEWEST_FOR_FENCES = 4


@dataclass(frozen=True, slots=True)
class ActivitySpan:
    """Times of a client's workers in seconds by a monotonic clock.

    The ``first`` worker started, the last one started (``since``), the first one ended (``until``), and the
    ``last`` one ended.
    """

    first: float
    since: float
    until: float
    last: float

    def shifted(self, offset: float) -> ActivitySpan:
        """Return the span by a clock that is ``offset`` seconds behind."""
        return ActivitySpan(self.first - offset, self.since - offset, self.until - offset, self.last - offset)


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which all clients were active; ``last`` is when the last one ended."""

    began: float
    ended: float
    last: float

    @property
    def seconds(self) -> float:
        """Length of the window; 0 if there is none."""
        return max(0.0, self.ended - self.began)

    @property
    def tail(self) -> float:
        """Seconds from the end of the first client to that of the last."""
        return self.last - self.ended


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """Summary of one client in a repeat of many clients.

    ``values`` are the metrics of its headline. ``started`` is its first I/O and ``ended`` its end, in seconds
    after the common start (None: not known). ``clock_error`` is the error of its clock offset in seconds.
    """

    client: str
    values: Mapping[str, float]
    started: float | None = None
    ended: float | None = None
    clock_error: float = 0.0


@dataclass(frozen=True, slots=True)
class ConcurrencySummary:
    """Summary of the clients that ran concurrently in a repeat; times in seconds after the common start.

    ``spread`` is the time between the first I/Os of the first and of the last client (None: not known),
    ``limit`` the allowed spread. All were active for ``seconds``, until ``first_done``; ``last_done`` is the
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
    """Return a client's mean rate in the window ``common``; 0 if the window is empty.

    ``rate`` is its mean over its whole span. Each value of ``timeline`` is the rate since the point before
    it, in seconds after the span's ``since``.
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

    The time that ``timeline`` does not cover gets the missing amount. Amounts are divided before they are
    multiplied, because a product of numbers near the smallest float loses its digits.
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
    fence = 1.5 * (high - low)
    beyond = [name for name, value in values.items() if value < low - fence or value > high + fence]
    return tuple(sorted(beyond, key=lambda name: -abs(values[name] - middle)))
