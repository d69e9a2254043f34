"""Gates: one a client, through which the controller knows its clock and lets its load begin.

The other end of each is the agent's command ``gate``, whose module has the theory. A gate is opened once for
a case and kept; it is a conversation on the client's one connection.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from storagetest.concurrency import run_concurrently
from storagetest.errors import DeadlineExceeded, HostError, StoragetestError
from storagetest.hosts.base import Host
from storagetest.hosts.interactive import InteractiveProcess
from storagetest.workloads._agent.run import open_agent_session

__all__ = ["ClockOffset", "StartBarrier", "measure_clock_offsets", "open_barriers"]

_LONGEST = 24 * 3600.0
_LATER = 15.0
_BEGINS = 60.0
_ANSWERS = 20.0
_ROUND_TRIPS = 12
_GOOD_ENOUGH = 250e-6
"""Seconds of error with which nobody asks on; a start is allowed forty times that."""

_AT_LEAST = 4
_LISTENING = 16
"""Clients whose clocks are compared at the same time: more would measure us waiting for each other."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a client's CLOCK_MONOTONIC is ahead of ours (``offset``, s), give or take ``error``.

    The error is half of the shortest round trip: the client looked at its clock somewhere within it. ``wall``
    is how far the client's CLOCK_REALTIME is ahead of its CLOCK_MONOTONIC.
    """

    offset: float
    error: float
    wall: float = 0.0


class StartBarrier:
    """One client's gate. Use as a context manager: at its end the client's loads are told to end."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.name = host.name
        self.place = ""
        self._stack = ExitStack()
        self._talk: InteractiveProcess | None = None

    def __enter__(self) -> StartBarrier:
        request = {"command": "start_barrier", "path": "its door", "deadline": _LONGEST}
        talk = self._stack.enter_context(open_agent_session(self.host, request, deadline=_LONGEST + _LATER))
        self._talk = talk
        try:
            self.place = str(self.expect("directory", _BEGINS)["directory"])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._talk = None
        with suppress(StoragetestError):  # a client that is lost has been named already
            self._stack.close()

    def send_line(self, words: str) -> None:
        """Tell the gate something. Raises :class:`HostError`."""
        if self._talk is None:
            raise HostError(f"{self.name}: its gate is closed")
        self._talk.send_line(words)

    def read_line(self, seconds: float) -> dict[str, Any] | None:
        """Return what the gate says within that time, or None. Raises :class:`HostError` where it is lost."""
        if self._talk is None:
            raise HostError(f"{self.name}: its gate is closed")
        try:
            line = self._talk.read_line(seconds)
        except DeadlineExceeded:
            return None
        try:
            found = json.loads(line)
        except ValueError:
            return {}  # something else on the client prints here
        if not isinstance(found, dict):
            return {}
        if found.get("t") == "error":
            raise HostError(f"{self.name}: its gate failed: {found.get('message')}")
        return found

    def expect(self, what: str, seconds: float) -> dict[str, Any]:
        """Return the next that the gate says with ``what`` in it; :class:`HostError` if that takes longer."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            heard = self.read_line(left)
            if heard and what in heard:
                return heard
        raise HostError(f"{self.name}: its gate said no {what!r} for {seconds:g} s")

    def clock(self) -> ClockOffset:
        """Compare the client's clock with ours: of several round trips the shortest counts."""
        best = ClockOffset(0.0, float("inf"))
        for number in range(_ROUND_TRIPS):
            before = time.monotonic()
            self.send_line("clock")
            heard = self.expect("clock", _ANSWERS)
            after = time.monotonic()
            if (after - before) / 2 < best.error:
                there, wall = float(heard["clock"]) * 1e-9, float(heard.get("wall", 0)) * 1e-9
                best = ClockOffset(there - (before + after) / 2, (after - before) / 2, wall)
            if best.error <= _GOOD_ENOUGH and number + 1 >= _AT_LEAST:
                break
        return best


def open_barriers(hosts: Sequence[Host], stack: ExitStack) -> list[StartBarrier]:
    """Open a gate on each host; ``stack`` closes them, all at once."""
    gates = [StartBarrier(host) for host in hosts]

    def close() -> None:
        run_concurrently(lambda gate: gate.__exit__(), gates, name="gate")

    stack.callback(close)
    return run_concurrently(lambda gate: gate.__enter__(), gates, name="gate")


def measure_clock_offsets(gates: Sequence[StartBarrier]) -> list[ClockOffset]:
    """Return the clock of each."""
    return run_concurrently(StartBarrier.clock, gates, at_once=_LISTENING, name="clock")
