"""What many clients did at once, as one sample. Pure.

Rules:

1. Rates and bandwidths are summed, each client's being that of the *window* in which all were at work
   (:mod:`storagetest.measure.common_window`).
2. Percentiles are of the merged bins of all clients, never averaged; a mean latency weighs each client by its
   I/Os. They are of all that a client measured, as bins know no time; how much of the time lay outside the
   window is said beside it (the tail).
3. Of everything else (shares, times, counts) the worst client's value counts.
4. Without a common window, with first I/Os that are spread beyond the limit, or with a clock that is not
   known as
   well as the limit asks, there is no verdict.
5. Nothing is left out in silence: a client whose rate lies beyond Tukey's fences is named as an outlier, and
   is
   counted like any other.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storagetest.measure.bottleneck import Utilisation
from storagetest.measure.common_window import (
    ActivitySpan,
    ClientSummary,
    ConcurrencySummary,
    Window,
    outliers,
    rate_in_window,
    window,
)
from storagetest.measure.histogram import Histogram, merge
from storagetest.measure.run import Better, Metric, Sample, Unit
from storagetest.measure.series import LOAD, Series
from storagetest.units import format_duration, format_ratio, format_value

__all__ = ["SPREAD_LIMIT", "ClientSample", "attach_series", "merge_client_samples"]

SPREAD_LIMIT = 0.010
"""Seconds between the first I/O of the first and of the last client."""

_MOST_SERIES = 16
"""Clients of which all that was sampled is kept; of more, only the load of all."""

_MOST_EVIDENCE = 4
"""Clients whose own texts are kept; of more, those of the first."""

_RATES = {Unit.PER_SECOND, Unit.BYTES_PER_SECOND}


@dataclass(frozen=True, slots=True)
class ClientSample:
    """One client's share of a repeat.

    ``starts`` is when its first I/O began, once for each time that all waited for each other; ``spans`` (by
    phase) when it was at work. Both are in seconds by one clock for all parts, on which 0 is the instant
    agreed on for the first start. ``clock_error`` is how far this client's clock may be off.
    """

    client: str
    sample: Sample
    starts: tuple[float, ...] = ()
    spans: Mapping[str, ActivitySpan] = field(default_factory=dict)
    clock_error: float = 0.0


def merge_client_samples(
    parts: Sequence[ClientSample],
    metrics: Mapping[str, Metric],
    headline: Sequence[str],
    *,
    limit: float = SPREAD_LIMIT,
) -> Sample:
    """Return the clients' samples of one repeat, of which there is at least one, as one."""
    windows = _windows(parts)
    own = {part.client: part.sample for part in parts}
    operations = dict.fromkeys(name for part in parts for name in part.sample.operations)
    merged: dict[str | None, Histogram] = {
        None: merge(part.sample.latency or Histogram() for part in parts),
        **{
            name: merge(part.sample.operations.get(name, Histogram()) for part in parts)
            for name in operations
        },
    }
    values = {
        name: value
        for name, metric in metrics.items()
        if (value := _merge_metric(parts, metric, windows, merged)) is not None
    }
    story = ConcurrencySummary(
        spread=_spread(parts),
        limit=limit,
        clock_error=max(part.clock_error for part in parts),
        seconds=sum(one.seconds for one in windows.values()),
        first_done=max((one.ended for one in windows.values()), default=0.0),
        last_done=max((one.last for one in windows.values()), default=0.0),
        members=tuple(_client_summary(part, headline) for part in parts),
        outliers=_outliers(parts, metrics, headline),
    )
    return Sample(
        values,
        seconds=story.seconds,
        ios=sum(part.sample.ios for part in parts),
        latency=merged[None] if merged[None].count else None,
        operations={name: merged[name] for name in operations},
        evidence={
            **_evidence(own),
            "start": _describe_start(story, windows),
            "clients": _client_table(story, metrics, headline),
        },
        invalid=(
            *(f"{part.client}: {why}" for part in parts for why in part.sample.invalid),
            *_invalid_reasons(story, windows),
        ),
        series=_series(own),
        began=parts[0].sample.began,
        utilisation=_merge_utilisation([part.sample.utilisation for part in parts]),
        concurrency=story,
    )


