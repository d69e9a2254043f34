"""A database's two kinds of I/O at once: a log, written in order and flushed at each commit, and pages.

One process writes the log: ``record`` bytes after ``record`` bytes, each followed by fdatasync(2), which is
one *commit*. Others read and overwrite pages at random places, ``read_percent`` in a hundred of them reads.
All go round as fast as they can, for ``seconds``. The log has its full length before and is written round,
as databases do that recycle theirs: so a commit flushes data and no new length.

``direct`` opens the pages past the client's cache; the log goes through it, and is flushed.

On a directory the log is a file of its own, which is made and removed here; on a block device it is the
first ``log`` bytes, and the pages follow. The pages are filled before.

Request: ``path`` (of the pages' file or of the device), ``logs`` (the directory for the log; null: it is on
the device), ``log`` and ``data`` (bytes), ``record``, ``page`` (bytes), ``workers``, ``read_percent``,
``direct``, ``seconds``, ``seed``.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

__all__ = ["run"]


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Work; see the module."""
    log = os.fsencode(request["path"])
    if request["logs"] is not None:
        log = job.remove_at_end(os.path.join(os.fsencode(request["logs"]), b"storagetest-database-log"))

    def make(index: int) -> object:
        return _Pages(request, index) if index else _Log(request, log)

    crew = job.start_workers(1 + request["workers"], make)
    crew.call("open")
    job.phase("work", "work", int(request["seconds"] * 1e9))
    return job.result()


class _Log:
    """The one who commits."""

    def __init__(self, request: dict[str, Any], path: bytes) -> None:
        self.path, self.record = path, request["record"]
        self.records = request["log"] // self.record
        self.pool = fsutil.RandomDataPool(request["seed"], 1 << 20)
        self.make = request["logs"] is not None

    def open(self) -> None:
        """Open the log; one that is made here gets its full length first."""
        self.descriptor = os.open(self.path, os.O_WRONLY | (os.O_CREAT if self.make else 0), 0o600)
        for _ in range(self.records if self.make else 0):
            fsutil.write_all(self.descriptor, self.pool.take(self.record))
        os.fsync(self.descriptor)

    def work(self, gate: PhaseBarrier, limit: int) -> dict[str, OpLog]:
        """Commit after commit."""
        lane, record, number = OpLog(sized=True), self.record, 0
        write, flush, take = os.pwrite, os.fdatasync, self.pool.take
        began = gate.wait()
        end = began + limit
        while began < end:
            data = take(record)
            began = now()
            done = write(self.descriptor, data, number % self.records * record)
            flush(self.descriptor)
            lane.add(began, record)
            if done != record:
                raise OSError(5, f"{done} of {record} bytes of a commit", self.path)
            number += 1
        return {"commit": lane}


class _Pages:
    """One of those who read and write pages."""

    def __init__(self, request: dict[str, Any], index: int) -> None:
        self.path, self.page = os.fsencode(request["path"]), request["page"]
        self.start = 0 if request["logs"] is not None else request["log"]
        self.pages = request["data"] // self.page
        self.share = request["read_percent"] / 100
        self.random = Random(f"{request['seed']} {index}")  # noqa: S311  # places, not a secret
        self.pool = fsutil.RandomDataPool(request["seed"] * 4096 + index, 1 << 20)
        self.direct = os.O_DIRECT if request["direct"] else 0

    def open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR | self.direct)
        self.here, self.there = fsutil.aligned(self.page), fsutil.aligned(self.page)

    def work(self, gate: PhaseBarrier, limit: int) -> dict[str, OpLog]:
        """Read or overwrite one page after another."""
        reads, writes = OpLog(sized=True), OpLog(sized=True)
        here, there, page = memoryview(self.here), memoryview(self.there), self.page
        chance, any_page = self.random.random, self.random.randrange
        began = gate.wait()
        end = began + limit
        while began < end:
            place = self.start + any_page(self.pages) * page
            if chance() < self.share:
                began = now()
                done = os.preadv(self.descriptor, [here], place)
                reads.add(began, page)
            else:
                there[:] = self.pool.take(page)
                began = now()
                done = os.pwritev(self.descriptor, [there], place)
                writes.add(began, page)
            if done != page:
                raise OSError(5, f"{done} of {page} bytes of a page", self.path)
        return {"page_read": reads, "page_write": writes}
