"""One case from fill to verdict: the only place that knows the order of its steps.

1. versions of the client's kernel and tools (once a client);
2. the load's ceiling on this client (once a client and load);
3. fill the data set (once an attachment);
4. measure until the target is steady, where that is asked for;
5. measure ``repeats`` times (what is to be cold: without a ramp, and its caches dropped before each), with
   counters sampled beside the load (:mod:`storagetest.runner.sampling`);
6. judge; while a gate is undecided, more repeats may decide it and ``max_repeats`` is not reached, measure
   once more and judge again;
7. say who was the bottleneck, and what that means for the verdicts (:mod:`storagetest.verdict.client_bottleneck`).

Durations are by the monotonic clock; the wall clock only says when the run started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from storagetest.config.base import WorkloadOptions
from storagetest.hosts.base import Host
from storagetest.measure.bottleneck import bottleneck
from storagetest.measure.cache import Cache
from storagetest.measure.run import Metric, Run, Sample
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
from storagetest.verdict import (
    ErrorPlan,
    Reference,
    Threshold,
    Verdict,
    judge,
    mark_client_limited,
    wants_more,
)
from storagetest.workloads.base import LoadSize, StartBarrierRef, Workload

__all__ = ["CaseInfo", "Measurement", "MeasurementPhase", "ProgressEvent", "run_bench", "run_case"]


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """Whose run it is: the words that identify it in every report."""

    case: str
    workload: str
    target: str
    variant: str
    protocol: str
    client: str
    profile: str = ""


class MeasurementPhase(Enum):
    """What a case is doing."""

    CEILING = "ceiling"
    FILL = "fill"
    DROP = "drop caches"
    SETTLE = "settle"
    MEASURE = "measure"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """What begins now: repeat ``repeat`` (from 1) of ``of``, for about ``expected`` seconds (None: unknown).

    ``of`` grows while a gate stays undecided; of rounds that settle a target it is the most there will be.
    ``elapsed`` counts from the start of the case. ``title`` is the load in a person's words. ``last`` is
    what the repeat or round that ended last says in its headline, ``settled`` what the rounds so far said of
    the steady state. With ``flow`` nothing begins: it is what moves now, in the phase that was told before.
    """

    case: CaseInfo
    phase: MeasurementPhase
    elapsed: float
    repeat: int = 0
    of: int = 0
    expected: float | None = None
    title: str = ""
    last: tuple[tuple[Metric, float], ...] = ()
    settled: str = ""
    flow: Throughput | None = None


_VERSIONS = Versions()
_CEILINGS = ClientCeilings()


class Measurement:
    """One case made ready: :meth:`prepare` once, then :meth:`measure` as often as its verdict takes.

    Several of them can be measured in turns (:mod:`storagetest.runner.interleaved`). Use as a context manager: at
    its end nothing samples any more. ``beside`` are machines that are sampled besides the client. What moves
    is told every ``watch`` seconds, by the sampler's thread (0: never; and where nothing is sampled).
    ``place`` is where one of many clients works, and fills its data set.
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
        beside: Sequence[Host] = (),
        watch: float = 0.0,
        place: DataPlacement | None = None,
    ) -> None:
        self._place = place or DataPlacement(attachment, attachment, attachment)
        self._workload, self._options, self._attachment, self._scale = workload, options, attachment, scale
        self._case, self._fills, self._on_progress = case, fills, on_progress
        self._began = time.monotonic()
        self._samples: tuple[Sample, ...] = ()
        self._started = 0.0
        self._versions: Mapping[str, str] = {}
        self._called: tuple[float, ...] = ()
        watching = ThroughputWatch(attachment.path, watch, self._flows) if watch > 0 and on_progress else None
        self._sampling = CounterSampling((attachment.client, *beside), scale.interval, watch=watching)
        self._ceiling: float | None = None
        self._beside = tuple(beside)
        self._cold = workload.cache(options) is Cache.COLD
        self._taken = 0
        self._settled = ""
        self._settling = ""
        self._unsettled: tuple[str, ...] = ()
        self._told: ProgressEvent | None = None

    def __enter__(self) -> Measurement:
        return self

    def __exit__(self, *_: object) -> None:
        self._sampling.stop()

    def prepare(self) -> None:
        """Ask for the versions, measure the ceiling, fill the data set: each where that is not done yet."""
        self._started = time.time()
        self._versions = _VERSIONS.get(self._attachment.client, self._workload.tools)
        if self._cold:
            size = self._scale.cold_size or twice_the_memory((self._attachment.client, *self._beside))
            self._scale = replace(self._scale, size=size, ramp=0.0)
        load = f"{self._workload.name} {self._workload.parameters(self._options)}"
        self._ceiling = _CEILINGS.get(self._attachment.client, load, self._measure_ceiling)
        self._sampling.start()  # it begins while the data set is filled, or in the ramp
        dataset = self._workload.dataset(self._options, self._scale)
        if dataset is not None and self._place.fill is not None:
            self._fills.prefill_once(
                self._place.origin, self._place.key(dataset, self._scale.size), self._fill
            )

    def _measure_ceiling(self) -> float | None:
        self._tell(MeasurementPhase.CEILING)
        return self._workload.ceiling(self._attachment, self._options, self._scale)

    def _fill(self) -> None:
        self._tell(MeasurementPhase.FILL)
        self._workload.fill(self._place.fill or self._attachment, self._options, self._scale)

    def reach_steady_state(self, *, keep: bool = True) -> None:
        """Measure rounds until the target is steady, where the scale asks for it.

        The rounds that show it (five of ``pts``, one of ``slope``) are the run's first repeats unless they
        are not to be kept; those before do not count. Where the rounds run out the run is invalid, and says
        how far it came.
        """
        rule, budget = self._scale.steady, self._scale.steady_rounds
        if rule == "none":
            return
        window = WINDOW if rule == "pts" else 1
        found = SteadyStateCheck(False, "")
        for number in range(budget):
            self._repeat(MeasurementPhase.SETTLE, number + 1, budget)
            if self.not_steady:
                break
            found = self._steadiness(window)
            self._settling = found.said
            if found.steady:
                break
        self._settled = f"{rule}, {len(self._samples)} rounds: {found.said}"
        if not found.steady:
            self._unsettled = (f"no steady state ({self._settled})",)
        since = len(self._samples) - (window if keep else 0)
        self._samples, self._called = self._samples[since:], self._called[since:]

    def _steadiness(self, window: int) -> SteadyStateCheck:
        if window == 1:
            return within_a_round(self._samples[-1])
        headline, values = self._workload.headline, self._samples[-1].values
        named = [*[name for name in headline if name in values][:1], headline[-1]]
        return by_rounds([sample.values for sample in self._samples], named)

    @property
    def not_steady(self) -> bool:
        """Whether the rounds ran out before the target was steady; nothing more is measured then."""
        return bool(self._unsettled)

    @property
    def repeats(self) -> int:
        """How many repeats there are so far."""
        return len(self._samples)

    def measure(self, of: int, *, start: StartBarrierRef | None = None) -> None:
        """Measure one repeat; ``of`` is how many there are to be as far as is known.

        With ``start`` the load waits there for those of other clients.
        """
        self._repeat(MeasurementPhase.MEASURE, len(self._samples) + 1, of, start)

    def _repeat(
        self, phase: MeasurementPhase, number: int, of: int, start: StartBarrierRef | None = None
    ) -> None:
        caches = ""
        if self._cold:
            self._tell(MeasurementPhase.DROP, number, of)
            caches = drop(self._attachment.client, self._beside)
        self._tell(phase, number, of, self._scale.ramp + self._scale.runtime + self._scale.cooldown)
        called = time.monotonic() + self._scale.ramp
        scale = replace(self._scale, repeat=self._taken, start=start)
        self._taken += 1
        watched = ServerWrites(self._beside) if self._workload.counts_server_writes else None
        sample = self._workload.measure(self._attachment, self._options, scale)
        written = watched.count() if watched else None
        if written is not None:
            sample = self._workload.with_server_writes(sample, *written)
        if caches:
            sample = replace(sample, evidence={**sample.evidence, "caches": caches})
        if self._settled:
            sample = replace(sample, evidence={**sample.evidence, "steady state": self._settled})
        if sample.utilisation is not None:
            sample = replace(sample, utilisation=replace(sample.utilisation, ceiling=self._ceiling))
        self._samples, self._called = (*self._samples, sample), (*self._called, called)

    def finish(self) -> None:
        """Say that no repeat follows, and take in what was sampled beside them."""
        sampled = self._sampling.stop()
        self._samples = align_series(self._samples, self._called, sampled, self._scale.interval)
        self._tell(MeasurementPhase.DONE, len(self._samples), len(self._samples))

    def set_measure_start(self, moment: float) -> None:
        """Say when the measuring of the last repeat began, by our monotonic clock: it had been waiting."""
        self._called = (*self._called[:-1], moment)

    @property
    def client(self) -> str:
        """The client's name."""
        return self._attachment.client.name

    @property
    def ramp(self) -> float:
        """Seconds that a repeat runs before it counts."""
        return self._scale.ramp

    @property
    def versions(self) -> Mapping[str, str]:
        """What runs on the client."""
        return self._versions

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The repeats so far."""
        return self._samples

    @property
    def run(self) -> Run:
        """What has been measured so far."""
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
            samples=self._samples,
            started=self._started,
            profile=case.profile,
            versions=self._versions,
            invalid=(
                *self._unsettled,
                *dict.fromkeys(why for sample in self._samples for why in sample.invalid),
            ),
            metrics=workload.metrics,
            headline=workload.headline,
            limited_by=bottleneck(
                [one.utilisation for one in self._samples if one.utilisation is not None],
                remote=self._attachment.remote,
            ),
        )

    def _tell(
        self, phase: MeasurementPhase, repeat: int = 0, of: int = 0, expected: float | None = None
    ) -> None:
        if self._on_progress is None:
            return
        self._told = ProgressEvent(
            self._case,
            phase,
            time.monotonic() - self._began,
            repeat,
            of,
            expected,
            title=self._workload.title(self._options),
            last=self._headline(),
            settled=self._settling,
        )
        self._on_progress(self._told)

    def _headline(self) -> tuple[tuple[Metric, float], ...]:
        if not self._samples:
            return ()
        values, metrics = self._samples[-1].values, self._workload.metrics
        named = [name for name in self._workload.headline if name in values and name in metrics]
        return tuple((metrics[name], values[name]) for name in named)

    def _flows(self, flow: Throughput) -> None:
        told = self._told
        if told is not None and told.phase is not MeasurementPhase.DONE and self._on_progress is not None:
            self._on_progress(replace(told, elapsed=time.monotonic() - self._began, flow=flow))


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
    beside: Sequence[Host] = (),
    references: Mapping[str, Reference] | None = None,
    watch: float = 0.0,
) -> tuple[Run, tuple[Verdict, ...]]:
    """Measure ``workload`` on ``attachment`` and judge it; the verdicts are in the order of ``gates``.

    ``beside`` are machines, such as the server, that are sampled like the client while it runs.
    ``references`` is what the baseline holds of the case, by metric. Every ``watch`` seconds
    ``on_progress`` is told what moves (0: never).

    Raises :class:`~storagetest.errors.WorkloadError` and what the attachment's client raises, and
    :class:`~storagetest.errors.ConfigError` for a gate on a metric that the workload does not measure.
    """
    bench = Measurement(
        workload,
        options,
        attachment,
        scale,
        case=case,
        fills=fills,
        on_progress=on_progress,
        beside=beside,
        watch=watch,
    )
    return run_bench(
        bench,
        repeats=repeats,
        max_repeats=max_repeats,
        gates=gates,
        confidence=confidence,
        plan=plan,
        references=references,
    )


def run_bench(
    bench: Measurement,
    *,
    repeats: int,
    max_repeats: int,
    gates: Sequence[Threshold],
    confidence: float = 0.99,
    plan: ErrorPlan | None = None,
    references: Mapping[str, Reference] | None = None,
) -> tuple[Run, tuple[Verdict, ...]]:
    """Measure a case that is made ready, and judge it, as :func:`run_case` does."""
    with bench:
        bench.prepare()
        bench.reach_steady_state()
        while not bench.not_steady and bench.repeats < max(1, repeats):
            bench.measure(repeats)
        run = bench.run
        verdicts = _judge(run, gates, confidence, plan, references or {})
        while wants_more(run, verdicts, max_repeats=max_repeats):
            bench.measure(len(run.samples) + 1)
            run = bench.run
            verdicts = _judge(run, gates, confidence, plan, references or {})
        bench.finish()
        run = bench.run
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
