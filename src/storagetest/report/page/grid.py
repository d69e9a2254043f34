"""Heat maps of two parameters that one set of runs swept both, such as block size and queue depth.

A cell has the value of the first metric of the headline. Its shade is the share of the best value in the map.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from storagetest.measure.load_curves import metric_value, parameter_number
from storagetest.measure.relative_score import RelativeScore, relative_scores
from storagetest.measure.run import Run
from storagetest.measure.stats import Estimate
from storagetest.report.metric_values import parameter_text
from storagetest.report.page.heatmap import shade
from storagetest.report.page.model import PageData, Section, format_parameters, group
from storagetest.report.page.scaling import usable
from storagetest.report.templates import render
from storagetest.units import format_ratio, format_value

_FEWEST = 2
"""Values of each of the two parameters."""

_MOST = 12
"""Maps on the page (chosen)."""


def section(data: PageData) -> Section:
    """Return the section."""
    maps = list(_maps(usable(data.records)))
    body = render("grid.html.j2", maps=maps[:_MOST], left_out=max(0, len(maps) - _MOST))
    return Section("grid", "Two parameters at once", body, empty=not maps)


def _maps(runs: Sequence[Run]) -> Iterator[dict[str, object]]:
    alike = group(runs, lambda run: (run.workload, run.variant, run.client, run.profile))
    for (workload, variant, client, profile), members in alike.items():
        names = {
            name
            for run in members
            for name, value in run.parameters.items()
            if parameter_number(value) is not None
        }
        for row, column in combinations(sorted(names), 2):
            for fixed, points in _grids(members, row, column).items():
                if _is_grid(points):
                    others = format_parameters(json.loads(fixed))
                    title = ", ".join(filter(None, (f"{workload} on {variant}", others, client, profile)))
                    yield _map(title, row, column, points)


def _grids(runs: Sequence[Run], row: str, column: str) -> dict[str, dict[tuple[float, float], Run]]:
    """Return the runs by their other parameters, and by the values of the two."""
    grids: dict[str, dict[tuple[float, float], Run]] = {}
    for run in runs:
        at = parameter_number(run.parameters.get(row))
        across = parameter_number(run.parameters.get(column))
        if at is not None and across is not None:
            fixed = {name: value for name, value in run.parameters.items() if name not in (row, column)}
            key = json.dumps(fixed, sort_keys=True, default=str)
            grids.setdefault(key, {})[at, across] = run
    return grids


def _is_grid(points: Collection[tuple[float, float]]) -> bool:
    """Whether both parameters have two values, one has three, and half of the combinations were run."""
    rows, columns = ({at[axis] for at in points} for axis in (0, 1))
    sizes = sorted((len(rows), len(columns)))
    return sizes[0] >= _FEWEST and sizes[1] > _FEWEST and 2 * len(points) > len(rows) * len(columns)


def _map(title: str, row: str, column: str, points: Mapping[tuple[float, float], Run]) -> dict[str, object]:
    rows, columns = (sorted({at[axis] for at in points}) for axis in (0, 1))
    runs = list(points.values())
    name = "iops" if all("iops" in run.metrics for run in runs) else runs[0].headline[0]
    metric = next(run.metrics[name] for run in runs if name in run.metrics)
    found = [_value(points.get((at, across)), name) for at in rows for across in columns]
    cells = [
        _cell(value, score, metric.unit.value)
        for value, score in zip(found, relative_scores(found, metric.better), strict=True)
    ]
    width = len(columns)
    return {
        "title": f"{title}: {name}",
        "row": row,
        "column": column,
        "columns": [_text(column, at) for at in columns],
        "rows": [
            (_text(row, at), cells[number * width : (number + 1) * width]) for number, at in enumerate(rows)
        ],
    }


def _cell(value: Estimate | None, score: RelativeScore | None, unit: str) -> dict[str, str]:
    if value is None:
        return {"class": "none", "text": "-", "share": ""}
    share = "" if score is None else "best" if score.share == 1 else format_ratio(score.share, digits=2)
    # Here the shades show the shape: also of values whose intervals overlap.
    kind = "" if score is None else "h0" if score.share == 1 else shade(replace(score, tie=False))
    return {"class": kind, "text": format_value(value.value, unit), "share": share}


def _value(run: Run | None, name: str) -> Estimate | None:
    return metric_value(run, run.metrics[name]) if run and name in run.metrics else None


def _text(name: str, value: float) -> str:
    return parameter_text(name, int(value) if value.is_integer() else value)
