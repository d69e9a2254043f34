"""Parse fio's output. The result is correct numbers, or a :class:`WorkloadError` with fio's last lines.

Theory. fio writes diagnostics to the stream of its JSON: before it, after it and (several jobs) between its
lines (fio issues 672, 731, 1685). Every inner line of the JSON is indented, while diagnostics start in the
first column with a word. A report contains its numbers more than once, so damage is detected: totals,
runtime and rates must agree with each other, and bins with totals.

Rules:

1. A report is a line ``{``, up to a line ``}``. Between them, lines that start with a letter are
   diagnostics; one with JSON in it has swallowed a part of the report: an error.
2. One report, with as many (grouped) jobs as were requested, in that order. Two reports are ambiguous: an
   error, never a choice.
3. An error code, no I/O, or a runtime shorter than requested is an error even if fio exits with 0.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storagetest.errors import WorkloadError
from storagetest.measure.histogram import Histogram, merge

MINIMUM_VERSION = (3, 19)
"""It gives the bins of total, completion and submission latency at once."""

_NEWEST_OPTION = "slat_percentiles"
_PARTS = {"completion": "clat_ns", "submission": "slat_ns"}
_START = re.compile(r"(\S.*)?\{\s*")  # a diagnostic may come right before it, on the same line
_JSON_IN_LINE = re.compile(r'" :|[\[\]{},]\s*$')
_VERSION = re.compile(r"fio-(\d+)\.(\d+)[\w.+~-]*")
_TAIL_LINES = 8
_SHORTEST = 0.9  # share of the requested runtime
_RATE_TOLERANCE = 0.02
_MILLISECOND = 1e-3  # fio gives its runtime in whole ones


@dataclass(frozen=True, slots=True)
class FioResult:
    """What fio's one job did: bytes, I/Os, seconds, latencies; of a mix both directions together.

    ``latency`` is the total one, from the begin of an I/O's submission to its completion. ``parts`` are its
    ``completion`` and ``submission`` (empty with an engine that waits in the submission), of which fio
    measures the first from the end of the submission on (fio(1), ``clat`` and ``slat``).
    """

    version: str
    bytes: int
    ios: int
    seconds: float
    latency_mean: float
    latency: Histogram
    parts: Mapping[str, Histogram] = field(default_factory=dict)
    read: int = 0
    """Bytes that were read; the others were written."""

    ended: float | None = field(default=None, compare=False)
    """Seconds since the epoch at which fio wrote its report, by its machine's clock."""


@dataclass(frozen=True, slots=True)
class ExpectedReport:
    """What a job must report: ``directions`` (``read``, ``write`` or both), and how long it was to run.

    ``runtime`` is in seconds (None: a pass over the size), ``in_flight`` how many I/Os fio keeps going: by as
    many its counts may differ at the ends. Of one without directions nothing is expected but that it did not
    fail.
    """

    directions: Sequence[str]
    runtime: float | None
    in_flight: int


def parse(
    stdout: str, stderr: str, directions: Sequence[str], *, runtime: float | None, in_flight: int
) -> FioResult:
    """Return what fio reports for ``directions`` (``read``, ``write`` or both) together.

    Raises :class:`WorkloadError`.
    """
    return parse_all(stdout, stderr, [ExpectedReport(directions, runtime, in_flight)])[0]


def parse_all(stdout: str, stderr: str, expected: Sequence[ExpectedReport]) -> tuple[FioResult, ...]:
    """Return what fio reports of each of its jobs that has directions, in their order.

    Raises :class:`WorkloadError`.
    """
    try:
        report = _report(stdout)
        version = _version(report)
        ended = _ended(report)
        return tuple(
            replace(
                _pool([_result(job[way], version, one.runtime, one.in_flight) for way in one.directions]),
                read=job["read"]["io_bytes"] if "read" in one.directions else 0,
                ended=ended,
            )
            for job, one in zip(_jobs(report, len(expected)), expected, strict=True)
            if one.directions
        )
    except _ImplausibleReport as doubt:
        reason = str(doubt)
        if _NEWEST_OPTION in stderr:  # which fio does not know, and ended
            reason = f"this fio is too old: {_wanted()} is needed"
        raise WorkloadError(f"{reason}{_tail(stdout, stderr)}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"fio's report cannot be trusted ({type(error).__name__}: {error})"
        raise WorkloadError(f"{what}{_tail(stdout, stderr)}") from None


class _ImplausibleReport(Exception):
    """Why the report is not believed."""


def _report(stdout: str) -> Mapping[str, Any]:
    """Return the one JSON report among the diagnostics."""
    lines = stdout.splitlines()
    starts = [number for number, line in enumerate(lines) if _START.fullmatch(line)]
    if not starts:
        raise _ImplausibleReport("fio gave no report: it failed, or was ended before it was done")
    if len(starts) > 1:
        raise _ImplausibleReport(f"fio printed {len(starts)} reports; expected one")
    inside = ["{"]
    for line in lines[starts[0] + 1 :]:
        if not line[:1].isalpha():
            inside.append(line)
        elif _JSON_IN_LINE.search(line):
            raise _ImplausibleReport("fio's report is damaged: a diagnostic swallowed a part of it")
        if line.rstrip() == "}":
            break
    else:
        raise _ImplausibleReport("fio's report breaks off")
    try:
        report = json.loads("\n".join(inside))
    except ValueError as error:
        raise _ImplausibleReport(f"fio's report is damaged ({error})") from None
    return dict(report)


def _version(report: Mapping[str, Any]) -> str:
    text = str(report["fio version"])
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"fio version is {text!r}")
    if (int(match[1]), int(match[2])) < MINIMUM_VERSION:
        raise _ImplausibleReport(f"{text} is too old: {_wanted()} is needed")
    return text


