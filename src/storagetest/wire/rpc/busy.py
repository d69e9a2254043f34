"""Repeat what a server is too busy for: NFS3ERR_JUKEBOX, NFS4ERR_DELAY (RFC 1813 2.6, RFC 8881 15.1.1.3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Reply = TypeVar("Reply")

GRACE = 120.0
"""Seconds that the look at a server waits for the end of its grace period (chosen): most have 90 s."""

_FIRST, _LONGEST = 0.02, 0.2
"""Seconds before the first repetition and, doubled each time, before later ones (chosen)."""


def while_busy(execute: Callable[[], Reply], is_busy: Callable[[Reply], bool], deadline: float) -> Reply:
    """Return the first reply that is not busy, or the last one after ``deadline`` seconds."""
    until, pause = time.monotonic() + deadline, _FIRST
    while is_busy(reply := execute()) and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return reply
