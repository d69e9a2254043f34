"""PostMark: a pool of small files that a mail server might have, created, used and deleted.

Source: J. Katcher, PostMark: a new file system benchmark, Network Appliance TR3022 (1997). Three phases:

1. create the pool: ``files`` files of random sizes between ``low`` and ``high`` bytes, each in a random one
   of the subdirectories;
2. transactions, each a pair: read a whole random file or append to one (``read_bias`` in 10 are reads), then
   create a file or delete a random one (``create_bias`` in 10 are creations). An append adds a random amount
   that leaves the file at most ``high`` bytes long; a file that is that long already stays as it is;
3. delete what there is.

As in the published program a bias of -1 switches off that half of the transactions, files are read and
written in ``read_block`` and ``write_block`` bytes, and ``buffered`` collects these into the size that the
file system names (st_blksize), which is what C's stdio does. The table of files holds twice the pool; where
it is full a file is deleted instead of created, and where it is empty one is created.

With several ``processes`` each has a pool and a directory of its own. ``transactions`` (of all processes)
null: as many as ``seconds`` allow; both null is refused by the other side.

Request: ``path``, all of the above, ``subdirectories``, ``sync`` (fsync after each write and creation),
``seed``.
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

_OUT_OF = 10


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the three phases; see the module."""
    root = job.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-postmark"))
    crew = job.start_workers(request["processes"], lambda index: _Worker(request, root, index))
    crew.call("begin", only=0)
    crew.call("plant")
    job.phase("create", "fill")
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    job.phase("transactions", "transact", limit)
    if sum(crew.call("left")):
        job.phase("delete", "empty")
    return job.result()


def _share(whole: int, processes: int, index: int) -> int:
    return whole // processes + (index < whole % processes)


class _Worker:
    """One process with its pool: ``table`` is (name, size) of every file, in no order."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.root = root
        self.mine = b"%s/p%d" % (root, index)
        self.request = request
        self.random = Random(request["seed"] * 4096 + index)  # noqa: S311  # an order of things, not a secret
        self.pool = fsutil.RandomDataPool(request["seed"] + index)
        self.count = _share(request["files"], request["processes"], index)
        wanted = request["transactions"]
        self.wanted = None if wanted is None else _share(wanted, request["processes"], index)
        self.low, self.high = request["low"], request["high"]
        self.table: list[tuple[bytes, int]] = []
        self.names = 0
        self.read_unit, self.write_unit = request["read_block"], request["write_block"]
        self.lanes: dict[str, OpLog] = {}

    def begin(self) -> None:
        """Make the common directory; what an agent that was killed left is removed first."""
        fsutil.remove(self.root)
        os.mkdir(self.root)

    def plant(self) -> None:
        """Make the directories, and learn what stdio would collect."""
        os.mkdir(self.mine)
        for number in range(self.request["subdirectories"]):
            os.mkdir(b"%s/s%d" % (self.mine, number))
        os.chdir(self.mine)
        if self.request["buffered"]:
            unit = os.stat(b".").st_blksize
            self.read_unit, self.write_unit = max(unit, self.read_unit), max(unit, self.write_unit)

    def fill(self, gate: PhaseBarrier) -> dict[str, OpLog]:
        """Create the pool."""
        lane = OpLog(sized=True)
        gate.wait()
        for _ in range(self.count):
            self._create(lane)
        return {"create": lane}

    def transact(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        """Do the transactions; a transaction's own lane holds the pairs."""
        lanes = {name: OpLog(sized=True) for name in ("read", "append", "create", "delete", "transaction")}
        reads, creates = self.request["read_bias"], self.request["create_bias"]
        chance, full = self.random.randrange, 2 * self.count
        began = gate.wait()
        end = began + limit if limit is not None else 1 << 62
        done = 0
        while began < end and (self.wanted is None or done < self.wanted):
            if reads >= 0 and self.table:
                if chance(_OUT_OF) < reads:
                    self._read(lanes["read"])
                else:
                    self._append(lanes["append"])
            if creates >= 0:
                if not self.table or (chance(_OUT_OF) < creates and len(self.table) < full):
                    self._create(lanes["create"])
                else:
                    self._delete(lanes["delete"])
            began = lanes["transaction"].add(began)
            done += 1
        return lanes

    def empty(self, gate: PhaseBarrier) -> dict[str, OpLog]:
        """Delete all there is."""
        lane = OpLog()
        gate.wait()
        while self.table:
            self._delete(lane)
        return {"delete": lane}

    def left(self) -> int:
        """Return how many files there are."""
        return len(self.table)

    # The four operations: each takes the time and adds itself to its lane.

    def _create(self, lane: OpLog) -> None:
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
        lane.add(began, size)
        self.table.append((name, size))

    def _read(self, lane: OpLog) -> None:
        name, size = self.table[self.random.randrange(len(self.table))]
        read, unit, seen = os.read, self.read_unit, 0
        began = now()
        descriptor = os.open(name, os.O_RDONLY)
        while part := len(read(descriptor, unit)):
            seen += part
        os.close(descriptor)
        lane.add(began, seen)
        if seen != size:
            raise OSError(5, f"read {seen} bytes of a file of {size}", name)

    def _append(self, lane: OpLog) -> None:
        place = self.random.randrange(len(self.table))
        name, size = self.table[place]
        if size >= self.high:
            return
        more = self.random.randint(1, self.high - size)
        began = now()
        descriptor = os.open(name, os.O_RDWR | os.O_APPEND)
        self._write(descriptor, more)
        os.close(descriptor)
        lane.add(began, more)
        self.table[place] = (name, size + more)

    def _delete(self, lane: OpLog) -> None:
        place = self.random.randrange(len(self.table))
        name, _ = self.table[place]
        self.table[place] = self.table[-1]
        self.table.pop()
        began = now()
        os.unlink(name)
        lane.add(began)

    def _write(self, descriptor: int, size: int) -> None:
        unit, sync = self.write_unit, self.request["sync"]
        while size > 0:
            part = min(unit, size)
            fsutil.write_all(descriptor, self.pool.take(part))
            size -= part
        if sync:
            os.fsync(descriptor)
