"""The ``measure`` fixture: run a workload, judge the run, record it, and set the case's outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.config import Profile, Variant
from storagetest.config.base import WorkloadOptions
from storagetest.config.validation import first_message
from storagetest.errors import ClientLacks, ConfigError
from storagetest.installed_suites import case_name
from storagetest.measure.run import Run
from storagetest.plugin.attach import fail_on_option_mismatch
from storagetest.plugin.measure.client_selection import select_attachments
from storagetest.plugin.measure.running import within_case
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.output.record_transport import records_of
from storagetest.plugin.progress.model import message
from storagetest.plugin.run_state import RunState
from storagetest.protocols.base import Attachment
from storagetest.report.base import Record
from storagetest.runner import CaseInfo, Measurement, MultiClientMeasurement, ProgressEvent, run_measurement
from storagetest.runner.allocation import allocated_bytes
from storagetest.runner.data_placement import DataSharing
from storagetest.runner.multi_client import format_client_names
from storagetest.verdict import BASELINE, ErrorPlan, Outcome, Reference, Threshold, Verdict, describe_gate
from storagetest.workloads.base import LoadSize, Workload

_LOG = logging.getLogger("storagetest")


class MeasureFixture:
    """Callable: run a workload on the case's attachments and check its gates."""

    def __init__(
        self, item: pytest.Item, variant: Variant, attachments: Sequence[Attachment], state: RunState
    ) -> None:
        self._item = item
        self._variant = variant
        self._attachments = attachments
        self._state = state

    @within_case
    def __call__(
        self,
        workload: str,
        /,
        *,
        clients: object = None,
        data_set: DataSharing | None = None,
        **parameters: Any,  # noqa: ANN401  # each workload has its own
    ) -> Run:
        """Measure and judge. Raises AssertionError (a gate missed) or :class:`Invalid` (no verdict)."""
        __tracebackhide__ = True
        run, verdicts = self.judged(workload, clients=clients, data_set=data_set, **parameters)
        record_and_raise(self._item, run, verdicts)
        return run

    def judged(
        self,
        workload: str,
        /,
        *,
        clients: object = None,
        data_set: DataSharing | None = None,
        repeats: int | None = None,
        **parameters: Any,  # noqa: ANN401  # each workload has its own
    ) -> tuple[Run, tuple[Verdict, ...]]:
        """Measure and judge, without record and outcome; with ``repeats``, that often and without gates."""
        __tracebackhide__ = True
        load = self._state.workload(workload)()
        options = workload_options(load, parameters)
        if lacking := self._state.lacking(self._variant, load.capabilities(options)):
            pytest.skip(lacking)
        profile, thresholds = self._state.profile, self._state.thresholds
        attachments = select_attachments(clients, self._attachments, self._variant)
        for attachment in attachments[1:]:  # the first one is checked before the case
            fail_on_option_mismatch(self._variant, attachment)
        bench = make_measurement(
            self._item, load, options, self._variant, attachments, self._state, data_set=data_set
        )
        if repeats is not None:
            return run_measurement(bench, repeats=repeats, max_repeats=repeats, gates=())
        case = case_of(self._item, load, self._variant, attachments, self._state)
        gates = thresholds.gates(self._item, self._state.config, self._variant, load, options.model_dump())
        plan = thresholds.plan(self._item, len(gates), profile.max_repeats)
        references = thresholds.references(case, gates, load.parameters(options))
        _log_visible_losses(case, gates, references, plan)
        try:
            run, verdicts = run_measurement(
                bench,
                repeats=thresholds.repeats(profile.repeats, profile.max_repeats),
                max_repeats=profile.max_repeats,
                gates=gates,
                plan=plan,
                references=references,
            )
        except ClientLacks as lacks:
            pytest.skip(str(lacks))
        return run, thresholds.final(verdicts)


