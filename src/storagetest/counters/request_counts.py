"""How many requests left a client for the target between two readings: the proof that the target was used.

What a client answers from its own cache, or locks in its own tables, says nothing of the target. So a case
that tests the target through system calls checks here that its requests crossed the wire. Kinds of requests
are few and the same for all protocols (:class:`RequestKind`); each source declares which of its counters make
them up (:attr:`Source.requests`).

No counter counts the locks of NFS version 3, which are of a protocol of their own (NLM): :data:`NLM` is its
program number, to look for in a capture.
"""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.counters.base import MOUNTS, RequestCounts, RequestKind, Source, all_sources, file_system

__all__ = ["NLM", "RequestCounts", "RequestKind", "count_requests", "nfs4_lease_seconds", "paths"]

NLM = 100021
"""The RPC program of the Network Lock Manager (X/Open XNFS C702, chapter 10; RFC 1813 names it)."""


def paths() -> tuple[str, ...]:
    """Return the files to read, as globs."""
    return tuple(dict.fromkeys((MOUNTS, *(path for one in _sources() for path in one.paths))))


def count_requests(texts: Mapping[str, str], path: str) -> RequestCounts | None:
    """Return the requests that were made for the file system that ``path`` is on; None: no counter tells."""
    point, kind = file_system(texts.get(MOUNTS, ""), path)
    for source in _sources():
        if kind in source.counts_for:
            return source.count_requests(source.select(texts), point)
    return None


def nfs4_lease_seconds(texts: Mapping[str, str], path: str) -> float | None:
    """Return the seconds of the lease that a server gave the mount of ``path``; None: it has none."""
    point, _ = file_system(texts.get(MOUNTS, ""), path)
    leases = (source.lease_seconds(texts, point) for source in _sources())
    return next((lease for lease in leases if lease is not None), None)


def _sources() -> list[Source]:
    return [source for source in all_sources() if source.requests]
