"""Bonnie++ 1.03's measurements: one file by the character and by the block, seeks, and many empty files.

Source: Bonnie++'s readme (R. Coker). On one file of ``size`` bytes, in this order: *char_write*,
*block_write* (the file anew, in ``chunk`` bytes), *rewrite* (each chunk read, one byte of it changed, and
written back where it was), *char_read*, *block_read*, *seeks* (``seekers`` processes that read chunks at
random offsets, ``seeks`` in all, and change and write back each tenth). Then ``files`` empty files: created
in the order of their names, then stat and delete in readdir order, whose time is included; and again, created
in random order, with stat and delete of random known names.

Characters. Bonnie++ 1.03 writes and reads them with C's putc and getc. It measures the processor time of a
buffered stream for each byte, unless the target is slower. The counterpart here is Python's buffered file
(``char_io`` ``buffered``; the buffer has stdio's size, st_blksize), written and read one byte at a time from
a loop in C. Both move single bytes through a buffer and make the same calls to the target, but their
processor time differs. Therefore the same loop is measured on /dev/null and /dev/zero (``ceilings``,
bytes/s), which shows whether the client is the limit. ``char_io`` ``syscall`` is Bonnie++ 2's: a write(2) or
read(2) for every byte.

``sync``: fsync after every write, and of the directory after every creation and deletion (Bonnie++'s -b).
``sync_on_close``: fsync before a file that was written is closed (Bonnie++ from 1.90b on); part of the time.
``cold``: before the file is read (but not before it is rewritten) its pages are dropped from the client's
cache. ``seconds`` limits each phase; a file then ends where *block_write* stopped.

Request: ``path`` and all of the above, ``seed``.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.op_log import BackToBackOpLog, OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

_FOREVER = 1 << 62
_TRIAL = 50_000_000  # ns
_BATCH = 4096  # characters between two clock readings
_BLOCKS = 8  # blocks between two clock readings: a target as fast as memory would wait for the clock
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the phases; see the module."""
    root = context.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-bonnie"))
    seekers = request["seekers"]
    workers = context.start_workers(1 + seekers, lambda index: _BonnieWorker(request, root, index))
    workers.call("setup", only=0)
    ceilings: dict[str, float] = workers.call("ceilings", only=0)[0]
    limit, size = request["seconds"], 0
    for name in ("char_write", "block_write", "rewrite", "char_read", "block_read"):
        if name.startswith("char") and not request["characters"]:
            continue
        if request["cold"] and name.endswith("read"):
            workers.call("drop_pages", only=0)
        report = context.phase(name, name, limit, only=[0])
        if name == "block_write":
            size = report["operations"][name]["total_bytes"]
    if request["cold"]:
        workers.call("drop_pages", only=0)
    context.phase("seeks", "seek", size, limit, only=list(range(1, 1 + seekers)))
    workers.call("remove", only=0)
    for order in ("sequential", "random") if request["files"] else ():
        workers.call("plan", order, only=0)
        for operation in ("create", "stat", "delete"):
            context.phase(f"{order}_{operation}", operation, order, limit, only=[0])
        workers.call("clear", only=0)
    return context.result(ceilings=ceilings, size=size)


