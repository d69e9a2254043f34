"""Readers that must not stall: each takes a frame of its file every so often, as a player does.

An open loop: frame number n of a reader is due to begin at its start plus n / ``rate``, whether or not the
one before was late, so that a target that stalls is charged with every frame it held up (no coordinated
omission). *Service time* is from when the read was made; *response time* from when it was due. One read is
in flight a reader: one that cannot keep up falls behind, and is late from then on. A frame that is not
there ``within`` seconds after it was due is missed. Readers begin spread evenly over the time of one frame.

When the frames of ``seconds`` are read, or ``within`` seconds later, it is over; what was not read by then
is missed too. ``achieved`` of a reader is the rate at which it began frames over the rate that was asked
for.

Each reader has a region of ``size`` bytes of one file or device, which is filled; at its end it goes on at
its beginning.

Request: ``path`` (of the file or device), ``streams``, ``frame`` (bytes), ``size``, ``rate`` (frames per
second), ``seconds``, ``within`` (the deadline, s), ``direct`` (O_DIRECT).
"""

from __future__ import annotations

import os
import time
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

__all__ = ["run"]


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Play; see the module."""
    crew = job.start_workers(request["streams"], lambda index: _Reader(request, index))
    crew.call("open")
    job.phase("play", "play", to_the_last=True)
    return job.result(readers=crew.call("story"))


class _Reader:
    """One player."""

    def __init__(self, request: dict[str, Any], index: int) -> None:
        self.path, self.start = os.fsencode(request["path"]), index * request["size"]
        self.frame, self.rate = request["frame"], request["rate"]
        self.whole = request["size"] // self.frame
        self.frames = int(request["seconds"] * self.rate)
        self.deadline = int(request["within"] * 1e9)
        self.limit = int((request["seconds"] + request["within"]) * 1e9)
        self.offset = int(1e9 / self.rate * index / request["streams"])
        self.direct = os.O_DIRECT if request["direct"] else 0
        self.service, self.response = OpLog(sized=True), OpLog()
        self.gap = 0

    def open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDONLY | self.direct)
        self.buffer = fsutil.aligned(self.frame)

    def play(self, gate: PhaseBarrier) -> dict[str, OpLog]:
        """Read the frames, each when it is due."""
        here, read, frame = [memoryview(self.buffer)], os.preadv, self.frame
        gate.wait()
        first = gate.began + self.offset
        over = gate.began + self.limit
        before = first
        for number in range(self.frames):
            due = first + int(number / self.rate * 1e9)
            wait = due - now()
            if wait > 0:
                time.sleep(wait * 1e-9)
            began = now()
            if began >= over:
                break
            place = self.start + number % self.whole * frame
            if read(self.descriptor, here, place) != frame:
                raise OSError(5, f"no whole frame at {place}", self.path)
            end = self.service.add(began, frame)
            self.response.ends.append(end)
            self.response.latencies.append(end - due)
            self.gap = max(self.gap, end - before)
            before = end
        return {"service": self.service, "response": self.response}

    def achieved(self) -> float:
        """Return the rate at which frames were begun, over that which was asked for.

        A stall now and then is no lower rate, if the reader catches up: so what counts is how late it was
        when it was least late, in the last quarter of its frames.
        """
        done = len(self.response.ends)
        if done < 2:
            return 0.0
        waits = map(int.__sub__, self.response.latencies, self.service.latencies)
        behind = max(0, min(list(waits)[-max(1, done // 4) :]))
        asked = (done - 1) / self.rate * 1e9
        return float(min(asked / (asked + behind), done / self.frames))

    def story(self) -> dict[str, Any]:
        """Return what the lanes do not say."""
        late = sum(latency > self.deadline for latency in self.response.latencies)
        done = len(self.response.ends)
        return {
            "frames": self.frames,
            "read": done,
            "missed": late + self.frames - done,
            "achieved": self.achieved(),
            "longest_gap": self.gap * 1e-9,
            "longest_response": max(self.response.latencies, default=0) * 1e-9,
        }
