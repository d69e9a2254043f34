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
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.fast_stat import STAT_BUFFER, stat
from storagetest.agent.op_log import BackToBackOpLog, OpLog, now
from storagetest.agent.worker_pool import CommandError, PhaseBarrier

ORDER = (
    "mkdir", "rmdir", "create", "open", "stat", "readdir",
    "setattr", "xattr", "rename", "link", "symlink", "unlink",
)  # fmt: skip
_READS = {"open", "stat", "readdir"}
_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM}
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
    created = 0
    for name in ORDER:
        if name not in needed or name in unsupported:
            continue
        if request["cold"] and name in _READS:
            workers.call("drop_caches", only=0)
        report = context.phase(name, name, request["seconds"])
        if name == "create":
            created = report["operations"]["create"]["total"]
        workers.call("clean_up", name)
    return context.result(not_offered=unsupported, files=created)


class _MetadataWorker(DirectoryWorker):
    """One process: its directories, and the names of the entries that it has created there."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        super().__init__(request, root, index)
        self.shared, self.cold = request["shared"], request["cold"]
        self.depth, self.width = request["depth"], request["width"]
        top = b"%s/shared" % root if self.shared else b"%s/p%d" % (root, index)
        self.top = top
        self.leaves = fsutil.leaf_directories(top, self.depth, self.width)
        each, more = divmod(self.share(request["files"]), len(self.leaves))
        self.planned_counts = [each + (number < more) for number in range(len(self.leaves))]
        self.created: list[Names] = [[] for _ in self.leaves]
        size = request["file_size"]
        self.data = bytes(fsutil.RandomDataPool(request["seed"] + index, max(1, size)).take(size))
        self.cleanup: Callable[[], None] = _nothing

    # Not timed

    def setup(self) -> None:
        """Create the root and the shared tree."""
        super().setup()
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

    def mkdir(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        names = self._fresh(b"d")
        op_log = self._run_loop(barrier, limit, names, _calls(os.mkdir))
        self.directories = _first(names, op_log.count)
        return {"mkdir": op_log}

    def rmdir(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        op_log = self._run_loop(barrier, limit, self.directories, _calls(os.rmdir))
        left = _after(self.directories, op_log.count)
        self.cleanup = lambda: self._for_each_name(left, os.rmdir)
        return {"rmdir": op_log}

    def create(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        names = self._fresh(b"f")
        op_log = self._run_loop(barrier, limit, names, _opens(os.O_CREAT | os.O_RDWR, self.data))
        self.created = _first(names, op_log.count)
        return {"create": op_log}

    def open(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return {
            "open": self._run_loop(barrier, limit, self.created, _opens(os.O_RDONLY), repeat=not self.cold)
        }

    def stat(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return {"stat": self._run_loop(barrier, limit, self.created, _stat, repeat=not self.cold)}

    def readdir(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        listed = OpLog(sized=True)
        end = barrier.start(limit)
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

    def setattr(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return {"setattr": self._run_loop(barrier, limit, self.created, _setattr, repeat=True)}

    def xattr(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return {"xattr": self._run_loop(barrier, limit, self.created, _xattr, repeat=True)}

    def rename(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        forward = [[(name, b"r" + name) for name in names] for names in self.created]
        back = [[(new, old) for old, new in names] for names in forward]
        op_log = self._run_loop(
            barrier, limit, forward, _calls_on_pairs(os.rename), repeat=True, odd_names=back
        )
        rounds, rest = divmod(op_log.count, max(1, sum(map(len, self.created))))
        moved = _first(forward, rest) if rounds % 2 == 0 else _after(forward, rest)
        self.cleanup = lambda: self._for_each_name(moved, lambda pair: os.rename(pair[1], pair[0]))
        return {"rename": op_log}

    def link(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        names = [[(name, b"l" + name) for name in names] for names in self.created]
        return {"link": self._create_and_undo(barrier, limit, names, os.link)}

    def symlink(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        names = [[(b"target", name) for name in names] for names in self._fresh(b"s")]
        return {"symlink": self._create_and_undo(barrier, limit, names, os.symlink)}

    def unlink(self, barrier: PhaseBarrier, limit: float | None) -> dict[str, OpLog]:
        return {"unlink": self._run_loop(barrier, limit, self.created, _calls(os.unlink))}

    # The loops' callers

    def _fresh(self, letter: bytes) -> list[list[bytes]]:
        return [
            [b"%b%d.%d" % (letter, self.index, each) for each in range(count)]
            for count in self.planned_counts
        ]

    def _run_loop(
        self,
        barrier: PhaseBarrier,
        limit: float | None,
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
        end = barrier.start(limit)
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
        limit: float | None,
        pairs: Sequence[Names],
        call: Callable[[bytes, bytes], None],
    ) -> BackToBackOpLog:
        """Run ``call(old, new)`` on all pairs of names; the clean-up removes the new ones."""
        op_log = self._run_loop(barrier, limit, pairs, _calls_on_pairs(call))
        created = _first(pairs, op_log.count)
        self.cleanup = lambda: self._for_each_name(created, lambda pair: os.unlink(pair[1]))
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


# The loops make their system call directly, because a call through another function costs as much as some
# system calls. Each returns whether there is time left.


def _calls(call: Callable[[bytes], object]) -> Loop:
    """Return the loop that calls ``call(name)``; ``call`` is a function of the standard library."""

    def loop(names: Names, stamp: Callable[[int], None], end: int) -> bool:
        for name in names:
            call(name)
            stamp(time := now())
            if time >= end:
                return False
        return True

    return loop


def _calls_on_pairs(call: Callable[[bytes, bytes], object]) -> Loop:
    """Return the loop that calls ``call(old, new)`` for each pair of names."""

    def loop(names: Names, stamp: Callable[[int], None], end: int) -> bool:
        for old, new in names:
            call(old, new)
            stamp(time := now())
            if time >= end:
                return False
        return True

    return loop


def _opens(flags: int, data: bytes = b"") -> Loop:
    """Return the loop that opens each name with ``flags``, writes ``data`` and closes it."""

    def loop(names: Names, stamp: Callable[[int], None], end: int) -> bool:
        open_, close = os.open, os.close
        for name in names:
            descriptor = open_(name, flags, 0o644)
            if data:
                fsutil.write_all(descriptor, data)
            close(descriptor)
            stamp(time := now())
            if time >= end:
                return False
        return True

    return loop


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
