"""Seeded random sequences of two clients on shared files, each step compared with a model.

Each sequence has a log of what was done; a mismatch is an AssertionError that names the last steps. The
client that makes a step and the one that looks at it are chosen at random. A step is one round trip, and so
is a look.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_RDWR

from storagetest.agent.testlib.byte_model import ByteModel, first_difference
from storagetest.agent.testlib.lock_sequence import LAST, Range, put

SIZES = (1, 300, 511, 4096, 4097, 9000, 65_537)
"""Lengths of writes: around a sector, a page and 64 KiB (chosen)."""
MOST = 300_000
"""Bytes of a file (chosen)."""
LOCK_STARTS = (0, 1, 100, 105, 4095, 4096, (1 << 31) - 3, 1 << 31, (1 << 32) - 3, 1 << 32)
KINDS = {F_RDLCK: "F_RDLCK", F_WRLCK: "F_WRLCK", F_UNLCK: "F_UNLCK"}


class History:
    """What was done so far, for messages."""

    def __init__(self) -> None:
        self._steps: list[str] = []

    def add(self, step: str) -> None:
        """Add the step that is made next."""
        self._steps.append(step)

    def __str__(self) -> str:
        before = self._steps[-5:-1]
        return self._steps[-1] + (f" (before it: {'; '.join(before)})" if before else "")


class LockedData:
    """Files that both clients keep open, whose data are changed and read under locks alone.

    A lock gives a client the bytes as they are (RFC 7530 10.3.2: cached data are revalidated when a lock is
    acquired, and written before it is released). With ``one_size`` the files keep their size, and each lock
    is of the bytes that are written or read; otherwise it is of the whole file.
    """

    def __init__(self, sessions: Sequence, seed: int, *, one_size: bool) -> None:
        self.sessions, self.one_size = sessions, one_size
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.history = History()
        names = ("f0", "f1")
        self.models = [ByteModel() for _ in names]
        for name, model in zip(names, self.models, strict=True):
            sessions[0].write_file(name, data := self.random.randbytes(120_000 if one_size else 5000))
            model.write(0, data)
        self.fds = [[session.open(name, O_RDWR) for name in names] for session in sessions]
        self.steps = [self.overwrite, self.overwrite, self.write_twice] if one_size else [
            *[self.overwrite] * 4, *[self.append] * 2, self.cut, self.grow, self.leave_a_hole,
            self.cut_and_grow, self.write_twice, self.write_across_the_end,
        ]  # fmt: skip

    def run(self, count: int) -> None:
        """Make ``count`` steps, each followed by a look of either client at the file."""
        for number in range(count):
            if number % len(self.steps) == 0:
                self.random.shuffle(self.steps)
            writer, file = self.random.randrange(2), self.random.randrange(len(self.models))
            step = self.steps[number % len(self.steps)]
            near = self._make(step, writer, file)
            self.compare(1 - writer if self.random.random() < 0.8 else writer, file, near)
        for client in range(2):
            for file in range(len(self.models)):
                self.compare(client, file, 0, whole=True)

    def _make(self, step: Callable, writer: int, file: int) -> int:
        """Make one step under a lock, and return the offset at which it has changed the file."""
        model, fd = self.models[file], self.fds[writer][file]
        calls, name, near = step(model, fd)
        self.history.add(f"{name} by {self.sessions[writer].name}, file {file}")
        self.sessions[writer].call_all(*self._locked(fd, F_WRLCK, calls))
        return near

    def _locked(self, fd: int, kind: int, calls: Sequence[tuple]) -> list[tuple]:
        """Return the calls between lock and unlock; each has its own lock if the sizes stay."""
        if not self.one_size:
            return [("lock", fd, kind, 0, 0, True), *calls, ("lock", fd, F_UNLCK, 0, 0, False)]
        each = []
        for call in calls:
            what = call[2:]
            length, start = (what[0] if call[0] == "pread" else len(what[0]), what[1])
            each += [
                ("lock", fd, kind, start, length, True),
                call,
                ("lock", fd, F_UNLCK, start, length, False),
            ]
        return each

    def compare(self, client: int, file: int, near: int, *, whole: bool = False) -> None:
        """Look at size and data of a file under a read lock."""
        model, fd, session = self.models[file], self.fds[client][file], self.sessions[client]
        ranges = [(0, MOST * 2)] if whole else self._ranges(model, near)
        looks: list[tuple] = [("pread", fd, length, offset) for offset, length in ranges]
        if self.one_size:
            found = session.call_all(*self._locked(fd, F_RDLCK, looks))[1::3]
        else:
            _, status, *found, _ = session.call_all(*self._locked(fd, F_RDLCK, [("fstat", fd), *looks]))
            assert status["size"] == model.size, (
                f"under a lock {session.name} finds {status['size']} bytes instead of {model.size} "
                f"after {self.history}"
            )
        for (offset, length), data in zip(ranges, found, strict=True):
            difference = first_difference(bytes(data), model.read(offset, length))
            assert not difference, (
                f"under a lock {session.name} reads {difference}; the range begins at {offset}, "
                f"after {self.history}"
            )

    def _ranges(self, model: ByteModel, near: int) -> list[tuple[int, int]]:
        other = self.random.randrange(max(1, model.size))
        return [(max(0, near - 5000), 20_000), (other, 5000), (max(0, model.size - 4096), 8192)]

    # Steps: the calls, what they are called, and where they change the file.

    def _write(self, model: ByteModel, fd: int, offset: int, length: int) -> tuple:
        data = self.random.randbytes(length)
        model.write(offset, data)
        return ("pwrite", fd, data, offset)

    def _cut_to(self, model: ByteModel, fd: int, size: int) -> tuple:
        model.truncate(size)
        return ("ftruncate", fd, size)

    def _length(self, model: ByteModel, offset: int) -> int:
        return max(1, min(self.random.choice(SIZES), (model.size if self.one_size else MOST) - offset))

    def _offset(self, end: int) -> int:
        return min(
            max(0, end - 1), self.random.choice((0, 1, 511, 4095, 4096, self.random.randrange(end or 1)))
        )

    def overwrite(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Write inside the file, or across its end."""
        offset = self._offset(model.size)
        length = self._length(model, offset)
        return [self._write(model, fd, offset, length)], f"a write of {length} bytes at {offset}", offset

    def append(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Write at the end of the file, or cut a long one first."""
        if model.size > MOST:
            return self.cut(model, fd)
        offset, length = model.size, self.random.choice((1, 30, 5000))
        return (
            [self._write(model, fd, offset, length)],
            f"a write of {length} bytes at the end, {offset}",
            offset,
        )

    def write_across_the_end(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Write the last bytes and some new ones."""
        offset = max(0, model.size - 20)
        return (
            [self._write(model, fd, offset, 5000)],
            f"a write of 5000 bytes at {offset}, across the end",
            offset,
        )

    def leave_a_hole(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Write past the end."""
        offset = min(MOST, model.size + self.random.choice((1, 4096, 30_000)))
        return [self._write(model, fd, offset, 100)], f"a write of 100 bytes at {offset}", offset

    def cut(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Truncate to a smaller size."""
        size = self.random.choice((0, model.size // 2, max(0, model.size - 1), max(0, model.size - 4096)))
        return [self._cut_to(model, fd, size)], f"ftruncate() to {size}", size

    def grow(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Truncate to a larger size."""
        size = min(MOST, model.size + self.random.choice((1, 5000)))
        return [self._cut_to(model, fd, size)], f"ftruncate() to {size}", size

    def cut_and_grow(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Truncate to a smaller size and back: the bytes between are zeroes then."""
        size, less = model.size, max(0, model.size - self.random.choice((10, 5000)))
        calls = [self._cut_to(model, fd, less), self._cut_to(model, fd, size)]
        return calls, f"ftruncate() to {less}, then to {size}", less

    def write_twice(self, model: ByteModel, fd: int) -> tuple[list[tuple], str, int]:
        """Write two ranges that overlap."""
        offset = self._offset(model.size - 5000 if self.one_size else model.size)
        calls = [self._write(model, fd, offset, 5000), self._write(model, fd, offset + 100, 300)]
        return calls, f"a write of 5000 bytes at {offset}, then of 300 at {offset + 100}", offset


class TwoClientLocks:
    """Record locks of two clients on one file that both keep open.

    With ``exact`` a client never asks for bytes that it has locked already, and releases a range as it was
    acquired: what a protocol without conversion and partial unlock can do, too.
    """

    def __init__(self, sessions: Sequence, seed: int, *, exact: bool) -> None:
        self.sessions, self.exact = sessions, exact
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.history = History()
        sessions[0].write_file("locked", bytes(5000))
        self.fds = [session.open("locked", O_RDWR) for session in sessions]
        self.held: list[list[Range]] = [[], []]

    def run(self, count: int) -> None:
        """Make ``count`` requests, and look at the bytes around each."""
        for _ in range(count):
            owner = self.random.randrange(2)
            if self.random.random() < 0.4 and self.held[owner]:
                self._unlock(owner)
            elif self.random.random() < 0.15:
                self._change(owner)
            else:
                self._lock(owner)

    def _lock(self, owner: int) -> None:
        start, length = self.random.choice(LOCK_STARTS), self.random.choice((1, 2, 5, 10, 4096, 0))
        end = start + length - 1 if length else LAST
        if self.exact and _overlap(self.held[owner], start, end):
            return
        kind = self.random.choice((F_RDLCK, F_WRLCK))
        other = _overlap(self.held[1 - owner], start, end)
        expected = not any(F_WRLCK in (kind, old) for _, _, old in other)
        self._note(owner, kind, start, length)
        granted = self.sessions[owner].try_lock(self.fds[owner], kind, start, length)
        assert granted == expected, (
            f"{'granted' if granted else 'refused'}: {self.history}; the other client holds "
            f"{other or 'none'} of these bytes"
        )
        if granted:
            self.held[owner] = put(self.held[owner], start, end, kind)
        self._compare(start, end)

    def _unlock(self, owner: int) -> None:
        first, last, _ = self.random.choice(self.held[owner])
        if not self.exact and last - first > 3:
            first, last = first + self.random.choice((0, 1)), last - self.random.choice((0, 1))
        length = 0 if last == LAST else last - first + 1
        self._note(owner, F_UNLCK, first, length)
        self.sessions[owner].lock(self.fds[owner], F_UNLCK, first, length)
        self.held[owner] = put(self.held[owner], first, last, F_UNLCK)
        self._compare(first, last)

    def _change(self, client: int) -> None:
        """Change mode, size or the name; no lock is touched."""
        session = self.sessions[client]
        step, calls = self.random.choice(
            (
                ("chmod()", [("chmod", "locked", 0o640)]),
                ("ftruncate() to 10", [("ftruncate", self.fds[client], 10)]),
                ("a second name that comes and goes", [("link", "locked", "second"), ("unlink", "second")]),
            )
        )
        self.history.add(f"{step} by {session.name}")
        session.each(calls)  # a client may be refused: no lock depends on it
        self._compare(0, 100)

    def _note(self, owner: int, kind: int, start: int, length: int) -> None:
        self.history.add(f"{KINDS[kind]} of {length} bytes at {start} by {self.sessions[owner].name}")

    def _compare(self, start: int, end: int) -> None:
        """Let each client test single bytes (F_GETLK): at the edges of the request, and of what is held."""
        for client in range(2):
            other = self.held[1 - client]
            edges = [at for first, last, _ in other for at in (first - 1, first, last, last + 1)]
            chosen = {start - 1, start, end, end + 1, *self.random.sample(edges, min(4, len(edges)))}
            own = self.held[client] if self.exact else []
            asked = [
                (self._kind_to_test(other, at), at)
                for at in sorted(chosen)
                if 0 <= at <= LAST and not _overlap(own, at, at)
            ]
            found = self.sessions[client].call_all(
                *(("getlk", self.fds[client], kind, at, 1) for kind, at in asked)
            )
            for (kind, at), (result, *_) in zip(asked, found, strict=True):
                expected = not any(F_WRLCK in (kind, old) for _, _, old in _overlap(other, at, at))
                assert (result == F_UNLCK) == expected, (
                    f"F_GETLK ({KINDS[kind]}) of {self.sessions[client].name} reports byte {at} as "
                    f"{'free' if result == F_UNLCK else 'locked'}; the other client holds {other}, "
                    f"after {self.history}"
                )

    def _kind_to_test(self, other: list[Range], at: int) -> int:
        """Return what F_GETLK asks for; no exclusive lock where there is a shared one (SHR-LOCK-29 does)."""
        shared = any(kind == F_RDLCK for _, _, kind in _overlap(other, at, at))
        return F_RDLCK if shared else self.random.choice((F_RDLCK, F_WRLCK))


def _overlap(held: Sequence[Range], start: int, end: int) -> list[Range]:
    return [one for one in held if one[0] <= end and one[1] >= start]