def make_measurement(
    item: pytest.Item,
    load: Workload[Any],
    options: WorkloadOptions,
    variant: Variant,
    attachments: Sequence[Attachment],
    state: RunState,
    *,
    data_set: DataSharing | None = None,
    profile: Profile | None = None,
) -> Measurement:
    """Return the measurement of one case, on one client or on several; ``data_set`` is for several.

    ``profile`` is used in place of the selected one.
    """
    profile = profile or state.profile
    attachments = [_with_allocation(attachment, variant, state) for attachment in attachments]
    scale = LoadSize(
        size=profile.size,
        ramp=profile.ramp,
        runtime=profile.runtime,
        interval=profile.sample_interval,
        cold_size=profile.cold_size,
        steady=profile.steady,
        steady_rounds=profile.steady_rounds,
        cooldown=profile.cooldown,
    )
    common: dict[str, Any] = {
        "case": case_of(item, load, variant, attachments, state),
        "fills": state.prefills,
        "on_progress": _progress_callback(state),
        "extra_hosts": state.monitored_hosts(variant),
    }
    if len(attachments) == 1:
        return Measurement(
            load, options, attachments[0], scale, watch_interval=state.progress.every, **common
        )
    data, limit = data_set or variant.data_set, profile.start_spread
    return MultiClientMeasurement(load, options, attachments, scale, data=data, limit=limit, **common)


def _with_allocation(attachment: Attachment, variant: Variant, state: RunState) -> Attachment:
    """Return the attachment, with the variant's control ``allocated`` if it has one."""
    argv, machine = variant.controls.allocated, variant.server
    if argv is None or machine is None:
        return attachment
    return replace(
        attachment, allocated=lambda: allocated_bytes(state.host(machine), argv, target=variant.id)
    )


def case_of(
    item: pytest.Item,
    load: Workload[Any],
    variant: Variant,
    attachments: Sequence[Attachment],
    state: RunState,
) -> CaseInfo:
    """Return the fields that identify the case of ``item`` in every report."""
    return CaseInfo(
        case=case_name(item.nodeid, item.path),
        workload=load.name,
        target=variant.target,
        variant=variant.id,
        protocol=variant.protocol,
        client=format_client_names([attachment.client.name for attachment in attachments]),
        profile=state.profile.name,
    )


def _log_visible_losses(
    case: CaseInfo, gates: Sequence[Threshold], references: Mapping[str, Reference], plan: ErrorPlan
) -> None:
    """Log, before the run, which loss each gate against the baseline finds (level INFO)."""
    for gate in gates:
        reference = references.get(gate.metric.name) if gate.against == BASELINE else None
        if reference is not None:
            _LOG.info(
                "%s on %s: %s: %s",
                case.workload,
                case.variant,
                gate.text,
                describe_gate(gate, reference, plan),
            )


def _progress_callback(state: RunState) -> Callable[[ProgressEvent], None]:
    """Return a callback that shows progress, and logs the begin of each phase (level INFO)."""

    def on_progress(progress: ProgressEvent) -> None:
        state.progress.send(message(progress))
        if progress.throughput is not None:
            return
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

    return on_progress


def workload_options(load: Workload[Any], parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401  # load.Options
    """Return the checked parameters. Raises :class:`ConfigError`."""
    try:
        return load.Options.model_validate(parameters)
    except ValidationError as error:
        raise ConfigError(f"workload {load.name}: {first_message(error)}") from None


def record_and_raise(item: pytest.Item, run: Run, verdicts: tuple[Verdict, ...], *others: Run) -> None:
    """Record the run and ``others``, which have no verdicts; fail the case or make it INVALID."""
    __tracebackhide__ = True
    records = records_of(item)
    records.append(Record(run=run, verdicts=verdicts, nodeid=item.nodeid))
    records.extend(Record(run=other, nodeid=item.nodeid) for other in others)
    where = f"{run.variant} on {run.client}"
    failed = [verdict.reason for verdict in verdicts if verdict.outcome is Outcome.FAIL]
    if failed:
        raise AssertionError("\n".join(f"{where}: {reason}" for reason in failed))
    undecided = run.invalid or [v.reason for v in verdicts if v.outcome is Outcome.INVALID]
    if undecided:
        raise Invalid("\n".join(f"{where}: {reason}" for reason in undecided))
