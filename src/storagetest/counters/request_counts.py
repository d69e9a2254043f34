"""Number of requests from a client to the target between two readings, as proof that the target was used.

A client can serve a system call from its cache, or lock in its own tables, without a request to the target.
A case that tests the target through system calls therefore checks here that its requests were sent. All
protocols have the same kinds of requests (:class:`RequestKind`); each source declares the counters of each
kind (:attr:`CounterSource.requests`).

No counter counts the locks of NFS version 3, which have a separate protocol (NLM): :data:`NLM` is its program
number, to search for in a capture.
"""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.counters.base import (
    MOUNTS,
    CounterSource,
    RequestCounts,
    all_sources,
    file_system,
    paths_of,
)

NLM = 100021
"""The RPC program of the Network Lock Manager (X/Open XNFS C702, chapter 10; RFC 1813 names it)."""


def paths() -> tuple[str, ...]:
    """Return the files to read, as globs."""
    return paths_of(_sources())


def count_requests(texts: Mapping[str, str], path: str) -> RequestCounts | None:
    """Return the total requests for the file system of ``path``; None if no source counts them."""
    point, kind = file_system(texts.get(MOUNTS, ""), path)
    for source in _sources():
        if kind in source.counts_for:
            return source.count_requests(source.select(texts), point)
    return None


def nfs4_lease_seconds(texts: Mapping[str, str], path: str) -> float | None:
    """Return the lease time in seconds of the mount of ``path``; None if it has no lease."""
    point, _ = file_system(texts.get(MOUNTS, ""), path)
    leases = (source.lease_seconds(texts, point) for source in _sources())
    return next((lease for lease in leases if lease is not None), None)


def _sources() -> list[CounterSource]:
    return [source for source in all_sources() if source.requests]
