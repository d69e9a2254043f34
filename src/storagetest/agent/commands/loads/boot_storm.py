"""A boot storm: many virtual machines start at once from clones of one image.

Each machine is a process with the list of I/O requests of a boot. It makes one request at a time, with pauses
for the computing time of the guest system, and has booted at the end of the list. All machines boot the same
system: their lists are equal, and only the pauses differ.

The list, from ``seed``: ``reads`` reads of the shared base image, then ``writes`` writes to the machine's own
clone, each tenth of which is followed by a read of what was written there and every sixteenth by a flush.
Reads are of 4 to 64 KiB, most of them small. One in five continues where the last ended. The others are at
random offsets in the first eighth of the image (a boot reads a small part of its disk); one in ten of them is
anywhere in the image. Pauses are exponentially distributed with the mean ``think`` (seconds).

On a directory the base image is a file, and a clone is a sparse file that holds only its machine's writes, as
thin clones do. On a block device the image and each clone are consecutive regions of ``image`` and ``clone``
bytes. ``direct`` opens all of them with O_DIRECT, as hypervisors do.

Request: ``path``, ``block`` (whether it is a device), ``step`` (``fill``: write the image, and on a device
the clones; ``boot``), all of the above, ``vms``, ``interval`` (s) of the series, ``seed`` and ``repeat``.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable
from random import Random
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.commands.loads.fill import fill_file
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

_SECTOR = 4096
_SIZES = (4096, 8192, 16384, 32768, 65536)
_READ_WEIGHTS = (45, 10, 20, 10, 15)
_WRITE_WEIGHTS = (60, 15, 15, 5, 5)
_MAX_SIZE = _SIZES[-1]
_HOT = 8  # most reads of a boot are in the first eighth of the image

Row = tuple[str, int, int, int, int]
"""Kind, number of the interval, count, sum and maximum of the latencies (ns)."""


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Fill or boot; see the module."""
    if request["step"] == "fill":
        size, create = request["image"], not request["block"]
        if request["block"]:  # the clones' regions too, so that no region is a hole
            size += request["vms"] * request["clone"]
        return fill_file(context, _base(request), size, seed=request["seed"], create=create)
    clones = os.path.join(os.fsencode(request["path"]), b"storagetest-boot")
    if not request["block"]:
        context.remove_at_end(clones)
    workers = context.start_workers(request["vms"], lambda index: _VirtualMachine(request, clones, index))
    if not request["block"]:
        workers.call("setup", only=0)
    workers.call("open_disks")
    context.phase("boot", "boot", until_last_end=True)
    summaries = workers.call("summary", request["interval"])
    rows = [row for _, rows in summaries for row in rows]
    return context.result(boots=[seconds for seconds, _ in summaries], series=_sum_up(rows))


def _base(request: dict[str, Any]) -> bytes:
    path = os.fsencode(request["path"])
    return path if request["block"] else os.path.join(path, b"storagetest-image-%d" % request["image"])


def _sum_up(rows: Iterable[Row]) -> dict[str, list[list[int]]]:
    """Return kind → [interval's number, count, sum of latencies (ns), longest (ns)], of equal intervals."""
    sums: dict[str, dict[int, list[int]]] = {"read": {}, "write": {}}
    for kind, number, count, total, longest in rows:
        row = sums[kind].setdefault(number, [0, 0, 0])
        row[:] = row[0] + count, row[1] + total, max(row[2], longest)
    return {
        kind: [[number, *row] for number, row in sorted(intervals.items())]
        for kind, intervals in sums.items()
    }


