"""Counters of the NFS client: /proc/self/mountstats, as nfsiostat(8) and mountstats(8) read it.

For every operation (RFC 1813, RFC 8881) the kernel counts calls, transmissions, major timeouts, bytes sent
and received, and the milliseconds queued, from transmission to reply (RTT), and in total (execute): struct
rpc_iostats in the kernel's include/linux/sunrpc/metrics.h. RTT is the time of network and server; execute
minus RTT is the client's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from storagetest.counters.base import (
    MOUNTS,
    CounterSource,
    Kind,
    Reading,
    RequestCounts,
    RequestKind,
    leading_integers,
    register,
)
from storagetest.measure.unit import Unit

_COLUMNS = 8
_EVENTS = 27
"""Numbers of the ``events:`` line; the last two are reads and writes through a pNFS layout (include/linux/
nfs_iostat.h of the kernel)."""
_OPEN = {"OPEN", "OPEN_NOATTR", "OPEN_DGRD"}


@dataclass(frozen=True, slots=True)
class Operation:
    """Counters of one operation since the mount: counts, bytes, and seconds summed over all calls."""

    calls: int
    transmissions: int
    timeouts: int
    sent: int
    received: int
    queued: float
    rtt: float
    execute: float


@dataclass(frozen=True, slots=True)
class Mount:
    """An NFS mount: mount point, bytes read from and written to the server, and operations by name.

    ``layout_reads`` and ``layout_writes`` went through a pNFS layout; their bytes are in the bytes too.
    """

    path: str
    read: int
    written: int
    operations: Mapping[str, Operation]
    layout_reads: int = 0
    layout_writes: int = 0

    def calls(self, *names: str) -> int:
        """Return the number of calls of these operations."""
        return sum(self.operations[name].calls for name in names if name in self.operations)


@register
class Mountstats(CounterSource):
    """Calls, RTT and execute time of every NFS operation, and bytes read and written, by mount."""

    name = "mountstats"
    paths = (MOUNTS,)
    counts_for = frozenset({"nfs", "nfs4"})
    counter = "the NFS mount's"
    transfer_lines: ClassVar[Mapping[str, tuple[str, ...]]] = {MOUNTS: ("\tbytes:",)}
    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {
        RequestKind.QUERY: frozenset(
            {"LOOKUP", "LOOKUP_ROOT", "LOOKUPP", "GETATTR", "ACCESS", "GETXATTR", "LISTXATTRS"} | _OPEN
        ),
        RequestKind.READ: frozenset({"READ", "READ_PLUS"}),
        RequestKind.WRITE: frozenset({"WRITE"}),
        RequestKind.CHANGE: frozenset(
            {"CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "SETATTR"}
            | {"SETXATTR", "REMOVEXATTR"}
            | _OPEN
        ),
        RequestKind.LIST: frozenset({"READDIR", "READDIRPLUS"}),
        RequestKind.LOCK: frozenset({"LOCK", "LOCKU", "LOCKT"}),
    }
    example: ClassVar[Mapping[str, str]] = {
        MOUNTS: (
            "device proc mounted on /proc with fstype proc\n"
            "device nas:/tank mounted on /mnt/tank with fstype nfs4 statvers=1.1\n"
            "\topts:\trw,vers=4.2\n"
            "\tbytes:\t0 0 0 40960 8192 40960 2 10\n"
            "\tper-op statistics\n"
            "\t        READ: 2 2 0 400 8600 0 3 4 0\n"
            "\t       WRITE: 10 11 0 43000 1600 1 25 30 0\n"
        )
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings; with several mounts, each name starts with the mount point."""
        mounts = parse_mounts(texts.get(MOUNTS, ""))
        readings: dict[str, Reading] = {}
        for mount in mounts:
            prefix = f"{mount.path} " if len(mounts) > 1 else ""
            readings |= {f"{prefix}{name}": reading for name, reading in _mount_readings(mount).items()}
        return readings

    def transferred(self, texts: Mapping[str, str], point: str) -> Mapping[str, tuple[int, int]]:
        """Return the bytes of the mount on ``point``."""
        mount = _find(texts, point)
        return {} if mount is None else {self.counter: (mount.read, mount.written)}

    def count_requests(self, texts: Mapping[str, str], point: str) -> RequestCounts | None:
        """Return the operations of the mount on ``point``."""
        mount = _find(texts, point)
        if mount is None:
            return None
        counts = {
            kind: sum(operation.calls for name, operation in mount.operations.items() if name in names)
            for kind, names in self.requests.items()
        }
        # Version 3 has no lock procedures: its lock count is unknown, not zero.
        if not self.requests[RequestKind.LOCK] & mount.operations.keys():
            del counts[RequestKind.LOCK]
        return RequestCounts(counts, self.counter)

    def lease_seconds(self, texts: Mapping[str, str], point: str) -> float | None:
        """Return ``lease_time`` of the ``nfsv4:`` line of the mount on ``point``."""
        in_mount = False
        for line in texts.get(MOUNTS, "").splitlines():
            if line.startswith("device "):
                in_mount = f" mounted on {point} " in line
            elif in_mount and (match := re.search(r"\blease_time=(\d+)", line)):
                return float(match[1])
        return None


