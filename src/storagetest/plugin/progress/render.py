"""Where progress is shown: lines that renew themselves on a terminal, a line now and then in a log.

Rules:

1. What is shown changes nothing that pytest prints, on a terminal not even for a moment.
2. A log gets no control characters; nothing for cases shorter than :data:`FIRST`, then something every
   :data:`AGAIN` seconds, so that whoever ends silent jobs sees that this one lives.
3. ``-q`` keeps logs as short as they were asked to be: nothing there. ``-qq`` shows nothing anywhere.
4. Under xdist the workers tell the controller (:mod:`storagetest.plugin.progress.xdist_channel`); it alone
   writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import pytest

from storagetest.plugin.progress.model import Message, ProgressState
from storagetest.plugin.progress.terminal_overlay import TerminalOverlay, duplicate

__all__ = ["AGAIN", "FIRST", "ProgressDisplay", "how"]

FIRST = 30.0
AGAIN = 60.0
_TICK = 1.0
_CALM = 1.0
"""Seconds that something must last before a terminal shows it: what is over at once would only flicker."""

_LOOKS = {"line": 2.0, "log": 15.0}
"""How often the display wants to know what moves, in seconds."""

_MOST = 4
"""So many processes are shown; of more it is said how many."""


def how(config: pytest.Config, reporter: pytest.TerminalReporter | None, env: Mapping[str, str]) -> str:
    """Return ``line``, ``log`` or ``off``: what was asked for, or what suits where pytest writes."""
    asked: str = config.option.st_progress
    if reporter is None or asked == "off":
        return "off"
    if asked != "auto":
        return asked
    if reporter.verbosity < -1:
        return "off"
    capable = reporter.isatty and env.get("TERM", "dumb") != "dumb"
    on_ci = bool(env.get("CI") or env.get("BUILD_NUMBER"))
    if capable and not on_ci and config.option.capture in {"fd", "sys"}:
        return "line"
    return "log" if reporter.verbosity >= 0 else "off"


class _Shows(Protocol):
    def show(self, now: Mapping[str, ProgressState]) -> None: ...

    def close(self) -> None: ...


class ProgressDisplay:
    """What is measured now by each process, shown again every second by a thread of its own."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter | None) -> None:
        mode = how(config, reporter, os.environ)
        self.every = _LOOKS.get(mode, 0.0)
        self._now: dict[str, ProgressState] = {}
        self._lock = threading.Lock()
        self._begun, self._ended = threading.Event(), threading.Event()
        self._shows: _Shows | None = None
        if reporter is not None and mode == "line":
            self._shows = _TerminalRenderer(reporter)
        elif reporter is not None and mode == "log":
            self._shows = _LogRenderer(reporter, midline=_begins_a_line(config, reporter))
        self._thread = threading.Thread(target=self._run, name="storagetest-progress", daemon=True)

    def take(self, who: str, said: Message | None) -> None:
        """Take in what the process ``who`` says; None: it measures nothing any more."""
        if self._shows is None or self._ended.is_set():
            return
        with self._lock:
            if said is None or said.get("done"):
                self._now.pop(who, None)
                self._shows.show(dict(self._now))
            else:
                self._now.setdefault(who, ProgressState()).take(said)
                self._begun.set()
                if self._thread.ident is None:
                    self._thread.start()

    def close(self) -> None:
        """Show nothing any more."""
        if self._shows is None or self._ended.is_set():
            return
        self._ended.set()
        self._begun.set()
        if self._thread.ident is not None:
            self._thread.join(2 * _TICK)
        self._shows.close()

    def _run(self) -> None:
        while self._begun.wait() and not self._ended.is_set():
            with self._lock:
                if self._now and self._shows is not None:
                    self._shows.show(dict(self._now))
                else:
                    self._begun.clear()
            self._ended.wait(_TICK)


class _TerminalRenderer:
    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._screen = TerminalOverlay(reporter)

    def show(self, now: Mapping[str, ProgressState]) -> None:
        at = time.monotonic()
        lasting = [one for one in now.values() if at - min(one.case_since, one.phase_since) >= _CALM]
        if not lasting:
            self._screen.hide()
            return
        lines = [line for one in lasting[:_MOST] for line in one.lines(self._screen.width - 1, at)]
        if len(lasting) > _MOST:
            lines.append(f"  and {len(lasting) - _MOST} more")
        self._screen.show(lines)

    def close(self) -> None:
        self._screen.close()


class _LogRenderer:
    """Lines of a log. With ``midline`` pytest goes on with a line break of its own."""

    def __init__(
        self,
        reporter: pytest.TerminalReporter,
        *,
        midline: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter, self._midline, self._clock = reporter, midline, clock
        self._writer = reporter._tw  # noqa: SLF001  # pytest offers its width in no other way
        self._out = duplicate(self._writer._file)  # noqa: SLF001
        self._last = 0.0

    def show(self, now: Mapping[str, ProgressState]) -> None:
        at = self._clock()
        long = [one for one in now.values() if at - one.case_since >= FIRST]
        if not long or at - self._last < AGAIN:
            return
        self._last = at
        lines = [line for one in long[:_MOST] for line in one.lines(self._writer.fullwidth, at)]
        begin = "\n" if self._writer.width_of_current_line else ""
        if self._reporter.verbosity > 0:
            self._reporter.currentfspath = None  # so pytest writes the case's name again, on a new line
        self._writer._current_line = lines[-1] if self._midline else ""  # noqa: SLF001
        with suppress(OSError, ValueError):  # whoever reads the log has gone: pytest will find out
            self._out.write(begin + "\n".join(lines) + ("" if self._midline else "\n"))
            self._out.flush()

    def close(self) -> None:
        """Nothing to take away."""
        self._out.close()


def _begins_a_line(config: pytest.Config, reporter: pytest.TerminalReporter) -> bool:
    """Whether pytest begins a new line itself after ours: where it repeats the case's name."""
    distributed = config.pluginmanager.hasplugin("dsession")
    return reporter.verbosity > 0 and not distributed and config.option.capture in {"fd", "sys"}
