"""The gate of one client: says what its clock shows, lets loads in at one instant, and ends them when told
to.

Theory. Clients begin together when each begins at the same instant by its own clock. For this somebody on the
client must know its clock well enough for the controller to compare it with its own (one line there and back
is a round trip; of several the shortest tells most), and loads that are ready must wait without using the
processor. A gate does both. Loads wait at its *door* (:mod:`storagetest.agent.barrier`); it sleeps until the
instant, and opens.

A load that waits by a shell has work to do between the door and its first I/O: the shell ends, and who
waited for it takes note. With many loads on few processors that alone spreads them by tens of
milliseconds. So such a load is *held* (SIGSTOP) :data:`~storagetest.agent.barrier.LEAD` before the instant,
the door is opened then, the shells end in peace, and at the instant it goes on (SIGCONT). Where it may
not be held the door opens at the instant.

It stays for all repeats of a case, with a fresh door for each start. It ends when its stdin does, so also
when the controller dies or the connection is lost; and then it ends the loads that it let in, or that still
wait.

The request has nothing but a deadline. Then, a line each:

- ``clock``: answered by ``clock`` (CLOCK_MONOTONIC, ns) and ``wall`` (by how much CLOCK_REALTIME is ahead of
  it, ns);
- ``go NS``: open the door at that time;
- ``stop``: end every load that waits or has been let in since the last door was made, and all that come.

What it says, as lines of *progress* (:mod:`storagetest.agent`): ``directory`` (the directory of its door), at
first; ``ready`` (how many wait) when all of a load wait; ``late`` (ns, by how much the order came after its
time; 0: in time), ``stopped`` (the ids of processes told to end). When a load's first I/O was, the load says.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.barrier import GO, LEAD, PARENT, READY, SCRIPT
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import now
from storagetest.agent.worker_pool import CommandError

__all__ = ["run"]

_MEMORY = "/dev/shm"  # noqa: S108  # FIFOs have names there, and no more
_DISK = "/tmp"  # noqa: S108  # made with a name that nobody can guess, for us alone
_CHUNK = 1 << 16


def run(_request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Keep the gate until stdin ends."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    place = os.path.join(parent or _DISK, f"storagetest-gate-{os.urandom(6).hex()}")
    os.mkdir(place, 0o700)
    gate = _BarrierServer(place, job)
    try:
        job.progress(directory=place)
        gate.keep()
    finally:
        gate.stop()
        with suppress(OSError):
            fsutil.remove(os.fsencode(place))
    return {"doors": gate.doors}


class _BarrierFifos:
    """Two FIFOs, of which this process keeps the other ends."""

    def __init__(self, path: str) -> None:
        os.mkdir(path)
        for name in (READY, GO):
            os.mkfifo(f"{path}/{name}")
        self.ready = os.open(f"{path}/{READY}", os.O_RDONLY | os.O_NONBLOCK)
        self.go = os.open(f"{path}/{GO}", os.O_RDWR | os.O_NONBLOCK)
        self.waiting: list[tuple[int, str]] = []
        self.parents: set[tuple[int, str]] = set()
        self.wanted = 0
        self._rest = b""

    def hear(self) -> bool:
        """Take in who has come; return whether anybody still holds on to ``ready``."""
        with suppress(BlockingIOError):
            data = os.read(self.ready, _CHUNK)
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                pid, wanted, *how = line.split()
                one = (int(pid), _birth(int(pid)))
                self.waiting.append(one)
                self.wanted = int(wanted)
                if how == [PARENT.encode()]:
                    self.parents.add(one)
        return True

    @property
    def complete(self) -> bool:
        return bool(self.waiting) and len(self.waiting) >= self.wanted

    def close(self) -> None:
        for descriptor in (self.ready, self.go):
            if descriptor >= 0:
                os.close(descriptor)
        self.ready = self.go = -1


class _BarrierServer:
    """The one who keeps it."""

    def __init__(self, place: str, job: CommandContext) -> None:
        self.doors = 0
        self._place, self._job = place, job
        self._rest = b""
        self._instant: int | None = None
        self._told = False
        self._stopped = False
        self._open: _BarrierFifos | None = None
        self._let_in: list[tuple[int, str]] = []
        with open(f"{place}/wait", "w", encoding="ascii") as script:
            script.write(SCRIPT.format(place=place))
        self._door = self._hang()

    def keep(self) -> None:
        """Listen until stdin ends."""
        while True:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            if not self._told:
                poll.register(self._door.ready, select.POLLIN)
            limit = self._job.until - time.monotonic()
            if limit <= 0:
                raise CommandError("deadline", "the gate's time is over")
            if self._instant is not None:
                limit = min(limit, (self._instant - LEAD - now()) * 1e-9)
            ready = {one for one, _ in poll.poll(max(0.0, limit) * 1000)}
            if self._instant is not None and now() >= self._instant - LEAD:
                self._let_go()
                continue
            if not self._told and self._door.ready in ready:
                self._meet()
            if 0 in ready and not self._listen():
                return

    def stop(self) -> None:
        """End the loads; who comes later is ended too."""
        self._stopped = True
        told = [
            pid for pid, born in {*self._let_in, *self._door.waiting} if _signal(pid, born, signal.SIGTERM)
        ]
        for door in (self._open, self._door):
            if door is not None:
                door.close()
        self._open, self._instant = None, None
        if os.path.isdir(self._place):
            self._door = self._hang()
        with suppress(OSError):
            self._job.progress(stopped=told)

    def _hang(self) -> _BarrierFifos:
        """Hang a door into the way; the one that is there stays open to those who hold on to it."""
        self.doors += 1
        self._told = False
        way = f"{self._place}/door"
        with suppress(FileNotFoundError):
            os.rename(way, f"{self._place}/door.{self.doors}")
        fresh = f"{self._place}/next"
        door = _BarrierFifos(fresh)
        os.rename(fresh, way)
        return door

    def _meet(self) -> None:
        held = self._door.hear()
        if self._stopped and self._door.waiting:
            self.stop()
        elif self._door.complete:
            self._told = True
            self._job.progress(ready=len(self._door.waiting))
        elif not held:  # whoever waited has gone again
            self._door.close()
            self._door = self._hang()

    def _listen(self) -> bool:
        data = os.read(0, _CHUNK)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"clock":
                at = now()
                self._job.progress(clock=at, wall=time.time_ns() - at)
            elif word == b"go":
                self._name(int(rest))
            elif word == b"stop":
                self.stop()
        return True

    def _name(self, instant: int) -> None:
        """Tell those who wait when they may go in."""
        self._open, self._let_in = self._door, self._door.waiting
        self._door = self._hang()
        self._instant = instant
        late = max(0, now() - instant)
        os.write(self._open.go, b"%d\n" % instant)
        self._job.progress(late=late)

    def _let_go(self) -> None:
        assert self._instant is not None
        assert self._open is not None
        instant, door = self._instant, self._open
        self._instant = self._open = None
        held: list[tuple[int, str]] = []
        try:
            for pid, born in door.parents:
                if not _signal(pid, born, signal.SIGSTOP):
                    break
                held.append((pid, born))
            else:
                door.close()
            time.sleep(max(0, instant - now()) * 1e-9)
        finally:
            for pid, born in held:
                _signal(pid, born, signal.SIGCONT)
            door.close()


def _birth(pid: int) -> str:
    """Return when a process began, in ticks after boot (proc(5), stat field 22); "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _signal(pid: int, born: str, number: signal.Signals) -> bool:
    """Signal a process, if it is still the one that came to the door."""
    if not born or _birth(pid) != born:
        return False
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
