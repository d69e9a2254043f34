"""Merge the samples of concurrent clients into one. Pure.

Rules:

1. Rates and bandwidths are summed, each client's being that of the *window* in which all were active
   (:mod:`storagetest.measure.common_window`).
2. Percentiles come from the merged bins of all clients and are never averaged; a mean latency weighs each
   client by its I/Os. They cover all that a client measured, because bins have no time; the share of the time
   outside the window is reported (the tail).
3. For everything else (shares, times, counts) the worst client's value counts.
4. There is no verdict without a common window, if the spread of the first I/Os exceeds the limit, or if the
   error of a clock does.
5. A metric that a role does not have (writers have no ``read_iops``) is that of the clients of the other
   roles, over the window of all. Of clients of one role, all have a metric or it has no value.
6. Every client counts: a client whose rate lies beyond Tukey's fences is reported as an outlier.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storagetest.measure.bottleneck import Utilisation, median_of
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
from storagetest.measure.run import Better, Metric, Sample
from storagetest.measure.series import LOAD, Series, combined
from storagetest.measure.unit import Unit
from storagetest.units import format_duration, format_ratio, format_value

SPREAD_LIMIT = 0.010
"""Seconds between the first I/O of the first and of the last client."""

_MOST_SERIES = 16
"""Up to this many clients all sampled series are kept; of more clients, only the total load."""

_MOST_EVIDENCE = 4
"""Up to this many clients the texts of each are kept; of more clients, those of the first."""

_RATES = {Unit.PER_SECOND, Unit.BYTES_PER_SECOND}


@dataclass(frozen=True, slots=True)
class ClientSample:
    """One client's sample of a repeat.

    ``starts`` are its first I/Os, one for each common start; ``spans`` (by phase) its activity. Both are in
    seconds by one clock for all clients, on which 0 is the instant of the first common start. ``clock_error``
    is the error of this client's clock offset.
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
    """Merge the clients' samples of one repeat; there is at least one."""
    windows = _windows(parts)
    samples = {part.client: part.sample for part in parts}
    operations = dict.fromkeys(name for part in parts for name in part.sample.operations)
    merged: dict[str | None, Histogram] = {
        name: merge(part.sample.operations.get(name, Histogram()) for part in parts) for name in operations
    }
    merged[None] = merge(part.sample.latency or Histogram() for part in parts)
    values = {
        name: value
        for name, metric in metrics.items()
        if (value := _merge_metric(parts, metric, windows, merged)) is not None
    }
    summary = ConcurrencySummary(
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
        seconds=summary.seconds,
        ios=sum(part.sample.ios for part in parts),
        latency=merged[None] if merged[None].count else None,
        operations={name: merged[name] for name in operations},
        evidence={
            **_evidence(samples),
            "start": _describe_start(summary, windows),
            "clients": _client_table(summary, metrics, headline),
            **_describe_roles(samples),
        },
        invalid=(
            *(f"{part.client}: {why}" for part in parts for why in part.sample.invalid),
            *_invalid_reasons(summary, windows),
        ),
        series=_series(samples),
        began=parts[0].sample.began,
        utilisation=_merge_utilisation([part.sample.utilisation for part in parts]),
        concurrency=summary,
    )


def attach_series(merged: Sample, samples: Mapping[str, Sample]) -> Sample:
    """Return ``merged`` with the current series of the clients' ``samples``, and their texts."""
    return replace(merged, series=_series(samples), evidence={**_evidence(samples), **merged.evidence})


def _windows(parts: Sequence[ClientSample]) -> dict[str, Window]:
    """Return the window of each phase that all clients have."""
    names = [name for name in parts[0].spans if all(name in part.spans for part in parts)]
    return {name: window([part.spans[name] for part in parts]) for name in names}


def _spread(parts: Sequence[ClientSample]) -> float | None:
    """Return the largest spread of first I/Os over all common starts; None: not known."""
    rounds = {len(part.starts) for part in parts}
    if len(rounds) != 1 or not max(rounds):
        return None
    starts: Iterable[tuple[float, ...]] = zip(*(part.starts for part in parts), strict=True)
    return max(max(times) - min(times) for times in starts)


