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
from random import Random
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

__all__ = ["run"]

_FOREVER = 1 << 62


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the four phases; see the module."""
    root = context.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-copy"))
    workers = context.start_workers(request["processes"], lambda index: _CopyWorker(request, root, index))
    workers.call("setup", only=0)
    workers.call("setup_tree")
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    for name in ("write", "copy", "read", "delete"):
        if name == "read":
            workers.call("drop_pages")
        context.phase(name, name, limit)
    return context.result(differs=[location for found in workers.call("mismatches") for location in found])


class _CopyWorker:
    """One process: the sizes and names of its files, and (name, bytes) of what it has written and copied."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.request, self.root = request, root
        self.directory = b"%s/p%d" % (root, index)
        self.sources, self.copies = self.directory + b"/a", self.directory + b"/b"
        self.block = request["block_size"]
        self.pool = fsutil.RandomDataPool(request["seed"] * 4096 + index, max(1 << 20, self.block))
        self.random = Random(request["seed"] * 4096 + index)  # noqa: S311  # sizes, not a secret
        self.sizes = self._sizes(index)
        self.written: list[tuple[bytes, int]] = []
        self.copied: list[tuple[bytes, int]] = []
        self.differs: list[str] = []

    def _sizes(self, index: int) -> list[int]:
        processes, mean = self.request["processes"], self.request["file_size"]
        if self.request["large"]:
            return [self.request["size"] // processes]
        count = self.request["files"] // processes + (index < self.request["files"] % processes)
        return [self.random.randint(mean // 2, mean + mean // 2) for _ in range(count)]

    def setup(self) -> None:
        fsutil.remove(self.root)
        os.mkdir(self.root)

    def setup_tree(self) -> None:
        os.mkdir(self.directory)
        depth = 0 if self.request["large"] else self.request["depth"]
        for top in (self.sources, self.copies):
            fsutil.make_tree(top, depth, self.request["width"])
        tree = [
            leaf[len(self.sources) :]
            for leaf in fsutil.leaf_directories(self.sources, depth, self.request["width"])
        ]
        self.names = [b"%b/%d" % (tree[number % len(tree)], number) for number in range(len(self.sizes))]

    def drop_pages(self) -> None:
        """Drop the copies from the client's page cache."""
        for name, _ in self.copied:
            descriptor = os.open(self.copies + name, os.O_RDWR)
            fsutil.evict_page_cache(descriptor)
            os.close(descriptor)

    def mismatches(self) -> list[str]:
        return self.differs

    def write(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        files, blocks = OpLog(sized=True), OpLog(sized=True)
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        for number, size in enumerate(self.sizes):
            began = time = now()
            descriptor = os.open(
                self.sources + self.names[number], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
            )
            offset = 0
            while offset < size and time < end:
                data = self._data(number, offset, min(self.block, size - offset))
                fsutil.write_all(descriptor, data)
                offset += len(data)
                time = blocks.add(time, len(data))
            self._close(descriptor)
            time = files.add(began, offset)
            self.written.append((self.names[number], offset))
            if time >= end:
                break
        return {"files": files, "blocks": blocks}

    def copy(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        files, blocks = OpLog(sized=True), OpLog(sized=True)
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        move = _by_server if self.request["server"] else _by_client
        for name, size in self.written:
            began = time = now()
            source = os.open(self.sources + name, os.O_RDONLY)
            target = os.open(self.copies + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            offset = 0
            while offset < size and time < end:
                part = move(source, target, min(self.block, size - offset))
                if not part:
                    raise OSError(5, f"ends after {offset} of {size} bytes", self.sources + name)
                offset += part
                time = blocks.add(time, part)
            os.close(source)
            self._close(target)
            time = files.add(began, offset)
            self.copied.append((name, offset))
            if time >= end:
                break
        return {"files": files, "blocks": blocks}

    def read(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        files, blocks = OpLog(sized=True), OpLog(sized=True)
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        for number, (name, size) in enumerate(self.copied):
            began = time = now()
            descriptor = os.open(self.copies + name, os.O_RDONLY)
            offset = 0
            while offset < size and time < end:
                data = os.read(descriptor, min(self.block, size - offset))
                if (
                    data != self._data(number, offset, min(self.block, size - offset))[: len(data)]
                    or not data
                ):
                    self.differs.append(f"{os.fsdecode(self.copies + name)} at byte {offset}")
                    break
                offset += len(data)
                time = blocks.add(time, len(data))
            os.close(descriptor)
            time = files.add(began, offset)
            if time >= end:
                break
        return {"files": files, "blocks": blocks}

    def delete(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        op_log = OpLog()
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        paths = [self.sources + name for name, _ in self.written] + [
            self.copies + name for name, _ in self.copied
        ]
        for path in paths:
            began = now()
            os.unlink(path)
            if op_log.add(began) >= end:
                break
        return {"files": op_log}

    def _data(self, number: int, offset: int, size: int) -> memoryview:
        return self.pool.at(number * 104_729 + offset, size)

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
