"""What a measurement leaves behind: samples, without an opinion.

A :class:`Run` is one case on one variant: its parameters, and one :class:`Sample` for every repeat (the run
is the sample in the statistician's sense, never the second). Judging it is :mod:`storagetest.verdict`'s
business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from storagetest.measure.histogram import Histogram

__all__ = ["METRICS", "Better", "Metric", "Run", "Sample", "Unit"]


class Unit(Enum):
    """The base units that values are kept in; :mod:`storagetest.units` prints them for people."""

    BYTES_PER_SECOND = "B/s"
    PER_SECOND = "/s"
    SECONDS = "s"
    RATIO = "ratio"
    COUNT = "count"


class Better(Enum):
    """Which way is good."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that can be measured and gated. ``quantile`` is set for latency percentiles."""

    name: str
    unit: Unit
    better: Better
    quantile: float | None = None

    @property
    def samples_wanted(self) -> int:
        """How many I/Os a percentile needs before it means anything: 100/(1-q)."""
        return 0 if self.quantile is None else round(100 / (1 - self.quantile))


def _latency(name: str, quantile: float | None = None) -> Metric:
    return Metric(name, Unit.SECONDS, Better.LOWER, quantile)


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("bandwidth", Unit.BYTES_PER_SECOND, Better.HIGHER),
        Metric("iops", Unit.PER_SECOND, Better.HIGHER),
        _latency("latency_mean"),
        _latency("p50", 0.50),
        _latency("p95", 0.95),
        _latency("p99", 0.99),
        _latency("p99.9", 0.999),
        Metric("client_cpu", Unit.RATIO, Better.LOWER),
    )
}
"""The metrics of any I/O workload. Completion latency; ``client_cpu`` is the busy share of all cores."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One repeat.

    ``values`` maps a metric's name to its value in the metric's base unit. ``latency`` is the histogram of
    completion latencies in seconds, from which the percentiles were computed. ``seconds`` is how long was
    really measured, ``ios`` how many I/Os completed in it. ``evidence`` is attached to the report: name →
    text (argv, the load generator's own output).
    """

    values: Mapping[str, float]
    seconds: float
    ios: int
    latency: Histogram | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """One case on one variant.

    ``title`` is the workload in a person's words, with what the case asked for: ``sequential write 1MiB``.
    ``invalid`` holds the reasons why no verdict may be built on it (empty: none). ``metrics`` says what the
    names in the samples mean. ``started`` is seconds since the epoch on the controller.
    """

    case: str
    workload: str
    target: str
    variant: str
    protocol: str
    client: str
    parameters: Mapping[str, Any]
    negotiated: Mapping[str, str]
    samples: tuple[Sample, ...]
    started: float
    title: str = ""
    profile: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    invalid: tuple[str, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
