"""Copying: one large file, or a tree of small ones, written, copied on the target, read back, deleted.

Four phases, each by all ``processes`` at once, each on files of its own: *write*, *copy* (a read and a write
for each block, or with ``server`` copy_file_range(2), which NFS 4.2, SMB 3 and some local file systems
perform without moving the data through the client), *read* (each copy sequentially, compared with the written
data) and *delete* (sources and copies). The operation log ``files`` counts files; ``blocks`` counts blocks of
``block_size`` bytes. With ``large`` each process has one file, and all together have ``size`` bytes; else
there are ``files`` files of sizes around ``file_size`` (half to one and a half times it), spread over a tree
of ``width`` directories on each of ``depth`` levels.

``seconds`` limits each phase: a large file then ends where *write* stopped, only written files are copied,
and only copied files are read. ``sync``: fsync before a file is closed. Before the copies are read, they are
dropped from the client's cache, as far as posix_fadvise(2) does that.

Data that differs is not an error; ``differs`` in the result lists its locations.

Request: ``path``, ``processes``, all of the above, ``seed``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

File = tuple[int, int]
"""Number of a file, and the bytes that it has."""

Work = Callable[[int, int, OpLog, int], int]


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the four phases; see the module."""
    root = context.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-copy"))
    workers = context.start_workers(request["processes"], lambda index: _CopyWorker(request, root, index))
    workers.call("setup", only=0)
    workers.call("setup_tree")
    for name in ("write", "copy", "read", "delete"):
        if name == "read":
            workers.call("drop_pages")
        context.phase(name, name, request["seconds"])
    return context.result(differs=[location for found in workers.call("mismatches") for location in found])


class _CopyWorker(DirectoryWorker):
    """One process: the sizes and names of its files, and what it has written and copied of them."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        super().__init__(request, root, index)
        self.directory = b"%s/p%d" % (root, index)
        self.sources, self.copies = self.directory + b"/a", self.directory + b"/b"
        self.block = request["block_size"]
        self.pool = fsutil.RandomDataPool(request["seed"] * 4096 + index, max(1 << 20, self.block))
        self.sizes = self._sizes()
        self.written: list[File] = []
        self.copied: list[File] = []
        self.differs: list[str] = []

    def _sizes(self) -> list[int]:
        if self.request["large"]:
            return [self.request["size"] // self.request["processes"]]
        mean, count = self.request["file_size"], self.share(self.request["files"])
        return [self.random.randint(mean // 2, mean + mean // 2) for _ in range(count)]

    def setup_tree(self) -> None:
        os.mkdir(self.directory)
        depth = 0 if self.request["large"] else self.request["depth"]
        for top in (self.sources, self.copies):
            fsutil.make_tree(top, depth, self.request["width"])
        tree = fsutil.leaf_directories(b"", depth, self.request["width"])
        self.names = [b"%b/%d" % (tree[number % len(tree)], number) for number in range(len(self.sizes))]

    def drop_pages(self) -> None:
        """Drop the copies from the client's page cache."""
        for number, _ in self.copied:
            descriptor = os.open(self.copies + self.names[number], os.O_RDWR)
            fsutil.evict_page_cache(descriptor)
            os.close(descriptor)

    def mismatches(self) -> list[str]:
        return self.differs

    def write(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return self._run_loop(barrier, limit, zip(range(len(self.sizes)), self.sizes), self._write)

    def copy(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return self._run_loop(barrier, limit, self.written, self._copy)

    def read(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return self._run_loop(barrier, limit, self.copied, self._read)

    def _run_loop(
        self, barrier: PhaseBarrier, limit: float | None, files: Iterable[File], work: Work
    ) -> dict[str, OpLog]:
        """Run ``work`` on each file until the time is over; it returns how many bytes it has processed."""
        op_log, blocks = OpLog(sized=True), OpLog(sized=True)
        end = barrier.start(limit)
        for number, size in files:
            began = now()
            done = work(number, size, blocks, end)
            if op_log.add(began, done) >= end:
                break
        return {"files": op_log, "blocks": blocks}

    def _write(self, number: int, size: int, blocks: OpLog, end: int) -> int:
        time, offset = now(), 0
        descriptor = self._create(self.sources, number)
        while offset < size and time < end:
            data = self._data(number, offset, min(self.block, size - offset))
            fsutil.write_all(descriptor, data)
            offset += len(data)
            time = blocks.add(time, len(data))
        self._close(descriptor)
        self.written.append((number, offset))
        return offset

    def _copy(self, number: int, size: int, blocks: OpLog, end: int) -> int:
        time, offset = now(), 0
        move = _by_server if self.request["server"] else _by_client
        source = os.open(self.sources + self.names[number], os.O_RDONLY)
        target = self._create(self.copies, number)
        while offset < size and time < end:
            part = move(source, target, min(self.block, size - offset))
            if not part:
                raise OSError(5, f"ends after {offset} of {size} bytes", self.sources + self.names[number])
            offset += part
            time = blocks.add(time, part)
        os.close(source)
        self._close(target)
        self.copied.append((number, offset))
        return offset

    def _read(self, number: int, size: int, blocks: OpLog, end: int) -> int:
        time, offset = now(), 0
        path = self.copies + self.names[number]
        descriptor = os.open(path, os.O_RDONLY)
        while offset < size and time < end:
            data = os.read(descriptor, min(self.block, size - offset))
            if not data or data != self._data(number, offset, len(data)):
                self.differs.append(f"{os.fsdecode(path)} at byte {offset}")
                break
            offset += len(data)
            time = blocks.add(time, len(data))
        os.close(descriptor)
        return offset

    def delete(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        op_log = OpLog()
        end = barrier.start(limit)
        written_and_copied = ((self.sources, self.written), (self.copies, self.copied))
        for path in [top + self.names[number] for top, files in written_and_copied for number, _ in files]:
            began = now()
            os.unlink(path)
            if op_log.add(began) >= end:
                break
        return {"files": op_log}

    def _data(self, number: int, offset: int, size: int) -> memoryview:
        return self.pool.at(number * 104_729 + offset, size)

    def _create(self, top: bytes, number: int) -> int:
        return os.open(top + self.names[number], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def _close(self, descriptor: int) -> None:
        if self.request["sync"]:
            os.fsync(descriptor)
        os.close(descriptor)


def _by_client(source: int, target: int, size: int) -> int:
    data = os.read(source, size)
    fsutil.write_all(target, data)
    return len(data)


def _by_server(source: int, target: int, size: int) -> int:
    return os.copy_file_range(source, target, size)
