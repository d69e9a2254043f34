"""Start barrier on one client: two FIFOs that load processes wait on until all clients start.

The barrier is a directory with two FIFOs, made by the command ``start_barrier``. A waiting process opens both
and writes a line to ``ready``: its process id, and the number of processes that wait in all. Then it reads
``go``: first comes a line with the start time in nanoseconds of CLOCK_MONOTONIC, which all processes of a
machine share; at that time the FIFO ends. A process sleeps until that time; a shell reads until the end.

A shell adds a third word to its line, :data:`PARENT`: the id is that of its parent, which continues when the
shell ends. The shell is released :data:`LEAD` before the start, and the parent is stopped until then.
"""

from __future__ import annotations

import os
import select
import time

READY, GO = "ready", "go"
PARENT = "parent"

LEAD = 150_000_000
"""Nanoseconds before the start at which a barrier releases shells and reads no more commands."""

SCRIPT = (
    "exec 3>'{directory}/barrier/ready' 4<'{directory}/barrier/go' || exit 1; "
    'echo "$PPID $workers parent" >&3; while read -r instant <&4; do :; done'
)
"""What a shell runs to wait, with ``workers`` set; its parent is the load."""


def wait_at_barrier(directory: str, until: float) -> int | None:
    """Wait at the barrier in ``directory``; return the start in ns, or None if there is none by ``until``.

    ``until`` is a time of ``time.monotonic``.
    """
    ready = os.open(f"{directory}/barrier/{READY}", os.O_WRONLY)
    go = os.open(f"{directory}/barrier/{GO}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.write(ready, b"%d 1\n" % os.getpid())
        line = b""
        poll = select.poll()
        poll.register(go, select.POLLIN)
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or (poll.poll(left * 1000) and not (data := os.read(go, 64))):
                return None
            line += data
        return int(line)
    finally:
        os.close(go)
        os.close(ready)
