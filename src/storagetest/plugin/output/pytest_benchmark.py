"""Our runs in pytest-benchmark's session, so that its ``--benchmark-json``, storage and comparison have them.

Every run becomes an entry as if its case had used the ``benchmark`` fixture: a round is a repeat, and the
time of a round is what an operation took on average (1/IOPS), in seconds, where the run counts operations;
else a duration that it measured, else the time of a MiB. ``extra_info`` says which, and carries the means of
all metrics in base units, the variant, the client and the verdicts. The group is the workload.

This happens where any of pytest-benchmark's options asks for a file, a comparison or a histogram, or with
``--st-benchmark``; never with ``--benchmark-disable`` or ``-p no:benchmark``. pytest-benchmark switches
itself off in parallel runs (xdist), because its own rounds would disturb each other, and then has nothing of
ours either. It has no say in how our cases are measured: ``--benchmark-only`` skips them, as they do not use
its fixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from storagetest.measure.run import Run, Unit
from storagetest.measure.stats import mean
from storagetest.plugin.output import record_transport
from storagetest.report import jsonl
from storagetest.report.base import Record

__all__ = ["Bridge", "is_wanted", "rounds_of"]

_ASKING = ("json", "save", "autosave", "compare", "histogram", "compare_fail")
_MIB = 1 << 20


def is_wanted(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is there, takes part in this run, and anybody wants its output."""
    if not config.pluginmanager.hasplugin("benchmark") or config.option.benchmark_disable:
        return False
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        return False
    return config.option.st_benchmark or any(
        getattr(config.option, f"benchmark_{name}", None) for name in _ASKING
    )


def rounds_of(run: Run) -> tuple[str, list[float]]:
    """Return what a round is, in words, and the seconds of each; none where the run has no such figure."""
    for unit, what in (
        (Unit.PER_SECOND, "seconds per operation, 1/{}"),
        (Unit.SECONDS, "seconds, {}"),
        (Unit.BYTES_PER_SECOND, "seconds per MiB, from {}"),
    ):
        for name, metric in run.metrics.items():
            values = [sample.values.get(name, 0.0) for sample in run.samples]
            if metric.unit is unit and values and all(value > 0 for value in values):
                return what.format(name), [_seconds(value, unit) for value in values]
    return "", []


def _seconds(value: float, unit: Unit) -> float:
    if unit is Unit.SECONDS:
        return value
    return (_MIB if unit is Unit.BYTES_PER_SECOND else 1) / value


@dataclass(slots=True)
class _Case:
    """What pytest-benchmark wants to know of the fixture that an entry comes from."""

    name: str
    fullname: str
    group: str
    param: str | None
    params: Mapping[str, Any]
    extra_info: Mapping[str, Any]
    has_error: bool = False
    cprofile_stats: None = field(default=None)


class Bridge:
    """Registered in the one process of a run without workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand a case's runs over; pytest-benchmark writes them when the session ends."""
        for number, record in enumerate(record_transport.read_records(report), start=1):
            self._add(record, number)

    def _add(self, record: Record, number: int) -> None:
        from pytest_benchmark.stats import Metadata  # noqa: PLC0415  # only who asks for it pays for it

        run = record.run
        what, rounds = rounds_of(run)
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
            extra_info=_extra(record, what),
        )
        made: Any = Metadata  # it has no types
        entry = made(case, iterations=1, options={"profile": run.profile})
        for seconds in rounds:
            entry.update(seconds)
        self._config._benchmarksession.benchmarks.append(entry)  # type: ignore[attr-defined]  # noqa: SLF001  # as its own fixture does


def _extra(record: Record, what: str) -> dict[str, Any]:
    run = record.run
    means = {
        f"{name} [{metric.unit.value}]": mean(values)
        for name, metric in run.metrics.items()
        if (values := [sample.values[name] for sample in run.samples if name in sample.values])
    }
    return {
        "round": what,
        "variant": run.variant,
        "client": run.client,
        "metrics": jsonl.plain(means),
        "verdicts": [f"{each.outcome.value} {each.threshold.text}" for each in record.verdicts],
    }