def _find(texts: Mapping[str, str], point: str) -> Mount | None:
    return find_mount(texts.get(MOUNTS, ""), point)


def find_mount(text: str, point: str) -> Mount | None:
    """Return the NFS mount on ``point`` in /proc/self/mountstats, or None."""
    return next((mount for mount in parse_mounts(text) if mount.path == point), None)


def parse_mounts(text: str) -> list[Mount]:
    """Return the NFS mounts in /proc/self/mountstats; ignores lines that are not readable."""
    return [_mount(path, lines) for path, lines in _sections(text)]


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    path, lines = "", list[str]()
    for line in [*text.splitlines(), "device end"]:
        if not line.startswith("device "):
            lines.append(line)
            continue
        if path:
            yield path, lines
        head, _, kind = line.partition(" with fstype ")
        path = head.partition(" mounted on ")[2] if kind.startswith("nfs") else ""
        lines = []


def _mount(path: str, lines: list[str]) -> Mount:
    read = written = layout_reads = layout_writes = 0
    operations = {}
    for line in lines:
        name, colon, rest = line.strip().partition(":")
        columns = leading_integers(rest.split()) if colon else []
        if name == "bytes" and len(columns) >= 6:
            read, written = columns[4], columns[5]
        elif name == "events" and len(columns) >= _EVENTS:
            layout_reads, layout_writes = columns[_EVENTS - 2 : _EVENTS]
        elif name.isupper() and len(columns) >= _COLUMNS:
            counts, times = columns[:5], [column / 1000 for column in columns[5:8]]
            operations[name] = Operation(*counts, *times)
    return Mount(path, read, written, operations, layout_reads, layout_writes)


def _mount_readings(mount: Mount) -> dict[str, Reading]:
    operations = mount.operations.values()
    retransmissions = sum(max(0, each.transmissions - each.calls) for each in operations)
    readings = {
        "read from the server": Reading(mount.read, Unit.BYTES_PER_SECOND),
        "written to the server": Reading(mount.written, Unit.BYTES_PER_SECOND),
        "retransmissions": Reading(retransmissions, Unit.PER_SECOND, keep=True),
        "major time-outs": Reading(sum(each.timeouts for each in operations), Unit.PER_SECOND),
        "reads through a layout": Reading(mount.layout_reads, Unit.PER_SECOND),
        "writes through a layout": Reading(mount.layout_writes, Unit.PER_SECOND),
    }
    for name, operation in mount.operations.items():
        readings[f"{name} calls"] = Reading(operation.calls, Unit.PER_SECOND)
        times = (("queued", operation.queued), ("RTT", operation.rtt), ("execute", operation.execute))
        for phase, seconds in times:
            readings[f"{name} {phase}"] = Reading(seconds, Unit.SECONDS, Kind.QUOTIENT, per=operation.calls)
    return readings
