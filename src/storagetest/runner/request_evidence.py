"""Count the requests that a session's client sent to the target, by counters or by a packet capture.

    counter = RequestCounter(session, path)
    with counter.count_requests(RequestKind.LOCK) as evidence:
        session.lock(fd, fcntl.F_WRLCK)
    evidence.count          # requests of that kind, or None if they cannot be counted
    counter.recount(evidence)  # up to now, for requests that a client may defer (``evidence.deferred``)

The agent's own process reads the counters, not the worker that makes the calls. It reads nothing that the
target could block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from storagetest.counters import request_counts
from storagetest.counters.base import RequestCounts, RequestKind
from storagetest.counters.request_counts import NLM, count_requests, nfs4_lease_seconds
from storagetest.errors import ClientLacks
from storagetest.runner.syscall_session import SyscallSession


@dataclass(slots=True)
class RequestEvidence:
    """Requests of one ``kind``: their ``count`` and ``how`` they were counted.

    ``count`` is None without counter and capture, or if a capture found none and lost packets.

    ``deferred``: the client may hold them back until the target recalls the lock.
    """

    kind: RequestKind
    count: int | None = None
    how: str = ""
    deferred: bool = False
    before: RequestCounts | None = None


class RequestCounter:
    """Count what the client of ``session`` sends for the file system that ``path`` is on."""

    def __init__(self, session: SyscallSession, path: str) -> None:
        self._session = session
        self._path = path

    @contextmanager
    def count_requests(self, kind: RequestKind) -> Iterator[RequestEvidence]:
        """Count the requests of ``kind`` that the body causes, until the body ends."""
        evidence = RequestEvidence(kind)
        before = self._read_counts()
        counted = before is not None and kind in before.counts
        captured = not counted and kind is RequestKind.LOCK and before is not None and self._try_capture()
        try:
            yield evidence
        finally:
            if counted:
                evidence.before = before
                self.recount(evidence)
            elif captured:
                calls = self._session.stop_rpc_capture()
                count = sum(count for name, count in calls.counts.items() if name.startswith(f"{NLM}."))
                evidence.count = count or (None if calls.lost else 0)
                evidence.how = "a capture of the NLM's calls"
                evidence.how += f" that lost {calls.lost} packets" if calls.lost else ""

    def recount(self, evidence: RequestEvidence) -> None:
        """Count again, from the start of ``evidence`` until now."""
        if evidence.before is not None and (after := self._read_counts()) is not None:
            evidence.count = after.since(evidence.before).counts.get(evidence.kind)
            evidence.how, evidence.deferred = f"{after.counter} counters", evidence.kind in after.deferred

    def lease(self) -> float | None:
        """Return the lease time in seconds that the server keeps for this mount; None if it has none."""
        return nfs4_lease_seconds(self._session.read_files(request_counts.paths()), self._path)

    def _read_counts(self) -> RequestCounts | None:
        return count_requests(self._session.read_files(request_counts.paths()), self._path)

    def _try_capture(self) -> bool:
        try:
            self._session.start_rpc_capture()
        except ClientLacks:
            return False
        return True
