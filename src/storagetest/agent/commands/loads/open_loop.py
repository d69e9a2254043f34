"""Requests that come when they come: a given rate of random reads and writes, an open loop.

A closed loop waits for an answer before it asks again, so a target that stalls is asked less, and the stall
is counted once. Here the moments at which requests are due are drawn before anything begins, and whichever
worker is free takes the next. *Service time* is from when a request was made; *response time* from when it
was due: so what queues up behind a stall is charged to it (no coordinated omission).

The plan: ``rate`` times ``seconds`` requests. ``poisson``: at independent random moments, which is what a
Poisson process is once the number of its events is known; ``linear``: evenly spaced. It is an array of
nanoseconds in a file in memory that all workers read through one open file description, whose position the
kernel moves for each read: so a request is taken once, without a lock of ours.

A request that could not be begun by ``seconds`` and a tenth of it (at least a second) is not made any more:
the rate was not reached, and the report says how many there were.

Request: ``path`` (of the file or device), ``workers``, ``block``, ``size`` (bytes used), ``rate`` (a second),
``seconds``, ``process``, ``read_percent``, ``direct`` (O_DIRECT), ``seed``.
"""

from __future__ import annotations

import os
import random
import time
from array import array
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import CommandError, PhaseBarrier

__all__ = ["plan", "run"]

_DUE = 8
"""Bytes of a moment in the plan."""


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Make the requests; see the module."""
    moments = plan(request["rate"], request["seconds"], request["process"], request["seed"])
    memory = os.memfd_create("storagetest-plan")
    fsutil.write_all(memory, memoryview(moments).cast("B"))
    # Opened by a name, reads move the position one after another; through memfd_create's own descriptor they
    # do not lock it (no FMODE_ATOMIC_POS), and two workers now and then took one request.
    tickets = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
    crew = job.start_workers(request["workers"], lambda index: _Worker(request, index, tickets))
    crew.call("open")
    job.phase("requests", "work", to_the_last=True)
    return job.result(planned=len(moments), workers=crew.call("story"))


def plan(rate: float, seconds: float, process: str, seed: int) -> array[int]:
    """Return when the requests are due: nanoseconds after the start, ascending."""
    count = int(rate * seconds)
    if process == "linear":
        return array("q", (int(number / rate * 1e9) for number in range(count)))
    if process != "poisson":
        raise CommandError("request", f"no process is called {process!r}")
    drawn = random.Random(seed)  # noqa: S311  # repeatable on purpose
    return array("q", sorted(int(drawn.random() * seconds * 1e9) for _ in range(count)))


class _Worker:
    """One of those who take requests."""

    def __init__(self, request: dict[str, Any], index: int, tickets: int) -> None:
        self.path, self.tickets = os.fsencode(request["path"]), tickets
        self.block, self.blocks = request["block"], request["size"] // request["block"]
        self.read_share = request["read_percent"] / 100
        self.limit = int((request["seconds"] + max(1.0, request["seconds"] / 10)) * 1e9)
        self.flags = os.O_RDWR if self.read_share < 1 else os.O_RDONLY
        self.flags |= os.O_DIRECT if request["direct"] else 0
        self.random = random.Random(request["seed"] * 1000 + index)  # noqa: S311  # repeatable on purpose
        self.service, self.response = OpLog(sized=True), OpLog()
        self.last = 0

    def open(self) -> None:
        self.descriptor = os.open(self.path, self.flags)
        self.buffer = fsutil.aligned(self.block)
        self.buffer[:] = os.urandom(self.block)

    def work(self, gate: PhaseBarrier) -> dict[str, OpLog]:
        """Take requests until there are none."""
        here, service, response = [memoryview(self.buffer)], self.service, self.response
        block, blocks, draw = self.block, self.blocks, self.random.random
        start = gate.wait()
        over = start + self.limit
        while len(ticket := os.read(self.tickets, _DUE)) == _DUE:
            due = start + int.from_bytes(ticket, "little")
            wait = due - now()
            if wait > 0:
                time.sleep(wait * 1e-9)
            began = now()
            if began >= over:
                break
            place = int(draw() * blocks) * block
            if draw() < self.read_share:
                done = os.preadv(self.descriptor, here, place)
            else:
                self.buffer[:8] = began.to_bytes(8, "little")
                done = os.pwritev(self.descriptor, here, place)
            if done != block:
                raise OSError(5, f"no whole block at {place}", self.path)
            end = service.add(began, block)
            response.ends.append(end)
            response.latencies.append(end - due)
            self.last = began - start
        return {"service": service, "response": response}

    def story(self) -> dict[str, Any]:
        """Return how many requests it made, and when it began its last, in seconds after the start."""
        return {"made": len(self.response.ends), "last": self.last * 1e-9}
