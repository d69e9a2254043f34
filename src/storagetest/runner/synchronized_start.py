"""Start loads on several clients at the same instant; abort all of them if one fails.

Theory. Every load runs in a thread of the controller and is ready when its client's barrier reports so. When
all running loads are ready, the controller chooses an instant far enough ahead for the order to reach all
clients, and sends it to each by its own clock. A load may start several times (the phases of an agent,
several fio runs): each time all wait for each other.

Rules:

1. Clocks are compared immediately before the first start.
2. If a load fails or a client is lost before all are done, all loads are ended before the function returns,
   except on a lost client.
3. A client is *lost* if its connection is. That is :class:`ClientLost`, which names the client; the error of
   a load is raised as it is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from storagetest.errors import HostError, StoragetestError, WorkloadError
from storagetest.measure.run import Sample
from storagetest.runner.start_barriers import ClockOffset, StartBarrier, measure_clock_offsets
from storagetest.workloads.base import StartBarrierRef

Load = Callable[[StartBarrierRef], Sample]

_AHEAD = 0.25
"""Least time in seconds between the order to start and the instant: more than the barriers' lead."""

_AHEAD_A_CLIENT = 0.002
_ROUND_TRIPS_AHEAD = 5
_SWITCHES = 20_000
"""Limit of requests for the interpreter per second by all threads together.

Each thread that waits for the interpreter requests it every ``sys.getswitchinterval()``; a thousand loads
that end at once would use a whole processor for that.
"""

_TIMEOUT = 120.0
_POLL_PERIOD = 0.2
"""Seconds in which all clients are polled once."""

_ENDS = 45.0
"""Seconds that loads may take to end after an abort: an agent removes its files first."""


class ClientLost(Exception):
    """A client was lost during a synchronized run; the text names it and the cause."""


@dataclass(frozen=True, slots=True)
class ClientRun:
    """Result of one client's load.

    ``instants`` are the ordered starts, ``starts`` the first I/Os (as many, if known); both by the
    controller's clock.
    """

    client: str
    sample: Sample
    clock: ClockOffset
    instants: tuple[float, ...] = ()
    starts: tuple[float, ...] = ()

    @property
    def instant(self) -> float:
        """The first of the instants; 0 if the load waited for none."""
        return self.instants[0] if self.instants else 0.0


@dataclass
class _Participant:
    """One client's load, and the thread that waits for it."""

    barrier: StartBarrier
    clock: ClockOffset
    load: Load
    sample: Sample | None = None
    failure: BaseException | None = None
    failed_at: float = 0.0
    ready: bool = False
    waits_locally: bool = False
    starts: list[float] = field(default_factory=list)
    instants: list[float] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"load-{self.barrier.name}", daemon=True)

    @property
    def ended(self) -> bool:
        return not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self.sample = self.load(StartBarrierRef(self.barrier.directory, self._wait_for_start, _TIMEOUT))
        except BaseException as error:  # raised by run_synchronized
            self.failure, self.failed_at = error, time.monotonic()

    def _wait_for_start(self) -> None:
        """Wait for the instant in the load's own thread, for a load that runs on the controller."""
        self.waits_locally = self.ready = True
        if not self.released.wait(_TIMEOUT) or self.cancelled:
            raise WorkloadError(f"{self.barrier.name}: the common start of the clients was cancelled")
        self.released.clear()
        time.sleep(max(0.0, self.instants[-1] - time.monotonic()))
        self.starts.append(time.monotonic())

    def poll(self, seconds: float) -> None:
        """Read one message of the barrier."""
        message = self.barrier.read_line(seconds)
        if message and "ready" in message:
            self.ready = True

    def release(self, instant: float) -> None:
        self.ready = False
        self.instants.append(instant)
        if self.waits_locally:
            self.waits_locally = False
            self.released.set()
        else:
            self.barrier.send_line(f"go {round((instant + self.clock.offset) * 1e9)}")


def run_synchronized(barriers: Sequence[StartBarrier], loads: Sequence[Load]) -> list[ClientRun]:
    """Run each of ``loads`` on its client, all started together; return the results in their order.

    Raises :class:`ClientLost`, or the error of the first load that failed.
    """
    clocks = _clocks(barriers)
    participants = [_Participant(*each) for each in zip(barriers, clocks, loads, strict=True)]
    with _longer_switch_interval(len(participants)):
        for participant in participants:
            participant.thread.start()
        try:
            while ready := _wait_until_ready(participants):
                _release(ready)
        except BaseException:
            _cancel(participants)
            raise
    return [_client_run(participant) for participant in participants]


@contextmanager
def _longer_switch_interval(threads: int) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(max(before, threads / _SWITCHES))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _clocks(barriers: Sequence[StartBarrier]) -> list[ClockOffset]:
    try:
        return measure_clock_offsets(barriers)
    except HostError as error:
        raise ClientLost(f"a client was lost before the start: {error}") from error


def _wait_until_ready(participants: Sequence[_Participant]) -> list[_Participant]:
    """Wait until all running loads are ready, and return them; an empty list if all are done."""
    while True:
        pending = [each for each in participants if not each.ended and not each.ready]
        _raise_first_failure(participants)
        if not pending:
            return [participant for participant in participants if not participant.ended]
        each = max(0.001, _POLL_PERIOD / len(pending))
        for participant in pending:
            try:
                participant.poll(each)
            except HostError as error:
                raise _lost(participant, error) from error


def _release(participants: Sequence[_Participant]) -> None:
    error = max(participant.clock.error for participant in participants)
    ahead = _AHEAD + _AHEAD_A_CLIENT * len(participants) + 2 * _ROUND_TRIPS_AHEAD * error
    instant = time.monotonic() + ahead
    for participant in participants:
        try:
            participant.release(instant)
        except HostError as lost:
            raise _lost(participant, lost) from lost


def _raise_first_failure(participants: Sequence[_Participant]) -> None:
    """Raise the error of the load that failed first, if any."""
    failed = [each for each in participants if each.ended and each.failure is not None]
    if not failed:
        return
    first = min(failed, key=lambda participant: participant.failed_at)
    assert first.failure is not None
    if isinstance(first.failure, HostError):
        raise _lost(first, first.failure) from first.failure
    # A lost client also fails its load; if both are seen, the client is reported.
    with suppress(HostError):
        first.poll(0.05)
        raise first.failure
    raise _lost(first, HostError(str(first.failure))) from first.failure


def _lost(participant: _Participant, error: HostError) -> ClientLost:
    return ClientLost(f"{participant.barrier.name} was lost during the run: {error}")


def _cancel(participants: Sequence[_Participant]) -> None:
    """End every load, and wait until they have ended."""
    for participant in participants:
        participant.cancelled = True
        participant.released.set()
        with suppress(StoragetestError):
            participant.barrier.send_line("stop")
    until = time.monotonic() + _ENDS
    for participant in participants:
        participant.thread.join(max(0.0, until - time.monotonic()))


def _client_run(participant: _Participant) -> ClientRun:
    assert participant.sample is not None
    ahead = participant.clock.offset + participant.clock.wall
    starts = (*participant.starts, *(at - ahead for at in participant.sample.first_ios))
    return ClientRun(
        participant.barrier.name, participant.sample, participant.clock, tuple(participant.instants), starts
    )
