"""A seeded random sequence of record locks of two processes on one file, compared with a model.

Each owner is a process with a descriptor of its own; a third process asks which bytes are free (F_GETLK).
Between the requests, other calls change the file's name, size, mode and data: none of them is about locks.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from storagetest.agent import fsutil
from storagetest.agent.testlib.file_sequence import go_on
from storagetest.agent.testlib.outcomes import skip
from storagetest.agent.worker_pool import fork_worker

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (fcntl(2))."""
LAST = (1 << 63) - 1
"""The last byte of a lock to the end of the file, l_len 0 (POSIX.1-2024 fcntl())."""
READ, WRITE, FREE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
_NAMES = {READ: "F_RDLCK", WRITE: "F_WRLCK", FREE: "F_UNLCK"}
Range = tuple[int, int, int]
"""First byte, last byte, and kind of a lock."""


class LockingProcess:
    """A process that holds locks on ``path``, through one descriptor."""

    def __init__(self, path: Path) -> None:
        self.pid, self._commands, self._results = fork_worker(
            lambda commands, results: _serve(str(path), commands, results)
        )
        self._pending = b""

    def set(self, kind: int, start: int, length: int) -> bool:
        """F_SETLK; return whether it was granted."""
        return self.set_all(kind, [start], length)[0]

    def set_all(self, kind: int, starts: Sequence[int], length: int) -> list[bool]:
        """F_SETLK of a range at each of ``starts``; return which were granted."""
        return self._ask([("set", kind, start, length) for start in starts])

    def free(self, bytes_of_kind: Sequence[tuple[int, int]]) -> list[bool]:
        """F_GETLK of each (kind, byte): return whether a lock of that kind could be had."""
        return self._ask([("get", kind, at, 1) for kind, at in bytes_of_kind])

    def end(self) -> None:
        """End the process; its locks end with it."""
        os.kill(self.pid, signal.SIGKILL)  # later processes have its pipe, too: a close alone does not end it
        os.waitpid(self.pid, 0)
        os.close(self._commands)
        os.close(self._results)

    def _ask(self, requests: list[tuple[str, int, int, int]]) -> list[bool]:
        """Send the requests in one message, because each message costs two switches between processes."""
        fsutil.write_all(self._commands, json.dumps(requests).encode() + b"\n")
        while b"\n" not in self._pending:
            part = os.read(self._results, 4096)
            if not part:
                raise RuntimeError("a process that holds locks has ended")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        results: list[bool | dict[str, int]] = json.loads(line)
        for result in results:
            if isinstance(result, dict):
                raise OSError(result["errno"], os.strerror(result["errno"]))
        return [bool(result) for result in results]


def _serve(path: str, commands: int, results: int) -> None:
    """Make the requests that the parent sends, until it closes the pipe."""
    descriptor = os.open(path, os.O_RDWR)
    pending = b""
    while part := os.read(commands, 4096):
        pending += part
        while b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            done = [_request(descriptor, *request) for request in json.loads(line)]
            fsutil.write_all(results, json.dumps(done).encode() + b"\n")


def _request(descriptor: int, what: str, kind: int, start: int, length: int) -> bool | dict[str, int]:
    lock = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    try:
        if what == "get":
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, lock)
            return bool(_FLOCK.unpack(answer)[0] == FREE)
        fcntl.fcntl(descriptor, fcntl.F_SETLK, lock)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        return {"errno": error.errno or 0}
    return True


def put(held: list[Range], start: int, end: int, kind: int) -> list[Range]:
    """Return the locks of one owner after it sets ``kind`` on a range: it replaces what it held there."""
    kept = []
    for first, last, old in held:
        if last < start or first > end:
            kept.append((first, last, old))
            continue
        if first < start:
            kept.append((first, start - 1, old))
        if last > end:
            kept.append((end + 1, last, old))
    return kept if kind == FREE else [*kept, (start, end, kind)]


