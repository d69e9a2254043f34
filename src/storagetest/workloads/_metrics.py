"""Metrics as workloads need them in numbers: rates, shares, and the latencies of kinds of operations."""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.counters.cpu import CpuUsage, cpu_usage, parse_stat
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import METRICS, Better, Metric
from storagetest.measure.unit import Unit

_QUANTILES = {"p50": 0.50, "p99": 0.99}

client_cpu: Mapping[str, Metric] = {"client_cpu": METRICS["client_cpu"]}
"""The busy share of all the client's cores."""


elapsed: Mapping[str, Metric] = {"elapsed": Metric("elapsed", Unit.SECONDS, Better.LOWER)}
"""The time of a load that runs to its end, all phases together."""


def rate(*names: str) -> dict[str, Metric]:
    """Return metrics of operations per second."""
    return {name: Metric(name, Unit.PER_SECOND, Better.HIGHER) for name in names}


def bandwidth(*names: str) -> dict[str, Metric]:
    """Return metrics of bytes per second."""
    return {name: Metric(name, Unit.BYTES_PER_SECOND, Better.HIGHER) for name in names}


def share(*names: str, better: Better = Better.LOWER, exceeds_one: bool = False) -> dict[str, Metric]:
    """Return metrics of shares, or of ratios that may exceed one."""
    return {name: Metric(name, Unit.RATIO, better, exceeds_one=exceeds_one) for name in names}


def seconds(*names: str) -> dict[str, Metric]:
    """Return metrics of times that are no percentiles."""
    return {name: Metric(name, Unit.SECONDS, Better.LOWER) for name in names}


def counts(*names: str, better: Better = Better.LOWER) -> dict[str, Metric]:
    """Return metrics that are numbers of things."""
    return {name: Metric(name, Unit.COUNT, better) for name in names}


def latencies(*operations: str) -> dict[str, Metric]:
    """Return, for each operation, the metrics ``…_mean``, ``…_p50`` and ``…_p99``: of its own histogram."""
    return {
        f"{operation}_{part}": Metric(f"{operation}_{part}", Unit.SECONDS, Better.LOWER, quantile, operation)
        for operation in operations
        for part, quantile in {"mean": None, **_QUANTILES}.items()
    }


def timed(*operations: str) -> dict[str, Metric]:
    """Return, for each operation, the metrics ``…_ops`` (per second), ``…_mean``, ``…_p50`` and ``…_p99``."""
    found: dict[str, Metric] = {}
    for operation in operations:
        found |= rate(f"{operation}_ops") | latencies(operation)
    return found


def latency_values(operation: str, latency: Histogram) -> dict[str, float]:
    """Return the values of :func:`latencies`; none if nothing was counted."""
    if not latency.count:
        return {}
    values = {f"{operation}_{part}": latency.percentile(quantile) for part, quantile in _QUANTILES.items()}
    return {f"{operation}_mean": latency.mean, **values}


parts_of_latency: Mapping[str, Metric] = latencies("completion", "submission")
"""Latency from the end of an I/O's submission on, and of its submission; fio's workloads have them."""


def latency_parts(parts: Mapping[str, Histogram]) -> dict[str, float]:
    """Return the values of :data:`parts_of_latency`, of the parts that there are."""
    return {name: value for part in parts for name, value in latency_values(part, parts[part]).items()}


def percentiles(latency: Histogram) -> dict[str, float]:
    """Return the values of the usual metrics that are percentiles: ``p50``, ``p99`` …"""
    return {
        metric.name: latency.percentile(metric.quantile)
        for metric in METRICS.values()
        if metric.quantile is not None
    }


def cpu_between(before: str, after: str) -> CpuUsage | None:
    """Return the client's CPU use between two texts of /proc/stat; None without /proc.

    The other figures are valid then, and a gate on this one reports it as missing.
    """
    try:
        return cpu_usage(parse_stat(before), parse_stat(after))
    except ValueError:
        return None


def describe_cpu(cpu: CpuUsage) -> str:
    """Return the client's CPU use as evidence."""
    return f"{cpu.share:.1%} of {cpu.cores} cores busy, the busiest {cpu.busiest_core:.1%}"
