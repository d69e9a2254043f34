"""A database's two kinds of I/O at once: a log, written in order and flushed at each commit, and pages.

One process writes the log: ``record`` bytes after ``record`` bytes, each followed by fdatasync(2), which is
one *commit*. Other processes read and overwrite pages at random offsets; ``read_percent`` of the accesses are
reads. All run without pauses for ``seconds``. The log has its full length from the start and is written in a
circle, as by databases that recycle log files: a commit flushes data but no new length.

``direct`` opens the pages with O_DIRECT; the log is written through the page cache and flushed.

On a directory the log is a file of its own, which is made and removed here; on a block device it is the
first ``log`` bytes, and the pages follow. The pages are written before the load starts.

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


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Work; see the module."""
    log = os.fsencode(request["path"])
    if request["logs"] is not None:
        log = context.remove_at_end(os.path.join(os.fsencode(request["logs"]), b"storagetest-database-log"))

    def make(index: int) -> object:
        return _PageWorker(request, index) if index else _LogWriter(request, log)

    workers = context.start_workers(1 + request["workers"], make)
    workers.call("open")
    context.phase("work", "work", request["seconds"])
    return context.result()


class _LogWriter:
    """The process that writes the log and commits."""

    def __init__(self, request: dict[str, Any], path: bytes) -> None:
        self.path, self.record = path, request["record"]
        self.records = request["log"] // self.record
        self.pool = fsutil.RandomDataPool(request["seed"], 1 << 20)
        self.make = request["logs"] is not None

    def open(self) -> None:
        """Open the log; a new log file is written to its full length first."""
        self.descriptor = os.open(self.path, os.O_WRONLY | (os.O_CREAT if self.make else 0), 0o600)
        for _ in range(self.records if self.make else 0):
            fsutil.write_all(self.descriptor, self.pool.take(self.record))
        os.fsync(self.descriptor)

    def work(self, barrier: PhaseBarrier, limit: float) -> dict[str, OpLog]:
        """Commit until the time ``limit`` (s) is over."""
        op_log, record, number = OpLog(sized=True), self.record, 0
        write, flush, take = os.pwrite, os.fdatasync, self.pool.take
        end = barrier.start(limit)
        began = barrier.began
        while began < end:
            data = take(record)
            began = now()
            done = write(self.descriptor, data, number % self.records * record)
            flush(self.descriptor)
            op_log.add(began, record)
            if done != record:
                raise OSError(5, f"{done} of {record} bytes of a commit", self.path)
            number += 1
        return {"commit": op_log}


class _PageWorker:
    """A process that reads and overwrites pages."""

    def __init__(self, request: dict[str, Any], index: int) -> None:
        self.path, self.page = os.fsencode(request["path"]), request["page"]
        self.start = 0 if request["logs"] is not None else request["log"]
        self.pages = request["data"] // self.page
        self.read_share = request["read_percent"] / 100
        self.random = Random(f"{request['seed']} {index}")  # noqa: S311  # offsets, not a secret
        self.pool = fsutil.RandomDataPool(request["seed"] * 4096 + index, 1 << 20)
        self.direct = os.O_DIRECT if request["direct"] else 0

    def open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR | self.direct)
        self.read_buffer, self.write_buffer = fsutil.aligned(self.page), fsutil.aligned(self.page)

    def work(self, barrier: PhaseBarrier, limit: float) -> dict[str, OpLog]:
        """Read or overwrite one page after another."""
        reads, writes = OpLog(sized=True), OpLog(sized=True)
        read_buffer, write_buffer = memoryview(self.read_buffer), memoryview(self.write_buffer)
        page = self.page
        chance, random_page = self.random.random, self.random.randrange
        end = barrier.start(limit)
        began = barrier.began
        while began < end:
            offset = self.start + random_page(self.pages) * page
            if chance() < self.read_share:
                began = now()
                done = os.preadv(self.descriptor, [read_buffer], offset)
                reads.add(began, page)
            else:
                write_buffer[:] = self.pool.take(page)
                began = now()
                done = os.pwritev(self.descriptor, [write_buffer], offset)
                writes.add(began, page)
            if done != page:
                raise OSError(5, f"{done} of {page} bytes of a page", self.path)
        return {"page_read": reads, "page_write": writes}
