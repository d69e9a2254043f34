"""Measure one case on many clients at once: one :class:`Measurement` each; repeats start together.

Each client's measurement does what that of a single client does: versions, ceiling, data set, caches,
counters. Here their loads start together (:mod:`storagetest.runner.synchronized_start`) and their samples are
merged into one (:mod:`storagetest.measure.merge_clients`). Steady state, the number of repeats and verdicts
are those of the merged samples.

A lost client ends the case: the run is INVALID, names the client, and keeps the complete repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from storagetest.concurrency import run_concurrently
from storagetest.config.base import WorkloadOptions
from storagetest.hosts.base import Host
from storagetest.measure.cache import Cache
from storagetest.measure.common_window import ActivitySpan
from storagetest.measure.merge_clients import SPREAD_LIMIT, ClientSample, attach_series, merge_client_samples
from storagetest.measure.run import Run, Sample
from storagetest.protocols.base import Attachment
from storagetest.runner.data_placement import DataPlacement, DataSharing, place_data
from storagetest.runner.dataset_cache import PrefillCache
from storagetest.runner.measurement import CaseInfo, Measurement, MeasurementPhase, ProgressEvent
from storagetest.runner.page_cache import twice_the_memory
from storagetest.runner.start_barriers import StartBarrier, open_barriers
from storagetest.runner.synchronized_start import ClientLost, ClientRun, run_synchronized
from storagetest.workloads.base import LoadSize, StartBarrierRef, Workload

_FEW = 4
"""A run with more clients than these names only the first and the last."""


class MultiClientMeasurement(Measurement):
    """Measurement on many clients, one ``attachment`` each.

    ``limit`` is the allowed spread of the clients' first I/Os in seconds.
    """

    def __init__(
        self,
        workload: Workload[Any],
        options: WorkloadOptions,
        attachments: Sequence[Attachment],
        scale: LoadSize,
        *,
        case: CaseInfo,
        fills: PrefillCache,
        on_progress: Callable[[ProgressEvent], None] | None = None,
        extra_hosts: Sequence[Host] = (),
        data: DataSharing = "own",
        limit: float = SPREAD_LIMIT,
    ) -> None:
        cold = workload.cache(options) is Cache.COLD
        self._placements = place_data(attachments, data, rotated=cold and data == "own")
        self._load_size = scale
        super().__init__(
            workload, options, self._placements[0].use, scale, case=case, fills=fills, on_progress=on_progress
        )
        self._servers = tuple(extra_hosts)
        self._limit = limit
        self._data, self._rotated = data, cold and data == "own"
        self._members: list[Measurement] = []
        self._barriers: list[StartBarrier] = []
        self._client_runs: list[list[ClientRun]] = []
        self._lost = ""
        self._stack = ExitStack()

    def __exit__(self, *_: object) -> None:
        with self._stack:
            run_concurrently(lambda member: member.__exit__(), self._members)

    def prepare(self) -> None:
        """Prepare every client as a single one, and open its start barrier."""
        self._started = time.time()
        self._report(MeasurementPhase.FILL)
        hosts = [placement.use.client for placement in self._placements]
        if self._cold:  # one size on all clients: each reads what the next one wrote
            size = self._load_size.cold_size or twice_the_memory((*hosts, *self._servers))
            self._load_size = replace(self._load_size, cold_size=size)
        self._members = [
            self._make_member(number, placement) for number, placement in enumerate(self._placements)
        ]
        self._barriers = open_barriers(hosts, self._stack)
        # Data sets that other clients use are written first.
        for writes in (True, False):
            members = [
                member
                for member, placement in zip(self._members, self._placements, strict=True)
                if (placement.fill is not None) is writes
            ]
            run_concurrently(Measurement.prepare, members)

    def _make_member(self, number: int, placement: DataPlacement) -> Measurement:
        case = replace(self._case, client=placement.use.client.name)
        return Measurement(
            self._workload,
            self._options,
            placement.use,
            replace(self._load_size, client=number, clients=len(self._placements)),
            case=case,
            fills=self._fills,
            extra_hosts=self._servers if number == 0 else (),
            placement=placement,
        )

    @property
    def not_steady(self) -> bool:
        """Whether nothing more can be measured: a client was lost, or the rounds ran out."""
        return bool(self._lost) or super().not_steady

    def _set_runtime(self, seconds: float, reason: str) -> None:
        super()._set_runtime(seconds, reason)
        for member in self._members:
            member._set_runtime(seconds, reason)  # noqa: SLF001  # a measurement of the same class

    def _repeat(
        self,
        phase: MeasurementPhase,
        number: int,
        of: int,
        start: StartBarrierRef | None = None,  # noqa: ARG002
    ) -> None:
        if self._lost:
            return
        self._report(phase, number, of, self._scale.ramp + self._scale.runtime + self._scale.cooldown)
        start_time = time.monotonic()
        try:
            client_runs = run_synchronized(
                self._barriers, [partial(_measured, member, of) for member in self._members]
            )
        except ClientLost as lost:
            self._lost = str(lost)
            return
        for member, client_run in zip(self._members, client_runs, strict=True):
            if client_run.instant:
                member.set_measure_start(client_run.instant + member.ramp)
        self._client_runs.append(client_runs)
        self.samples = (*self.samples, self._merge(client_runs, [run.sample for run in client_runs]))
        self._starts = (*self._starts, start_time)

    def _merge(self, client_runs: Sequence[ClientRun], samples: Sequence[Sample]) -> Sample:
        samples_by_client = [
            self._client_sample(client_run, sample)
            for client_run, sample in zip(client_runs, samples, strict=True)
        ]
        merged = merge_client_samples(
            samples_by_client, self._workload.metrics, self._workload.headline, limit=self._limit
        )
        data = f"{self._data}, each reads its neighbour's" if self._rotated else self._data
        evidence = {**merged.evidence, "data set": data}
        if self._steady_summary:
            evidence["steady state"] = self._steady_summary
        if self._length_note:
            evidence["runtime"] = self._length_note
        return replace(merged, evidence=evidence)

    def _client_sample(self, client_run: ClientRun, sample: Sample) -> ClientSample:
        """Return a client's sample with its times by the controller's clock, from the first start on."""
        if sample.spans:  # the load reports when it ran
            spans = {
                name: span.shifted(client_run.clock.offset + client_run.instant)
                for name, span in sample.spans.items()
            }
            starts = tuple(span.first for span in spans.values())
            return ClientSample(client_run.client, sample, starts, spans, client_run.clock.error)
        starts = tuple(at - client_run.instant for at in client_run.starts)
        spans = {}
        if len(starts) == 1:
            began = starts[0] + self._members[0].ramp
            spans[""] = ActivitySpan(starts[0], began, began + sample.seconds, began + sample.seconds)
        return ClientSample(client_run.client, sample, starts, spans, client_run.clock.error)

    @property
    def last_client_runs(self) -> Sequence[ClientRun]:
        """Each client's load in the last complete repeat."""
        return self._client_runs[-1] if self._client_runs else ()

    def finish(self) -> None:
        """Add the sampled series of every client to the repeats; no repeat follows."""
        run_concurrently(Measurement.finish, self._members)
        since = len(self._client_runs) - len(self.samples)
        self.samples = tuple(
            attach_series(merged, {member.client: member.samples[since + number] for member in self._members})
            for number, merged in enumerate(self.samples)
        )
        self._report(MeasurementPhase.DONE, len(self.samples), len(self.samples))

    @property
    def run(self) -> Run:
        """The run with all repeats so far, of all clients."""
        merged = super().run
        names = [placement.use.client.name for placement in self._placements]
        return replace(
            merged,
            client=format_client_names(names),
            versions=_merge_by_client(names, [member.versions for member in self._members]),
            negotiated=_merge_by_client(names, [placement.use.negotiated for placement in self._placements]),
            invalid=(*((self._lost,) if self._lost else ()), *merged.invalid),
        )


def _measured(member: Measurement, of: int, start: StartBarrierRef) -> Sample:
    member.measure(of, start=start)
    return member.samples[-1]


def format_client_names(names: Sequence[str]) -> str:
    """Return the names of the clients for display: all names if they are few."""
    if len(names) <= _FEW:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} clients)"


def _merge_by_client(names: Sequence[str], each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return equal values once, and different values by client."""
    merged: dict[str, str] = {}
    for key in dict.fromkeys(key for client_run in each for key in client_run):
        values = {client_run.get(key, "none") for client_run in each}
        if len(values) == 1:
            merged[key] = values.pop()
        else:
            merged |= {
                f"{key} of {name}": client_run.get(key, "none")
                for name, client_run in zip(names, each, strict=True)
            }
    return merged
