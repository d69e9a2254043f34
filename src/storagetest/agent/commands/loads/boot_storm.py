"""A boot storm: many virtual machines start at once from clones of one image.

Each machine is a process with a list of what a boot asks of its disk; it works through the list, one request
at a time, with pauses in which the guest computes, and has booted when the list is done. All machines boot
the same system, so the lists' reads are the same and only the pauses differ.

The list, from ``seed``: ``reads`` reads of the shared base image, then ``writes`` writes to the machine's own
clone, each tenth of which is followed by a read of what was written there and every sixteenth by a flush.
Reads are of 4 to 64 KiB, most of them small; one in five continues where the last ended, the others are at
random places of the first eighth of the image (a system uses little of its disk to boot) and now and then
anywhere. Pauses are exponential around ``think`` seconds.

On a directory the base image is a file, and a clone is a sparse file that holds what its machine wrote, as
thin clones are. On a block device the image and each clone are regions of ``image`` and ``clone`` bytes, one
after another. ``direct`` opens all of them past the client's cache, as hypervisors do.

Request: ``path``, ``block`` (whether it is a device), ``step`` (``fill``: write the image, and on a device
the clones; ``boot``), all of the above, ``vms``, ``interval`` (s) of the series, ``seed`` and ``repeat``.
"""

from __future__ import annotations

import mmap
import os
import time
from random import Random
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

__all__ = ["run"]

