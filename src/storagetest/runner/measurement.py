"""Measure one case, from writing its data set to its verdicts. Only this module knows the order of steps.

1. read the versions of the client's kernel and tools (once for each client);
2. write the data set (once for each attachment);
3. if the profile requires it, measure rounds until the target reaches steady state;
4. measure ``repeats`` times while counters are sampled (:mod:`storagetest.runner.sampling`). Cold loads run
   without a ramp, and page caches are dropped before each repeat. If the repeats so far show that a gate's
   percentile would have too few I/Os, they begin again, once, and are longer, all of the same length;
5. measure the load's ceiling on this client if a repeat kept the client so busy that it may be the limit
   (once for each client and load);
6. judge. While a gate is undecided, more repeats may decide it and ``max_repeats`` is not reached, measure
   once more and judge again;
7. find the bottleneck, and adapt the verdicts to it (:mod:`storagetest.verdict.client_bottleneck`).

Durations are by the monotonic clock; the wall clock gives only the start time of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

from storagetest.config.base import WorkloadOptions
from storagetest.hosts.base import Host
from storagetest.measure.bottleneck import bottleneck, may_be_near_ceiling
from storagetest.measure.cache import Cache
from storagetest.measure.run import Metric, Run, Sample, impossible_values
from storagetest.measure.steady_state import WINDOW, SteadyStateCheck, by_rounds, within_a_round
from storagetest.protocols.base import Attachment
from storagetest.runner.client_ceilings import ClientCeilings
from storagetest.runner.data_placement import DataPlacement
from storagetest.runner.dataset_cache import PrefillCache
from storagetest.runner.page_cache import drop, twice_the_memory
from storagetest.runner.sampling import CounterSampling, align_series
from storagetest.runner.server_writes import ServerWrites
from storagetest.runner.throughput_watch import Throughput, ThroughputWatch
from storagetest.runner.versions import Versions
from storagetest.units import format_duration
from storagetest.verdict import (
    ErrorPlan,
    Reference,
    Threshold,
    Verdict,
    judge,
    longer_repeats,
    mark_client_limited,
    wants_more,
)
from storagetest.workloads.base import LoadSize, StartBarrierRef, Workload


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """Identity of a case in every report."""

    case: str
    workload: str
    target: str
    variant: str
    protocol: str
    client: str
    profile: str = ""


class MeasurementPhase(Enum):
    """Phase of a case that is measured."""

    CEILING = "ceiling"
    FILL = "fill"
    DROP = "drop caches"
    STEADY_STATE = "settle"
    MEASURE = "measure"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """The start of repeat ``repeat`` (from 1) of ``of``, with ``expected`` seconds (None: unknown).

    ``of`` grows while a gate stays undecided; for steady-state rounds it is the maximum. ``elapsed`` counts
    from the start of the case. ``title`` describes the load. ``last`` holds the headline of the repeat or
    round that ended last, ``steady_state`` the result of the rounds so far. An event with ``throughput``
    reports the current rate in the phase of the event before it.
    """

    case: CaseInfo
    phase: MeasurementPhase
    elapsed: float
    repeat: int = 0
    of: int = 0
    expected: float | None = None
    title: str = ""
    last: tuple[tuple[Metric, float], ...] = ()
    steady_state: str = ""
    throughput: Throughput | None = None


_VERSIONS = Versions()
_CEILINGS = ClientCeilings()


class Measurement:
    """One case: call :meth:`prepare` once, then :meth:`measure` as often as its verdicts need.

    Several measurements can alternate (:mod:`storagetest.runner.interleaved`). Use as a context manager: it
    stops the sampling at its end. ``extra_hosts`` are sampled in addition to the client. The sampler's thread
    reports the throughput every ``watch_interval`` seconds (0: never). ``placement`` is the location of one
    of many clients and of its data set. ``samples`` are the repeats so far; ``versions`` are those of the
    client's kernel and tools.
    """

    def __init__(
        self,
        workload: Workload[Any],
        options: WorkloadOptions,
        attachment: Attachment,
        scale: LoadSize,
        *,
        case: CaseInfo,
        fills: PrefillCache,
        on_progress: Callable[[ProgressEvent], None] | None = None,
        extra_hosts: Sequence[Host] = (),
        watch_interval: float = 0.0,
        placement: DataPlacement | None = None,
    ) -> None:
        self._placement = placement or DataPlacement(attachment, attachment, attachment)
        self._workload, self._options, self._attachment, self._scale = workload, options, attachment, scale
        self._case, self._fills, self._on_progress = case, fills, on_progress
        self._began = time.monotonic()
        self.samples: tuple[Sample, ...] = ()
        self._started = 0.0
        self.versions: Mapping[str, str] = {}
        self._starts: tuple[float, ...] = ()
        watch = (
            ThroughputWatch(attachment.path, watch_interval, self._report_throughput)
            if watch_interval > 0 and on_progress
            else None
        )
        self._sampling = CounterSampling((attachment.client, *extra_hosts), scale.interval, watch=watch)
        self._extra_hosts = tuple(extra_hosts)
        self._cold = workload.cache(options) is Cache.COLD
        self._repeat_number = 0
        self._steady_summary = ""
        self._steady_progress = ""
        self._not_steady_reasons: tuple[str, ...] = ()
        self._length_note = ""
        self._last_event: ProgressEvent | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sampling.stop()

    def prepare(self) -> None:
        """Read versions and write the data set, each unless it is done already."""
        self._started = time.time()
        self.versions = _VERSIONS.get(self._attachment.client, self._workload.tools)
        if self._cold:
            size = self._scale.cold_size or twice_the_memory((self._attachment.client, *self._extra_hosts))
            self._scale = replace(self._scale, size=size, ramp=0.0)
        self._sampling.start()  # it gets ready while the data set is written, or in the ramp
        dataset = self._workload.dataset(self._options, self._scale)
        if dataset is not None and self._placement.fill is not None:
            self._fills.prefill_once(
                self._placement.origin, self._placement.key(dataset, self._scale.size), self._fill
            )

    def _with_ceiling(self, sample: Sample) -> Sample:
        """Add the client's ceiling to a sample whose bottleneck may depend on it."""
        used = sample.utilisation
        if used is None or not self._attachment.remote or not may_be_near_ceiling(used):
            return sample

        def measure() -> float | None:
            self._report(MeasurementPhase.CEILING)
            return self._workload.ceiling(self._attachment, self._options, self._scale)

        load = f"{self._workload.name} {self._workload.parameters(self._options)}"
        ceiling = _CEILINGS.get(self._attachment.client, load, measure)
        return replace(sample, utilisation=replace(used, ceiling=ceiling))

    def _fill(self) -> None:
        self._report(MeasurementPhase.FILL)
        self._workload.fill(self._placement.fill or self._attachment, self._options, self._scale)

    def reach_steady_state(self, *, keep: bool = True) -> None:
        """Measure rounds until the target is in steady state, if the profile requires it.

        The rounds that show it (five of ``pts``, one of ``slope``) are the first repeats of the run unless
        ``keep`` is false; earlier rounds do not count. If the rounds run out, the run is invalid and states
        the last values.
        """
        rule, budget = self._scale.steady, self._scale.steady_rounds
        if rule == "none":
            return
        window = WINDOW if rule == "pts" else 1
        check = SteadyStateCheck(False, "")
        for number in range(budget):
            self._repeat(MeasurementPhase.STEADY_STATE, number + 1, budget)
            if self.not_steady:
                break
            check = self._check_steady_state(window)
            self._steady_progress = check.summary
            if check.steady:
                break
        self._steady_summary = f"{rule}, {len(self.samples)} rounds: {check.summary}"
        if not check.steady:
            self._not_steady_reasons = (f"no steady state ({self._steady_summary})",)
        since = len(self.samples) - (window if keep else 0)
        self.samples, self._starts = self.samples[since:], self._starts[since:]

    def _check_steady_state(self, window: int) -> SteadyStateCheck:
        if window == 1:
            return within_a_round(self.samples[-1])
        headline, values = self._workload.headline, self.samples[-1].values
        named = [*[name for name in headline if name in values][:1], headline[-1]]
        return by_rounds([sample.values for sample in self.samples], named)

    @property
    def not_steady(self) -> bool:
        """Whether the rounds ran out before steady state; nothing more is measured then."""
        return bool(self._not_steady_reasons)

    @property
    def repeats(self) -> int:
        """The number of repeats so far."""
        return len(self.samples)

    def measure(self, of: int, *, start: StartBarrierRef | None = None) -> None:
        """Measure one repeat of ``of``, the number known so far.

        With ``start`` the load waits at that barrier for the loads of other clients.
        """
        self._repeat(MeasurementPhase.MEASURE, len(self.samples) + 1, of, start)

    @property
    def is_timed(self) -> bool:
        """Whether longer repeats have more I/Os."""
        return self._workload.is_timed(self._options)

    def lengthen(self, factor: float, reason: str) -> None:
        """Begin the repeats again, each ``factor`` times as long; those so far do not count."""
        self._set_runtime(self._scale.runtime * factor, reason)
        self.samples, self._starts = (), ()

    def _set_runtime(self, seconds: float, reason: str) -> None:
        before = self._scale.runtime
        self._scale = replace(self._scale, runtime=seconds)
        self._length_note = f"{format_duration(seconds)} instead of {format_duration(before)}: {reason}"

    def _repeat(
        self, phase: MeasurementPhase, number: int, of: int, start: StartBarrierRef | None = None
    ) -> None:
        caches = ""
        if self._cold:
            self._report(MeasurementPhase.DROP, number, of)
            caches = drop(self._attachment.client, self._extra_hosts)
        self._report(phase, number, of, self._scale.ramp + self._scale.runtime + self._scale.cooldown)
        called = time.monotonic() + self._scale.ramp
        scale = replace(self._scale, repeat=self._repeat_number, start=start)
        self._repeat_number += 1
        watched = ServerWrites(self._extra_hosts) if self._workload.counts_server_writes else None
        sample = self._workload.measure(self._attachment, self._options, scale)
        written = watched.count() if watched else None
        if written is not None:
            sample = self._workload.with_server_writes(sample, *written)
        notes = {"caches": caches, "steady state": self._steady_summary, "runtime": self._length_note}
        evidence = {**sample.evidence, **{name: note for name, note in notes.items() if note}}
        sample = replace(sample, evidence=evidence)
        self.samples = (*self.samples, self._with_ceiling(sample))
        self._starts = (*self._starts, called)

    def finish(self) -> None:
        """Stop the sampling and add the sampled series to the repeats; no repeat follows."""
        sampled = self._sampling.stop()
        self.samples = align_series(self.samples, self._starts, sampled, self._scale.interval)
        self._report(MeasurementPhase.DONE, len(self.samples), len(self.samples))

    def set_measure_start(self, moment: float) -> None:
        """Set when the measuring of the last repeat began, by the controller's monotonic clock."""
        self._starts = (*self._starts[:-1], moment)

    @property
    def client(self) -> str:
        """Name of the client."""
        return self._attachment.client.name

    @property
    def ramp(self) -> float:
        """Seconds at the start of a repeat that do not count."""
        return self._scale.ramp

    @property
    def run(self) -> Run:
        """The run with all repeats so far."""
        case, workload = self._case, self._workload
        return Run(
            case=case.case,
            workload=case.workload,
            target=case.target,
            variant=case.variant,
            protocol=case.protocol,
            client=case.client,
            title=workload.title(self._options),
            parameters=workload.parameters(self._options),
            negotiated=self._attachment.negotiated,
            samples=self.samples,
            started=self._started,
            profile=case.profile,
            versions=self.versions,
            invalid=(
                *self._not_steady_reasons,
                *dict.fromkeys(why for sample in self.samples for why in sample.invalid),
                *impossible_values(self.samples, workload.metrics),
            ),
            metrics=workload.metrics,
            headline=workload.headline,
            limited_by=bottleneck(
                [one.utilisation for one in self.samples if one.utilisation is not None],
                remote=self._attachment.remote,
            ),
        )

    def _report(
        self, phase: MeasurementPhase, repeat: int = 0, of: int = 0, expected: float | None = None
    ) -> None:
        if self._on_progress is None:
            return
        self._last_event = ProgressEvent(
            self._case,
            phase,
            time.monotonic() - self._began,
            repeat,
            of,
            expected,
            title=self._workload.title(self._options),
            last=self._headline(),
            steady_state=self._steady_progress,
        )
        self._on_progress(self._last_event)

    def _headline(self) -> tuple[tuple[Metric, float], ...]:
        if not self.samples:
            return ()
        values, metrics = self.samples[-1].values, self._workload.metrics
        named = [name for name in self._workload.headline if name in values and name in metrics]
        return tuple((metrics[name], values[name]) for name in named)

    def _report_throughput(self, throughput: Throughput) -> None:
        event = self._last_event
        if event is not None and event.phase is not MeasurementPhase.DONE and self._on_progress is not None:
            self._on_progress(replace(event, elapsed=time.monotonic() - self._began, throughput=throughput))


