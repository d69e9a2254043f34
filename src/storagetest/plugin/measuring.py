"""The ``measure`` fixture's working: workload → run → verdicts → record, and then the case's outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.config import Variant
from storagetest.errors import ConfigError
from storagetest.hosts import Host
from storagetest.measure.run import Run
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.state import State
from storagetest.plugin.transport import records_of
from storagetest.protocols.base import Attachment
from storagetest.report.base import Record
from storagetest.runner import Case, Progress, run_case
from storagetest.verdict import Outcome, Plan, Threshold, Verdict, parse_threshold
from storagetest.workloads.base import Scale, Workload, workloads

__all__ = ["Measure"]

_LOG = logging.getLogger("storagetest")


class Measure:
    """Callable: run a workload on the case's attachment and hold it to its gates."""

    def __init__(
        self, item: pytest.Item, variant: Variant, client: Host, attachment: Attachment, state: State
    ) -> None:
        self._item = item
        self._variant = variant
        self._client = client
        self._attachment = attachment
        self._state = state

    def __call__(self, workload: str, /, **parameters: Any) -> Run:  # noqa: ANN401  # each workload has its own
        """Measure and judge. Raises AssertionError (a gate missed) or :class:`Invalid` (no verdict)."""
        __tracebackhide__ = True
        load = workloads.get(workload)()
        options = _options(load, parameters)
        lacking = load.needs - self._state.protocol(self._variant).capabilities(self._variant.options)
        if lacking:
            pytest.skip(f"{self._variant.id} has no {', '.join(sorted(lacking))}")
        profile = self._state.profile
        gates = self._gates(load, options.model_dump())
        # Not every collected case measures, and most have a like number of gates: an upper bound, as a rule.
        suite = max(1, len(self._item.session.items) * len(gates))
        run, verdicts = run_case(
            load,
            options,
            self._attachment,
            Scale(size=profile.size, ramp=profile.ramp, runtime=profile.runtime),
            repeats=profile.repeats,
            max_repeats=profile.max_repeats,
            gates=gates,
            plan=Plan(gates=suite, max_repeats=profile.max_repeats),
            case=self._case(workload),
            fills=self._state.fills,
            on_progress=_tell,
        )
        records_of(self._item).append(Record(run=run, verdicts=verdicts, nodeid=self._item.nodeid))
        _raise_for(run, verdicts)
        return run

    def _case(self, workload: str) -> Case:
        return Case(
            case=self._item.nodeid,
            workload=workload,
            target=self._variant.target,
            variant=self._variant.id,
            protocol=self._variant.protocol,
            client=self._client.name,
            profile=self._state.profile.name,
        )

    def _gates(self, load: Workload[Any], parameters: Mapping[str, Any]) -> tuple[Threshold, ...]:
        marked = [text for mark in self._item.iter_markers("gate") for text in mark.args]
        return (
            *self._state.config.thresholds_for(self._variant, load.name, parameters),
            *(parse_threshold(text, load.metrics, place=self._item.nodeid) for text in marked),
        )


def _tell(progress: Progress) -> None:
    """Say what begins now; ``--log-cli-level=INFO`` shows it while it happens."""
    repeat = f" {progress.repeat} of {progress.of}" if progress.of else ""
    expected = f", about {progress.expected:.0f} s" if progress.expected else ""
    _LOG.info(
        "%s on %s: %s%s%s",
        progress.case.workload,
        progress.case.variant,
        progress.phase.value,
        repeat,
        expected,
    )


def _options(load: Workload[Any], parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401  # load.Options
    try:
        return load.Options.model_validate(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"workload {load.name}: {where}: {first['msg']}"
        raise ConfigError(msg) from None


def _raise_for(run: Run, verdicts: tuple[Verdict, ...]) -> None:
    __tracebackhide__ = True
    where = f"{run.variant} on {run.client}"
    failed = [verdict.reason for verdict in verdicts if verdict.outcome is Outcome.FAIL]
    if failed:
        raise AssertionError("\n".join(f"{where}: {reason}" for reason in failed))
    undecided = [verdict.reason for verdict in verdicts if verdict.outcome is Outcome.INVALID]
    undecided += [] if verdicts else list(run.invalid)
    if undecided:
        raise Invalid("\n".join(f"{where}: {reason}" for reason in undecided))
