"""Find and kill processes by an environment variable, which children inherit and /proc shows."""

from __future__ import annotations

import glob
import os
import signal
import time
from contextlib import suppress

_TRIES = 10


def kill_marked(name: str, value: str) -> None:
    """Kill every other process that was started with ``name`` set to ``value``, for at most a second.

    It repeats until there are none, because a process may start another before it is killed.
    """
    for _ in range(_TRIES):
        marked = _marked(f"{name}={value}".encode())
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return
        time.sleep(0.1)


def _marked(mark: bytes) -> list[int]:
    pids = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = int(path.split("/")[2])
        with suppress(OSError), open(path, "rb") as file:
            if pid != os.getpid() and mark in file.read().split(b"\0"):
                pids.append(pid)
    return pids