def run_case(
    workload: Workload[Any],
    options: WorkloadOptions,
    attachment: Attachment,
    scale: LoadSize,
    *,
    repeats: int,
    max_repeats: int,
    gates: Sequence[Threshold],
    case: CaseInfo,
    fills: PrefillCache,
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
    on_progress: Callable[[ProgressEvent], None] | None = None,
    extra_hosts: Sequence[Host] = (),
    references: Mapping[str, Reference] | None = None,
    watch_interval: float = 0.0,
) -> tuple[Run, tuple[Verdict, ...]]:
    """Measure ``workload`` on ``attachment`` and judge it; the verdicts are in the order of ``gates``.

    ``extra_hosts``, such as the server, are sampled like the client while it runs. ``references`` holds the
    baseline of the case by metric. Every ``watch_interval`` seconds ``on_progress`` gets the throughput (0:
    never).

    Raises :class:`~storagetest.errors.WorkloadError`, what the attachment's client raises, and
    :class:`~storagetest.errors.ConfigError` for a gate on a metric that the workload does not measure.
    """
    measurement = Measurement(
        workload,
        options,
        attachment,
        scale,
        case=case,
        fills=fills,
        on_progress=on_progress,
        extra_hosts=extra_hosts,
        watch_interval=watch_interval,
    )
    return run_measurement(
        measurement,
        repeats=repeats,
        max_repeats=max_repeats,
        gates=gates,
        confidence=confidence,
        plan=plan,
        references=references,
    )


