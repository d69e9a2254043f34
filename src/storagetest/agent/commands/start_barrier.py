"""Start barrier of one client: report the clock, start loads at a given time, and end them on request.

Theory. Clients start together if each starts at the same time by its own clock. The controller compares each
client's clock with its own (a command and its reply are a round trip; the shortest of several is the most
exact), and loads that are ready wait without using the processor. This command does both. Loads wait at the
FIFOs of :mod:`storagetest.agent.barrier`; it sleeps until the start and then releases them.

A load that waits by a shell has work to do between the barrier and its first I/O: the shell ends, and its
parent has to notice that. With many loads on few processors this spreads the starts by tens of milliseconds.
So the parents are stopped (SIGSTOP) :data:`~storagetest.agent.barrier.LEAD` before the start, the shells are
released and end, and at the start the parents continue (SIGCONT). If a parent cannot be stopped, the shells
are released at the start.

On a busy machine, or one with several clients, barriers and loads waited at that moment for a processor,
behind each other and behind the loads that had started: tens of milliseconds. So a barrier runs with
real-time priority from :data:`LEAD` before the start on, and its stopped parents get it for :data:`_HURRY`
after the start, the time of a first I/O. That needs CAP_SYS_NICE (sched(7)); without it nothing changes.

The process serves all repeats of a case, with new FIFOs for each start. It ends when its stdin ends, so also
if the controller dies or the connection is lost; then it ends the loads that it has started or that wait.

The request has only a deadline. Then each line of stdin is a command:

- ``clock``: report ``clock`` (CLOCK_MONOTONIC, ns) and ``wall`` (CLOCK_REALTIME minus CLOCK_MONOTONIC, ns);
- ``go NS``: release the waiting loads at that time of CLOCK_MONOTONIC;
- ``stop``: end every load that waits or was started since the last new FIFOs, and all that come later.

Output, as *progress* messages (:mod:`storagetest.agent`): first ``directory`` (of the barrier); ``ready``
(the number of waiting processes) when all processes of a load wait; ``late`` (ns by which ``go`` came after
its time; 0: in time); ``stopped`` (the ids of processes that got SIGTERM). The load itself reports its first
I/O.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.barrier import GO, LEAD, PARENT, READY, SCRIPT
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import now, sleep_until
from storagetest.agent.worker_pool import CommandError

_CHUNK = 1 << 16
_HURRY = 8_000_000
"""Nanoseconds before and after the start, in which loads get and have a real-time priority."""


def run(_request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Serve the barrier until stdin ends."""
    directory = fsutil.make_memory_directory("storagetest-barrier")
    server = _BarrierServer(directory, context)
    try:
        context.progress(directory=directory)
        server.serve()
    finally:
        server.stop()
        with suppress(OSError):
            fsutil.remove(os.fsencode(directory))
    return {"barriers": server.barriers}


class _BarrierFifos:
    """The two FIFOs of one start, and the processes that wait at them, each (pid, start time)."""

    def __init__(self, path: str) -> None:
        os.mkdir(path)
        for name in (READY, GO):
            os.mkfifo(f"{path}/{name}")
        self.ready = os.open(f"{path}/{READY}", os.O_RDONLY | os.O_NONBLOCK)
        self.go = os.open(f"{path}/{GO}", os.O_RDWR | os.O_NONBLOCK)
        self.waiting: list[tuple[int, str]] = []
        self.parents: set[tuple[int, str]] = set()
        self.expected = 0
        self._rest = b""

    def read(self) -> bool:
        """Read which processes wait; return whether a process still has ``ready`` open."""
        with suppress(BlockingIOError):
            data = os.read(self.ready, _CHUNK)
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                pid, expected, *kind = line.split()
                process = (int(pid), _start_ticks(int(pid)))
                self.waiting.append(process)
                self.expected = int(expected)
                if kind == [PARENT.encode()]:
                    self.parents.add(process)
        return True

    @property
    def complete(self) -> bool:
        return bool(self.waiting) and len(self.waiting) >= self.expected

    def close(self) -> None:
        for descriptor in (self.ready, self.go):
            if descriptor >= 0:
                os.close(descriptor)
        self.ready = self.go = -1


