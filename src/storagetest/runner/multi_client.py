"""One case on many clients at once: a bench for each, whose repeats begin together and are judged as one.

Each client's bench does what it does alone: versions, ceiling, data set, caches dropped, counters sampled.
Here their loads meet (:mod:`storagetest.runner.synchronized_start`), their samples become one
(:mod:`storagetest.measure.merge_clients`), and what is waited for (steady state, the budget of repeats, verdicts)
is that of the sum.

A client that is lost ends the case: it is INVALID, names the client, and keeps the repeats that were whole.
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

__all__ = ["MultiClientMeasurement", "format_client_names"]

_FEW = 4
"""Clients that are all named where a run says where it ran."""


class MultiClientMeasurement(Measurement):
    """A bench of many clients, one ``attachment`` each. ``limit`` is how far first I/Os may be apart (s)."""

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
        beside: Sequence[Host] = (),
        data: DataSharing = "own",
        limit: float = SPREAD_LIMIT,
    ) -> None:
        cold = workload.cache(options) is Cache.COLD
        self._places = place_data(attachments, data, rotated=cold and data == "own")
        self._wanted = scale
        super().__init__(
            workload, options, self._places[0].use, scale, case=case, fills=fills, on_progress=on_progress
        )
        self._others = tuple(beside)
        self._limit = limit
        self._data, self._rotated = data, cold and data == "own"
        self._members: list[Measurement] = []
        self._gates: list[StartBarrier] = []
        self._came: list[list[ClientRun]] = []
        self._lost = ""
        self._stack = ExitStack()

    def __enter__(self) -> MultiClientMeasurement:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            run_concurrently(lambda member: member.__exit__(), self._members)

    def prepare(self) -> None:
        """Make every client ready, as a client alone is, and open its gate."""
        self._started = time.time()
        self._tell(MeasurementPhase.FILL)
        hosts = [place.use.client for place in self._places]
        if self._cold:  # of one size everywhere: a reader takes what its neighbour wrote
            size = self._wanted.cold_size or twice_the_memory((*hosts, *self._others))
            self._wanted = replace(self._wanted, cold_size=size)
        self._members = [self._member(number, place) for number, place in enumerate(self._places)]
        self._gates = open_barriers(hosts, self._stack)
        # Who fills what others use is first.
        for filling in (True, False):
            these = [
                member
                for member, place in zip(self._members, self._places, strict=True)
                if (place.fill is not None) is filling
            ]
            run_concurrently(Measurement.prepare, these)

    def _member(self, number: int, place: DataPlacement) -> Measurement:
        case = replace(self._case, client=place.use.client.name)
        return Measurement(
            self._workload,
            self._options,
            place.use,
            self._wanted,
            case=case,
            fills=self._fills,
            beside=self._others if number == 0 else (),
            place=place,
        )

    @property
    def not_steady(self) -> bool:
        """Whether nothing more can be measured: a client was lost, or no steady state was reached."""
        return bool(self._lost) or super().not_steady

    def _repeat(
        self,
        phase: MeasurementPhase,
        number: int,
        of: int,
        start: StartBarrierRef | None = None,  # noqa: ARG002
    ) -> None:
        if self._lost:
            return
        self._tell(phase, number, of, self._scale.ramp + self._scale.runtime + self._scale.cooldown)
        called = time.monotonic()
        try:
            came = run_synchronized(self._gates, [partial(_measured, member, of) for member in self._members])
        except ClientLost as lost:
            self._lost = str(lost)
            return
        for member, one in zip(self._members, came, strict=True):
            if one.instant:
                member.set_measure_start(one.instant + member.ramp)
        self._came.append(came)
        self._samples = (*self._samples, self._together(came, [one.sample for one in came]))
        self._called = (*self._called, called)

    def _together(self, came: Sequence[ClientRun], samples: Sequence[Sample]) -> Sample:
        parts = [self._part(one, sample) for one, sample in zip(came, samples, strict=True)]
        whole = merge_client_samples(
            parts, self._workload.metrics, self._workload.headline, limit=self._limit
        )
        data = f"{self._data}, each reads its neighbour's" if self._rotated else self._data
        evidence = {**whole.evidence, "data set": data}
        if self._settled:
            evidence["steady state"] = self._settled
        return replace(whole, evidence=evidence)

    def _part(self, one: ClientRun, sample: Sample) -> ClientSample:
        """Return a client's share by our own clock, from the instant of the first start on."""
        if sample.spans:  # the load itself knows when it began
            spans = {name: span.by(one.clock.offset + one.instant) for name, span in sample.spans.items()}
            starts = tuple(span.first for span in spans.values())
            return ClientSample(one.client, sample, starts, spans, one.clock.error)
        starts = tuple(at - one.instant for at in one.starts)
        spans = {}
        if len(starts) == 1:
            began = starts[0] + self._members[0].ramp
            spans[""] = ActivitySpan(starts[0], began, began + sample.seconds, began + sample.seconds)
        return ClientSample(one.client, sample, starts, spans, one.clock.error)

    @property
    def last_meeting(self) -> Sequence[ClientRun]:
        """What each client's load brought in the last repeat that was whole."""
        return self._came[-1] if self._came else ()

    def done(self) -> None:
        """Say that no repeat follows, and take in what was sampled beside them on every client."""
        run_concurrently(Measurement.finish, self._members)
        since = len(self._came) - len(self._samples)
        self._samples = tuple(
            attach_series(whole, {member.client: member.samples[since + number] for member in self._members})
            for number, whole in enumerate(self._samples)
        )
        self._tell(MeasurementPhase.DONE, len(self._samples), len(self._samples))

    @property
    def run(self) -> Run:
        """What has been measured so far, by all."""
        whole = super().run
        names = [place.use.client.name for place in self._places]
        return replace(
            whole,
            client=format_client_names(names),
            versions=_alike(names, [member.versions for member in self._members]),
            negotiated=_alike(names, [place.use.negotiated for place in self._places]),
            invalid=(*((self._lost,) if self._lost else ()), *whole.invalid),
        )


def _measured(member: Measurement, of: int, start: StartBarrierRef) -> Sample:
    member.measure(of, start=start)
    return member.samples[-1]


def format_client_names(names: Sequence[str]) -> str:
    """Return where a run ran, for people: all names while they are few."""
    if len(names) <= _FEW:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} clients)"


def _alike(names: Sequence[str], each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what all have in common, and what they have not by client."""
    found: dict[str, str] = {}
    for key in dict.fromkeys(key for one in each for key in one):
        values = {one.get(key, "none") for one in each}
        if len(values) == 1:
            found[key] = values.pop()
        else:
            found.update(
                {f"{key} of {name}": one.get(key, "none") for name, one in zip(names, each, strict=True)}
            )
    return found