def run_measurement(
    measurement: Measurement,
    *,
    repeats: int,
    max_repeats: int,
    gates: Sequence[Threshold],
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
    references: Mapping[str, Reference] | None = None,
) -> tuple[Run, tuple[Verdict, ...]]:
    """Run ``measurement`` and judge it, as :func:`run_case` does."""
    with measurement:
        measurement.prepare()
        measurement.reach_steady_state()
        may_lengthen = measurement.repeats == 0 and measurement.is_timed
        while not measurement.not_steady and measurement.repeats < max(1, repeats):
            measurement.measure(repeats)
            if may_lengthen:
                factor, reason = longer_repeats(
                    measurement.run, gates, repeats=repeats, max_repeats=max_repeats
                )
                if factor > 1:
                    may_lengthen = False
                    measurement.lengthen(factor, reason)
        run = measurement.run
        verdicts = _judge(run, gates, confidence, plan, references or {})
        while wants_more(run, verdicts, max_repeats=max_repeats):
            measurement.measure(len(run.samples) + 1)
            run = measurement.run
            verdicts = _judge(run, gates, confidence, plan, references or {})
        measurement.finish()
        run = measurement.run
        return run, tuple(mark_client_limited(verdict, run) for verdict in verdicts)


def _judge(
    run: Run,
    gates: Sequence[Threshold],
    confidence: float,
    plan: ErrorPlan | None,
    references: Mapping[str, Reference],
) -> tuple[Verdict, ...]:
    return tuple(
        judge(run, gate, confidence=confidence, plan=plan, reference=references.get(gate.metric.name))
        for gate in gates
    )
