"""Loads on many clients that begin together, and what becomes of all when one does not.

Theory. Every load runs in a thread of ours that waits for it, and is ready when its client's gate says so.
When all that are still at work are ready, an instant is named far enough ahead for the word to reach
everybody, to each by its own clock. A load may begin several times (an agent's phases, fio runs one after
another): each time all wait for each other again.

Rules:

1. Clocks are compared right before a meeting.
2. One that fails or is lost before the others are done ends the meeting: they are told to end, and are gone
   before
   it is over, unless their client is lost too.
3. A client is *lost* when its connection is. That is :class:`ClientLost`, which names it; a load that fails
   is
   what it raised.
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

__all__ = ["ClientLost", "ClientRun", "run_synchronized"]

Load = Callable[[StartBarrierRef], Sample]

_AHEAD = 0.1
"""Seconds from the naming of an instant to the instant, at the least."""

_AHEAD_A_CLIENT = 0.002
_ROUND_TRIPS_AHEAD = 5
_SWITCHES = 20_000
"""How often in a second all threads together may ask for the interpreter: each that waits for it asks every
``sys.getswitchinterval()``, and when a thousand loads end at once that alone fills a processor.
"""

_PATIENCE = 120.0
_PASS = 0.2
"""Seconds in which all clients are listened to once."""

_ENDS = 45.0
"""Seconds that loads may take to end when told to: an agent tidies first."""


class ClientLost(Exception):
    """A client went away in the middle of a meeting; the text names it and says how."""


@dataclass(frozen=True, slots=True)
class ClientRun:
    """What one client's load brought.

    ``instants`` are when it was to begin, ``starts`` when its first I/Os were (as many, where it knows); both
    by our clock.
    """

    client: str
    sample: Sample
    clock: ClockOffset
    instants: tuple[float, ...] = ()
    starts: tuple[float, ...] = ()

    @property
    def instant(self) -> float:
        """The first of the instants; 0 where it waited for none."""
        return self.instants[0] if self.instants else 0.0


@dataclass
class _Participant:
    """One client's load, and the thread that waits for it."""

    gate: StartBarrier
    clock: ClockOffset
    load: Load
    sample: Sample | None = None
    failure: BaseException | None = None
    failed_at: float = 0.0
    ready: bool = False
    here: bool = False
    starts: list[float] = field(default_factory=list)
    instants: list[float] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    called_off: bool = False
    thread: threading.Thread | None = None

    @property
    def over(self) -> bool:
        assert self.thread is not None
        return not self.thread.is_alive()

    def begin(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"load-{self.gate.name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.sample = self.load(StartBarrierRef(self.gate.place, self._arrive, _PATIENCE))
        except BaseException as error:  # raised where the meeting is held
            self.failure, self.failed_at = error, time.monotonic()

    def _arrive(self) -> None:
        """Wait for the instant in the load's own thread, here on the controller."""
        self.here = self.ready = True
        if not self.go.wait(_PATIENCE) or self.called_off:
            raise WorkloadError(f"{self.gate.name}: the clients' common start was called off")
        self.go.clear()
        time.sleep(max(0.0, self.instants[-1] - time.monotonic()))
        self.starts.append(time.monotonic())

    def listen(self, seconds: float) -> None:
        """Take in what its gate says."""
        heard = self.gate.read_line(seconds)
        if not heard:
            return
        if "ready" in heard:
            self.ready = True

    def let_go(self, instant: float) -> None:
        self.ready = False
        self.instants.append(instant)
        if self.here:
            self.here = False
            self.go.set()
        else:
            self.gate.send_line(f"go {round((instant + self.clock.offset) * 1e9)}")


def run_synchronized(gates: Sequence[StartBarrier], loads: Sequence[Load]) -> list[ClientRun]:
    """Run each of ``loads`` on its client, begun together, and return what they brought, in their order.

    Raises :class:`ClientLost`, or what the first load that failed raised.
    """
    known = _clocks(gates)
    guests = [_Participant(*each) for each in zip(gates, known, loads, strict=True)]
    with _seldom_switched(len(guests)):
        for guest in guests:
            guest.begin()
        try:
            while ready := _gather(guests):
                _let_go(ready)
        except BaseException:
            _call_off(guests)
            raise
    return [_attended(guest) for guest in guests]


@contextmanager
def _seldom_switched(threads: int) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(max(before, threads / _SWITCHES))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _clocks(gates: Sequence[StartBarrier]) -> list[ClockOffset]:
    try:
        return measure_clock_offsets(gates)
    except HostError as error:
        raise ClientLost(f"a client was lost before the start: {error}") from error


def _gather(guests: Sequence[_Participant]) -> list[_Participant]:
    """Wait until all that are not done are ready, and return them; none, when all are done."""
    while True:
        pending = [guest for guest in guests if not guest.over and not guest.ready]
        _look_for_failure(guests)
        if not pending:
            return [guest for guest in guests if not guest.over]
        each = max(0.001, _PASS / len(pending))
        for guest in pending:
            try:
                guest.listen(each)
            except HostError as error:
                raise _lost(guest, error) from error


def _let_go(guests: Sequence[_Participant]) -> None:
    error = max(guest.clock.error for guest in guests)
    ahead = _AHEAD + _AHEAD_A_CLIENT * len(guests) + 2 * _ROUND_TRIPS_AHEAD * error
    instant = time.monotonic() + ahead
    for guest in guests:
        try:
            guest.let_go(instant)
        except HostError as lost:
            raise _lost(guest, lost) from lost


def _look_for_failure(guests: Sequence[_Participant]) -> None:
    """Raise what the first load that failed raised, if one has."""
    failed = [guest for guest in guests if guest.over and guest.failure is not None]
    if not failed:
        return
    first = min(failed, key=lambda guest: guest.failed_at)
    assert first.failure is not None
    if isinstance(first.failure, HostError):
        raise _lost(first, first.failure) from first.failure
    # A client that goes away ends its load, too; whichever is seen first, it is the client that is lost.
    with suppress(HostError):
        first.listen(0.05)
        raise first.failure
    raise _lost(first, HostError(str(first.failure))) from first.failure


def _lost(guest: _Participant, error: HostError) -> ClientLost:
    return ClientLost(f"{guest.gate.name} was lost in mid-run: {error}")


def _call_off(guests: Sequence[_Participant]) -> None:
    """Tell every load to end, and wait until they have."""
    for guest in guests:
        guest.called_off = True
        guest.go.set()
        with suppress(StoragetestError):
            guest.gate.send_line("stop")
    until = time.monotonic() + _ENDS
    for guest in guests:
        assert guest.thread is not None
        guest.thread.join(max(0.0, until - time.monotonic()))


def _attended(guest: _Participant) -> ClientRun:
    assert guest.sample is not None
    ahead = guest.clock.offset + guest.clock.wall
    starts = (*guest.starts, *(at - ahead for at in guest.sample.first_ios))
    return ClientRun(guest.gate.name, guest.sample, guest.clock, tuple(guest.instants), starts)
