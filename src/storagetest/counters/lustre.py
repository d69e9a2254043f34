"""Counters of the Lustre client: ``stats`` of llite, osc and mdc, and ``md_stats`` (lctl get_param;
Lustre Operations Manual, "Lustre Monitoring"). The stats of osc and mdc count requests, md_stats calls.

A line is ``name count samples [unit] min max sum``; the last three are missing if only calls are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from storagetest.counters.base import CounterSource, Kind, Reading, RequestKind, register
from storagetest.measure.unit import Unit

_LINE = re.compile(r"(\w+)\s+(\d+) samples \[(\w+)\](?:\s+\d+\s+\d+\s+(\d+))?")
_LAYER = re.compile(r"/(llite|osc|mdc)/")


@register
class LustreSource(CounterSource):
    """Calls, bytes and times of the client's file system layer (llite), its object clients (osc) and its
    metadata clients (mdc).
    """

    name = "lustre"
    paths = (
        "/proc/fs/lustre/llite/*/stats",
        "/proc/fs/lustre/osc/*/stats",
        "/proc/fs/lustre/mdc/*/stats",
        "/proc/fs/lustre/mdc/*/md_stats",
        "/sys/kernel/debug/lustre/llite/*/stats",
        "/sys/kernel/debug/lustre/osc/*/stats",
        "/sys/kernel/debug/lustre/mdc/*/stats",
        "/sys/kernel/debug/lustre/mdc/*/md_stats",
    )
    counts_for = frozenset({"lustre"})
    counter = "the Lustre client's"
    transfers = ("osc read_bytes", "osc write_bytes")
    # md_stats counts calls, including those that the client's locks serve without a request. The imports'
    # stats count requests, except those that change a name or attributes (MDS_REINT); each such call is one
    # request. An open that may create a file is a lock's intent, like a lookup.
    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {
        RequestKind.QUERY: frozenset(
            {f"mdc {name} calls" for name in ("ldlm_ibits_enqueue", "mds_getattr", "mds_getattr_lock")}
            | {f"osc {name} calls" for name in ("ldlm_glimpse_enqueue", "ldlm_extent_enqueue")}
        ),
        RequestKind.READ: frozenset({"osc read_bytes calls", "mdc read_bytes calls"}),
        RequestKind.WRITE: frozenset({"osc write_bytes calls", "mdc write_bytes calls"}),
        RequestKind.CHANGE: frozenset(
            f"mdc {name} calls"
            for name in ("create", "link", "rename", "unlink", "setattr", "ldlm_ibits_enqueue")
        ),
        RequestKind.LIST: frozenset({"mdc mds_readpage calls"}),
        RequestKind.LOCK: frozenset({"mdc ldlm_flock_enqueue calls"}),
    }
    # A writer has the server's lock on the written data, and sends the data when another client needs it.
    deferred = frozenset({RequestKind.WRITE})
    example: ClassVar[Mapping[str, str]] = {
        "/sys/kernel/debug/lustre/llite/lustre-ffff8c1234/stats": (
            "snapshot_time             1700000000.123456789 secs.nsecs\n"
            "read_bytes                4 samples [bytes] 4096 1048576 2101248\n"
            "write_bytes               8 samples [bytes] 4096 1048576 4202496\n"
            "open                      3 samples [usec] 10 90 150\n"
            "inode_permission          9 samples [regs]\n"
        )
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings, summed over all mounts and all object storage targets."""
        calls: Counter[tuple[str, str]] = Counter()
        sums: Counter[tuple[str, str, str]] = Counter()
        for path, text in texts.items():
            layer = match[1] if (match := _LAYER.search(path)) else ""
            for name, count, unit, total in _LINE.findall(text):
                calls[layer, name] += int(count)
                if total:
                    sums[layer, name, unit] += int(total)
        readings = {
            f"{layer} {name} calls": Reading(n, Unit.PER_SECOND) for (layer, name), n in calls.items()
        }
        for (layer, name, unit), total in sums.items():
            if unit == "bytes":
                readings[f"{layer} {name}"] = Reading(total, Unit.BYTES_PER_SECOND)
            elif unit in {"usec", "usecs"}:
                readings[f"{layer} {name} time"] = Reading(
                    total / 1e6, Unit.SECONDS, Kind.QUOTIENT, per=calls[layer, name]
                )
        return readings

    def counts_kind(
        self,
        kind: RequestKind,
        texts: Mapping[str, str],
        readings: Mapping[str, Reading],  # noqa: ARG002
    ) -> bool:
        """Return whether the kind's file exists: a counter of zero has no line."""
        file = "md_stats" if kind is RequestKind.CHANGE else "stats"
        return any("/lustre/mdc/" in path and path.endswith(f"/{file}") for path in texts)
