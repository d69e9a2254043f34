"""Progress messages, and the lines that show the state of a measurement.

A message consists of JSON values, because under xdist it comes from another process. The output of the lines
is in :mod:`storagetest.plugin.progress.render`.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from storagetest.measure.stats import mean
from storagetest.runner import MeasurementPhase, ProgressEvent
from storagetest.units import format_throughput, format_value

Message = dict[str, Any]
_STALE = 3
"""Number of its own intervals after which a throughput is not shown any more."""

_NO_BREAK = "\xa0"

_LEAST_RATE = 0.005 * (1 << 20)
"""Bytes per second; a lower rate is shown as no transfer."""


@dataclass(frozen=True, slots=True)
class ProgressSink:
    """Destination of progress messages. ``send`` takes a message, or None at the end of a measurement.

    ``every`` is the interval of throughput messages in seconds; 0: none are wanted.
    """

    send: Callable[[Message | None], None]
    every: float = 0.0


silent = ProgressSink(lambda _: None)


def message(progress: ProgressEvent) -> Message:
    """Return the message for the event ``progress``."""
    case, rates = progress.case, progress.throughput
    headline = progress.last[:1] + progress.last[1:][-1:]
    return {
        "target": f"{case.variant} on {case.client}",
        "title": progress.title or case.workload,
        "phase": progress.phase.value,
        "repeat": progress.repeat,
        "of": progress.of,
        "at_most": progress.phase is MeasurementPhase.STEADY_STATE,
        "elapsed": progress.elapsed,
        "expected": progress.expected,
        "steady_state": progress.steady_state,
        "last": ", ".join(
            f"{metric.name} {format_value(value, metric.unit.value)}" for metric, value in headline
        ),
        "throughput": None if rates is None else [rates.read, rates.written, rates.seconds],
        "done": progress.phase is MeasurementPhase.DONE,
    }


def waiting(target: str, title: str) -> Message:
    """Return the message of a case that waits for its locks."""
    return {"target": target, "title": title, "phase": "waiting for other runs on its client or server"}


@dataclass
class ProgressState:
    """The measurement of one process: its last message, and times in seconds of ``time.monotonic``."""

    message: Message = field(default_factory=dict)
    case_since: float = 0.0
    phase_since: float = 0.0
    throughput: tuple[float, float, float] | None = None
    throughput_at: float = 0.0
    repeat_seconds: list[float] = field(default_factory=list)
    """Seconds of each completed repeat, with its preparation."""

    def update(self, message: Message, at: float | None = None) -> None:
        """Apply a message received ``at`` (``time.monotonic``)."""
        at = time.monotonic() if at is None else at
        before, self.message = self.message, message
        same_case = all(before.get(key) == message.get(key) for key in ("target", "title"))
        if not same_case or float(message.get("elapsed") or 0.0) < at - self.case_since - 5.0:
            self.case_since, self.repeat_seconds, before = at - float(message.get("elapsed") or 0.0), [], {}
        if _step(before) != _step(message):
            if before.get("phase") == MeasurementPhase.MEASURE.value:
                self.repeat_seconds.append(at - self.phase_since)
            self.phase_since, self.throughput = at, None
        throughput = message.get("throughput")
        if throughput:
            read, written, seconds = map(float, throughput)
            self.throughput, self.throughput_at = (read, written, seconds), at

    def lines(self, width: int, at: float | None = None) -> list[str]:
        """Return lines of at most ``width`` columns: the case with its duration, and last its phase.

        The names of target and case are not cut: they continue on a further line.
        """
        at = time.monotonic() if at is None else at
        first = f"{self.message.get('target', '')}: {self.message.get('title', '')}"
        total = self._total(at)
        duration = f", {clock(at - self.case_since)}" + (f" of about {clock(total)}" if total else "")
        second = self._phase(at)
        last = self.message.get("last")
        steady = str(self.message.get("steady_state") or "")
        for more in (self._throughput(at), steady, f"last {last}" if last else ""):
            if more and len(second) + len(more) + 6 <= width:
                second += f", {more}"
        head = textwrap.wrap(
            printable(first) + duration.replace(" ", _NO_BREAK),
            width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        return [line.replace(_NO_BREAK, " ") for line in head] + [f"    {printable(second)}"[:width]]

    def _phase(self, at: float) -> str:
        message = self.message
        text = str(message.get("phase", ""))
        if message.get("of"):
            most = "at most " if message.get("at_most") else ""
            text += f" {message.get('repeat')} of {most}{message.get('of')}"
        elapsed, expected = at - self.phase_since, message.get("expected")
        total = f" of {clock(max(math.ceil(float(expected)), elapsed))}" if expected else ""
        return f"{text}, {clock(elapsed)}{total}"

    def _throughput(self, at: float) -> str:
        """Return the current throughput; empty if it is unknown or too old."""
        if self.throughput is None or at - self.throughput_at > _STALE * max(self.throughput[2], 1.0):
            return ""
        read, written, _ = self.throughput
        verbs = {"reading": read, "writing": written}
        rates = [f"{verb} {format_throughput(rate)}" for verb, rate in verbs.items() if rate >= _LEAST_RATE]
        return " and ".join(rates) or "no data is transferred"

    def _total(self, at: float) -> float | None:
        """Return the estimated duration of the case in seconds, or None."""
        message = self.message
        expected = message.get("expected")
        repeat, of = (int(message.get(name) or 0) for name in ("repeat", "of"))
        if not expected or not of or message.get("at_most"):
            return None
        each = max(float(expected), mean(self.repeat_seconds) if self.repeat_seconds else 0.0)
        return max(self.phase_since - self.case_since + each * (of - repeat + 1), at - self.case_since)


def _step(message: Mapping[str, Any]) -> tuple[Any, Any]:
    return message.get("phase"), message.get("repeat")


def clock(seconds: float) -> str:
    """Return ``1:47``, or ``2:03:10`` from an hour on."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def printable(text: str) -> str:
    """Return ``text`` with a question mark for each character that is not printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
