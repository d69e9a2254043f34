"""Wait until something becomes true, within a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from storagetest.errors import DeadlineExceeded, StoragetestError

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    timeout: float,
    what: str,
    *,
    interval: float = 0.1,
    growth: float = 1.0,
    error: type[StoragetestError] = DeadlineExceeded,
) -> T:
    """Call ``predicate`` every ``interval`` seconds until it returns a true value, and return that value.

    Each interval is ``growth`` times the one before it. ``predicate`` is called at least once, and once more
    after ``timeout`` seconds. Raises ``error`` then; its message ends with ``what``, a noun phrase: "a device
    for iqn…". Exceptions of ``predicate`` are not caught.
    """
    end = time.monotonic() + timeout
    while True:
        last = time.monotonic() >= end
        if result := predicate():
            return result
        if last:
            raise error(f"gave up after {timeout:g} s: {what}")
        time.sleep(max(0.0, min(interval, end - time.monotonic())))
        interval *= growth
