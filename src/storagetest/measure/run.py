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

from storagetest.measure.bottleneck import Bottleneck, Utilisation
from storagetest.measure.common_window import ActivitySpan, ConcurrencySummary
from storagetest.measure.histogram import Histogram
from storagetest.measure.series import Series
from storagetest.measure.unit import Unit

__all__ = ["HEADLINE", "METRICS", "Better", "Metric", "Run", "Sample", "Unit"]


class Better(Enum):
    """Which way is good."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that can be measured and gated.

    ``quantile`` is set for latency percentiles, ``operation`` where a latency is that of one kind of
    operation: its histogram is then that of :attr:`Sample.operations`.
    """

    name: str
    unit: Unit
    better: Better
    quantile: float | None = None
    operation: str | None = None

    @property
    def ios_required(self) -> int:
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

HEADLINE = ("bandwidth", "iops", "latency_mean", "p99")
"""The metrics that say most of an I/O workload; see :attr:`Run.headline`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One repeat.

    ``values`` maps a metric's name to its value in the metric's base unit. ``latency`` is the histogram of
    completion latencies in seconds, from which the percentiles were computed. ``seconds`` is how long was
    really measured, ``ios`` how many I/Os completed in it. ``evidence`` is attached to the report: name →
    text (argv, the load generator's own output). ``operations`` are the histograms of latencies by kind of
    operation, where the load has several. ``invalid`` says why this repeat carries no verdict (empty: it
    does); the runner collects these in :attr:`Run.invalid`. ``series`` is what was seen over time: the load
    itself and the counters beside it. ``began`` is when the measuring began, in seconds since the epoch by
    the client's clock, where the workload knows; ``headroom`` how far it was from the client's and the
    network's limits. ``spans`` (by phase) is when it was at work by the client's CLOCK_MONOTONIC, where the
    workload knows, and ``first_ios`` its first I/O of each time that it began, in seconds since the epoch;
    both are not stored. ``together`` is how many clients worked together, where they did.
    """

    values: Mapping[str, float]
    seconds: float
    ios: int
    latency: Histogram | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, Histogram] = field(default_factory=dict)
    invalid: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    began: float | None = None
    utilisation: Utilisation | None = None
    spans: Mapping[str, ActivitySpan] = field(default_factory=dict, compare=False)
    first_ios: tuple[float, ...] = field(default=(), compare=False)
    concurrency: ConcurrencySummary | None = None

    def histogram(self, metric: Metric) -> Histogram | None:
        """Return the latencies that a latency metric is computed from, where they were kept."""
        return self.latency if metric.operation is None else self.operations.get(metric.operation)


@dataclass(frozen=True, slots=True)
class Run:
    """One case on one variant.

    ``title`` is the workload in a person's words, with what the case asked for: ``sequential write 1MiB``.
    ``invalid`` holds the reasons why no verdict may be built on it (empty: none). ``metrics`` says what the
    names in the samples mean; ``headline`` are the few of them that a summary shows, the most telling first
    and the one that says how bad it gets last. ``started`` is seconds since the epoch on the controller.
    ``limited_by`` says whether client, network or target set the figures (None: nobody knows).
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
    headline: tuple[str, ...] = HEADLINE
    limited_by: Bottleneck | None = None
