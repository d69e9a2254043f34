"""Open loop: random reads and writes at a given rate, independent of how fast the target completes them.

A closed loop waits for a result before the next request: a stalled target gets fewer requests, and the stall
is counted once. Here the due times of all requests are computed before the start, and the next free worker
takes the next request. *Service time* is measured from the start of the request, *response time* from its due
time. So requests that wait behind a stall have its time in their latencies (no coordinated omission).

The plan has ``rate`` times ``seconds`` requests. ``poisson``: at independent random times, which is a Poisson
process with a known number of events; ``linear``: evenly spaced. It is an array of nanoseconds in a file in
memory that all workers read through one open file description. The kernel moves its position for each read,
so each request is taken once, without a lock.

A request that has not started ``seconds`` / 10 (at least a second) after ``seconds`` is not made: the rate
was not reached. The result has the number of requests that were made.

Request: ``path`` (of the file or device), ``workers``, ``block``, ``size`` (bytes used), ``rate`` (a second),
``seconds``, ``process``, ``read_percent``, ``direct`` (O_DIRECT), ``seed``.
"""

from __future__ import annotations

import os
import random
from array import array
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now, sleep_until
from storagetest.agent.worker_pool import CommandError, PhaseBarrier

_DUE = 8
"""Bytes of one due time in the plan."""


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Make the requests; see the module."""
    due_times = plan(request["rate"], request["seconds"], request["process"], request["seed"])
    memory = os.memfd_create("storagetest-plan")
    fsutil.write_all(memory, memoryview(due_times).cast("B"))
    # Reads through a descriptor opened by name lock the file position; reads through memfd_create's own do
    # not (no FMODE_ATOMIC_POS), and two workers sometimes took the same request.
    tickets = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
    workers = context.start_workers(request["workers"], lambda index: _RequestWorker(request, index, tickets))
    workers.call("open")
    context.phase("requests", "work", until_last_end=True)
    return context.result(planned=len(due_times), workers=workers.call("summary"))


def plan(rate: float, seconds: float, process: str, seed: int) -> array[int]:
    """Return when the requests are due: nanoseconds after the start, ascending."""
    count = int(rate * seconds)
    if process == "linear":
        return array("q", (int(number / rate * 1e9) for number in range(count)))
    if process != "poisson":
        raise CommandError("request", f"process {process!r} does not exist; use poisson or linear")
    drawn = random.Random(seed)  # noqa: S311  # repeatable on purpose
    return array("q", sorted(int(drawn.random() * seconds * 1e9) for _ in range(count)))


class _RequestWorker:
    """A process that takes requests from the plan."""

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

    def work(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Make requests until the plan is at its end or the time is over."""
        buffers, service, response = [memoryview(self.buffer)], self.service, self.response
        block, blocks, draw = self.block, self.blocks, self.random.random
        start = barrier.wait()
        over = start + self.limit
        while len(ticket := os.read(self.tickets, _DUE)) == _DUE:
            due = start + int.from_bytes(ticket, "little")
            sleep_until(due)
            began = now()
            if began >= over:
                break
            offset = int(draw() * blocks) * block
            if draw() < self.read_share:
                done = os.preadv(self.descriptor, buffers, offset)
            else:
                self.buffer[:8] = began.to_bytes(8, "little")
                done = os.pwritev(self.descriptor, buffers, offset)
            if done != block:
                raise OSError(5, f"no whole block at {offset}", self.path)
            end = service.add(began, block)
            response.ends.append(end)
            response.latencies.append(end - due)
            self.last = began - start
        return {"service": service, "response": response}

    def summary(self) -> dict[str, Any]:
        """Return the number of requests, and the start of the last one in seconds after the common start."""
        return {"made": len(self.response.ends), "last": self.last * 1e-9}
