"""Streaming readers: each reads one frame of its file at a fixed rate, as a media player does.

Open loop: frame n of a reader is due at its start plus n / ``rate``, even if the frame before was late. So a
stall of the target is counted in every frame that it delays (no coordinated omission). *Service time* is
measured from the start of the read, *response time* from its due time. Each reader has one read in flight; a
reader that cannot keep up is late from then on. A frame that is not read ``within`` seconds after it was due
is missed. The readers' starts are spread evenly over the time of one frame.

The load ends when the frames of ``seconds`` are read, or ``within`` seconds later; frames not read by then
are missed too. A reader's ``achieved`` is the rate at which it started frames, divided by the requested rate.

Each reader has a filled region of ``size`` bytes of one file or device; after its end the reader continues
at its start.

Request: ``path`` (of the file or device), ``streams``, ``frame`` (bytes), ``size``, ``rate`` (frames per
second), ``seconds``, ``within`` (the deadline, s), ``direct`` (O_DIRECT).
"""

from __future__ import annotations

import os
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now, sleep_until
from storagetest.agent.worker_pool import PhaseBarrier


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the readers; see the module."""
    workers = context.start_workers(request["streams"], lambda index: _Reader(request, index))
    workers.call("open")
    context.phase("play", "play", until_last_end=True)
    return context.result(readers=workers.call("summary"))


class _Reader:
    """One reader process."""

    def __init__(self, request: dict[str, Any], index: int) -> None:
        self.path, self.start = os.fsencode(request["path"]), index * request["size"]
        self.frame, self.rate = request["frame"], request["rate"]
        self.frames_in_region = request["size"] // self.frame
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

    def play(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Read the frames, each when it is due."""
        buffers, read, frame = [memoryview(self.buffer)], os.preadv, self.frame
        barrier.wait()
        first = barrier.began + self.offset
        over = barrier.began + self.limit
        last = first
        for number in range(self.frames):
            due = first + int(number / self.rate * 1e9)
            sleep_until(due)
            began = now()
            if began >= over:
                break
            offset = self.start + number % self.frames_in_region * frame
            if read(self.descriptor, buffers, offset) != frame:
                raise OSError(5, f"no whole frame at {offset}", self.path)
            end = self.service.add(began, frame)
            self.response.ends.append(end)
            self.response.latencies.append(end - due)
            self.gap = max(self.gap, end - last)
            last = end
        return {"service": self.service, "response": self.response}

    def achieved(self) -> float:
        """Return the rate at which frames were started, divided by the requested rate.

        A stall does not lower the rate if the reader catches up. Therefore the result is computed from the
        smallest delay in the last quarter of the frames.
        """
        done = len(self.response.ends)
        if done < 2:
            return 0.0
        waits = map(int.__sub__, self.response.latencies, self.service.latencies)
        behind = max(0, min(list(waits)[-max(1, done // 4) :]))
        planned = (done - 1) / self.rate * 1e9
        return float(min(planned / (planned + behind), done / self.frames))

    def summary(self) -> dict[str, Any]:
        """Return the reader's counts of frames, its rate, and its longest gap and response in seconds."""
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
