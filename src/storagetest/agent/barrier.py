"""The door at which loads wait until those of all clients may begin at once.

A door is a directory with two FIFOs, made by the command ``gate``. Whoever waits opens both, writes a line to
``ready`` (its process id, and how many wait in all), and reads ``go``: first comes a line with the instant at
which all begin, in nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share; at that instant it
ends. So a shell that can only read sleeps until it ends, and who can sleep until a given time does that.

A shell says so with a third word, :data:`PARENT`: the id is that of its parent, which goes on when it
ends. It is let go :data:`LEAD` before the instant, and the parent is held until then.
"""

from __future__ import annotations

import os
import select
import time

__all__ = ["GO", "LEAD", "PARENT", "READY", "SCRIPT", "wait_at_barrier"]

READY, GO = "ready", "go"
PARENT = "parent"

LEAD = 50_000_000
"""Nanoseconds before the instant at which a gate lets shells go and listens no more."""

SCRIPT = (
    "exec 3>'{place}/door/ready' 4<'{place}/door/go' || exit 1; echo \"$PPID $workers parent\" >&3; "
    "while read -r instant <&4; do :; done"
)
"""What a shell runs at the door, with ``workers`` set; its parent is the load."""


def wait_at_barrier(place: str, until: float) -> int | None:
    """Wait at the door in ``place``; return the instant, or None past ``until`` (``time.monotonic``)."""
    ready = os.open(f"{place}/door/{READY}", os.O_WRONLY)
    go = os.open(f"{place}/door/{GO}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.write(ready, b"%d 1\n" % os.getpid())
        said = b""
        poll = select.poll()
        poll.register(go, select.POLLIN)
        while not said.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or (poll.poll(left * 1000) and not (data := os.read(go, 64))):
                return None
            said += data
        return int(said)
    finally:
        os.close(go)
        os.close(ready)
