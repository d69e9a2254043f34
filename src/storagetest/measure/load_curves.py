"""Metrics as curves: a run at several load levels, or runs that differ in one number. Pure.

*Curves.* A workload that measures several levels in one run names its metrics after them: ``threads_4_iops``,
``threads_4_p99``. The parts before and after the number name the curve.

*Parameter sweeps.* Runs of one workload, variant, client and profile whose parameters differ in one number
only, with at least three values, form a curve over it: sequential I/O over its block size, a fixed load over
its queue depth, an aggregate over its clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storagetest.measure.run import Metric, Run
from storagetest.measure.stats import Estimate, counted, estimate
from storagetest.units import parse_size

_NAME = re.compile(r"([a-z][a-z_]*?)_(\d+)_([a-z].*)")
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One level: its number, and the value of each quantity (``iops``, ``p99`` …) with its metric."""

    at: int
    figures: Mapping[str, tuple[Metric, Estimate]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A run's curve: ``name`` is the unit of the numbers (``threads``); levels ascend."""

    name: str
    levels: Sequence[CurvePoint]


@dataclass(frozen=True, slots=True)
class ParameterSweep:
    """Runs that differ in ``parameter`` only, ascending in it; ``fixed`` are their other parameters."""

    workload: str
    variant: str
    client: str
    profile: str
    parameter: str
    fixed: Mapping[str, object]
    runs: Sequence[tuple[float, Run]]


def metric_value(run: Run, metric: Metric) -> Estimate | None:
    """Return the metric's value; None if there is none, or too few I/Os for a percentile."""
    found = estimate(run, metric)
    if found is None or counted(run, metric) < metric.ios_required:
        return None
    return found


def curves(run: Run) -> list[Curve]:
    """Return the run's curves of at least two levels."""
    curves: dict[str, dict[int, dict[str, tuple[Metric, Estimate]]]] = {}
    for name, metric in run.metrics.items():
        match = _NAME.fullmatch(name)
        found = metric_value(run, metric) if match else None
        if match and found:
            curves.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = (metric, found)
    return [
        Curve(name, tuple(CurvePoint(at, figures) for at, figures in sorted(each.items())))
        for name, each in curves.items()
        if len(each) > 1
    ]


def parameter_number(value: object) -> float | None:
    """Return a parameter's value as a number; a size such as ``4KiB`` in bytes; None if it is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(parse_size(value)) if isinstance(value, str) and value[:1].isdigit() else None
    except ValueError:
        return None


def parameter_sweeps(runs: Iterable[Run]) -> list[ParameterSweep]:
    """Return the sweeps among ``runs``, in the order of their first run; of equal runs the last counts."""
    groups: dict[tuple[str, str, str, str, str, str], tuple[dict[str, object], dict[float, Run]]] = {}
    for run in runs:
        for name, value in run.parameters.items():
            number = parameter_number(value)
            if number is None:
                continue
            fixed = {other: each for other, each in run.parameters.items() if other != name}
            text = json.dumps(fixed, sort_keys=True, default=str)
            key = (run.workload, run.variant, run.client, run.profile, name, text)
            groups.setdefault(key, (fixed, {}))[1][number] = run
    return [
        ParameterSweep(workload, variant, client, profile, name, fixed, sorted(members.items()))
        for (workload, variant, client, profile, name, _), (fixed, members) in groups.items()
        if len(members) >= _FEWEST
    ]
