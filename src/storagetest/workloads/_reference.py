"""The reference page of the workloads, generated from the registry: ``storagetest workloads`` prints it.

``storagetest workloads > docs/reference/workloads.md`` writes the published one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from storagetest.measure.run import METRICS, Metric
from storagetest.measure.unit import Unit
from storagetest.workloads.base import Workload

_INTRODUCTION = """\
# Workloads

This page lists the workloads with their parameters and metrics. `storagetest workloads` generates it from the
code. [How storagetest measures and judges](../methodology.md) describes the method, and
[Workloads by the agent](workloads-agent.md) the properties of the agent's loads. A fio job file or a Python
function becomes a custom workload: see [targets.yaml](../targets.md#custom-workloads).

Every parameter can be in the brackets of a threshold's key, and every metric in a threshold:
`sequential[direction=read,block_size=1MiB]: ["bandwidth >= 900MiB/s"]`. The profile sets the size and the
duration. Latencies are in seconds. A p99 needs 10,000 operations, and a p99.9 needs 100,000.
"""

_UNITS = {
    Unit.BYTES: "bytes",
    Unit.BYTES_PER_SECOND: "bytes/s",
    Unit.PER_SECOND: "per second",
    Unit.SECONDS: "s",
    Unit.RATIO: "ratio",
    Unit.COUNT: "number",
}


def page(workloads: Mapping[str, type[Workload[Any]]]) -> str:
    """Return the page as Markdown: a table of all, and of each its definition, parameters and metrics."""
    rows = [
        (
            f"[`{name}`](#{name})",
            _text(kind).partition("\n")[0],
            ", ".join(sorted(kind.needs)) or "any",
            ", ".join(sorted(kind.tools)),
            kind.source,
        )
        for name, kind in workloads.items()
    ]
    overview = _table(("workload", "load", "on", "by", "source"), rows)
    parts = [_INTRODUCTION, overview, *(_section(name, kind) for name, kind in workloads.items())]
    return "\n".join(parts)


def _section(name: str, kind: type[Workload[Any]]) -> str:
    lines = [f"## `{name}`", "", _text(kind), ""]
    if kind.source:
        lines += [f"Source: {kind.source}.", ""]
    fields = kind.Options.model_fields
    if fields:
        shown = kind().parameters(kind.Options.model_validate(kind.example))
        unset = kind().parameters(kind.Options()) if not any(f.is_required() for f in fields.values()) else {}
        order = [*(key for key in shown if key in fields), *(key for key in fields if key not in shown)]
        rows = [
            (
                f"`{key}`",
                _default(unset.get(key, fields[key].default)),
                " ".join((fields[key].description or "").split()),
            )
            for key in order
        ]
        lines += [_table(("parameter", "default", ""), rows)]
    lines += [_table(("metric", "unit", "better"), _metrics(kind.metrics.values()))]
    return "\n".join(lines)


def _metrics(metrics: Iterable[Metric]) -> list[Sequence[str]]:
    """Return a row for each metric; the latencies of one operation share one, and so do the usual ones."""
    rows: dict[object, tuple[list[str], Metric]] = {}
    for metric in metrics:
        key: object = metric.name
        if metric.operation is not None:
            key = ("operation", metric.operation)
        elif METRICS.get(metric.name) == metric and metric.unit is Unit.SECONDS:
            key = "latencies"
        rows.setdefault(key, ([], metric))[0].append(f"`{metric.name}`")
    return [(", ".join(names), _UNITS[metric.unit], metric.better.value) for names, metric in rows.values()]


def _text(kind: type[Workload[Any]]) -> str:
    """Return the docstring as Markdown: roles of the documentation tool become plain code."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.getdoc(kind) or "")


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
