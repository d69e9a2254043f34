"""Which requests left a client for the target between two readings: the proof that it was asked at all.

What a client answers from its own cache, or locks in its own tables, says nothing of the target. So a case
that looks at the target through system calls asks here whether what it tested crossed the wire. Kinds of
requests are few and the same for all protocols (:class:`Sort`); which counters make them up is one table a
file system.

Sources: the operations of RFC 1813 and RFC 8881 as /proc/self/mountstats names them; the commands of
MS-SMB2 2.2.1 as /proc/fs/cifs/Stats does; what Lustre's stats and md_stats name. The locks of NFS version 3
are of a protocol of their own (NLM) that no counter counts: :data:`NLM` is its program number, to look for in
a capture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from storagetest.counters._transferred_bytes import file_system
from storagetest.counters.base import Reading
from storagetest.counters.cifs import Cifs
from storagetest.counters.lustre import Lustre
from storagetest.counters.mountstats import parse_mounts

__all__ = ["NLM", "PATHS", "RequestCounts", "RequestKind", "count_requests", "nfs4_lease_seconds"]

NLM = 100021
"""The RPC program of the Network Lock Manager (X/Open XNFS C702, chapter 10; RFC 1813 names it)."""

MOUNTSTATS = "/proc/self/mountstats"


class RequestKind(Enum):
    """What a request is for."""

    ASK = "ask"  # open, look up, get attributes: what is revalidated
    READ = "read"
    WRITE = "write"
    CHANGE = "change"  # make, remove, rename, set attributes
    LIST = "list"  # read a directory
    LOCK = "lock"  # take, test or release a lock


_OPEN = {"OPEN", "OPEN_NOATTR", "OPEN_DGRD"}
_NFS: Mapping[RequestKind, frozenset[str]] = {
    RequestKind.ASK: frozenset({"LOOKUP", "LOOKUP_ROOT", "LOOKUPP", "GETATTR", "ACCESS"} | _OPEN),
    RequestKind.READ: frozenset({"READ", "READ_PLUS"}),
    RequestKind.WRITE: frozenset({"WRITE"}),
    RequestKind.CHANGE: frozenset(
        {"CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "SETATTR"} | _OPEN
    ),
    RequestKind.LIST: frozenset({"READDIR", "READDIRPLUS"}),
    RequestKind.LOCK: frozenset({"LOCK", "LOCKU", "LOCKT"}),
}
_CIFS: Mapping[RequestKind, tuple[str, ...]] = {
    RequestKind.ASK: ("Creates", "QueryInfos"),
    RequestKind.READ: ("Reads",),
    RequestKind.WRITE: ("Writes",),
    RequestKind.CHANGE: ("Creates", "SetInfos"),
    RequestKind.LIST: ("QueryDirectories",),
    RequestKind.LOCK: ("Locks",),
}
# The client's md_stats count calls, also those that its own locks answer; its imports' stats count requests,
# but not what changes a name or attributes (MDS_REINT), of which every call is one. An open that may make a
# file is the intent of a lock, like a look-up.
_LUSTRE: Mapping[RequestKind, tuple[str, ...]] = {
    RequestKind.ASK: (
        *(f"mdc {name} calls" for name in ("ldlm_ibits_enqueue", "mds_getattr", "mds_getattr_lock")),
        *(f"osc {name} calls" for name in ("ldlm_glimpse_enqueue", "ldlm_extent_enqueue")),
    ),
    RequestKind.READ: ("osc read_bytes calls", "mdc read_bytes calls"),
    RequestKind.WRITE: ("osc write_bytes calls", "mdc write_bytes calls"),
    RequestKind.CHANGE: tuple(
        f"mdc {name} calls"
        for name in ("create", "link", "rename", "unlink", "setattr", "ldlm_ibits_enqueue")
    ),
    RequestKind.LIST: ("mdc mds_readpage calls",),
    RequestKind.LOCK: ("mdc ldlm_flock_enqueue calls",),
}

PATHS = (MOUNTSTATS, *Cifs.paths, *Lustre.paths)
"""The files to read, as globs."""


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests by sort, and whose counter says so. A sort that is missing is one that no counter tells of.

    What is of the sorts in ``put_off`` a client may keep back for as long as the target does not call for it.
    """

    counts: Mapping[RequestKind, int]
    counter: str
    put_off: frozenset[RequestKind] = frozenset()

    def since(self, before: RequestCounts) -> RequestCounts:
        """Return how many more there are than ``before``."""
        more = {sort: count - before.counts.get(sort, 0) for sort, count in self.counts.items()}
        return RequestCounts(more, self.counter, self.put_off)


def count_requests(texts: Mapping[str, str], path: str) -> RequestCounts | None:
    """Return the requests that were made for the file system that ``path`` is on; None: no counter tells."""
    mounted, kind = file_system(texts.get(MOUNTSTATS, ""), path)
    if kind.startswith("nfs"):
        return _nfs(texts[MOUNTSTATS], mounted)
    if kind in {"cifs", "smb3"}:
        return RequestCounts(_sums(Cifs().parse(texts), _CIFS), "the SMB client's")
    if kind == "lustre":
        # Who writes has the server's lock on what it writes, and sends it when another wants that.
        return RequestCounts(_lustre(texts), "the Lustre client's", frozenset({RequestKind.WRITE}))
    return None


def _lustre(texts: Mapping[str, str]) -> dict[RequestKind, int]:
    """Sum what is counted; what was never asked for has no line, so that its file says that it is counted."""
    readings = Lustre().parse(texts)
    files = {path.rpartition("/")[2] for path in texts if "/lustre/mdc/" in path}
    return {
        sort: int(sum(readings[name].value for name in names if name in readings))
        for sort, names in _LUSTRE.items()
        if ("md_stats" if sort is RequestKind.CHANGE else "stats") in files
    }


def _nfs(text: str, point: str) -> RequestCounts | None:
    mount = next((one for one in parse_mounts(text) if one.path == point), None)
    if mount is None:
        return None
    counts = {
        sort: sum(one.calls for name, one in mount.operations.items() if name in names)
        for sort, names in _NFS.items()
    }
    # Version 3 has no procedures for locks: what counts none is not what counts nothing.
    if not _NFS[RequestKind.LOCK] & mount.operations.keys():
        del counts[RequestKind.LOCK]
    return RequestCounts(counts, "the NFS mount's")


def _sums(
    readings: Mapping[str, Reading], table: Mapping[RequestKind, tuple[str, ...]]
) -> dict[RequestKind, int]:
    return {
        sort: int(sum(readings[name].value for name in names if name in readings))
        for sort, names in table.items()
        if any(name in readings for name in names)
    }


def nfs4_lease_seconds(texts: Mapping[str, str], path: str) -> float | None:
    """Return the seconds of the lease that an NFSv4 server gave the mount of ``path``; None: it has none."""
    mounted, _ = file_system(texts.get(MOUNTSTATS, ""), path)
    ours = False
    for line in texts.get(MOUNTSTATS, "").splitlines():
        if line.startswith("device "):
            ours = f" mounted on {mounted} " in line
        elif ours and (found := re.search(r"\blease_time=(\d+)", line)):
            return float(found[1])
    return None
