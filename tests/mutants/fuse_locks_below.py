"""Locks kept by the file system below: two mounts of one directory have one table of locks.

Honest, like :mod:`fuse_locks`. Each owner of locks on a file has an open file of its own below, whose open
file description locks (fcntl(2), F_OFD_SETLK) and flock(2) lock are the owner's. So two clients with a mount
each, and caches of their own, exclude each other as clients of a lock server do. Who waits asks again a few
milliseconds later, as an NFSv4 client does (RFC 8881 18.10.4). A deadlock is not detected.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from fuse_locks import FREE, LAST, READ, Held, UnlocksAtClose
from fuse_protocol import Call, Later

_FLOCK = struct.Struct("@hhqqi0q")
"""struct flock of a 64-bit machine (fcntl(2)): type, whence, start, length, pid."""
_INTERVAL = 0.005
"""Seconds between two requests for the same lock (chosen)."""
_LATE_RELEASE = 0.1
"""Seconds in which the RELEASE of a file arrives that was closed (chosen)."""

Owner = tuple[int, int, bool]
"""Node, owner, and whether the lock is one of flock(2)."""


class LocksBelow(UnlocksAtClose):
    """An honest pass-through whose locks are those of the file below."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self._files: dict[Owner, int] = {}
        self._waiting: dict[int, Held] = {}
        self._one_at_a_time = threading.Lock()
        self._asks_again: threading.Thread | None = None

    def setlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int, pid: int,
        *, waits: bool, whole: bool,
    ) -> None:  # fmt: skip
        self.through.setdefault(call.handle, set()).add(owner)
        asked = Held(node, owner, 0 if whole else start, LAST if whole else end, kind, pid, whole)
        with self._one_at_a_time:
            if self.put(asked) or (not waits and self._put_later(asked)):
                return
            if not waits:
                raise BlockingIOError(errno.EAGAIN, "locked")
            self._waiting[call.unique] = asked
            if self._asks_again is None:
                self._asks_again = threading.Thread(target=self._ask_again, daemon=True)
                self._asks_again.start()
        raise Later

    def getlk(
        self, call: Call, node: int, owner: int, start: int, end: int, kind: int
    ) -> tuple[int, int, int, int]:
        with self._one_at_a_time:
            asked = _FLOCK.pack(kind, os.SEEK_SET, start, _length(start, end), 0)
            file = self._file(Held(node, owner, start, end, kind, 0, whole=False))
            found, _, first, length, _ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
        if found == FREE:
            return start, end, FREE, 0
        return first, first + length - 1 if length else LAST, found, 0

    def put(self, asked: Held) -> bool:
        """Take or give up a lock below; return whether it is done."""
        file = self._file(asked)
        with suppress(BlockingIOError):
            if asked.whole:
                kinds = {FREE: fcntl.LOCK_UN, READ: fcntl.LOCK_SH}
                fcntl.flock(file, kinds.get(asked.kind, fcntl.LOCK_EX) | fcntl.LOCK_NB)
            else:
                length = _length(asked.start, asked.end)
                lock = _FLOCK.pack(asked.kind, os.SEEK_SET, asked.start, length, 0)
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
            return True
        return False

    def _put_later(self, asked: Held) -> bool:
        """Try for a moment: the RELEASE of a last close at the other mount comes after close(2)."""
        end = time.monotonic() + _LATE_RELEASE
        while time.monotonic() < end:
            time.sleep(_INTERVAL)
            if self.put(asked):
                return True
        return False

    def _file(self, asked: Held) -> int:
        key = (asked.node, asked.owner, asked.whole)
        if key not in self._files:
            self.reset_ids()
            try:
                self._files[key] = os.open(self.nodes[asked.node].path, os.O_RDWR)
            except IsADirectoryError:
                self._files[key] = os.open(self.nodes[asked.node].path, os.O_RDONLY)
        return self._files[key]

    def _ask_again(self) -> None:
        while True:
            time.sleep(_INTERVAL)
            with self._one_at_a_time:
                for unique, asked in list(self._waiting.items()):
                    if self.put(asked):
                        del self._waiting[unique]
                        self.answer(unique, 0)

    def interrupt(self, unique: int) -> None:
        with self._one_at_a_time:
            if self._waiting.pop(unique, None) is not None:
                self.answer(unique, errno.EINTR)

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        with self._one_at_a_time:
            file = self._files.pop((node, owner, whole), None)
            if file is not None:
                os.close(file)


def _length(start: int, end: int) -> int:
    return 0 if end == LAST else end - start + 1
