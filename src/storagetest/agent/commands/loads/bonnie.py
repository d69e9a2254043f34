"""What Bonnie++ 1.03 measures: a file by the character and by the block, seeks, and many empty files.

Source: Bonnie++'s readme (R. Coker). On one file of ``size`` bytes, in this order: *char_write*,
*block_write* (the file anew, in ``chunk`` bytes), *rewrite* (each chunk read, one byte of it changed, and
written back where it was), *char_read*, *block_read*, *seeks* (``seekers`` processes that read chunks at
random places, ``seeks`` in all, and change and write back each tenth). Then ``files`` empty files: created in
the order of their names, looked at (stat) and deleted in the order of readdir, which is in the time; and
again, created in random order, and random ones looked at and deleted, whose names are known.

Characters. Bonnie++ 1.03 writes and reads them with C's putc and getc: what it finds is what a buffered
stream costs the processor for each byte, unless the target is slower still. The counterpart here is Python's
buffered file (``char_io`` ``buffered``; as large a buffer as stdio's, st_blksize), given and asked for one
byte at a time from a loop in C. Both are ways of moving single bytes through a buffer and cost the target the
same calls, but the processor differently; so the same loop on /dev/null and /dev/zero is measured beside it
(``ceilings``, bytes/s), and says whether it is the client that is the limit. ``char_io`` ``syscall`` is
Bonnie++ 2's: a write(2) or read(2) for every byte.

``sync``: fsync after every write, and of the directory after every creation and deletion (Bonnie++'s -b).
``sync_on_close``: fsync before a file that was written is closed (Bonnie++ from 1.90b on); part of the time.
``cold``: before the file is read (but not before it is rewritten) its pages leave the client's cache.
With ``seconds`` no phase takes longer; a file then ends where *block_write* came to.

Request: ``path`` and all of the above, ``seed``.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import BackToBackOpLog, OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

__all__ = ["run"]

_FOREVER = 1 << 62
_TRIAL = 50_000_000  # ns
_BATCH = 4096  # characters between two looks at the clock
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the phases; see the module."""
    root = job.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-bonnie"))
    seekers = request["seekers"]
    crew = job.start_workers(1 + seekers, lambda index: _Worker(request, root, index))
    crew.call("begin", only=0)
    ceilings: dict[str, float] = crew.call("ceilings", only=0)[0]
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    size = 0
    for name in ("char_write", "block_write", "rewrite", "char_read", "block_read"):
        if name.startswith("char") and not request["characters"]:
            continue
        if request["cold"] and name.endswith("read"):
            crew.call("forget", only=0)
        report = job.phase(name, name, limit, only=[0])
        if name == "block_write":
            size = report["operations"][name]["total_bytes"]
    if request["cold"]:
        crew.call("forget", only=0)
    job.phase("seeks", "seek", size, limit, only=list(range(1, 1 + seekers)))
    crew.call("remove", only=0)
    for order in ("sequential", "random") if request["files"] else ():
        crew.call("plan", order, only=0)
        for what in ("create", "stat", "delete"):
            job.phase(f"{order}_{what}", what, order, limit, only=[0])
        crew.call("clear", only=0)
    return job.result(ceilings=ceilings, size=size)


