"""fio's averaged logs (fio(1), "Log file formats") as time series of the load.

A line is ``time (ms), value, direction, block size, …``; with ``log_avg_msec`` its value is the mean (of
IOPS: the rate) of the interval that ends there, of one direction of one worker. With ``per_job_logs=0`` all
workers write to one file. Intervals of different workers end some milliseconds apart, so points are sorted
into slots of an interval each: rates of a slot are added up, latencies averaged by the I/Os behind them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit
from storagetest.workloads._fio.job import FIRST, LOG

_DIRECTIONS = {"0": "read", "1": "write"}
_KIB = 1024  # bandwidth is logged in KiB/s
_NANOSECOND = 1e-9


@dataclass(slots=True)
class _Slot:
    """One interval of one direction: by worker's line, in the order in which the lines came."""

    bw: list[float] = field(default_factory=list)
    iops: list[float] = field(default_factory=list)
    lat: list[float] = field(default_factory=list)


def timeline(text: str, host: str, *, start: float, interval: float) -> tuple[Series, ...]:
    """Return bandwidth, IOPS and latency of each direction over time, in seconds since ``start``.

    ``text`` is lines ``load_bw.log<NUL>line``, ``start`` seconds since the epoch by the client's clock. Lines
    that cannot be read are left out: the report, not the log, has the figures.
    """
    slots: dict[tuple[str, int], _Slot] = {}
    for kind, time, value, direction in _lines(text):
        slot = slots.setdefault((direction, round((time - start) / interval)), _Slot())
        getattr(slot, kind).append(value)
    found: list[Series] = []
    for direction in _DIRECTIONS.values():
        mine = {at: slot for (one, at), slot in sorted(slots.items()) if one == direction and at >= 0}
        found += _series(mine, direction, host, interval)
    return tuple(found)


def began(text: str, interval: float) -> float | None:
    """Return the start of the measurement, by the first logged interval; None if there is none."""
    return min((time for _, time, _, _ in _lines(text)), default=interval) - interval or None


def first_io(text: str) -> float | None:
    """Return when the scout's I/O was submitted, in seconds since the epoch; None if it wrote no log.

    fio notes when it completed, in whole milliseconds, and how long it took, in nanoseconds.
    """
    for line in text.splitlines():
        name, _, rest = line.partition("\0")
        if name == f"{FIRST}_lat.log":
            time, took, *_ = rest.split(",")
            return int(time) / 1000 - int(took) * _NANOSECOND
    return None


def _series(slots: Mapping[int, _Slot], direction: str, host: str, interval: float) -> Iterable[Series]:
    points: defaultdict[tuple[str, Unit], list[tuple[float, float]]] = defaultdict(list)
    for number, slot in slots.items():
        at = round(number * interval, 6)
        if slot.bw:
            points[f"{direction} bandwidth", Unit.BYTES_PER_SECOND].append((at, sum(slot.bw) * _KIB))
        if slot.iops:
            points[f"{direction} IOPS", Unit.PER_SECOND].append((at, sum(slot.iops)))
        if slot.lat:
            # Workers log all their kinds in the same order, so equal places belong together.
            fitting = len(slot.iops) == len(slot.lat) and sum(slot.iops) > 0
            weights = slot.iops if fitting else [1.0] * len(slot.lat)
            pairs = zip(slot.lat, weights, strict=True)
            mean = sum(value * weight for value, weight in pairs) / sum(weights)
            points[f"{direction} latency", Unit.SECONDS].append((at, mean * _NANOSECOND))
    for (name, unit), pairs_ in points.items():
        times, values = zip(*pairs_, strict=True)
        yield Series(LOAD, name, unit, host, times, values)


def _lines(text: str) -> Iterable[tuple[str, float, float, str]]:
    for line in text.splitlines():
        name, _, rest = line.partition("\0")
        kind = name.removeprefix(f"{LOG}_").removesuffix(".log")
        columns = [column.strip() for column in rest.split(",")]
        if kind not in {"bw", "iops", "lat"} or len(columns) < 4 or columns[2] not in _DIRECTIONS:
            continue
        try:
            yield kind, int(columns[0]) / 1000, float(columns[1]), _DIRECTIONS[columns[2]]
        except ValueError:
            continue
