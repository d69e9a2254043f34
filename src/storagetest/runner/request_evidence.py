"""Did it cross the wire? What a hand's client sent to the target, by counters or, where none counts, by
capture.

    watch = RequestCounter(hand, path)
    with watch.over(RequestKind.LOCK) as seen:
        hand.lock(fd, fcntl.F_WRLCK)
    seen.count          # requests of that sort, or None if they could not be counted
    watch.recount(seen) # the same up to now, for what a client may put off (``seen.put_off``)

The two readings are made by the hand's own process, beside the one that makes the calls, and read nothing
that the target could hold up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from storagetest.counters import request_counts
from storagetest.counters.request_counts import (
    NLM,
    RequestCounts,
    RequestKind,
    count_requests,
    nfs4_lease_seconds,
)
from storagetest.errors import ClientLacks
from storagetest.runner.syscall_session import SyscallSession

__all__ = ["RequestCounter", "RequestEvidence"]


@dataclass(slots=True)
class RequestEvidence:
    """What was seen of one sort of requests: ``count`` and ``how`` it was counted.

    ``count`` is None if there is no counter and no capture, or if the capture found none and lost packets.
    ``put_off``: the client may keep it back until the target calls for it.
    """

    sort: RequestKind
    count: int | None = None
    how: str = ""
    put_off: bool = False
    before: RequestCounts | None = None


class RequestCounter:
    """Watches what leaves ``hand``'s client for the file system that ``path`` is on there."""

    def __init__(self, hand: SyscallSession, path: str) -> None:
        self._hand = hand
        self._path = path

    @contextmanager
    def over(self, sort: RequestKind) -> Iterator[RequestEvidence]:
        """Count the requests of ``sort`` that the body causes; the result is complete when it ends."""
        seen = RequestEvidence(sort)
        before = self._tally()
        counted = before is not None and sort in before.counts
        captured = not counted and sort is RequestKind.LOCK and before is not None and self._capture()
        try:
            yield seen
        finally:
            if counted:
                seen.before = before
                self.recount(seen)
            elif captured:
                calls = self._hand.stop_rpc_capture()
                count = sum(count for name, count in calls.counts.items() if name.startswith(f"{NLM}."))
                seen.count = count or (None if calls.lost else 0)
                seen.how = "a capture of the NLM's calls"
                seen.how += f" that lost {calls.lost} packets" if calls.lost else ""

    def recount(self, seen: RequestEvidence) -> None:
        """Count again, from where ``seen`` began until now."""
        if seen.before is not None and (after := self._tally()) is not None:
            seen.count = after.since(seen.before).counts.get(seen.sort)
            seen.how, seen.put_off = f"{after.counter} counters", seen.sort in after.put_off

    def lease(self) -> float | None:
        """Return the lease time in seconds that the server keeps for this mount; None where it has none."""
        return nfs4_lease_seconds(self._hand.read_files(request_counts.paths()), self._path)

    def _tally(self) -> RequestCounts | None:
        return count_requests(self._hand.read_files(request_counts.paths()), self._path)

    def _capture(self) -> bool:
        try:
            self._hand.start_rpc_capture()
        except ClientLacks:
            return False
        return True
