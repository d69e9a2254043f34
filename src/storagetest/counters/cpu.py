"""Processor time from /proc/stat (proc_stat(5)): CPU usage of a host between two readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from storagetest.counters.base import CounterSource, Kind, Reading, register
from storagetest.measure.unit import Unit

_IDLE = (3, 4)  # the columns idle and iowait; guest time (8, 9) is already part of user and nice
_COUNTED = 8


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks since boot: busy and total, of the host and of every core by name (``cpu0`` …)."""

    busy: int
    total: int
    cores: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU usage from 0 to 1: of all cores together, and of the busiest one. ``cores`` is their number."""

    share: float
    busiest_core: float
    cores: int


def parse_stat(text: str) -> CpuTimes:
    """Return the times in the ``cpu`` lines of /proc/stat; ignores other lines.

    Time that the hypervisor used for other guests (steal) counts as busy, because this host needed it. Raises
    :class:`ValueError` if the ``cpu`` line of the host is missing or not readable.
    """
    times: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        name, *columns = line.split() or [""]
        if name.startswith("cpu"):
            ticks = [int(column) for column in columns[:_COUNTED]]
            if len(ticks) <= max(_IDLE):
                raise ValueError(f"/proc/stat: {line!r} has too few columns")
            idle = sum(ticks[column] for column in _IDLE)
            times[name] = (sum(ticks) - idle, sum(ticks))
    if "cpu" not in times:
        raise ValueError("/proc/stat has no `cpu` line")
    total = times.pop("cpu")
    return CpuTimes(*total, times)


def cpu_usage(before: CpuTimes, after: CpuTimes) -> CpuUsage | None:
    """Return the CPU usage between two readings; None if no tick passed.

    iowait may decrease (proc_stat(5)), therefore shares are limited to 0 to 1.
    """
    if after.total <= before.total:
        return None
    shares = [
        _share(before.cores[name], now) for name, now in after.cores.items() if name in before.cores
    ]  # a core that was added or removed between the readings has no share
    total = _share((before.busy, before.total), (after.busy, after.total))
    return CpuUsage(total, max(shares, default=total), len(after.cores))


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    ticks = after[1] - before[1]
    return min(1.0, max(0.0, (after[0] - before[0]) / ticks)) if ticks > 0 else 0.0


@register
class Cpu(CounterSource):
    """CPU usage: all cores together (``all``), and each core by name."""

    name = "cpu"
    paths = ("/proc/stat",)
    lines: ClassVar[Mapping[str, tuple[str, ...]]] = {"/proc/stat": ("cpu",)}
    example: ClassVar[Mapping[str, str]] = {
        "/proc/stat": "cpu  100 10 50 1000 40 5 5 0 20 0\ncpu0 100 10 50 1000 40 5 5 0 20 0\n"
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the busy ticks per total ticks."""
        try:
            times = parse_stat(texts.get("/proc/stat", ""))
        except ValueError:
            return {}
        cores = {"all": (times.busy, times.total), **times.cores}
        return {
            name: Reading(ticks, Unit.RATIO, Kind.QUOTIENT, per=total, keep=True)
            for name, (ticks, total) in cores.items()
        }
