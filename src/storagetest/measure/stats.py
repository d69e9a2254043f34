"""Statistics over repeats: the run is the sample, never the second.

A mean gets Student's t interval, ``mean ± t(n-1) * s / sqrt(n)``: it is exact for normal repeats and holds
well for the means of many I/Os that a repeat is. One repeat has no spread, so it has no interval.

SciPy takes half a second to import, so that happens at the first interval and not with this module.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from storagetest.measure.histogram import merge
from storagetest.measure.run import Metric, Run, Sample


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a mean over ``count`` runs; ``confidence`` such as 0.95."""

    mean: float
    low: float
    high: float
    confidence: float
    count: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric of a whole run: ``value`` in its base unit, ``interval`` from two repeats on."""

    value: float
    interval: Interval | None


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, without the error that adding floats one by one makes."""
    return math.fsum(values) / len(values)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the t interval of the mean, or None for fewer than two values.

    Raises :class:`ValueError` for a confidence that does not lie between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
    count = len(values)
    if count < 2:
        return None
    centre = mean(values)
    if not math.isfinite(centre):
        return Interval(centre, -math.inf, math.inf, confidence, count)
    half = _t(count - 1, confidence) * statistics.stdev(values, centre) / math.sqrt(count)
    return Interval(centre, centre - half, centre + half, confidence, count)


@cache
def _t(degrees: int, confidence: float) -> float:
    """Return how many standard errors a two-sided interval of that confidence reaches."""
    from scipy.special import stdtrit  # noqa: PLC0415  # see the module's docstring

    return float(stdtrit(degrees, (1 + confidence) / 2))


def estimate(run: Run, metric: Metric, *, confidence: float = 0.95) -> Estimate | None:
    """Return the metric's value over all repeats of ``run``, or None if no repeat has it.

    A percentile comes from the merged bins of all repeats (those of its operation, if it has one); any other
    value is the mean. The interval is that of the mean over the repeats in both cases. No metric is negative,
    so the interval ends at 0.
    """
    samples = [sample for sample in run.samples if metric.name in sample.values]
    if not samples:
        return None
    values = run.values(metric)
    histograms = [histogram for sample in samples if (histogram := sample.histogram(metric)) is not None]
    value = mean(values)
    if metric.quantile is not None and len(histograms) == len(samples):
        value = merge(histograms).percentile(metric.quantile)
    interval = mean_interval(values, confidence)
    if interval is not None and interval.low < 0 <= min(values):
        interval = replace(interval, low=0.0)
    return Estimate(value, interval)


def counted(run: Run, metric: Metric) -> int:
    """Return the number of I/Os or operations from which ``metric`` is computed, over all repeats."""
    return sum(_counted(sample, metric) for sample in run.samples if metric.name in sample.values)


def _counted(sample: Sample, metric: Metric) -> int:
    histogram = sample.histogram(metric)
    if histogram is not None:
        return histogram.count
    return sample.ios if metric.operation is None else 0
