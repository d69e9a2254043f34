"""Output of progress: lines updated in place on a terminal, a line per minute in a log.

Rules:

1. The display does not change pytest's own output, on a terminal not even for a moment.
2. A log gets no control characters. It gets nothing for cases shorter than :data:`FIRST`, then a line every
   :data:`AGAIN` seconds, so that a CI system does not end the job for lack of output.
3. With ``-q`` nothing is written to a log, with ``-qq`` nothing to a terminal either.
4. Under xdist the workers send messages to the controller (:mod:`storagetest.plugin.progress.xdist_channel`),
   and only the controller writes.
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

FIRST = 30.0
AGAIN = 60.0
_TICK = 1.0
_LEAST_DURATION = 1.0
"""Seconds that a phase lasts before a terminal shows it, so that the display does not flicker."""

_THROUGHPUT_EVERY = {"line": 2.0, "log": 15.0}
"""Interval of throughput messages in seconds, by kind of display."""

_MOST = 4
"""Number of processes that are shown; further ones are only counted."""


def how(config: pytest.Config, reporter: pytest.TerminalReporter | None, env: Mapping[str, str]) -> str:
    """Return ``line``, ``log`` or ``off``: the value of ``--st-progress``, or a choice by pytest's output."""
    option: str = config.option.st_progress
    if reporter is None or option == "off":
        return "off"
    if option != "auto":
        return option
    if reporter.verbosity < -1:
        return "off"
    capable = reporter.isatty and env.get("TERM", "dumb") != "dumb"
    on_ci = bool(env.get("CI") or env.get("BUILD_NUMBER"))
    if capable and not on_ci and config.option.capture in {"fd", "sys"}:
        return "line"
    return "log" if reporter.verbosity >= 0 else "off"


class _Renderer(Protocol):
    def show(self, states: Mapping[str, ProgressState]) -> None: ...

    def close(self) -> None: ...


class ProgressDisplay:
    """The progress of each process, rendered every second by a separate thread."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter | None) -> None:
        mode = how(config, reporter, os.environ)
        self.every = _THROUGHPUT_EVERY.get(mode, 0.0)
        self._states: dict[str, ProgressState] = {}
        self._lock = threading.Lock()
        self._begun, self._ended = threading.Event(), threading.Event()
        self._renderer: _Renderer | None = None
        if reporter is not None and mode == "line":
            self._renderer = _TerminalRenderer(reporter)
        elif reporter is not None and mode == "log":
            self._renderer = _LogRenderer(reporter, midline=_begins_new_line(config, reporter))
        self._thread = threading.Thread(target=self._run, name="storagetest-progress", daemon=True)

    def update(self, process: str, message: Message | None) -> None:
        """Apply a message of ``process``; None: its measurement ended."""
        if self._renderer is None or self._ended.is_set():
            return
        with self._lock:
            if message is None or message.get("done"):
                self._states.pop(process, None)
                self._renderer.show(dict(self._states))
            else:
                self._states.setdefault(process, ProgressState()).update(message)
                self._begun.set()
                if self._thread.ident is None:
                    self._thread.start()

    def close(self) -> None:
        """Clear the display and stop its thread."""
        if self._renderer is None or self._ended.is_set():
            return
        self._ended.set()
        self._begun.set()
        if self._thread.ident is not None:
            self._thread.join(2 * _TICK)
        self._renderer.close()

    def _run(self) -> None:
        while self._begun.wait() and not self._ended.is_set():
            with self._lock:
                if self._states and self._renderer is not None:
                    self._renderer.show(dict(self._states))
                else:
                    self._begun.clear()
            self._ended.wait(_TICK)


class _TerminalRenderer:
    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._overlay = TerminalOverlay(reporter)

    def show(self, states: Mapping[str, ProgressState]) -> None:
        at = time.monotonic()
        lasting = [
            one for one in states.values() if at - min(one.case_since, one.phase_since) >= _LEAST_DURATION
        ]
        if not lasting:
            self._overlay.hide()
            return
        lines = [line for one in lasting[:_MOST] for line in one.lines(self._overlay.width - 1, at)]
        if len(lasting) > _MOST:
            lines.append(f"  and {len(lasting) - _MOST} more")
        self._overlay.show(lines)

    def close(self) -> None:
        self._overlay.close()


class _LogRenderer:
    """Writes lines to a log. With ``midline`` pytest begins its next output with a line break."""

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

    def show(self, states: Mapping[str, ProgressState]) -> None:
        at = self._clock()
        long = [one for one in states.values() if at - one.case_since >= FIRST]
        if not long or at - self._last < AGAIN:
            return
        self._last = at
        lines = [line for one in long[:_MOST] for line in one.lines(self._writer.fullwidth, at)]
        begin = "\n" if self._writer.width_of_current_line else ""
        if self._reporter.verbosity > 0:
            self._reporter.currentfspath = None  # so pytest writes the case's name again, on a new line
        self._writer._current_line = lines[-1] if self._midline else ""  # noqa: SLF001
        with suppress(OSError, ValueError):  # the log is closed: pytest reports it
            self._out.write(begin + "\n".join(lines) + ("" if self._midline else "\n"))
            self._out.flush()

    def close(self) -> None:
        """Close the duplicated file."""
        self._out.close()


def _begins_new_line(config: pytest.Config, reporter: pytest.TerminalReporter) -> bool:
    """Whether pytest begins a new line after a progress line, because it repeats the case's name."""
    distributed = config.pluginmanager.hasplugin("dsession")
    return reporter.verbosity > 0 and not distributed and config.option.capture in {"fd", "sys"}