class _BarrierServer:
    """Reads commands, makes FIFOs, and releases and ends the loads. ``barriers`` counts the FIFO pairs."""

    def __init__(self, directory: str, context: CommandContext) -> None:
        self.barriers = 0
        self._directory, self._context = directory, context
        self._rest = b""
        self._instant: int | None = None
        self._reported = False
        self._stopped = False
        self._released: _BarrierFifos | None = None
        self._started: list[tuple[int, str]] = []
        with open(f"{directory}/wait", "w", encoding="ascii") as script:
            script.write(SCRIPT.format(directory=directory))
        self._fifos = self._renew_fifos()

    def serve(self) -> None:
        """Serve until stdin ends."""
        while True:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            if not self._reported:
                poll.register(self._fifos.ready, select.POLLIN)
            limit = self._context.until - time.monotonic()
            if limit <= 0:
                raise CommandError("deadline", "the start barrier's deadline is over")
            if self._instant is not None:
                limit = min(limit, (self._instant - LEAD - now()) * 1e-9)
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, limit) * 1000)}
            if self._instant is not None and now() >= self._instant - LEAD:
                self._release()
                continue
            if not self._reported and self._fifos.ready in ready:
                self._check_waiting()
            if 0 in ready and not self._read_commands():
                return

    def stop(self) -> None:
        """End the loads, and all that come later."""
        self._stopped = True
        stopped = [
            pid
            for pid, ticks in {*self._started, *self._fifos.waiting}
            if _signal(pid, ticks, signal.SIGTERM)
        ]
        for fifos in (self._released, self._fifos):
            if fifos is not None:
                fifos.close()
        self._released, self._instant = None, None
        if os.path.isdir(self._directory):
            self._fifos = self._renew_fifos()
        with suppress(OSError):
            self._context.progress(stopped=stopped)

    def _renew_fifos(self) -> _BarrierFifos:
        """Make new FIFOs; processes that have the old ones open keep them."""
        self.barriers += 1
        self._reported = False
        path = f"{self._directory}/barrier"
        with suppress(FileNotFoundError):
            os.rename(path, f"{self._directory}/barrier.{self.barriers}")
        new = f"{self._directory}/next"
        fifos = _BarrierFifos(new)
        os.rename(new, path)
        return fifos

    def _check_waiting(self) -> None:
        still_open = self._fifos.read()
        if self._stopped and self._fifos.waiting:
            self.stop()
        elif self._fifos.complete:
            self._reported = True
            self._context.progress(ready=len(self._fifos.waiting))
        elif not still_open:  # all processes that waited have ended
            self._fifos.close()
            self._fifos = self._renew_fifos()

    def _read_commands(self) -> bool:
        data = os.read(0, _CHUNK)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            command, _, rest = line.partition(b" ")
            if command == b"clock":
                clock = now()
                self._context.progress(clock=clock, wall=time.time_ns() - clock)
            elif command == b"go":
                self._schedule(int(rest))
            elif command == b"stop":
                self.stop()
        return True

    def _schedule(self, instant: int) -> None:
        """Send the start time to the processes that wait."""
        self._released, self._started = self._fifos, self._fifos.waiting
        self._fifos = self._renew_fifos()
        self._instant = instant
        late = max(0, now() - instant)
        os.write(self._released.go, b"%d\n" % instant)
        self._context.progress(late=late)

    def _release(self) -> None:
        assert self._instant is not None
        assert self._released is not None
        instant, fifos = self._instant, self._released
        self._instant = self._released = None
        with _real_time_priority():
            _start_at(instant, fifos)


def _start_at(instant: int, fifos: _BarrierFifos) -> None:
    """Stop the parents, release the shells, and at the instant continue the parents."""
    paused: list[tuple[int, str]] = []
    hurried: list[int] = []
    try:
        for pid, ticks in fifos.parents:
            if not _signal(pid, ticks, signal.SIGSTOP):
                break
            paused.append((pid, ticks))
        else:
            fifos.close()
        sleep_until(instant - _HURRY)
        hurried = [thread for pid, _ in paused for thread in _hurry(pid)]
        sleep_until(instant)
    finally:
        for pid, ticks in paused:
            _signal(pid, ticks, signal.SIGCONT)
        fifos.close()
        if hurried:
            sleep_until(instant + _HURRY)
        for thread in hurried:
            with suppress(OSError):  # it has ended
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _hurry(pid: int) -> list[int]:
    """Give the process's threads of normal priority a real-time one, below the barriers'; return them."""
    changed: list[int] = []
    with suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
                changed.append(thread)
    return changed


@contextmanager
def _real_time_priority() -> Iterator[None]:
    """Preempt processes of normal priority; without the permission (sched(7)) nothing changes."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)


def _start_ticks(pid: int) -> str:
    """Return a process's start in ticks after boot (proc(5), stat field 22); "" if there is no process."""
    stat = fsutil.read_text(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[19] if stat else ""


def _signal(pid: int, ticks: str, number: signal.Signals) -> bool:
    """Signal a process, if its id has not been reused; return whether it was signalled."""
    if ticks and _start_ticks(pid) == ticks:
        with suppress(OSError):
            os.kill(pid, number)
            return True
    return False
