"""What a worker keeps of a timed phase: for every kind of operation a lane of ends, latencies and sizes.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from typing import Any

from storagetest.agent import latency_bins

__all__ = ["BackToBackOpLog", "OpLog", "now"]

now = time.monotonic_ns


class OpLog:
    """Operations of one kind, in the order in which they ended; ``sizes`` are bytes, where there are any."""

    def __init__(self, *, sized: bool = False) -> None:
        self.ends = array("q")
        self.latencies = array("q")
        self.sizes = array("q") if sized else None

    def add(self, began: int, size: int = 0) -> int:
        """Count an operation that ends now and began at ``began``; return now, when the next may begin."""
        end = now()
        self.ends.append(end)
        self.latencies.append(end - began)
        if self.sizes is not None:
            self.sizes.append(size)
        return end

    @property
    def last(self) -> int:
        """When the last operation ended; 0 where there was none."""
        return self.ends[-1] if self.ends else 0

    def report(self, since: int, until: int, slot: int = 0) -> dict[str, Any]:
        """Return what ended after ``since`` and not after ``until``, and how many there were in all.

        With ``slot`` (ns) also its course: how many ended in each slot from ``since`` on, by number.
        """
        first, end = bisect_right(self.ends, since), bisect_right(self.ends, until)
        found: dict[str, Any] = {
            "ops": end - first,
            "total": len(self.ends),
            "bins": latency_bins.count(self.latencies[first:end]),
        }
        if slot:
            found["timeline"] = _course(self.ends, (first, end), since, slot)
        if self.sizes is not None:
            found["bytes"] = sum(self.sizes[first:end])
            found["total_bytes"] = sum(self.sizes)
        return found


class BackToBackOpLog(OpLog):
    """Operations of one kind without a pause: one look at the clock ends an operation and begins the next.

    So the loop's own time (some 0.1 µs) is part of each latency, and latencies add up to the whole. A segment
    is an array of stamps, the first of which is when its first operation began; what is done between two
    segments (a change of directory) is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._segments: list[array[int]] = []

    def segment(self) -> array[int]:
        """Begin a segment now; append to it a stamp for every operation that ended."""
        stamps = array("q", [now()])
        self._segments.append(stamps)
        return stamps

    @property
    def count(self) -> int:
        """How many operations there were."""
        return sum(len(stamps) - 1 for stamps in self._segments)

    @property
    def last(self) -> int:
        """When the last operation ended; 0 where there was none."""
        return self._segments[-1][-1] if self._segments else 0

    def report(self, since: int, until: int, slot: int = 0) -> dict[str, Any]:
        """Return what :meth:`Lane.report` does."""
        for stamps in self._segments:
            self.ends.extend(stamps[1:])
            self.latencies.extend(map(int.__sub__, stamps[1:], stamps))
        self._segments.clear()
        return super().report(since, until, slot)


def _course(ends: array[int], part: tuple[int, int], since: int, slot: int) -> dict[int, int]:
    at, last = part
    found: dict[int, int] = {}
    while at < last:
        number = max(0, ends[at] - since - 1) // slot
        after = min(last, bisect_right(ends, since + (number + 1) * slot, at))
        found[number], at = after - at, after
    return found
