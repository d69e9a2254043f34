"""What is being measured right now, in words: from the runner's :class:`Progress` to lines for a person.

A message is plain JSON values, because under xdist it comes from another process. Nothing here knows where
the lines go; see :mod:`storagetest.plugin.progress.render`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from storagetest.report.terminal import shortened
from storagetest.runner import MeasurementPhase, ProgressEvent
from storagetest.units import format_throughput, format_value

__all__ = ["Message", "ProgressSink", "ProgressState", "clock", "message", "silent", "waiting"]

Message = dict[str, Any]
_STALE = 3
"""A rate older than so many of its own intervals is not the current one any more."""

_NOTHING = 0.005 * (1 << 20)
"""Bytes a second below which nothing moves, in what is printed."""


@dataclass(frozen=True, slots=True)
class ProgressSink:
    """Where a process says what it measures: :meth:`tell` a message, or None when it measures no more.

    ``every`` is how often somebody wants to know what moves, in seconds; 0: nobody does.
    """

    tell: Callable[[Message | None], None]
    every: float = 0.0


silent = ProgressSink(lambda _: None)


def message(progress: ProgressEvent) -> Message:
    """Return what ``progress`` says."""
    case, flow = progress.case, progress.throughput
    headline = progress.last[:1] + progress.last[1:][-1:]
    return {
        "who": f"{case.variant} on {case.client}",
        "what": progress.title or case.workload,
        "phase": progress.phase.value,
        "repeat": progress.repeat,
        "of": progress.of,
        "at_most": progress.phase is MeasurementPhase.STEADY_STATE,
        "elapsed": progress.elapsed,
        "expected": progress.expected,
        "settled": progress.steady_state,
        "last": ", ".join(f"{one.name} {format_value(value, one.unit.value)}" for one, value in headline),
        "flow": None if flow is None else [flow.read, flow.written, flow.seconds],
        "done": progress.phase is MeasurementPhase.DONE,
    }


def waiting(who: str, what: str) -> Message:
    """Return the message that a case waits for its machines."""
    return {"who": who, "what": what, "phase": "waits until nobody else uses its client or server"}


@dataclass
class ProgressState:
    """What one process measures: the messages so far, and when they came by this machine's clock."""

    said: Message = field(default_factory=dict)
    case_since: float = 0.0
    phase_since: float = 0.0
    flow: tuple[float, float, float] | None = None
    flow_at: float = 0.0
    lasted: list[float] = field(default_factory=list)
    """Seconds that each repeat of this case took, with all that belongs to it."""

    def take(self, said: Message, at: float | None = None) -> None:
        """Take in a message that came ``at`` (``time.monotonic``)."""
        at = time.monotonic() if at is None else at
        before, self.said = self.said, said
        same_case = (before.get("who"), before.get("what")) == (said.get("who"), said.get("what"))
        if not same_case or float(said.get("elapsed") or 0.0) < at - self.case_since - 5.0:
            self.case_since, self.lasted, before = at - float(said.get("elapsed") or 0.0), [], {}
        if _step(before) != _step(said):
            if before.get("phase") == MeasurementPhase.MEASURE.value:
                self.lasted.append(at - self.phase_since)
            self.phase_since, self.flow = at, None
        flow = said.get("flow")
        if flow:
            self.flow, self.flow_at = (float(flow[0]), float(flow[1]), float(flow[2])), at

    def lines(self, width: int, at: float | None = None) -> list[str]:
        """Return two lines of at most ``width`` columns: whose case it is and how long, and what it does."""
        at = time.monotonic() if at is None else at
        first = f"{self.said.get('who', '')}: {self.said.get('what', '')}"
        total = self._total(at)
        lasts = f", {clock(at - self.case_since)}" + (f" of about {clock(total)}" if total else "")
        second = self._phase(at)
        for more in (self._moving(at), self._steady(), self._last()):
            if more and len(second) + len(more) + 6 <= width:
                second += f", {more}"
        head = shortened(printable(first), max(16, width - 2 - len(lasts)))
        return [f"  {head}{lasts}"[:width], f"    {printable(second)}"[:width]]

    def _phase(self, at: float) -> str:
        said = self.said
        text = str(said.get("phase", ""))
        if said.get("of"):
            most = "at most " if said.get("at_most") else ""
            text += f" {said.get('repeat')} of {most}{said.get('of')}"
        lasts = clock(at - self.phase_since)
        expected = said.get("expected")
        return f"{text}, {lasts} of {clock(float(expected))}" if expected else f"{text}, {lasts}"

    def _moving(self, at: float) -> str:
        """Say what moves; empty where that is not known, or was known too long ago."""
        if self.flow is None or at - self.flow_at > _STALE * max(self.flow[2], 1.0):
            return ""
        read, written, _ = self.flow
        words = [
            f"{word} {format_throughput(rate)}"
            for word, rate in (("reading", read), ("writing", written))
            if rate >= _NOTHING
        ]
        return " and ".join(words) or "no data moves"

    def _steady(self) -> str:
        return str(self.said.get("settled") or "")

    def _last(self) -> str:
        last = self.said.get("last")
        return f"last {last}" if last else ""

    def _total(self, at: float) -> float | None:
        """Return how long the case takes in all, as far as can be said from here."""
        said = self.said
        expected, repeat, of = said.get("expected"), int(said.get("repeat") or 0), int(said.get("of") or 0)
        if not expected or not of or said.get("at_most"):
            return None
        each = max(float(expected), sum(self.lasted) / len(self.lasted) if self.lasted else 0.0)
        return max(self.phase_since - self.case_since + each * (of - repeat + 1), at - self.case_since)


def _step(said: Mapping[str, Any]) -> tuple[Any, Any]:
    return said.get("phase"), said.get("repeat")


def clock(seconds: float) -> str:
    """Return ``1:47``, or ``2:03:10`` from an hour on."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def printable(text: str) -> str:
    """Return ``text`` with a question mark for whatever would move a cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