def _wanted() -> str:
    return f"fio {'.'.join(map(str, MINIMUM_VERSION))} or newer, for the histograms of all latencies,"


def _ended(report: Mapping[str, Any]) -> float | None:
    """Return the time of the report, if its two timestamps agree."""
    milliseconds, seconds = report.get("timestamp_ms"), report.get("timestamp")
    if type(milliseconds) is not int or milliseconds // 1000 != seconds:
        return None
    return milliseconds / 1000


def _jobs(report: Mapping[str, Any], count: int) -> Sequence[Mapping[str, Any]]:
    jobs: Sequence[Mapping[str, Any]] = report["jobs"]
    if len(jobs) != count:
        wanted = "one group was" if count == 1 else f"{count} were"
        raise _ImplausibleReport(f"fio reports {len(jobs)} jobs where {wanted} asked for")
    for job in jobs:
        code = _count(job, "error")
        if code:
            name = errno.errorcode.get(code, "unknown error")
            raise _ImplausibleReport(f"fio's I/O failed: {os.strerror(code)} ({name})")
    return jobs


def _result(section: Mapping[str, Any], version: str, runtime: float | None, in_flight: int) -> FioResult:
    ios, total = _count(section, "total_ios"), _count(section, "io_bytes")
    milliseconds = _count(section, "runtime")
    if not ios or not total:
        raise _ImplausibleReport("fio did no I/O")
    if milliseconds <= 0 or (
        runtime is not None and milliseconds / 1000 < runtime * _SHORTEST - _MILLISECOND
    ):
        asked = f" of {runtime:g} s" if runtime is not None else ""
        raise _ImplausibleReport(f"fio ended early: it measured {milliseconds / 1000:g} s{asked}")
    seconds = milliseconds / 1000
    total_latency = section["lat_ns"]
    if "bins" not in total_latency:
        raise _ImplausibleReport(f"{version} gives no latency bins")
    latency = _latency(total_latency)
    mean = _number(total_latency, "mean") * 1e-9
    parts = {name: _latency(section[key]) for name, key in _PARTS.items() if _count(section[key], "N")}
    _agree("I/O rate", _number(section, "iops"), ios / seconds, slack=0)
    _agree("bandwidth", _number(section, "bw_bytes"), total / seconds, slack=1)
    _agree("count of latencies", latency.count, ios, slack=2 * in_flight)
    if not latency.saturated:
        _agree("mean latency", latency.mean, mean, slack=1e-9)
    for name, part in parts.items():
        _agree(f"count of {name} latencies", part.count, latency.count, slack=2 * in_flight)
    return FioResult(version, total, ios, seconds, mean, latency, parts)


def _pool(results: Sequence[FioResult]) -> FioResult:
    """Pool the directions of a mix, which ran at the same time."""
    ios = sum(one.ios for one in results)
    return FioResult(
        version=results[0].version,
        bytes=sum(one.bytes for one in results),
        ios=ios,
        seconds=max(one.seconds for one in results),
        latency_mean=sum(one.latency_mean * one.ios for one in results) / ios,
        latency=merge(one.latency for one in results),
        parts=merge_parts(results),
    )


def merge_parts(results: Sequence[FioResult]) -> dict[str, Histogram]:
    """Return the parts of the latency that any of ``results`` has, each over all of them."""
    names = dict.fromkeys(name for one in results for name in one.parts)
    return {name: merge(one.parts.get(name, Histogram()) for one in results) for name in names}


def _latency(section: Mapping[str, Any]) -> Histogram:
    """Return the histogram, if fio's own order, count and percentiles are those of its bins."""
    keys = [int(key) for key in section["bins"]]
    if keys != sorted(keys):
        raise _ImplausibleReport("fio's report is damaged: its latency bins are not in order")
    latency = Histogram.from_fio_bins(section["bins"])
    count = _count(section, "N")
    if latency.count != count:
        raise _ImplausibleReport(
            f"fio's report contradicts itself: {count} latencies, {latency.count} in bins"
        )
    for percent, ns in section.get("percentile", {}).items():
        # fio's rank may be the next one where ours is whole, because it computes it in floats.
        low, high = (
            latency.percentile(min(1.0, float(percent) / 100 * near)) for near in (1 - 1e-9, 1 + 1e-9)
        )
        if not round(low * 1e9) <= ns <= round(high * 1e9):
            raise _ImplausibleReport(
                f"fio's report contradicts itself: p{float(percent):g} is not that of its bins"
            )
    return latency


def _agree(name: str, one: float, other: float, *, slack: float) -> None:
    if not abs(one - other) <= _RATE_TOLERANCE * abs(other) + slack:
        raise _ImplausibleReport(f"fio's report contradicts itself: {name} {one:g} against {other:g}")


def _count(section: Mapping[str, Any], name: str) -> int:
    value = section[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def _number(section: Mapping[str, Any], name: str) -> float:
    value = section[name]
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return float(value)


def _tail(stdout: str, stderr: str) -> str:
    """Return fio's last diagnostic lines, without those of the report."""
    lines = [line for line in f"{stderr}\n{stdout}".splitlines() if line[:1].isalpha()]
    lines = lines or [line for line in stdout.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])
