"""Add runs to pytest-benchmark's session, for its ``--benchmark-json``, storage and comparison.

Every run becomes an entry as if its case used the ``benchmark`` fixture. A round is a repeat. The time of a
round in seconds is the mean time of an operation (1/IOPS) if the run counts operations; else a measured
duration; else the time per MiB. ``extra_info`` names which, and has the means of all metrics in base units,
the variant, the client and the verdicts. The group is the workload.

The bridge is active if an option of pytest-benchmark requests a file, a comparison or a histogram, or with
``--st-benchmark``; not with ``--benchmark-disable`` or ``-p no:benchmark``. In parallel runs (xdist)
pytest-benchmark is off, and so is the bridge. pytest-benchmark does not affect how cases are measured;
``--benchmark-only`` skips them, because they do not use its fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from storagetest.measure.run import Run
from storagetest.measure.stats import mean
from storagetest.measure.unit import Unit
from storagetest.plugin.items import is_worker
from storagetest.plugin.output import record_transport
from storagetest.report import jsonl
from storagetest.report.base import Record

_OUTPUT_OPTIONS = ("json", "save", "autosave", "compare", "histogram", "compare_fail")
_ROUNDS: Mapping[Unit, tuple[str, Callable[[float], float]]] = {
    Unit.PER_SECOND: ("seconds per operation, 1/{}", lambda rate: 1 / rate),
    Unit.SECONDS: ("seconds, {}", float),
    Unit.BYTES_PER_SECOND: ("seconds per MiB, from {}", lambda rate: (1 << 20) / rate),
}
"""Meaning of a round, and its seconds, by the unit of the metric; the first that the run has is used."""


def is_active(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is installed and enabled, and an option requests its output."""
    if not config.pluginmanager.hasplugin("benchmark") or config.option.benchmark_disable:
        return False
    if config.getoption("dist", "no") != "no" or is_worker(config):
        return False
    return config.option.st_benchmark or any(
        getattr(config.option, f"benchmark_{name}", None) for name in _OUTPUT_OPTIONS
    )


def rounds_of(run: Run) -> tuple[str, list[float]]:
    """Return the meaning of a round and the seconds of each; "" and [] if the run has no such metric."""
    for unit, (meaning, seconds) in _ROUNDS.items():
        for name, metric in run.metrics.items():
            values = [sample.values.get(name, 0.0) for sample in run.samples]
            if metric.unit is unit and values and all(value > 0 for value in values):
                return meaning.format(name), list(map(seconds, values))
    return "", []


@dataclass(slots=True)
class _Case:
    """The attributes of its fixture that pytest-benchmark reads for an entry."""

    name: str
    fullname: str
    group: str
    param: str | None
    params: Mapping[str, Any]
    extra_info: Mapping[str, Any]
    has_error: bool = False
    cprofile_stats: None = None


class Bridge:
    """The hook; registered only in a run without workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a case's runs to the session; pytest-benchmark writes them when the session ends."""
        for number, record in enumerate(record_transport.read_records(report), start=1):
            self._add(record, number)

    def _add(self, record: Record, number: int) -> None:
        from pytest_benchmark.stats import Metadata  # noqa: PLC0415  # imported only if it is used

        run = record.run
        meaning, rounds = rounds_of(run)
        if not rounds or run.invalid:
            return
        suffix = f" {number}" if number > 1 else ""  # a case that measures twice has two entries
        name = record.nodeid.rpartition("::")[2]
        _, bracket, param = name.partition("[")
        case = _Case(
            name=name + suffix,
            fullname=record.nodeid + suffix,
            group=run.workload,
            param=param.removesuffix("]") if bracket else None,
            params=jsonl.plain(run.parameters),
            extra_info=_extra(record, meaning),
        )
        metadata_class: Any = Metadata  # it has no types
        entry = metadata_class(case, iterations=1, options={"profile": run.profile})
        for seconds in rounds:
            entry.update(seconds)
        self._config._benchmarksession.benchmarks.append(entry)  # type: ignore[attr-defined]  # noqa: SLF001  # as its fixture does


def _extra(record: Record, meaning: str) -> dict[str, Any]:
    run = record.run
    means = {
        f"{name} [{metric.unit.value}]": mean(values)
        for name, metric in run.metrics.items()
        if (values := run.values(metric))
    }
    return {
        "round": meaning,
        "variant": run.variant,
        "client": run.client,
        "metrics": jsonl.plain(means),
        "verdicts": [f"{verdict.outcome.value} {verdict.threshold.text}" for verdict in record.verdicts],
    }