class _VirtualMachine(DirectoryWorker):
    """One virtual machine."""

    def __init__(self, request: dict[str, Any], clones: bytes, index: int) -> None:
        super().__init__(request, clones, index)
        self.reads, self.writes, self.flushes = OpLog(sized=True), OpLog(sized=True), OpLog()
        self.boot_ops = _boot_list(request)
        self.clone_offset = 0
        if request["block"]:
            self.clone_offset = request["image"] + index * request["clone"]
        pace = Random(f"{request['seed']} {request['repeat']} {index}")  # noqa: S311  # pauses, not a secret
        think = request["think"]
        self.pauses = [pace.expovariate(1 / think) if think else 0.0 for _ in self.boot_ops]
        self.buffer: mmap.mmap | None = None

    def open_disks(self) -> None:
        """Open the image and the clone. The written data differs in every machine and repeat."""
        request = self.request
        direct = os.O_DIRECT if request["direct"] else 0
        if request["block"]:
            self.base = self.clone = os.open(request["path"], os.O_RDWR | direct)
        else:
            self.base = os.open(_base(request), os.O_RDONLY | direct)
            clone = b"%s/%d" % (self.root, self.index)
            self.clone = os.open(clone, os.O_RDWR | os.O_CREAT | direct, 0o600)
        self.data = fsutil.aligned(_MAX_SIZE)
        seed = (request["seed"] * 4096 + request["repeat"]) * 4096 + self.index
        self.data.write(bytes(fsutil.RandomDataPool(seed, _MAX_SIZE).take(_MAX_SIZE)))
        self.buffer = fsutil.aligned(_MAX_SIZE)

    def boot(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Make all requests of the list."""
        read_buffer, data = memoryview(self.buffer or b""), memoryview(self.data)
        barrier.wait()
        for (kind, offset, size), pause in zip(self.boot_ops, self.pauses):
            if pause:
                time.sleep(pause)
            began = now()
            if kind == "w":
                done = os.pwritev(self.clone, [data[:size]], self.clone_offset + offset)
                self.writes.add(began, size)
            elif kind == "f":
                os.fsync(self.clone)
                self.flushes.add(began)
                continue
            else:
                base = kind == "r"
                done = os.preadv(
                    self.base if base else self.clone,
                    [read_buffer[:size]],
                    offset + (0 if base else self.clone_offset),
                )
                self.reads.add(began, size)
            if done != size:
                raise OSError(5, f"{done} of {size} bytes at {offset}", _base(self.request))
        self.began = barrier.began
        self.done = max(op_log.last for op_log in (self.reads, self.writes, self.flushes))
        return {"read": self.reads, "write": self.writes, "flush": self.flushes}

    def summary(self, interval: float) -> tuple[float, list[tuple[Any, ...]]]:
        """Return how long the boot took (s), and count, sum and maximum of latencies by interval."""
        step = int(interval * 1e9)
        rows = (
            (kind, (end - self.began) // step, 1, latency, latency)
            for kind, op_log in (("read", self.reads), ("write", self.writes))
            for end, latency in zip(op_log.ends, op_log.latencies)
        )
        summed = [(kind, *row) for kind, kind_rows in _sum_up(rows).items() for row in kind_rows]
        return (self.done - self.began) * 1e-9, summed


def _boot_list(request: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return a boot's requests: (kind, offset, bytes); kind: r, w, o (read from the clone) or f (flush)."""
    random = Random(request["seed"])  # noqa: S311  # offsets, not a secret
    image, clone = request["image"] // _SECTOR, request["clone"] // _SECTOR
    requests: list[tuple[str, int, int]] = []
    offset = 0
    for size in random.choices(_SIZES, _READ_WEIGHTS, k=request["reads"]):
        last_start = image - size // _SECTOR
        if random.random() >= 0.2 or offset > last_start:
            limit = last_start if random.random() < 0.1 else max(1, last_start // _HOT)
            offset = random.randrange(max(1, limit + 1))
        requests.append(("r", offset * _SECTOR, size))
        offset += size // _SECTOR
    for number, size in enumerate(random.choices(_SIZES, _WRITE_WEIGHTS, k=request["writes"])):
        offset = random.randrange(max(1, clone - size // _SECTOR + 1))
        requests.append(("w", offset * _SECTOR, size))
        if number % 10 == 9:
            requests.append(("o", offset * _SECTOR, size))
        if number % 16 == 15:
            requests.append(("f", 0, 0))
    return requests
