"""PostMark: create, use and delete a pool of small files like those of a mail server.

Source: J. Katcher, PostMark: a new file system benchmark, Network Appliance TR3022 (1997). Three phases:

1. create the pool: ``files`` files of random sizes between ``low`` and ``high`` bytes, each in a random one
   of the subdirectories;
2. transactions, each a pair: read a total random file or append to one (``read_bias`` in 10 are reads), then
   create a file or delete a random one (``create_bias`` in 10 are creations). An append adds a random amount
   that leaves the file at most ``high`` bytes long; a file that is that long already stays as it is;
3. delete all files.

As in the published program a bias of -1 switches off that half of the transactions, files are read and
written in ``read_block`` and ``write_block`` bytes, and ``buffered`` collects these into the file system's
preferred size (st_blksize), as C's stdio does. The table of files holds twice the pool: if it is full, a file
is deleted instead of created, and if it is empty, one is created.

With several ``processes`` each has a pool and a directory of its own. ``transactions`` (of all processes)
null: as many as ``seconds`` allow; the controller rejects both as null.

Request: ``path``, all of the above, ``subdirectories``, ``sync`` (fsync after each write and creation),
``seed``.
"""

from __future__ import annotations

import os
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

_OUT_OF = 10


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the three phases; see the module."""
    root = context.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-postmark"))
    workers = context.start_workers(request["processes"], lambda index: _PostmarkWorker(request, root, index))
    workers.call("setup", only=0)
    workers.call("setup_tree")
    context.phase("create", "create_pool")
    context.phase("transactions", "run_transactions", request["seconds"])
    if sum(workers.call("file_count")):
        context.phase("delete", "delete_all")
    return context.result()


class _PostmarkWorker(DirectoryWorker):
    """One process with its pool: ``table`` is (name, size) of every file, in no order."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        super().__init__(request, root, index)
        self.directory = b"%s/p%d" % (root, index)
        self.pool = fsutil.RandomDataPool(request["seed"] + index)
        self.count = self.share(request["files"])
        count = request["transactions"]
        self.transactions = None if count is None else self.share(count)
        self.low, self.high = request["low"], request["high"]
        self.table: list[tuple[bytes, int]] = []
        self.names = 0
        self.read_unit, self.write_unit = request["read_block"], request["write_block"]

    def setup_tree(self) -> None:
        """Create the directories, and set the units of reads and writes."""
        os.mkdir(self.directory)
        for number in range(self.request["subdirectories"]):
            os.mkdir(b"%s/s%d" % (self.directory, number))
        os.chdir(self.directory)
        if self.request["buffered"]:
            unit = os.stat(b".").st_blksize
            self.read_unit, self.write_unit = max(unit, self.read_unit), max(unit, self.write_unit)

    def create_pool(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Create the pool."""
        op_log = OpLog(sized=True)
        barrier.wait()
        for _ in range(self.count):
            self._create(op_log)
        return {"create": op_log}

    def run_transactions(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        """Run the transactions; the log ``transaction`` has one entry per pair."""
        op_logs = {name: OpLog(sized=True) for name in ("read", "append", "create", "delete", "transaction")}
        reads, creates = self.request["read_bias"], self.request["create_bias"]
        chance, full = self.random.randrange, 2 * self.count
        end = barrier.start(limit)
        began, done = barrier.began, 0
        while began < end and (self.transactions is None or done < self.transactions):
            if reads >= 0 and self.table:
                if chance(_OUT_OF) < reads:
                    self._read(op_logs["read"])
                else:
                    self._append(op_logs["append"])
            if creates >= 0:
                if not self.table or (chance(_OUT_OF) < creates and len(self.table) < full):
                    self._create(op_logs["create"])
                else:
                    self._delete(op_logs["delete"])
            began = op_logs["transaction"].add(began)
            done += 1
        return op_logs

    def delete_all(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Delete all files."""
        op_log = OpLog()
        barrier.wait()
        while self.table:
            self._delete(op_log)
        return {"delete": op_log}

    def file_count(self) -> int:
        """Return the number of files."""
        return len(self.table)

    # The four operations: each measures its time and adds itself to its log.

    def _create(self, op_log: OpLog) -> None:
        subdirectories = self.request["subdirectories"]
        name = b"%d" % self.names
        if subdirectories:
            name = b"s%d/%b" % (self.random.randrange(subdirectories), name)
        size = self.random.randint(self.low, self.high)
        self.names += 1
        began = now()
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._write(descriptor, size)
        os.close(descriptor)
        op_log.add(began, size)
        self.table.append((name, size))

    def _read(self, op_log: OpLog) -> None:
        name, size = self.table[self.random.randrange(len(self.table))]
        read, unit, done = os.read, self.read_unit, 0
        began = now()
        descriptor = os.open(name, os.O_RDONLY)
        while part := len(read(descriptor, unit)):
            done += part
        os.close(descriptor)
        op_log.add(began, done)
        if done != size:
            raise OSError(5, f"read {done} bytes of a file of {size}", name)

    def _append(self, op_log: OpLog) -> None:
        index = self.random.randrange(len(self.table))
        name, size = self.table[index]
        if size >= self.high:
            return
        more = self.random.randint(1, self.high - size)
        began = now()
        descriptor = os.open(name, os.O_RDWR | os.O_APPEND)
        self._write(descriptor, more)
        os.close(descriptor)
        op_log.add(began, more)
        self.table[index] = (name, size + more)

    def _delete(self, op_log: OpLog) -> None:
        index = self.random.randrange(len(self.table))
        name, _ = self.table[index]
        self.table[index] = self.table[-1]
        self.table.pop()
        began = now()
        os.unlink(name)
        op_log.add(began)

    def _write(self, descriptor: int, size: int) -> None:
        unit, sync = self.write_unit, self.request["sync"]
        while size > 0:
            part = min(unit, size)
            fsutil.write_all(descriptor, self.pool.take(part))
            size -= part
        if sync:
            os.fsync(descriptor)