class _BonnieWorker(DirectoryWorker):
    """One worker process. Worker 0 runs all phases but *seeks*; the others run only *seeks*."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        super().__init__(request, root, index)
        self.file = b"%s/file" % root
        self.files = b"%s/files" % root
        self.chunk, self.size = request["chunk"], request["size"]
        self.pool = fsutil.RandomDataPool(request["seed"], max(1 << 20, self.chunk))
        self.names: list[bytes] = []

    def remove(self) -> None:
        fsutil.remove(self.file)

    def drop_pages(self) -> None:
        descriptor = os.open(self.file, os.O_RDWR)
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)

    # By the character

    def ceilings(self) -> dict[str, float]:
        """Return the bytes/s of moving single bytes without a target."""
        if not self.request["characters"]:
            return {}
        found = {}
        for name, path in (("char_write", b"/dev/null"), ("char_read", b"/dev/zero")):
            began, op_log = now(), OpLog(sized=True)
            if name == "char_write":
                self._put(path, op_log, began, began + _TRIAL, _FOREVER, sync=False)
            else:
                self._get(path, op_log, began, began + _TRIAL, _FOREVER)
            found[name] = sum(op_log.sizes or ()) / max(1, op_log.last - began) * 1e9
        return found

    def char_write(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        op_log = OpLog(sized=True)
        end = barrier.start(limit)
        self._put(self.file, op_log, barrier.began, end, self.size, sync=True)
        return {"char_write": op_log}

    def char_read(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        op_log = OpLog(sized=True)
        end = barrier.start(limit)
        self._get(self.file, op_log, barrier.began, end, self.size)
        return {"char_read": op_log}

    def _put(self, path: bytes, op_log: OpLog, began: int, end: int, size: int, *, sync: bool) -> None:
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
                began = op_log.add(began, len(batch))
                if began >= end:
                    break
            stream.flush()
            if sync and self.request["sync_on_close"]:
                os.fsync(stream.fileno())
        op_log.add(began)

    def _get(self, path: bytes, op_log: OpLog, began: int, end: int, size: int) -> None:
        buffering = 0 if self.request["char_io"] == "syscall" else os.stat(self.root).st_blksize
        done = 0
        with open(path, "rb", buffering=buffering) as stream:
            while done < size and began < end:
                got = sum(map(len, map(stream.read, itertools.repeat(1, min(_BATCH, size - done)))))
                if not got:
                    break
                done += got
                began = op_log.add(began, got)

    # By the block

    def block_write(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        def write(descriptor: int, offset: int) -> int:
            part: int = min(self.chunk, self.size - offset)
            if part:
                fsutil.write_all(descriptor, self.pool.take(part))
                if self.request["sync"]:
                    os.fsync(descriptor)
            return part

        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        return {"block_write": self._run_steps(barrier, limit, flags, write)}

    def rewrite(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        data = bytearray(self.chunk)
        buffer, view, positions = [data], memoryview(data), itertools.cycle(range(self.chunk))
        count = 1 if self.request["sync"] else _BLOCKS

        def rewrite(descriptor: int, _offset: int) -> int:
            done = 0
            for _ in range(count):
                part = os.readv(descriptor, buffer)
                if not part:
                    break
                data[next(positions)] ^= 0xFF
                os.lseek(descriptor, -part, os.SEEK_CUR)
                fsutil.write_all(descriptor, view[:part])
                done += part
            if self.request["sync"]:
                os.fsync(descriptor)
            return done

        return {"rewrite": self._run_steps(barrier, limit, os.O_RDWR, rewrite)}

    def block_read(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        buffer = [bytearray(self.chunk)]

        def read(descriptor: int, _offset: int) -> int:
            return sum(map(os.readv, itertools.repeat(descriptor, _BLOCKS), itertools.repeat(buffer)))

        return {"block_read": self._run_steps(barrier, limit, os.O_RDONLY, read)}

    def _run_steps(
        self, barrier: PhaseBarrier, limit: float | None, flags: int, step: Callable[[int, int], int]
    ) -> OpLog:
        """Open the file and call ``step(descriptor, offset)`` until the time is over or it returns 0 bytes.

        The time of the close of a written file is logged with 0 bytes.
        """
        op_log, offset = OpLog(sized=True), 0
        end = barrier.start(limit)
        began = barrier.began
        descriptor = os.open(self.file, flags, 0o644)
        while began < end and (part := step(descriptor, offset)):
            offset += part
            began = op_log.add(began, part)
        if flags != os.O_RDONLY and self.request["sync_on_close"]:
            os.fsync(descriptor)
        os.close(descriptor)
        if flags != os.O_RDONLY:
            op_log.add(began)
        return op_log

    def seek(self, barrier: PhaseBarrier, size: int, limit: float | None) -> dict[str, OpLog]:
        op_log, chunk, random = OpLog(sized=True), self.chunk, self.random
        seekers, chunks = self.request["seekers"], max(1, size // self.chunk)
        count = self.request["seeks"] // seekers + (self.index <= self.request["seeks"] % seekers)
        end = barrier.start(limit)
        began = barrier.began
        descriptor = os.open(self.file, os.O_RDWR)
        for number in range(count):
            offset = random.randrange(chunks) * chunk
            if number % 10 == 9:
                part = self._change(descriptor, offset)
            else:
                os.lseek(descriptor, offset, os.SEEK_SET)
                part = len(os.read(descriptor, chunk))
            began = op_log.add(began, part)
            if began >= end:
                break
        os.close(descriptor)
        return {"seeks": op_log}

    def _change(self, descriptor: int, offset: int) -> int:
        """Read a chunk, change one byte of it, write it back where it was; return its size."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = bytearray(os.read(descriptor, self.chunk))
        if data:
            data[self.random.randrange(len(data))] ^= 0xFF
            os.lseek(descriptor, offset, os.SEEK_SET)
            fsutil.write_all(descriptor, data)
            if self.request["sync"]:
                os.fsync(descriptor)
        return len(data)

    # Files

    def plan(self, order: str) -> None:
        """Choose the file names: a 7-digit number, and up to 12 letters after it (or before it: random)."""
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

    def create(self, barrier: PhaseBarrier, order: str, limit: float | None) -> dict[str, OpLog]:  # noqa: ARG002
        op_log = self._run_loop(barrier, "create", limit, self.names)
        self.names = self.names[: op_log.count]
        return {"create": op_log}

    def stat(self, barrier: PhaseBarrier, order: str, limit: float | None) -> dict[str, OpLog]:
        names: Iterable[bytes] = _names_in_readdir_order()
        if order == "random":
            names = self.random.choices(self.names, k=len(self.names))
        return {"stat": self._run_loop(barrier, "stat", limit, names)}

    def delete(self, barrier: PhaseBarrier, order: str, limit: float | None) -> dict[str, OpLog]:
        names: Iterable[bytes] = _names_in_readdir_order()
        if order == "random":
            names = self.random.sample(self.names, k=len(self.names))
        return {"delete": self._run_loop(barrier, "delete", limit, names)}

    def _run_loop(
        self, barrier: PhaseBarrier, operation: str, limit: float | None, names: Iterable[bytes]
    ) -> BackToBackOpLog:
        op_log = BackToBackOpLog()
        sync = self.request["sync"] and operation != "stat"
        calls: dict[str, Callable[[bytes], object]] = {
            "create": _create,
            "stat": os.stat,
            "delete": os.unlink,
        }
        call = calls[operation]
        directory = os.open(b".", os.O_RDONLY | os.O_DIRECTORY)
        end = barrier.start(limit)
        stamp = op_log.segment().append
        for name in names:
            call(name)
            if sync:
                os.fsync(directory)
            stamp(time := now())
            if time >= end:
                break
        os.close(directory)
        return op_log


def _names_in_readdir_order() -> Iterator[bytes]:
    """Yield the names of the directory as they are read: the readdir time is included, as in Bonnie++."""
    with os.scandir(b".") as entries:
        for entry in entries:
            yield entry.name


def _create(name: bytes) -> None:
    # O_WRONLY, as Bonnie++ does: with O_RDWR an NFSv4 server may grant a delegation, which has to be returned
    # before the file is deleted.
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
