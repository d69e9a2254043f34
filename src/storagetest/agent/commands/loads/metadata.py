"""Metadata operations, one kind after another, by many processes in private or shared directories.

Each kind is a phase: all processes start together, and each processes its own names until the names are used
up or ``seconds`` are over. Each name is created (mkdir, create, link, symlink) and removed (rmdir, unlink)
once; the other operations (open, stat, readdir, setattr, xattr, rename) are repeated on the same names. Later
phases use only the files that were created in time. Results of a phase that the next one must not find (for
example links) are removed between the phases, untimed.

Names are bytes without a slash, and a worker changes into each directory before it uses the names there.
Therefore the kernel looks up one component, Python has nothing to encode, and the measured time is mostly the
system call.

Request: ``path``, ``operations`` (names, in any order), ``processes``, ``files`` (all together), ``shared``,
``depth``, ``width``, ``file_size``, ``cold``, ``seconds`` (a phase; null: no limit), ``seed``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.fast_stat import STAT_BUFFER, stat
from storagetest.agent.op_log import BackToBackOpLog, OpLog, now
from storagetest.agent.worker_pool import CommandError, PhaseBarrier

__all__ = ["ORDER", "run"]

ORDER = (
    "mkdir", "rmdir", "create", "open", "stat", "readdir",
    "setattr", "xattr", "rename", "link", "symlink", "unlink",
)  # fmt: skip
_READS = {"open", "stat", "readdir"}
_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM}
_FOREVER = 1 << 62
_ATTRIBUTE = b"user.storagetest"
_VALUE = 64

Names = Sequence[Any]
Loop = Callable[[Names, Callable[[int], None], int], bool]


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the requested phases, in :data:`ORDER`; see the module."""
    requested = set(request["operations"])
    root = context.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-metadata"))
    workers = context.start_workers(request["processes"], lambda index: _MetadataWorker(request, root, index))
    workers.call("setup", only=0)
    workers.call("setup_tree")
    unsupported: dict[str, str] = workers.call(
        "probe", sorted(requested & {"xattr", "link", "symlink"}), only=0
    )[0]
    needed = requested | {"create"} | ({"mkdir"} if "rmdir" in requested else set())
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    created = 0
    for name in ORDER:
        if name not in needed or name in unsupported:
            continue
        if request["cold"] and name in _READS:
            workers.call("drop_caches", only=0)
        report = context.phase(name, name, limit)
        if name == "create":
            created = report["operations"]["create"]["total"]
        workers.call("clean_up", name)
    return context.result(not_offered=unsupported, files=created)


