"""A record's values as text; all reports use this module, so that they agree.

Means and intervals come from :mod:`storagetest.measure.stats`, percentiles from the merged histogram. If a
gate was judged, its interval is shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Interval, counted, estimate
from storagetest.report.base import Record
from storagetest.units import format_size, format_value
from storagetest.verdict.base import Verdict


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric of one run: ``value`` (base unit), its ``interval`` where there is one, and its gates.

    ``enough`` is false for a percentile of fewer I/Os than it needs to mean anything; it is not shown then.
    """

    metric: Metric
    value: float
    interval: Interval | None
    repeats: int
    enough: bool = True
    verdicts: tuple[Verdict, ...] = ()

    @property
    def text(self) -> str:
        """The value with its unit."""
        return "not enough samples" if not self.enough else format_value(self.value, self.metric.unit.value)

    @property
    def range_text(self) -> str:
        """``low … high (95%)`` with units, or a dash if there is only one repeat."""
        if not self.enough or self.interval is None:
            return "-"
        if not (math.isfinite(self.interval.low) and math.isfinite(self.interval.high)):
            return "-"
        unit = self.metric.unit.value
        low, high = format_value(self.interval.low, unit), format_value(self.interval.high, unit)
        return f"{low} … {high} ({self.interval.confidence:.0%})"

    @property
    def gate_text(self) -> str:
        """``iops >= 20000: PASS``, for each gate on this metric."""
        return "; ".join(f"{verdict.threshold.text}: {verdict.outcome.value}" for verdict in self.verdicts)


def metric_values(record: Record) -> dict[str, MetricValue]:
    """Return the run's metrics that have a value, in the workload's order."""
    run = record.run
    found: dict[str, MetricValue] = {}
    for name, metric in run.metrics.items():
        known = estimate(run, metric)
        if known is None:
            continue
        verdicts = tuple(verdict for verdict in record.verdicts if verdict.threshold.metric.name == name)
        absolute = [verdict.interval for verdict in verdicts if not verdict.threshold.against]
        judged = next((interval for interval in absolute if interval is not None), None)
        found[name] = MetricValue(
            metric=metric,
            value=known.value,
            interval=judged or known.interval,
            repeats=len(run.values(metric)),
            enough=counted(run, metric) >= metric.ios_required,
            verdicts=verdicts,
        )
    return found


def case_text(run: Run) -> str:
    """Return the case in one short line: its title, or its workload if it has no title."""
    return run.title or run.workload


def parameter_text(name: str, value: object) -> str:
    """Return a parameter's value as text; a ``…size`` in bytes gets a unit."""
    if name.endswith("size") and isinstance(value, int) and not isinstance(value, bool):
        return format_size(value)
    return str(value)


def in_mib(value: MetricValue | None) -> str:
    """Return a bandwidth in MiB/s, the unit left to the column's heading."""
    return "-" if value is None else f"{value.value / 2**20:,.1f}"


def short(value: MetricValue | None) -> str:
    """Return a value with its unit for a narrow cell."""
    if value is None:
        return "-"
    return value.text if value.enough else "too few"


def whole(value: MetricValue | None) -> str:
    """Return a rate per second without decimals, the unit left to the column's heading."""
    return "-" if value is None else f"{value.value:,.0f}"
