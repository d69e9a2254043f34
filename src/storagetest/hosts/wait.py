"""Waiting for something to become true: the only place that sleeps in a loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from storagetest.errors import DeadlineExceeded

__all__ = ["wait_until"]

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float, what: str, *, interval: float = 0.1) -> T:
    """Call ``predicate`` every ``interval`` seconds until it returns something true, and return that.

    It is asked at least once, and once more when ``timeout`` seconds are over. Raises
    :class:`DeadlineExceeded`, whose message ends in ``what`` (worded as what was waited for: "a device for
    iqn…"). What ``predicate`` itself raises goes through.
    """
    end = time.monotonic() + timeout
    while True:
        last = time.monotonic() >= end
        if result := predicate():
            return result
        if last:
            msg = f"gave up after {timeout:g} s: {what}"
            raise DeadlineExceeded(msg)
        time.sleep(max(0.0, min(interval, end - time.monotonic())))