def _merge_metric(
    parts: Sequence[ClientSample],
    metric: Metric,
    windows: Mapping[str, Window],
    merged: Mapping[str | None, Histogram],
) -> float | None:
    """Return the metric of all clients whose role has it; None if not all of these have it."""
    roles = {part.sample.role for part in parts if metric.name in part.sample.values}
    parts = [part for part in parts if part.sample.role in roles]
    known = [part.sample.values[metric.name] for part in parts if metric.name in part.sample.values]
    if not parts or len(known) < len(parts):
        return None
    if metric.unit in _RATES:
        if len(windows) != 1:  # several phases: each rate is that of its phase's window already
            return sum(known)
        ((phase, common),) = windows.items()
        return sum(
            # Without a timeline the rate is taken as constant; reads and writes are summed.
            rate_in_window(
                value, part.spans[phase], common, combined(part.sample.load_series(metric.unit), sum)
            )
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


def _invalid_reasons(summary: ConcurrencySummary, windows: Mapping[str, Window]) -> list[str]:
    found = []
    limit = format_duration(summary.limit)
    if summary.spread is None:
        found.append("the clients' first I/Os are not known: this load waits for no common start")
    elif summary.spread > summary.limit:
        last = max(summary.members, key=lambda member: member.started or 0.0).client
        spread = format_duration(summary.spread)
        found.append(f"the first I/Os are spread over {spread}, {limit} are allowed; {last} was the last")
    if summary.clock_error > summary.limit:
        worst = max(summary.members, key=lambda member: member.clock_error)
        error = format_duration(worst.clock_error)
        found.append(f"the clock of {worst.client} is known to ±{error} only, {limit} are allowed")
    for name, one in windows.items():
        if one.seconds <= 0:
            phase = f" of {name}" if name else ""
            found.append(f"there was no time{phase} in which all clients were active")
    return found


def _describe_start(summary: ConcurrencySummary, windows: Mapping[str, Window]) -> str:
    spread = "not known" if summary.spread is None else format_duration(summary.spread)
    clocks = f"clocks known to ±{format_duration(summary.clock_error)}"
    lines = [f"first I/Os spread over {spread}, {format_duration(summary.limit)} are allowed; {clocks}"]
    for name, one in windows.items():
        tail = format_ratio(one.tail / one.seconds) if one.seconds else "all"
        lines.append(
            f"{name + ': ' if name else ''}all clients active for {format_duration(one.seconds)}; first done "
            f"at {_format_moment(one.ended)}, last done at {_format_moment(one.last)}: a tail of {tail}"
        )
    return "\n".join(lines)


def _client_table(summary: ConcurrencySummary, metrics: Mapping[str, Metric], headline: Sequence[str]) -> str:
    """Return the clients as a table; outliers are marked."""
    names = [name for name in headline if any(name in member.values for member in summary.members)]
    rows = [["client", *names, "began", "done", "clock", ""]]
    for member in summary.members:
        cells = [
            format_value(member.values[name], metrics[name].unit.value) if name in member.values else "-"
            for name in names
        ]
        times = [
            _format_moment(member.started),
            _format_moment(member.ended),
            f"±{format_duration(member.clock_error)}",
        ]
        rows.append([member.client, *cells, *times, "outlier" if member.client in summary.outliers else ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _describe_roles(samples: Mapping[str, Sample]) -> dict[str, str]:
    """Return the clients of each role; nothing if the load has no roles."""
    clients: dict[str, list[str]] = {}
    for client, sample in samples.items():
        clients.setdefault(sample.role, []).append(client)
    if not any(clients):
        return {}
    return {"roles": "\n".join(f"{role}: {', '.join(names)}" for role, names in clients.items())}


def _format_moment(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{'-' if seconds < 0 else '+'}{format_duration(abs(seconds))}"


def _evidence(samples: Mapping[str, Sample]) -> dict[str, str]:
    if len(samples) > _MOST_EVIDENCE:
        return dict(next(iter(samples.values())).evidence)
    return {f"{name} ({who})": text for who, one in samples.items() for name, text in one.evidence.items()}


def _series(samples: Mapping[str, Sample]) -> tuple[Series, ...]:
    """Return the total load of all clients, and all other series if there are few clients."""
    every = [one for sample in samples.values() for one in sample.series]
    loads: dict[tuple[str, Unit], list[Series]] = {}
    for one in every:
        if one.source == LOAD:
            loads.setdefault((one.name, one.unit), []).append(one)
    found = []
    for (name, unit), load in loads.items():
        # The latency of all clients is a plain mean here: it is drawn, not judged.
        points = combined(load, statistics.fmean if unit is Unit.SECONDS else sum)
        times, values = zip(*points, strict=True) if points else ((), ())
        found.append(Series(LOAD, name, unit, "all clients", times, values))
    return (*found, *(one for one in every if one.source != LOAD and len(samples) <= _MOST_SERIES))


def _merge_utilisation(known: Sequence[Utilisation | None]) -> Utilisation | None:
    """Return the utilisation of all clients: rates and ceilings are summed, shares are medians."""
    all_known = [one for one in known if one is not None]
    if not all_known or len(all_known) < len(known):
        return None
    ceilings = [one.ceiling for one in all_known if one.ceiling is not None]
    return Utilisation(
        rate=sum(one.rate for one in all_known),
        ceiling=sum(ceilings) if len(ceilings) == len(all_known) else None,
        busiest_core=median_of(one.busiest_core for one in all_known),
        network=median_of(one.network for one in all_known),
        resent=median_of(one.resent for one in all_known),
    )
