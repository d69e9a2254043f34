"""Copying: one large file, or a tree of small ones, written, copied on the target, read back, deleted.

Four phases, each by all ``processes`` at once, each on files of its own: *write*, *copy* (a read and a write
for each block, or with ``server`` copy_file_range(2), which NFS 4.2, SMB 3 and some local file systems answer
without moving the data through the client), *read* (each copy from front to back, compared with what was
written) and *delete* (sources and copies). An operation is a file; ``blocks`` holds those of ``block_size``
bytes. With ``large`` there is one file a process, of ``size`` bytes divided among them; else ``files`` files
of sizes around ``file_size`` (half to one and a half times it), spread over a tree of ``width`` directories
on each of ``depth`` levels.

With ``seconds`` no phase takes longer: a large file then ends where *write* came to, and only files that were
written are copied, and only those copied are read. ``sync``: fsync before a file is closed. Before they are
read the copies leave the client's cache, as far as posix_fadvise(2) can do that.

Data that differs is no error but a finding: ``differs`` says where.

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


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the four phases; see the module."""
    root = job.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-copy"))
    crew = job.start_workers(request["processes"], lambda index: _Worker(request, root, index))
    crew.call("begin", only=0)
    crew.call("plant")
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    for name in ("write", "copy", "read", "delete"):
        if name == "read":
            crew.call("forget")
        job.phase(name, name, limit)
    return job.result(differs=[place for worker in crew.call("findings") for place in worker])


class _Worker:
    """One process: ``plan`` is (name, size, seed) of its files; the lists are what came to be of them."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.request, self.root = request, root
        self.mine = b"%s/p%d" % (root, index)
        self.sources, self.copies = self.mine + b"/a", self.mine + b"/b"
        self.block = request["block_size"]
        self.pool = fsutil.RandomDataPool(request["seed"] * 4096 + index, max(1 << 20, self.block))
        self.random = Random(request["seed"] * 4096 + index)  # noqa: S311  # sizes, not a secret
        self.sizes = self._sizes(index)
        self.written: list[tuple[bytes, int]] = []
        self.copied: list[tuple[bytes, int]] = []
        self.found: list[str] = []

    def _sizes(self, index: int) -> list[int]:
        processes, mean = self.request["processes"], self.request["file_size"]
        if self.request["large"]:
            return [self.request["size"] // processes]
        count = self.request["files"] // processes + (index < self.request["files"] % processes)
        return [self.random.randint(mean // 2, mean + mean // 2) for _ in range(count)]

    def begin(self) -> None:
        fsutil.remove(self.root)
        os.mkdir(self.root)

    def plant(self) -> None:
        os.mkdir(self.mine)
        depth = 0 if self.request["large"] else self.request["depth"]
        for top in (self.sources, self.copies):
            fsutil.make_tree(top, depth, self.request["width"])
        tree = [
            leaf[len(self.sources) :]
            for leaf in fsutil.leaf_directories(self.sources, depth, self.request["width"])
        ]
        self.names = [b"%b/%d" % (tree[number % len(tree)], number) for number in range(len(self.sizes))]

    def forget(self) -> None:
        """Let the copies leave the client's cache."""
        for name, _ in self.copied:
            descriptor = os.open(self.copies + name, os.O_RDWR)
            fsutil.evict_page_cache(descriptor)
            os.close(descriptor)

    def findings(self) -> list[str]:
        return self.found

    def write(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        whole, blocks = OpLog(sized=True), OpLog(sized=True)
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        for number, size in enumerate(self.sizes):
            began = time = now()
            descriptor = os.open(
                self.sources + self.names[number], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
            )
            place = 0
            while place < size and time < end:
                data = self._data(number, place, min(self.block, size - place))
                fsutil.write_all(descriptor, data)
                place += len(data)
                time = blocks.add(time, len(data))
            self._close(descriptor)
            time = whole.add(began, place)
            self.written.append((self.names[number], place))
            if time >= end:
                break
        return {"files": whole, "blocks": blocks}

    def copy(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        whole, blocks = OpLog(sized=True), OpLog(sized=True)
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        move = _by_server if self.request["server"] else _by_client
        for name, size in self.written:
            began = time = now()
            source = os.open(self.sources + name, os.O_RDONLY)
            target = os.open(self.copies + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            place = 0
            while place < size and time < end:
                part = move(source, target, min(self.block, size - place))
                if not part:
                    raise OSError(5, f"ends after {place} of {size} bytes", self.sources + name)
                place += part
                time = blocks.add(time, part)
            os.close(source)
            self._close(target)
            time = whole.add(began, place)
            self.copied.append((name, place))
            if time >= end:
                break
        return {"files": whole, "blocks": blocks}

    def read(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        whole, blocks = OpLog(sized=True), OpLog(sized=True)
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        for number, (name, size) in enumerate(self.copied):
            began = time = now()
            descriptor = os.open(self.copies + name, os.O_RDONLY)
            place = 0
            while place < size and time < end:
                data = os.read(descriptor, min(self.block, size - place))
                if data != self._data(number, place, min(self.block, size - place))[: len(data)] or not data:
                    self.found.append(f"{os.fsdecode(self.copies + name)} at byte {place}")
                    break
                place += len(data)
                time = blocks.add(time, len(data))
            os.close(descriptor)
            time = whole.add(began, place)
            if time >= end:
                break
        return {"files": whole, "blocks": blocks}

    def delete(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        lane = OpLog()
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        doomed = [self.sources + name for name, _ in self.written] + [
            self.copies + name for name, _ in self.copied
        ]
        for path in doomed:
            began = now()
            os.unlink(path)
            if lane.add(began) >= end:
                break
        return {"files": lane}

    def _data(self, number: int, place: int, size: int) -> memoryview:
        return self.pool.at(number * 104_729 + place, size)

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
