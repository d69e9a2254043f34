"""Metadata operations, one kind after another, by many processes in private or shared directories.

Each kind is a phase: all processes begin together and each works through its own names until these, or the
phase's ``seconds``, are at an end. Making (mkdir, create, link, symlink) and taking away (rmdir, unlink) is
done once a name; the others (open, stat, readdir, setattr, xattr, rename) go round and round. What the time
did not suffice to create, no later phase touches. What a phase leaves that the next should not find (links,
for one) is removed in between, uncounted.

Names are bytes without a slash, and a worker changes into each directory before its names are used: the
kernel looks up one component, and Python has nothing to encode. So what is timed is the system call and
little else.

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
from storagetest.agent.fast_stat import PLACE, stat
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


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the phases asked for, in :data:`ORDER`; see the module."""
    asked = set(request["operations"])
    root = job.remove_at_end(os.path.join(os.fsencode(request["path"]), b"storagetest-metadata"))
    crew = job.start_workers(request["processes"], lambda index: _Worker(request, root, index))
    crew.call("begin", only=0)
    crew.call("plant")
    lacking: dict[str, str] = crew.call("probe", sorted(asked & {"xattr", "link", "symlink"}), only=0)[0]
    needed = asked | {"create"} | ({"mkdir"} if "rmdir" in asked else set())
    limit = None if request["seconds"] is None else int(request["seconds"] * 1e9)
    made = 0
    for name in ORDER:
        if name not in needed or name in lacking:
            continue
        if request["cold"] and name in _READS:
            crew.call("drop_caches", only=0)
        report = job.phase(name, name, limit)
        if name == "create":
            made = report["operations"]["create"]["total"]
        crew.call("tidy", name)
    return job.result(not_offered=lacking, files=made)