class LockSequence:
    """Locks of two owners on ``directory``/f. A context manager: it ends its processes."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.path, self.directory = directory / "f", directory
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.path.write_bytes(b"data" * 1000)
        self.owners = [LockingProcess(self.path), LockingProcess(self.path)]
        self.asker = LockingProcess(self.path)
        self.held: list[list[Range]] = [[], []]
        self.log: list[str] = []
        self.names = 0

    def __enter__(self) -> LockSequence:
        return self

    def __exit__(self, *_: object) -> None:
        for owner in [*self.owners, self.asker]:
            owner.end()

    def run(self, seconds: float, least: int) -> int:
        """Run until ``seconds`` have passed, ``least`` operations or MOST_SECONDS; return the count."""
        try:
            self.owners[0].set(FREE, 0, 1)
        except OSError as error:
            skip(f"the file has no record locks: {error.strerror}")
        began, count = time.monotonic(), 0
        operations = self._operations()
        while go_on(count, time.monotonic() - began, least, seconds):
            if count % len(operations) == 0:
                self.random.shuffle(operations)
            operations[count % len(operations)]()
            count += 1
        return count

    def _operations(self) -> list[Callable[[], None]]:
        return [
            *[self._lock] * 6, *[self._unlock] * 3, self._unlock_middle, self._unlock_middle,
            self._neighbours, self._neighbours, self._many, self._rename, self._link, self._truncate,
            self._chmod, self._open, self._all,
        ]  # fmt: skip

    # Operations

    def _lock(self) -> None:
        start, length = self._range()
        self._set(self.random.randrange(2), self.random.choice((READ, WRITE)), start, length)

    def _unlock(self) -> None:
        start, length = self._range()
        self._set(self.random.randrange(2), FREE, start, length)

    def _unlock_middle(self) -> None:
        """Unlock the middle of a range that is locked: both ends stay."""
        owner = self.random.randrange(2)
        start = self.random.choice((0, 1000, 50_000, (1 << 31) - 10, (1 << 32) - 10))
        self._set(owner, self.random.choice((READ, WRITE)), start, 30)
        self._set(owner, FREE, start + 10, 10)

    def _neighbours(self) -> None:
        """Lock two ranges of which one begins where the other ends."""
        owner, kind = self.random.randrange(2), self.random.choice((READ, WRITE))
        start = self.random.choice((20_000, 4096, (1 << 32) - 5))
        for part in self.random.sample((0, 1), 2):
            self._set(owner, kind, start + 10 * part, 10)

    def _many(self) -> None:
        """Lock 70 ranges with gaps between them, and unlock them by one request."""
        base = 1 << 20
        kind = self.random.choice((READ, WRITE))
        if any(first < base + 1000 and last >= base for first, last, _ in self.held[1]):
            return
        self.log.append("70 locks of 2 bytes, each 10 bytes after the last, by process 0")
        granted = self.owners[0].set_all(kind, [base + 10 * number for number in range(70)], 2)
        for number in range(70):
            assert granted[number], f"lock {number + 1} is refused: {self._history()}"
            self.held[0] = put(self.held[0], base + 10 * number, base + 10 * number + 1, kind)
        self._compare([base + offset for offset in (0, 1, 2, 9, 10, 300, 301, 302, 690, 691, 692)])
        self._set(0, FREE, base, 1000)

    def _rename(self) -> None:
        self.names += 1
        new = self.directory / f"f{self.names % 2}"
        self._other("rename() of the file", lambda: os.rename(self.path, new))
        self.path = new

    def _link(self) -> None:
        def call() -> None:
            with suppress(OSError):  # the file system may have no links
                os.link(self.path, self.directory / "second")
                os.unlink(self.directory / "second")

        self._other("link() and unlink() of a second name", call)

    def _truncate(self) -> None:
        size = self.random.choice((0, 10, 5000, 100_000))
        self._other(f"truncate() to {size} bytes", lambda: os.truncate(self.path, size))

    def _chmod(self) -> None:
        self._other("chmod()", lambda: os.chmod(self.path, self.random.choice((0o600, 0o644))))

    def _open(self) -> None:
        """Open and close the file in a process that holds no lock."""
        self._other("open() and close() by another process", lambda: os.close(os.open(self.path, os.O_RDWR)))

    def _all(self) -> None:
        """Unlock everything of one owner."""
        self._set(self.random.randrange(2), FREE, 0, 0)

    # The comparison

    def _set(self, owner: int, kind: int, start: int, length: int) -> None:
        end = start + length - 1 if length else LAST
        conflict = any(
            first <= end and last >= start and WRITE in (kind, old)
            for first, last, old in self.held[1 - owner]
        )
        expected = kind == FREE or not conflict
        self.log.append(f"{_NAMES[kind]} of {length} bytes at {start} by process {owner}")
        granted = self.owners[owner].set(kind, start, length)
        assert granted == expected, (
            f"{'granted' if granted else 'refused'}: {self._history()}; the other process "
            f"holds {'a lock' if conflict else 'none'} of these bytes ({self.held[1 - owner]})"
        )
        if granted:
            self.held[owner] = put(self.held[owner], start, end, kind)
        self._compare([start - 1, start, end, end + 1])

    def _other(self, name: str, call: Callable[[], None]) -> None:
        self.log.append(name)
        call()
        self._compare([])

    def _compare(self, near: list[int]) -> None:
        """Ask which of some bytes are free: at the edges of ranges that are held, and ``near``."""
        every = [one for held in self.held for one in held]
        edges = [at for first, last, _ in every for at in (first - 1, first, last, last + 1)]
        chosen = {*near, *self.random.sample(edges, min(5, len(edges)))}
        asked = [(self.random.choice((READ, WRITE)), at) for at in chosen if 0 <= at <= LAST]
        for (kind, at), free in zip(asked, self.asker.free(asked) if asked else []):
            kinds = [old for first, last, old in every if first <= at <= last]
            expected = not kinds or (kind == READ and WRITE not in kinds)
            assert free == expected, (
                f"F_GETLK ({_NAMES[kind]}) reports byte {at} as {'free' if free else 'locked'}; held are "
                f"{self.held}, after {self._history()}"
            )

    def _range(self) -> tuple[int, int]:
        start = self.random.choice(
            (0, 1, 100, 105, 4095, 4096, (1 << 31) - 3, 1 << 31, (1 << 32) - 3, 1 << 32)
        )
        return start, self.random.choice((1, 2, 5, 10, 4096, 0))

    def _history(self, last: int = 5) -> str:
        before = self.log[-last:-1]
        return self.log[-1] + (f" (before it: {'; '.join(before)})" if before else "")
