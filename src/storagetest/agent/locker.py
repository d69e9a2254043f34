"""One more process of a client, whose requests for locks can be interrupted.

It has an open file of its own, and so is another owner of locks of either kind (fcntl(2), flock(2)). What it
has been granted it holds until it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Sequence
from typing import Any

from storagetest.agent.worker_pool import fork_worker, kill, reap, receive, send

FLOCK = struct.Struct("@hhqqi0q")
"""struct flock of fcntl(2) where off_t has 64 bits: type, whence, start, length, process."""
_SECONDS = 5.0
"""Timeout in seconds for the end of a request that was interrupted, and of a process (chosen)."""
Request = Sequence[Any]
"""("flock", operation), or ("lock", kind, start, length, wait) as fcntl(2) has it."""


class Locker:
    """A process that opens ``path`` and makes ``requests``, one after the other, until one fails."""

    def __init__(self, path: str, requests: Sequence[Request]) -> None:
        self._pid, self._commands, self._results = fork_worker(
            lambda commands, results: _serve(path, requests, commands, results)
        )

    def interrupt(self) -> int:
        """Send a signal and return the errno of the requests, 0 if all were granted.

        ETIMEDOUT if one waits nevertheless.
        """
        os.kill(self._pid, signal.SIGUSR1)
        if not select.select([self._results], [], [], _SECONDS)[0]:
            return errno.ETIMEDOUT
        return int(receive(self._results))

    def has_locked(self, seconds: float) -> bool:
        """Return whether all requests are granted within ``seconds``."""
        return bool(select.select([self._results], [], [], seconds)[0]) and receive(self._results) == 0

    def end(self) -> bool:
        """Kill the process, whether it waits or holds locks; return whether it has ended."""
        kill(self._pid)
        ended = reap(self._pid, time.monotonic() + _SECONDS)
        os.close(self._commands)
        os.close(self._results)
        return ended


def _serve(path: str, requests: Sequence[Request], commands: int, results: int) -> None:
    _close_inherited({commands, results})
    signal.signal(signal.SIGUSR1, _interrupted)
    try:
        descriptor = os.open(path, os.O_RDWR)
        for name, *arguments in requests:
            _perform(descriptor, name, arguments)
    except OSError as error:
        code = error.errno or errno.EIO
    else:
        code = 0
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    send(results, code)
    os.read(commands, 1)  # hold the locks until the parent ends this process, or is gone


def _perform(descriptor: int, name: str, arguments: Sequence[Any]) -> None:
    if name == "flock":
        fcntl.flock(descriptor, *arguments)
        return
    kind, start, length, wait = arguments
    request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    fcntl.fcntl(descriptor, fcntl.F_SETLKW if wait else fcntl.F_SETLK, request)


def _interrupted(*_: object) -> None:
    raise InterruptedError(errno.EINTR, "interrupted")


def _close_inherited(kept: set[int]) -> None:
    """Close what the parent has open: the end of a lock by a close must not depend on this process."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:  # the directory that was listed
                continue
