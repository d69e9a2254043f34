"""Parse the agent's output, and check that it is consistent.

The format is that of :mod:`storagetest.agent`. Other programs may print into it (a login banner, a kernel
message), so lines that are no JSON objects are skipped. There must be one result with consistent numbers,
else it is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storagetest.counters.cpu import CpuUsage
from storagetest.errors import WorkloadError
from storagetest.hosts._output import last_lines
from storagetest.measure.common_window import ActivitySpan
from storagetest.measure.histogram import Histogram
from storagetest.workloads._metrics import cpu_between

_ADVICE = {
    "ENOSPC": "the target is full: free space there, or use a smaller size or fewer files",
    "EDQUOT": "the user's quota is used up: raise it, or use a smaller size or fewer files",
    "EINVAL": "the target may not support this; if direct is on, try direct: false",
    "EROFS": "the target is read-only: check its export and the mount's options",
    "EACCES": "the user may not do this: check the options of the export (root_squash) and of the mount",
    "EPERM": "the user may not do this: check the options of the export (root_squash) and of the mount",
    "EIO": "the target failed: check the client's dmesg and the target's log",
    "ESTALE": "the file handle is stale: was the file removed, or exported again?",
}


@dataclass(frozen=True, slots=True)
class OpStats:
    """Operations of one kind in a phase: ``ops`` in its window, ``total`` in all; bytes likewise (0: none).

    ``timeline`` maps an interval's number to the latencies of the operations that ended in it, in coarse bins
    (:mod:`storagetest.agent.latency_bins`); empty if none was requested.
    """

    ops: int
    total: int
    bytes: int
    total_bytes: int
    latency: Histogram
    timeline: Mapping[int, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseStats:
    """One phase of an agent load.

    ``seconds`` is the window in which all workers were active; operations that ended in it are counted.
    ``span`` is from the first start to the last end. ``spread`` is the seconds between the first and the last
    start, ``tail`` those between the first and the last end. ``cpu`` is the workers' share of one core. If
    ``overlap`` is false, the workers were never all active at once, and the window is the span. ``began``
    is the start of the window in seconds since the epoch by the client's clock. ``times`` has the phase's
    times by the client's monotonic clock, if the agent reports them.
    """

    seconds: float
    span: float
    spread: float
    tail: float
    cpu: float
    overlap: bool
    operations: Mapping[str, OpStats]
    began: float = 0.0
    times: ActivitySpan | None = None

    def rate(self, operation: str) -> float:
        """Return the operations per second."""
        return self.operations[operation].ops / self.seconds

    def bandwidth(self, operation: str) -> float:
        """Return the bytes per second."""
        return self.operations[operation].bytes / self.seconds


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The agent's result: phases by name in their order, the client's CPU use, and all other members."""

    phases: Mapping[str, PhaseStats]
    cpu: CpuUsage | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_result(stdout: str, stderr: str) -> AgentResult:
    """Parse the agent's output. Raises :class:`WorkloadError`."""
    lines = [line for line in map(_object, stdout.splitlines()) if line.get("t") in {"result", "error"}]
    if not lines:
        tail = last_lines(stderr, stdout)
        raise WorkloadError("the agent ended without a result: it was killed" + (f"\n{tail}" if tail else ""))
    if len(lines) > 1:
        raise WorkloadError(f"the agent sent {len(lines)} results")
    line = lines[0]
    if line["t"] == "error":
        raise WorkloadError(_describe_error(line))
    try:
        return _parse_result(line["value"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkloadError(f"the agent's result cannot be trusted: {error}") from None


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _describe_error(line: Mapping[str, Any]) -> str:
    kind, message = line.get("kind"), str(line.get("message"))
    if kind == "os":
        name = str(line.get("errno", ""))
        operation = " ".join(str(line[part]) for part in ("op", "path") if line.get(part))
        advice = f"\n{_ADVICE[name]}" if name in _ADVICE else ""
        return f"{operation}: {message} ({name}){advice}"
    if kind == "python":
        return f"python3 is {message}, too old: the agent needs 3.9 or newer"
    if kind == "deadline":
        return f"{message}. The target may hang: check the client's dmesg"
    return message


def _parse_result(value: Mapping[str, Any]) -> AgentResult:
    phases = {name: _phase(name, phase) for name, phase in value.get("phases", {}).items()}
    more = {name: member for name, member in value.items() if name not in {"phases", "cpu"}}
    return AgentResult(phases, cpu_between(*value.get("cpu", ("", ""))), more)


def _phase(name: str, report: Mapping[str, Any]) -> PhaseStats:
    numbers = {
        key: _number(f"{name}: {key}", report[key]) for key in ("seconds", "span", "spread", "tail", "cpu")
    }
    began = _number(f"{name}: began", report.get("began", 0.0))
    if numbers["seconds"] > numbers["span"] * 1.000001:
        raise ValueError(f"{name}: {numbers['seconds']} s of {numbers['span']} s were measured")
    operations = {key: _op_stats(f"{name}: {key}", entry) for key, entry in report["operations"].items()}
    if numbers["seconds"] <= 0 or not any(entry.ops for entry in operations.values()):
        raise ValueError(f"{name}: nothing was done in {numbers['seconds']} s")
    times = None
    if "times" in report:
        times = ActivitySpan(*(_count(f"{name}: times", each) * 1e-9 for each in report["times"]))
        if not times.first <= times.since <= times.until <= times.last:
            raise ValueError(f"{name}: it began and ended at {report['times']}")
    overlap = bool(report["overlap"])
    return PhaseStats(**numbers, overlap=overlap, operations=operations, began=began, times=times)


def _op_stats(name: str, report: Mapping[str, Any]) -> OpStats:
    latency = Histogram.from_fio_bins(report["bins"])
    ops, total = _count(name, report["ops"]), _count(name, report["total"])
    moved, in_all = _count(name, report.get("bytes", 0)), _count(name, report.get("total_bytes", 0))
    timeline = {int(slot): _coarse(name, bins) for slot, bins in report.get("timeline", {}).items()}
    in_timeline = sum(latencies.count for latencies in timeline.values())
    if timeline and in_timeline != ops:
        raise ValueError(f"{name}: {ops} operations, {in_timeline} in their timeline")
    if latency.count != ops or ops > total or moved > in_all:
        raise ValueError(
            f"{name}: {ops} of {total} operations, {latency.count} latencies, {moved} of {in_all} B"
        )
    return OpStats(ops, total, moved, in_all, latency, timeline)


def _coarse(name: str, bins: Mapping[str, Any]) -> Histogram:
    return Histogram(tuple(sorted((int(ns), _count(name, count)) for ns, count in bins.items())))


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return float(value)


def _count(name: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name}: {value!r} is not a count")
    return value