_SECTOR = 4096
_SIZES = (4096, 8192, 16384, 32768, 65536)
_READ_WEIGHTS = (45, 10, 20, 10, 15)
_WRITE_WEIGHTS = (60, 15, 15, 5, 5)
_LARGEST = _SIZES[-1]
_HOT = 8  # one part in eight of the image holds what a boot needs
_FILL = 1 << 20


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Fill or boot; see the module."""
    if request["step"] == "fill":
        with job.start_workers(1, lambda _: _Filler(request)) as crew:
            return {"size": crew.call("fill")[0]}
    clones = os.path.join(os.fsencode(request["path"]), b"storagetest-boot")
    if not request["block"]:
        job.remove_at_end(clones)
    crew = job.start_workers(request["vms"], lambda index: _Machine(request, clones, index))
    if not request["block"]:
        crew.call("begin", only=0)
    crew.call("plug_in")
    job.phase("boot", "boot", to_the_last=True)
    found = crew.call("story", request["interval"])
    return job.result(boots=[boot for boot, _ in found], series=_merged([series for _, series in found]))


def _base(request: dict[str, Any]) -> bytes:
    path = os.fsencode(request["path"])
    return path if request["block"] else os.path.join(path, b"storagetest-image-%d" % request["image"])


def _merged(every: list[dict[str, list[list[int]]]]) -> dict[str, list[list[int]]]:
    """Return kind → [interval's number, count, sum of latencies (ns), longest (ns)], of all machines."""
    whole: dict[str, dict[int, list[int]]] = {}
    for series in every:
        for kind, rows in series.items():
            found = whole.setdefault(kind, {})
            for number, count, total, longest in rows:
                row = found.setdefault(number, [0, 0, 0])
                row[0] += count
                row[1] += total
                row[2] = max(row[2], longest)
    return {kind: [[number, *row] for number, row in sorted(found.items())] for kind, found in whole.items()}


class _Filler:
    """Writes the base image; on a device the clones' regions too, so that none of them is a hole."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def fill(self) -> int:
        request = self.request
        size = request["image"] + (request["vms"] * request["clone"] if request["block"] else 0)
        pool = fsutil.RandomDataPool(request["seed"], _FILL)
        descriptor = os.open(_base(request), os.O_WRONLY | (0 if request["block"] else os.O_CREAT), 0o600)
        for place in range(0, size, _FILL):
            fsutil.write_all(descriptor, pool.take(min(_FILL, size - place)))
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)
        return int(size)


class _Machine:
    """One virtual machine."""

    def __init__(self, request: dict[str, Any], clones: bytes, index: int) -> None:
        self.request, self.clones, self.index = request, clones, index
        self.reading, self.writing, self.flushing = OpLog(sized=True), OpLog(sized=True), OpLog()
        self.list = _boot_list(request)
        self.own = 0
        if request["block"]:
            self.own = request["image"] + index * request["clone"]
        pace = Random(f"{request['seed']} {request['repeat']} {index}")  # noqa: S311  # pauses, not a secret
        think = request["think"]
        self.pauses = [pace.expovariate(1 / think) if think else 0.0 for _ in self.list]
        self.buffer: mmap.mmap | None = None

    def begin(self) -> None:
        fsutil.remove(self.clones)
        os.mkdir(self.clones)

    def plug_in(self) -> None:
        """Open the image and the clone. The data that is written differs in every machine and repeat."""
        request = self.request
        direct = os.O_DIRECT if request["direct"] else 0
        if request["block"]:
            self.base = self.clone = os.open(request["path"], os.O_RDWR | direct)
        else:
            self.base = os.open(_base(request), os.O_RDONLY | direct)
            clone = b"%s/%d" % (self.clones, self.index)
            self.clone = os.open(clone, os.O_RDWR | os.O_CREAT | direct, 0o600)
        self.data = fsutil.aligned(_LARGEST)
        seed = (request["seed"] * 4096 + request["repeat"]) * 4096 + self.index
        self.data.write(bytes(fsutil.RandomDataPool(seed, _LARGEST).take(_LARGEST)))
        self.buffer = fsutil.aligned(_LARGEST)

    def boot(self, gate: PhaseBarrier) -> dict[str, OpLog]:
        """Work through the list."""
        here, there = memoryview(self.buffer or b""), memoryview(self.data)
        gate.wait()
        for (kind, place, size), pause in zip(self.list, self.pauses):
            if pause:
                time.sleep(pause)
            began = now()
            if kind == "w":
                done = os.pwritev(self.clone, [there[:size]], self.own + place)
                self.writing.add(began, size)
            elif kind == "f":
                os.fsync(self.clone)
                self.flushing.add(began)
                continue
            else:
                base = kind == "r"
                done = os.preadv(
                    self.base if base else self.clone, [here[:size]], place + (0 if base else self.own)
                )
                self.reading.add(began, size)
            if done != size:
                raise OSError(5, f"{done} of {size} bytes at {place}", _base(self.request))
        self.began = gate.began
        self.done = max(lane.last for lane in (self.reading, self.writing, self.flushing))
        return {"read": self.reading, "write": self.writing, "flush": self.flushing}

    def story(self, interval: float) -> tuple[float, dict[str, list[list[int]]]]:
        """Return how long the boot took (s), and count, sum and maximum of latencies by interval."""
        step = int(interval * 1e9)
        series = {}
        for kind, lane in (("read", self.reading), ("write", self.writing)):
            rows: dict[int, list[int]] = {}
            for end, latency in zip(lane.ends, lane.latencies):
                row = rows.setdefault((end - self.began) // step, [0, 0, 0])
                row[0] += 1
                row[1] += latency
                row[2] = max(row[2], latency)
            series[kind] = [[number, *row] for number, row in sorted(rows.items())]
        return (self.done - self.began) * 1e-9, series


def _boot_list(request: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return what a boot asks for: (kind, place, bytes), kind r, w, o (own) or f (flush)."""
    random = Random(request["seed"])  # noqa: S311  # a list of places, not a secret
    image, clone = request["image"] // _SECTOR, request["clone"] // _SECTOR
    found: list[tuple[str, int, int]] = []
    place = 0
    for size in random.choices(_SIZES, _READ_WEIGHTS, k=request["reads"]):
        room = image - size // _SECTOR
        if random.random() >= 0.2 or place > room:
            within = room if random.random() < 0.1 else max(1, room // _HOT)
            place = random.randrange(max(1, within + 1))
        found.append(("r", place * _SECTOR, size))
        place += size // _SECTOR
    for number, size in enumerate(random.choices(_SIZES, _WRITE_WEIGHTS, k=request["writes"])):
        place = random.randrange(max(1, clone - size // _SECTOR + 1))
        found.append(("w", place * _SECTOR, size))
        if number % 10 == 9:
            found.append(("o", place * _SECTOR, size))
        if number % 16 == 15:
            found.append(("f", 0, 0))
    return found