def attach_series(merged: Sample, samples: Mapping[str, Sample]) -> Sample:
    """Return ``whole`` with what the clients' ``samples`` have over time by now, and their texts."""
    return replace(merged, series=_series(samples), evidence={**_evidence(samples), **merged.evidence})


def _windows(parts: Sequence[ClientSample]) -> dict[str, Window]:
    """Return the window of each phase that all parts know."""
    names = [name for name in parts[0].spans if all(name in part.spans for part in parts)]
    return {name: window([part.spans[name] for part in parts]) for name in names}


def _spread(parts: Sequence[ClientSample]) -> float | None:
    """Return the largest distance of first I/Os, of all times that they began together; None: not known."""
    rounds = {len(part.starts) for part in parts}
    if len(rounds) != 1 or not max(rounds):
        return None
    spreads: list[float] = []
    for number in range(max(rounds)):
        times = [part.starts[number] for part in parts]
        spreads.append(max(times) - min(times))
    return max(spreads)


def _merge_metric(
    parts: Sequence[ClientSample],
    metric: Metric,
    windows: Mapping[str, Window],
    merged: Mapping[str | None, Histogram],
) -> float | None:
    """Return the metric of all clients; None where not all have it."""
    known = [part.sample.values[metric.name] for part in parts if metric.name in part.sample.values]
    if len(known) < len(parts):
        return None
    if metric.unit in _RATES:
        if len(windows) != 1:  # several phases: each rate is of a phase's own window already
            return sum(known)
        ((phase, common),) = windows.items()
        return sum(
            rate_in_window(value, part.spans[phase], common, _timeline(part.sample, metric.unit))
            for value, part in zip(known, parts, strict=True)
        )
    if metric.unit is Unit.SECONDS:
        latencies = [part.sample.histogram(metric) or Histogram() for part in parts]
        if all(one.bins for one in latencies):
            if metric.quantile is not None:
                return merged[metric.operation].percentile(metric.quantile)
            counts = [one.count for one in latencies]
            return sum(value * count for value, count in zip(known, counts, strict=True)) / sum(counts)
    return max(known) if metric.better is Better.LOWER else min(known)


def _timeline(sample: Sample, unit: Unit) -> list[tuple[float, float]]:
    """Return the load over time, reads and writes together, where the sample has it."""
    points: dict[float, float] = {}
    for one in sample.series:
        if one.source == LOAD and one.unit is unit:
            for at, value in zip(one.times, one.values, strict=True):
                points[at] = points.get(at, 0.0) + value
    return sorted(points.items())


def _client_summary(part: ClientSample, headline: Sequence[str]) -> ClientSummary:
    values = {name: part.sample.values[name] for name in headline if name in part.sample.values}
    ended = max((span.last for span in part.spans.values()), default=None)
    return ClientSummary(
        part.client, values, part.starts[0] if part.starts else None, ended, part.clock_error
    )


def _outliers(
    parts: Sequence[ClientSample], metrics: Mapping[str, Metric], headline: Sequence[str]
) -> tuple[str, ...]:
    """Compare the clients by the first rate of the headline, or by its first metric."""
    rates = [name for name in headline if name in metrics and metrics[name].unit in _RATES]
    name = next(iter([*rates, *headline]), "")
    return outliers({part.client: part.sample.values[name] for part in parts if name in part.sample.values})


def _invalid_reasons(story: ConcurrencySummary, windows: Mapping[str, Window]) -> list[str]:
    found = []
    limit = format_duration(story.limit)
    if story.spread is None:
        found.append("nobody knows when the clients' first I/Os began: this load waits for no common start")
    elif story.spread > story.limit:
        last = max(story.members, key=lambda member: member.started or 0.0).client
        spread = format_duration(story.spread)
        found.append(f"the first I/Os are spread over {spread}, {limit} are allowed; {last} was the last")
    if story.clock_error > story.limit:
        worst = max(story.members, key=lambda member: member.clock_error)
        error = format_duration(worst.clock_error)
        found.append(f"the clock of {worst.client} is known to ±{error} only, {limit} are allowed")
    for name, one in windows.items():
        if one.seconds <= 0:
            phase = f" of {name}" if name else ""
            found.append(f"there was no time{phase} in which all clients were at work")
    return found


