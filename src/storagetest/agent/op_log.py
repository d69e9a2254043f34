"""Operation log: end time, latency and size of each operation of one kind in a timed phase.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from typing import Any

from storagetest.agent import latency_bins

now = time.monotonic_ns


def sleep_until(moment: int) -> None:
    """Sleep until ``moment``, unless it has passed."""
    left = moment - now()
    if left > 0:
        time.sleep(left * 1e-9)


class OpLog:
    """Operations of one kind, in the order in which they ended; ``sizes`` are bytes, or None."""

    def __init__(self, *, sized: bool = False) -> None:
        self.ends = array("q")
        self.latencies = array("q")
        self.sizes = array("q") if sized else None

    def add(self, began: int, size: int = 0) -> int:
        """Add an operation that began at ``began`` and ends now; return the current time."""
        end = now()
        self.ends.append(end)
        self.latencies.append(end - began)
        if self.sizes is not None:
            self.sizes.append(size)
        return end

    @property
    def last(self) -> int:
        """When the last operation ended; 0 if there was none."""
        return self.ends[-1] if self.ends else 0

    def report(self, since: int, until: int, slot: int = 0) -> dict[str, Any]:
        """Return the operations that ended after ``since`` and not after ``until``, and the total.

        Keys: ``ops``, ``total``, ``bins``; ``bytes`` and ``total_bytes`` if there are sizes; and with
        ``slot`` (ns) ``timeline``, the coarse bins of those that ended in each slot from ``since`` on.
        """
        first, end = bisect_right(self.ends, since), bisect_right(self.ends, until)
        result: dict[str, Any] = {
            "ops": end - first,
            "total": len(self.ends),
            "bins": latency_bins.count(self.latencies[first:end]),
        }
        if slot:
            result["timeline"] = self._timeline((first, end), since, slot)
        if self.sizes is not None:
            result["bytes"] = sum(self.sizes[first:end])
            result["total_bytes"] = sum(self.sizes)
        return result

    def _timeline(self, part: tuple[int, int], since: int, slot: int) -> dict[int, dict[int, int]]:
        index, last = part
        result: dict[int, dict[int, int]] = {}
        while index < last:
            number = max(0, self.ends[index] - since - 1) // slot
            after = min(last, bisect_right(self.ends, since + (number + 1) * slot, index))
            result[number] = latency_bins.count(self.latencies[index:after], latency_bins.COARSE)
            index = after
        return result


class BackToBackOpLog(OpLog):
    """Operations of one kind without pauses: one clock reading ends an operation and begins the next.

    Therefore each latency includes the loop's own time (about 0.1 µs), and the latencies add up to the
    segment's time. A segment is an array of times; the first is the begin of its first operation. The time
    between two segments (a change of directory) is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._segments: list[array[int]] = []

    def segment(self) -> array[int]:
        """Begin a segment now; the caller appends the end time of each operation."""
        times = array("q", [now()])
        self._segments.append(times)
        return times

    @property
    def count(self) -> int:
        """The number of operations."""
        return sum(len(times) - 1 for times in self._segments)

    @property
    def last(self) -> int:
        """When the last operation ended; 0 if there was none."""
        return self._segments[-1][-1] if self._segments else 0

    def report(self, since: int, until: int, slot: int = 0) -> dict[str, Any]:
        """See :meth:`OpLog.report`."""
        for times in self._segments:
            self.ends.extend(times[1:])
            self.latencies.extend(map(int.__sub__, times[1:], times))
        self._segments.clear()
        return super().report(since, until, slot)