class _Worker:
    """Number 0 does everything but seek; the others only seek."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.request, self.root, self.index = request, root, index
        self.file = b"%s/file" % root
        self.files = b"%s/files" % root
        self.chunk, self.size = request["chunk"], request["size"]
        self.random = Random(request["seed"] * 4096 + index)  # noqa: S311  # an order of things, not a secret
        self.pool = fsutil.RandomDataPool(request["seed"], max(1 << 20, self.chunk))
        self.names: list[bytes] = []

    def begin(self) -> None:
        fsutil.remove(self.root)
        os.mkdir(self.root)

    def remove(self) -> None:
        fsutil.remove(self.file)

    def forget(self) -> None:
        descriptor = os.open(self.file, os.O_RDWR)
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)

    # By the character

    def ceilings(self) -> dict[str, float]:
        """Return the bytes/s that moving single bytes reaches where no target holds it up."""
        if not self.request["characters"]:
            return {}
        found = {}
        for name, path in (("char_write", b"/dev/null"), ("char_read", b"/dev/zero")):
            began, lane = now(), OpLog(sized=True)
            if name == "char_write":
                self._put(path, lane, began, began + _TRIAL, _FOREVER, sync=False)
            else:
                self._get(path, lane, began, began + _TRIAL, _FOREVER)
            found[name] = sum(lane.sizes or ()) / max(1, lane.last - began) * 1e9
        return found

    def char_write(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane = OpLog(sized=True)
        began = gate.wait()
        self._put(self.file, lane, began, began + (limit or _FOREVER), self.size, sync=True)
        return {"char_write": lane}

    def char_read(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane = OpLog(sized=True)
        began = gate.wait()
        self._get(self.file, lane, began, began + (limit or _FOREVER), self.size)
        return {"char_read": lane}

    def _put(self, path: bytes, lane: OpLog, began: int, end: int, size: int, *, sync: bool) -> None:
        letters = [bytes([each]) for each in self.pool.take(_BATCH)]
        batches, rest = divmod(size, _BATCH)
        buffering = 0 if self.request["char_io"] == "syscall" else os.stat(self.root).st_blksize
        with open(path, "wb", buffering=buffering) as stream:
            for number in range(batches + bool(rest)):
                batch = letters if number < batches else letters[:rest]
                deque(map(stream.write, batch), maxlen=0)
                if sync and self.request["sync"]:
                    stream.flush()
                    os.fsync(stream.fileno())
                began = lane.add(began, len(batch))
                if began >= end:
                    break
            stream.flush()
            if sync and self.request["sync_on_close"]:
                os.fsync(stream.fileno())
        lane.add(began)

    def _get(self, path: bytes, lane: OpLog, began: int, end: int, size: int) -> None:
        buffering = 0 if self.request["char_io"] == "syscall" else os.stat(self.root).st_blksize
        seen = 0
        with open(path, "rb", buffering=buffering) as stream:
            while seen < size and began < end:
                got = sum(map(len, map(stream.read, itertools.repeat(1, min(_BATCH, size - seen)))))
                if not got:
                    break
                seen += got
                began = lane.add(began, got)

    # By the block

    def block_write(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane, chunk, sync = OpLog(sized=True), self.chunk, self.request["sync"]
        began = gate.wait()
        end = began + (limit or _FOREVER)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        for place in range(0, self.size, chunk):
            part = min(chunk, self.size - place)
            fsutil.write_all(descriptor, self.pool.take(part))
            if sync:
                os.fsync(descriptor)
            began = lane.add(began, part)
            if began >= end:
                break
        self._close(descriptor, lane, began)
        return {"block_write": lane}

    def rewrite(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane = OpLog(sized=True)
        began = gate.wait()
        end = began + (limit or _FOREVER)
        descriptor = os.open(self.file, os.O_RDWR)
        place = 0
        while began < end:
            part = self._change(descriptor, place)
            if not part:
                break
            place += part
            began = lane.add(began, part)
        self._close(descriptor, lane, began)
        return {"rewrite": lane}

    def block_read(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane, chunk = OpLog(sized=True), self.chunk
        began = gate.wait()
        end = began + (limit or _FOREVER)
        descriptor = os.open(self.file, os.O_RDONLY)
        while began < end:
            part = len(os.read(descriptor, chunk))
            if not part:
                break
            began = lane.add(began, part)
        os.close(descriptor)
        return {"block_read": lane}

    def seek(self, gate: PhaseBarrier, size: int, limit: int | None) -> dict[str, OpLog]:
        lane, chunk, random = OpLog(sized=True), self.chunk, self.random
        seekers, chunks = self.request["seekers"], max(1, size // self.chunk)
        mine = self.request["seeks"] // seekers + (self.index <= self.request["seeks"] % seekers)
        began = gate.wait()
        end = began + (limit or _FOREVER)
        descriptor = os.open(self.file, os.O_RDWR)
        for number in range(mine):
            place = random.randrange(chunks) * chunk
            if number % 10 == 9:
                part = self._change(descriptor, place)
            else:
                os.lseek(descriptor, place, os.SEEK_SET)
                part = len(os.read(descriptor, chunk))
            began = lane.add(began, part)
            if began >= end:
                break
        os.close(descriptor)
        return {"seeks": lane}

    def _change(self, descriptor: int, place: int) -> int:
        """Read a chunk, change one byte of it, write it back where it was; return its size."""
        os.lseek(descriptor, place, os.SEEK_SET)
        data = bytearray(os.read(descriptor, self.chunk))
        if data:
            data[self.random.randrange(len(data))] ^= 0xFF
            os.lseek(descriptor, place, os.SEEK_SET)
            fsutil.write_all(descriptor, data)
            if self.request["sync"]:
                os.fsync(descriptor)
        return len(data)

    def _close(self, descriptor: int, lane: OpLog, began: int) -> None:
        """Close what was written; what that takes is part of the time, and of nobody's bytes."""
        if self.request["sync_on_close"]:
            os.fsync(descriptor)
        os.close(descriptor)
        lane.add(began)

    # Files

    def plan(self, order: str) -> None:
        """Name the files: a number of 7 digits and up to 12 letters, behind it or before it (random)."""
        self.names = []
        for number in range(self.request["files"]):
            letters = bytes(self.random.choices(_LETTERS, k=self.random.randint(0, 12)))
            digits = b"%07d" % number
            self.names.append(digits + letters if order == "sequential" else letters + digits)
        os.mkdir(self.files)
        os.chdir(self.files)

    def clear(self) -> None:
        os.chdir(b"/")
        fsutil.remove(self.files)

    def create(self, gate: PhaseBarrier, order: str, limit: int | None) -> dict[str, OpLog]:  # noqa: ARG002
        chain = self._each(gate, "create", limit, self.names)
        self.names = self.names[: chain.count]
        return {"create": chain}

    def stat(self, gate: PhaseBarrier, order: str, limit: int | None) -> dict[str, OpLog]:
        names: Iterable[bytes] = _listed()
        if order == "random":
            names = self.random.choices(self.names, k=len(self.names))
        return {"stat": self._each(gate, "stat", limit, names)}

    def delete(self, gate: PhaseBarrier, order: str, limit: int | None) -> dict[str, OpLog]:
        names: Iterable[bytes] = _listed()
        if order == "random":
            names = self.random.sample(self.names, k=len(self.names))
        return {"delete": self._each(gate, "delete", limit, names)}

    def _each(
        self, gate: PhaseBarrier, what: str, limit: int | None, names: Iterable[bytes]
    ) -> BackToBackOpLog:
        chain = BackToBackOpLog()
        sync = self.request["sync"] and what != "stat"
        acts: dict[str, Callable[[bytes], object]] = {"create": _create, "stat": os.stat, "delete": os.unlink}
        act = acts[what]
        directory = os.open(b".", os.O_RDONLY | os.O_DIRECTORY)
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        stamp = chain.segment().append
        for name in names:
            act(name)
            if sync:
                os.fsync(directory)
            stamp(time := now())
            if time >= end:
                break
        os.close(directory)
        return chain


def _listed() -> Iterator[bytes]:
    """Yield the names of the directory as they are read: that is in the time, as it is in Bonnie++'s."""
    with os.scandir(b".") as entries:
        for entry in entries:
            yield entry.name


def _create(name: bytes) -> None:
    # For writing only, as Bonnie++ does: who also reads gets a delegation over NFSv4, which has to be
    # returned before the file is deleted.
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
