"""The controller's side of start barriers: one per client, which reports the client's clock and starts loads.

The other side is :mod:`storagetest.agent.commands.start_barrier`, which documents the theory. A barrier is
opened once for a case and kept; it is an agent session on the client's connection.
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

_LONGEST = 24 * 3600.0
_LATER = 15.0
_START_TIMEOUT = 60.0
_REPLY_TIMEOUT = 20.0
_ROUND_TRIPS = 12
_GOOD_ENOUGH = 250e-6
"""Clock error in seconds at which no further round trip is needed; a start may be off by forty times that."""

_AT_LEAST = 4
_CONCURRENT_CLOCKS = 16
"""Clients whose clocks are compared at the same time; more would delay each other's round trips."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of a client's CLOCK_MONOTONIC from the controller's in seconds, and its ``error``.

    The error is half of the shortest round trip, because the client read its clock within it. ``wall`` is the
    offset of the client's CLOCK_REALTIME from its CLOCK_MONOTONIC.
    """

    offset: float
    error: float
    wall: float = 0.0


class StartBarrier:
    """One client's start barrier. Use as a context manager: at its end the client's loads are ended."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.name = host.name
        self.directory = ""
        self._stack = ExitStack()
        self._process: InteractiveProcess | None = None

    def __enter__(self) -> StartBarrier:
        request = {"command": "start_barrier", "path": "its barrier", "deadline": _LONGEST}
        process = self._stack.enter_context(
            open_agent_session(self.host, request, deadline=_LONGEST + _LATER)
        )
        self._process = process
        try:
            self.directory = str(self.expect("directory", _START_TIMEOUT)["directory"])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process = None
        with suppress(StoragetestError):  # a lost client has been reported already
            self._stack.close()

    @property
    def _session(self) -> InteractiveProcess:
        if self._process is None:
            raise HostError(f"{self.name}: its start barrier is closed")
        return self._process

    def send_line(self, line: str) -> None:
        """Send one line to the barrier. Raises :class:`HostError`."""
        self._session.send_line(line)

    def read_line(self, seconds: float) -> dict[str, Any] | None:
        """Return the barrier's next message within ``seconds``, or None.

        Raises :class:`HostError` if the client is lost.
        """
        try:
            message = json.loads(self._session.read_line(seconds))
        except DeadlineExceeded:
            return None
        except ValueError:
            return {}  # output of another program
        if not isinstance(message, dict):
            return {}
        if message.get("t") == "error":
            raise HostError(f"{self.name}: its start barrier failed: {message.get('message')}")
        return message

    def expect(self, name: str, seconds: float) -> dict[str, Any]:
        """Return the next message with the key ``name``. Raises :class:`HostError` after ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = self.read_line(left)
            if message and name in message:
                return message
        raise HostError(f"{self.name}: its start barrier sent no {name!r} within {seconds:g} s")

    def clock(self) -> ClockOffset:
        """Compare the client's clock with the controller's: the shortest of several round trips counts."""
        best = ClockOffset(0.0, float("inf"))
        for number in range(_ROUND_TRIPS):
            before = time.monotonic()
            self.send_line("clock")
            message = self.expect("clock", _REPLY_TIMEOUT)
            after = time.monotonic()
            if (after - before) / 2 < best.error:
                remote, wall = float(message["clock"]) * 1e-9, float(message.get("wall", 0)) * 1e-9
                best = ClockOffset(remote - (before + after) / 2, (after - before) / 2, wall)
            if best.error <= _GOOD_ENOUGH and number + 1 >= _AT_LEAST:
                break
        return best


def open_barriers(hosts: Sequence[Host], stack: ExitStack) -> list[StartBarrier]:
    """Open a start barrier on each host; ``stack`` closes them, all at once."""
    barriers = [StartBarrier(host) for host in hosts]

    def close() -> None:
        run_concurrently(lambda barrier: barrier.__exit__(), barriers, name="start-barrier")

    stack.callback(close)
    return run_concurrently(lambda barrier: barrier.__enter__(), barriers, name="start-barrier")


def measure_clock_offsets(barriers: Sequence[StartBarrier]) -> list[ClockOffset]:
    """Return the clock offset of each client."""
    return run_concurrently(StartBarrier.clock, barriers, at_once=_CONCURRENT_CLOCKS, name="clock")