def _describe_start(story: ConcurrencySummary, windows: Mapping[str, Window]) -> str:
    spread = "not known" if story.spread is None else format_duration(story.spread)
    clocks = f"clocks known to ±{format_duration(story.clock_error)}"
    lines = [f"first I/Os spread over {spread}, {format_duration(story.limit)} are allowed; {clocks}"]
    for name, one in windows.items():
        tail = format_ratio(one.tail / one.seconds) if one.seconds else "all"
        lines.append(
            f"{name + ': ' if name else ''}all at work for {format_duration(one.seconds)}; first done at "
            f"{_format_moment(one.ended)}, last done at {_format_moment(one.last)}: a tail of {tail}"
        )
    return "\n".join(lines)


def _client_table(story: ConcurrencySummary, metrics: Mapping[str, Metric], headline: Sequence[str]) -> str:
    """Return the clients as a table; outliers are marked."""
    names = [name for name in headline if any(name in member.values for member in story.members)]
    rows = [["client", *names, "began", "done", "clock", ""]]
    for member in story.members:
        cells = [
            format_value(member.values[name], metrics[name].unit.value) if name in member.values else "-"
            for name in names
        ]
        times = [
            _format_moment(member.started),
            _format_moment(member.ended),
            f"±{format_duration(member.clock_error)}",
        ]
        rows.append([member.client, *cells, *times, "outlier" if member.client in story.outliers else ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _format_moment(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{'-' if seconds < 0 else '+'}{format_duration(abs(seconds))}"


def _evidence(samples: Mapping[str, Sample]) -> dict[str, str]:
    if len(samples) > _MOST_EVIDENCE:
        return dict(next(iter(samples.values())).evidence)
    return {f"{name} ({who})": text for who, one in samples.items() for name, text in one.evidence.items()}


def _series(samples: Mapping[str, Sample]) -> tuple[Series, ...]:
    """Return the load of all clients together, and all else that was sampled while they are few."""
    sums: dict[tuple[str, Unit], dict[float, list[float]]] = {}
    others: list[Series] = []
    for sample in samples.values():
        for one in sample.series:
            if one.source != LOAD:
                others.append(one)
                continue
            points = sums.setdefault((one.name, one.unit), {})
            for at, value in zip(one.times, one.values, strict=True):
                points.setdefault(at, []).append(value)
    found = []
    for (name, unit), points in sums.items():
        # A latency of all is a plain mean here: it is drawn, and not judged.
        whole: Callable[[list[float]], float] = statistics.fmean if unit is Unit.SECONDS else sum
        times = tuple(sorted(points))
        found.append(Series(LOAD, name, unit, "all clients", times, tuple(whole(points[at]) for at in times)))
    return (*found, *(others if len(samples) <= _MOST_SERIES else ()))


def _merge_utilisation(known: Sequence[Utilisation | None]) -> Utilisation | None:
    """Return what is known of all clients: rates and ceilings add up; of shares, the typical client's."""
    all_known = [one for one in known if one is not None]
    if not all_known or len(all_known) < len(known):
        return None
    ceilings = [one.ceiling for one in all_known if one.ceiling is not None]

    def typical(of: Callable[[Utilisation], float | None]) -> float | None:
        values = [value for value in map(of, all_known) if value is not None]
        return statistics.median(values) if values else None

    return Utilisation(
        rate=sum(one.rate for one in all_known),
        ceiling=sum(ceilings) if len(ceilings) == len(all_known) else None,
        busiest_core=typical(lambda one: one.busiest_core),
        network=typical(lambda one: one.network),
        resent=typical(lambda one: one.resent),
    )
