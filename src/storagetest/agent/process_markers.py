"""Processes by a mark in their environment, which children inherit and can be read in ``/proc``."""

from __future__ import annotations

import glob
import os
import signal
import time
from contextlib import suppress

__all__ = ["kill_marked"]

_TRIES = 10


def kill_marked(name: str, value: str) -> None:
    """Kill every process but this one that was started with ``name`` set to ``value``, for a second at most.

    It is done again while there are any: what is being killed may be starting more.
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
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = int(path.split("/")[2])
        with suppress(OSError), open(path, "rb") as file:
            if pid != os.getpid() and mark in file.read().split(b"\0"):
                found.append(pid)
    return found