class _Worker:
    """One process: its directories, and the names of what it has there."""

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
        self.planned = counts
        self.made: list[list[bytes]] = [[] for _ in counts]
        size = request["file_size"]
        self.data = bytes(fsutil.RandomDataPool(request["seed"] + index, max(1, size)).take(size))
        self.undo: Callable[[], None] = _nothing

    # What is not timed

    def begin(self) -> None:
        """Make what all share; what an agent that was killed left is removed first."""
        fsutil.remove(self.root)
        os.mkdir(self.root)
        if self.shared:
            fsutil.make_tree(self.top, self.depth, self.width)

    def plant(self) -> None:
        """Make the directories of one's own."""
        if not self.shared:
            fsutil.make_tree(self.top, self.depth, self.width)

    def probe(self, names: list[str]) -> dict[str, str]:
        """Return, of ``names``, those that the target has not got, and what it says to them."""
        place = b"%s/probe" % self.root
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        trials: dict[str, Callable[[], None]] = {
            "xattr": lambda: os.setxattr(place, _ATTRIBUTE, bytes(_VALUE)),
            "link": lambda: os.link(place, place + b".l"),
            "symlink": lambda: os.symlink(b"probe", place + b".l"),
        }
        lacking = {}
        for name in names:
            try:
                trials[name]()
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                lacking[name] = error.strerror or str(error)
            with suppress(FileNotFoundError):
                os.unlink(place + b".l")
        os.unlink(place)
        return lacking

    def drop_caches(self) -> None:
        try:
            fsutil.drop_caches()
        except PermissionError:
            raise CommandError("request", "only root can drop the client's caches: cold needs root") from None

    def tidy(self, name: str) -> None:  # noqa: ARG002  # every phase notes itself what it leaves
        self.undo()
        self.undo = _nothing

    # The phases. Each: prepare, wait at the gate, loop.

    def mkdir(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = self._fresh(b"d")
        chain = self._rounds(gate, limit, names, _mkdir)
        self.directories = _done(names, chain)
        return {"mkdir": chain}

    def rmdir(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        chain = self._rounds(gate, limit, self.directories, _rmdir)
        left = _rest(self.directories, chain)
        self.undo = lambda: self._each(left, os.rmdir)
        return {"rmdir": chain}

    def create(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = self._fresh(b"f")
        chain = self._rounds(gate, limit, names, _creating(self.data) if self.data else _create)
        self.made = _done(names, chain)
        return {"create": chain}

    def open(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"open": self._rounds(gate, limit, self.made, _open, again=not self.cold)}

    def stat(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"stat": self._rounds(gate, limit, self.made, _stat, again=not self.cold)}

    def readdir(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        listed = OpLog(sized=True)
        gate.wait()
        end = gate.began + (limit or _FOREVER)
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

    def setattr(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"setattr": self._rounds(gate, limit, self.made, _setattr, again=True)}

    def xattr(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"xattr": self._rounds(gate, limit, self.made, _xattr, again=True)}

    def rename(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        there = [[(name, b"r" + name) for name in names] for names in self.made]
        back = [[(new, old) for old, new in names] for names in there]
        chain = self._rounds(gate, limit, there, _rename, again=True, odd=back)
        rounds, rest = divmod(chain.count, max(1, sum(map(len, self.made))))
        moved = list(_first(there, rest)) if rounds % 2 == 0 else list(_after(there, rest))
        self.undo = lambda: self._each(moved, lambda pair: os.rename(pair[1], pair[0]))
        return {"rename": chain}

    def link(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        names = [[(name, b"l" + name) for name in names] for names in self.made]
        return {"link": self._making(gate, limit, names, _link, lambda pair: os.unlink(pair[1]))}

    def symlink(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"symlink": self._making(gate, limit, self._fresh(b"s"), _symlink, os.unlink)}

    def unlink(self, gate: PhaseBarrier, limit: int | None) -> dict[str, OpLog]:
        return {"unlink": self._rounds(gate, limit, self.made, _unlink)}

    # How they loop

    def _fresh(self, letter: bytes) -> list[list[bytes]]:
        return [[b"%b%d.%d" % (letter, self.index, each) for each in range(count)] for count in self.planned]

    def _rounds(
        self,
        gate: PhaseBarrier,
        limit: int | None,
        names: Sequence[Names],
        loop: Loop,
        *,
        again: bool = False,
        odd: Sequence[Names] | None = None,
    ) -> BackToBackOpLog:
        """Do ``loop`` on the names of each directory, once or ``again`` and again.

        ``odd`` are the names for every other time.
        """
        chain = BackToBackOpLog()
        both = (names, odd or names)
        turn = 0
        gate.wait()
        end = gate.began + (limit or _FOREVER)
        while True:
            for leaf, batch in enumerate(both[turn % 2]):
                os.chdir(self.leaves[leaf])
                if batch and not loop(batch, chain.segment().append, end):
                    return chain
            turn += 1
            if not again or limit is None or not chain.count:
                return chain

    def _making(
        self,
        gate: PhaseBarrier,
        limit: int | None,
        names: Sequence[Names],
        loop: Loop,
        take_away: Callable[[Any], None],
    ) -> BackToBackOpLog:
        chain = self._rounds(gate, limit, names, loop)
        made = list(_first(names, chain.count))
        self.undo = lambda: self._each(made, take_away)
        return chain

    def _each(self, names: Sequence[Names], what: Callable[[Any], None]) -> None:
        for leaf, batch in enumerate(names):
            os.chdir(self.leaves[leaf])
            for name in batch:
                what(name)


def _nothing() -> None:
    pass


def _first(names: Sequence[Names], count: int) -> list[Names]:
    """Return the first ``count`` names, by directory, as the phases go through them."""
    found = []
    for batch in names:
        found.append(batch[:count])
        count -= len(found[-1])
    return found


def _after(names: Sequence[Names], count: int) -> list[Names]:
    """Return what :func:`_first` leaves."""
    return [batch[len(first) :] for batch, first in zip(names, _first(names, count))]


def _done(names: list[list[bytes]], chain: BackToBackOpLog) -> list[list[bytes]]:
    return [list(batch) for batch in _first(names, chain.count)]


def _rest(names: list[list[bytes]], chain: BackToBackOpLog) -> list[Names]:
    return _after(names, chain.count)


# The loops: one a kind, because a call through another function costs as much as some system calls. Each
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


def _creating(data: bytes) -> Loop:
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
    call, place = stat, PLACE
    for name in names:
        if call(name, place):
            os.stat(name)  # raises why
        stamp(time := now())
        if time >= end:
            return False
    return True


def _setattr(names: Names, stamp: Callable[[int], None], end: int) -> bool:
    utime, mark = os.utime, now()  # another time in every round, or there were nothing to set
    for name in names:
        utime(name, ns=(mark, mark))
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
