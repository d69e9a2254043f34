"""Results of a measurement: runs and samples, without verdicts.

A :class:`Run` is one case on one variant: its parameters, and one :class:`Sample` for every repeat (the run
is the sample of statistics, never the second). :mod:`storagetest.verdict` judges it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from storagetest.measure.bottleneck import Bottleneck, Utilisation
from storagetest.measure.common_window import ActivitySpan, ConcurrencySummary
from storagetest.measure.histogram import Histogram
from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit


class Better(Enum):
    """Whether higher or lower values are better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity that can be measured and gated.

    ``quantile`` is set for latency percentiles. ``operation`` is set for the latency of one kind of
    operation, whose histogram is in :attr:`Sample.operations`. ``exceeds_one`` is set for a ratio that is no
    share, such as processor time over time.
    """

    name: str
    unit: Unit
    better: Better
    quantile: float | None = None
    operation: str | None = None
    exceeds_one: bool = field(default=False, compare=False)  # not stored: needed while measuring only

    def why_impossible(self, value: float) -> str:
        """Return why ``value`` is impossible: not finite, negative, or a share over 1; "" if it is not."""
        shown = f"{self.name} is {value:g} {'' if self.unit is Unit.COUNT else self.unit.value}".rstrip()
        if not math.isfinite(value):
            return f"{shown}, which is no number"
        if value < 0:
            return f"{shown}, which is negative"
        if self.unit is Unit.RATIO and value > 1 and not self.exceeds_one:
            return f"{shown}, and a share is at most 1"
        return ""

    @property
    def ios_required(self) -> int:
        """Number of I/Os that a percentile needs: 100/(1-q)."""
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
"""The metrics of any I/O workload: total latency of I/Os; ``client_cpu`` is the busy share of all cores."""

HEADLINE = ("bandwidth", "iops", "latency_mean", "p99")
"""The most significant metrics of an I/O workload; see :attr:`Run.headline`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One repeat.

    ``values`` maps a metric's name to its value in the metric's base unit. ``latency`` is the histogram of
    total latencies, from which the percentiles were computed; ``operations`` are histograms by kind of
    operation, if the load has several. ``seconds`` is the measured time, ``ios`` the I/Os completed in it.
    ``evidence`` is attached to the report: name → text (argv, the load generator's own output). ``invalid``
    states why this repeat has no verdict (empty: it has one). ``series`` are values over time: the load
    itself and sampled counters. ``began`` is the start of the measuring in seconds since the epoch by the
    client's clock, if known. ``utilisation`` is that of client and network. ``spans`` (by phase) are the
    activity by the client's CLOCK_MONOTONIC, and ``first_ios`` the first I/O after each start in seconds
    since the epoch, if known; ``role`` is the client's in a load whose clients differ. These three are not
    stored. ``concurrency`` describes concurrent clients.
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
    role: str = field(default="", compare=False)

    def histogram(self, metric: Metric) -> Histogram | None:
        """Return the latencies from which a latency metric is computed, if they were kept."""
        return self.latency if metric.operation is None else self.operations.get(metric.operation)

    def load_series(self, unit: Unit) -> list[Series]:
        """Return the load generator's series in ``unit``."""
        return [one for one in self.series if one.source == LOAD and one.unit is unit]


def impossible_values(samples: Iterable[Sample], metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return why values of ``samples`` cannot be, each reason once: the measurement itself is wrong."""
    reasons = (
        metrics[name].why_impossible(value)
        for sample in samples
        for name, value in sample.values.items()
        if name in metrics
    )
    return tuple(dict.fromkeys(f"impossible value: {reason}" for reason in reasons if reason))


@dataclass(frozen=True, slots=True)
class Run:
    """One case on one variant.

    ``title`` describes the workload and its parameters: ``sequential write 1MiB``. ``invalid`` holds the
    reasons against a verdict (empty: none). ``metrics`` defines the names in the samples; ``headline`` are
    the few that a summary shows, the most significant first and the worst case last. ``started`` is seconds
    since the epoch on the controller. ``limited_by`` is the bottleneck (None: not known).
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

    def values(self, metric: Metric) -> list[float]:
        """Return the metric's value in each repeat that has one."""
        return [sample.values[metric.name] for sample in self.samples if metric.name in sample.values]