class _MetadataWorker:
    """One process: its directories, and the names of the entries that it has created there."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.root, self.index = root, index
        self.shared, self.cold = request["shared"], request["cold"]
        self.depth, self.width = request["depth"], request["width"]
        top = b"%s/shared" % root if self.shared else b"%s/p%d" % (root, index)
        self.top = top
        self.leaves = fsutil.leaf_directories(top, self.depth, self.width)
        share = request["files"] // request["processes"]
        share += index < request["files"] % request["processes"]
        counts = [share // len(self.leaves)] * len(self.leaves)
        for number in range(share % len(self.leaves)):
            counts[number] += 1
        self.planned_counts = counts
        self.created: list[list[bytes]] = [[] for _ in counts]
        size = request["file_size"]
        self.data = bytes(fsutil.RandomDataPool(request["seed"] + index, max(1, size)).take(size))
        self.cleanup: Callable[[], None] = _nothing

    # Not timed

    def setup(self) -> None:
        """Create the root and the shared tree; first remove what a killed agent has left there."""
        fsutil.remove(self.root)
        os.mkdir(self.root)
        if self.shared:
            fsutil.make_tree(self.top, self.depth, self.width)

    def setup_tree(self) -> None:
        """Create this worker's own tree."""
        if not self.shared:
            fsutil.make_tree(self.top, self.depth, self.width)

    def probe(self, names: list[str]) -> dict[str, str]:
        """Return those of ``names`` that the target does not support, with the error text of each."""
        path = b"%s/probe" % self.root
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        trials: dict[str, Callable[[], None]] = {
            "xattr": lambda: os.setxattr(path, _ATTRIBUTE, bytes(_VALUE)),
            "link": lambda: os.link(path, path + b".l"),
            "symlink": lambda: os.symlink(b"probe", path + b".l"),
        }
        unsupported = {}
        for name in names:
            try:
                trials[name]()
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                unsupported[name] = error.strerror or str(error)
            with suppress(FileNotFoundError):
                os.unlink(path + b".l")
        os.unlink(path)
        return unsupported

    def drop_caches(self) -> None:
        try:
            fsutil.drop_caches()
        except PermissionError:
            raise CommandError("request", "only root can drop the client's caches: cold needs root") from None

    def clean_up(self, name: str) -> None:  # noqa: ARG002  # every phase sets its own ``cleanup``
        self.cleanup()
        self.cleanup = _nothing

    # The phases. Each prepares, waits at the barrier, and loops.

    def mkdir(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = self._fresh(b"d")
        op_log = self._run_loop(barrier, limit, names, _mkdir)
        self.directories = _processed(names, op_log)
        return {"mkdir": op_log}

    def rmdir(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        op_log = self._run_loop(barrier, limit, self.directories, _rmdir)
        left = _remaining(self.directories, op_log)
        self.cleanup = lambda: self._for_each_name(left, os.rmdir)
        return {"rmdir": op_log}

    def create(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = self._fresh(b"f")
        op_log = self._run_loop(barrier, limit, names, _create_with_data(self.data) if self.data else _create)
        self.created = _processed(names, op_log)
        return {"create": op_log}

    def open(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"open": self._run_loop(barrier, limit, self.created, _open, repeat=not self.cold)}

    def stat(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"stat": self._run_loop(barrier, limit, self.created, _stat, repeat=not self.cold)}

    def readdir(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        listed = OpLog(sized=True)
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        began = now()
        while began < end:
            for leaf in self.leaves:
                os.chdir(leaf)
                began = listed.add(now(), len(os.listdir(b".")))
                if began >= end:
                    break
            if self.cold or limit is None:
                break
        return {"readdir": listed}

    def setattr(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"setattr": self._run_loop(barrier, limit, self.created, _setattr, repeat=True)}

    def xattr(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"xattr": self._run_loop(barrier, limit, self.created, _xattr, repeat=True)}

    def rename(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        forward = [[(name, b"r" + name) for name in names] for names in self.created]
        back = [[(new, old) for old, new in names] for names in forward]
        op_log = self._run_loop(barrier, limit, forward, _rename, repeat=True, odd_names=back)
        rounds, rest = divmod(op_log.count, max(1, sum(map(len, self.created))))
        moved = list(_first(forward, rest)) if rounds % 2 == 0 else list(_after(forward, rest))
        self.cleanup = lambda: self._for_each_name(moved, lambda pair: os.rename(pair[1], pair[0]))
        return {"rename": op_log}

    def link(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = [[(name, b"l" + name) for name in names] for names in self.created]
        return {"link": self._create_and_undo(barrier, limit, names, _link, lambda pair: os.unlink(pair[1]))}

    def symlink(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"symlink": self._create_and_undo(barrier, limit, self._fresh(b"s"), _symlink, os.unlink)}

    def unlink(self, barrier: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"unlink": self._run_loop(barrier, limit, self.created, _unlink)}

    # The loops' callers

    def _fresh(self, letter: bytes) -> list[list[bytes]]:
        return [
            [b"%b%d.%d" % (letter, self.index, each) for each in range(count)]
            for count in self.planned_counts
        ]

    def _run_loop(
        self,
        barrier: PhaseBarrier,
        limit: int | None,
        names: Sequence[Names],
        loop: Loop,
        *,
        repeat: bool = False,
        odd_names: Sequence[Names] | None = None,
    ) -> BackToBackOpLog:
        """Run ``loop`` on the names of each directory, once, or with ``repeat`` until the time is over.

        ``odd_names`` are the names for every second round.
        """
        op_log = BackToBackOpLog()
        by_round = (names, odd_names or names)
        number = 0
        barrier.wait()
        end = barrier.began + (limit or _FOREVER)
        while True:
            for leaf, batch in enumerate(by_round[number % 2]):
                os.chdir(self.leaves[leaf])
                if batch and not loop(batch, op_log.segment().append, end):
                    return op_log
            number += 1
            if not repeat or limit is None or not op_log.count:
                return op_log

    def _create_and_undo(
        self,
        barrier: PhaseBarrier,
        limit: int | None,
        names: Sequence[Names],
        loop: Loop,
        remove: Callable[[Any], None],
    ) -> BackToBackOpLog:
        op_log = self._run_loop(barrier, limit, names, loop)
        created = list(_first(names, op_log.count))
        self.cleanup = lambda: self._for_each_name(created, remove)
        return op_log

    def _for_each_name(self, names: Sequence[Names], action: Callable[[Any], None]) -> None:
        for leaf, batch in enumerate(names):
            os.chdir(self.leaves[leaf])
            for name in batch:
                action(name)


def _nothing() -> None:
    pass


def _first(names: Sequence[Names], count: int) -> list[Names]:
    """Return the first ``count`` names, by directory, in the order of the phases."""
    result = []
    for batch in names:
        result.append(batch[:count])
        count -= len(result[-1])
    return result


def _after(names: Sequence[Names], count: int) -> list[Names]:
    """Return the names that :func:`_first` does not return."""
    return [batch[len(first) :] for batch, first in zip(names, _first(names, count))]


def _processed(names: list[list[bytes]], op_log: BackToBackOpLog) -> list[list[bytes]]:
    return [list(batch) for batch in _first(names, op_log.count)]


def _remaining(names: list[list[bytes]], op_log: BackToBackOpLog) -> list[Names]:
    return _after(names, op_log.count)


# The loops: one per kind, because a call through another function costs as much as some system calls. Each
# returns whether there is time left.


def _mkdir(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    mkdir = os.mkdir
    for name in names:
        mkdir(name)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _rmdir(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    rmdir = os.rmdir
    for name in names:
        rmdir(name)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _create(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    open_, close, flags = os.open, os.close, os.O_CREAT | os.O_RDWR
    for name in names:
        close(open_(name, flags, 0o644))
        stamp(time := now())
        if time >= end:
            return False
    return True


def _create_with_data(data: bytes) -> Loop:
    """Return the loop that writes ``data`` into each new file."""

    def create(names: Names, stamp: Callable[[int], None], end: int) -> bool:
        for name in names:
            descriptor = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
            fsutil.write_all(descriptor, data)
            os.close(descriptor)
            stamp(time := now())
            if time >= end:
                return False
        return True

    return create


def _open(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    open_, close, flags = os.open, os.close, os.O_RDONLY
    for name in names:
        close(open_(name, flags))
        stamp(time := now())
        if time >= end:
            return False
    return True


def _stat(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    call, buffer = stat, STAT_BUFFER
    for name in names:
        if call(name, buffer):
            os.stat(name)  # raises why
        stamp(time := now())
        if time >= end:
            return False
    return True


def _setattr(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    utime, changed = os.utime, now()  # a different value in each round; an equal one would change nothing
    for name in names:
        utime(name, ns=(changed, changed))
        stamp(time := now())
        if time >= end:
            return False
    return True


def _xattr(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    setxattr, value = os.setxattr, b"%0*d" % (_VALUE, now())
    for name in names:
        setxattr(name, _ATTRIBUTE, value)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _rename(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    rename = os.rename
    for name in names:
        rename(*name)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _link(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    link = os.link
    for name in names:
        link(*name)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _symlink(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    symlink, target = os.symlink, b"target"
    for name in names:
        symlink(target, name)
        stamp(time := now())
        if time >= end:
            return False
    return True


def _unlink(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    unlink = os.unlink
    for name in names:
        unlink(name)
        stamp(time := now())
        if time >= end:
            return False
    return True
