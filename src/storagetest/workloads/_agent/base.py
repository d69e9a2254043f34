"""Base class of workloads that the agent runs: options, metrics by operation, conversion to a sample.

A subclass defines the agent's request (:meth:`AgentWorkload.request`), the operations whose latencies are
metrics (:meth:`AgentWorkload.operations`), and the other metrics (:meth:`AgentWorkload.values`). See
``metadata.py`` for an example.

Duration: unless ``whole`` is set, every phase ends after its share of the profile's ``runtime``, so that a
repeat takes a known time on any target. There is no ramp: a phase is the first of its kind on new files, and
the published programs measure from the first operation on.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

from storagetest.config.base import Mark, Size, WorkloadOptions
from storagetest.errors import WorkloadError
from storagetest.measure.bottleneck import Utilisation
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import Sample
from storagetest.measure.series import LATENCY, LOAD, QUANTILES, Series, has_percentile
from storagetest.measure.unit import Unit
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.units import format_size
from storagetest.workloads._agent.result import AgentResult, OpStats, PhaseStats
from storagetest.workloads._agent.run import run_agent
from storagetest.workloads._fio import base as fio
from storagetest.workloads._metrics import describe_cpu, latency_values
from storagetest.workloads.base import LoadSize, Workload

_CEILING_SECONDS = 1.0
_CEILING_SIZE = 64 << 20
_WORTH_A_CEILING = 3.0

_FILL_SEED = 1
_PLENTY = 4
"""The free space is not queried if the attachment's size is this many times the needed size."""


class AgentOptions(WorkloadOptions):
    """Options of every workload that the agent runs."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    """Seed of sizes, offsets and data."""

    whole: bool = False
    """Run every phase to its end, as the published program does, however long that takes."""


O = TypeVar("O", bound=AgentOptions)  # noqa: E741  # options


class AgentWorkload(Workload[O]):
    """A load that the agent runs on a file system.

    Subclasses define :meth:`request`, :meth:`values`, and :attr:`main_phase` or :meth:`operations`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"filesystem"})
    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {"python3": ("python3", "--version")}
    main_phase: ClassVar[str]

    @abstractmethod
    def request(self, attachment: Attachment, options: O, scale: LoadSize) -> dict[str, Any]:
        """Return the agent's request: ``command``, ``seconds`` a phase (None: no limit), parameters."""

    @abstractmethod
    def values(self, result: AgentResult, options: O) -> dict[str, float]:
        """Return the metrics' values; those of :meth:`operations` and ``client_cpu`` are added to them."""

    def operations(self, result: AgentResult, options: O) -> Mapping[str, OpStats]:  # noqa: ARG002
        """Return the operations whose latencies are metrics, by name: those of :attr:`main_phase`."""
        return result.phases[self.main_phase].operations

    def invalid(self, result: AgentResult, options: O) -> tuple[str, ...]:  # noqa: ARG002
        """Return the reasons why the sample is invalid; empty if it is valid."""
        return ()

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return the timeout in seconds of all phases if they have no time limit."""
        return 3600.0

    def parameters(self, options: O) -> Mapping[str, Any]:
        """Return the options, sizes as ``4KiB`` and lists as text; the workload's own come first."""
        dumped = options.model_dump()
        shared = {name: dumped.pop(name) for name in AgentOptions.model_fields}
        fields = type(options).model_fields
        return {name: _shown(fields[name], value) for name, value in {**dumped, **shared}.items()}

    def measure(self, attachment: Attachment, options: O, scale: LoadSize) -> Sample:
        """Run all phases once."""
        request = {**self.request(attachment, options, scale), "timeline_interval": scale.interval}
        # The phases may take the runtime each; preparation and clean-up between them may take as long, twice.
        limit = 4 * scale.runtime if request["seconds"] is not None else self.timeout(request, scale)
        deadline = fio.SLACK + limit + scale.start_timeout
        result = run_agent(attachment.client, {**request, "barrier": scale.barrier}, deadline=deadline)
        try:
            sample = self._sample(result, options, request)
        except KeyError as error:  # the name of a phase or an operation was damaged in transit
            name = f"{attachment.client.name}: {self.name} on {attachment.path}"
            raise WorkloadError(f"{name}: the agent's result cannot be trusted: it has no {error}") from None
        first = min((phase.began for phase in result.phases.values()), default=0.0)
        if not first or not scale.interval:
            return sample
        series = _timeline(result, attachment.client.name, first, scale.interval)
        return replace(sample, series=series, began=first)

    def is_timed(self, options: O) -> bool:
        """Not with ``whole``."""
        return not options.whole

    def ceiling(self, attachment: Attachment, options: O, scale: LoadSize) -> float | None:
        """Measure the client's limit: run the same load for a second on a tmpfs of the client.

        Return None if a repeat is so short that this would be most of it, if the load has a data set, or if
        ``whole`` is set.
        """
        if scale.runtime < _WORTH_A_CEILING or options.whole or self.dataset(options, scale) is not None:
            return None
        memory = replace(attachment, path="/dev/shm", kind=AttachmentKind.FILESYSTEM, size=_CEILING_SIZE)  # noqa: S108  # a tmpfs
        short = replace(scale, size=_CEILING_SIZE // 4, ramp=0.0, runtime=_CEILING_SECONDS, interval=0.0)
        utilisation = self.measure(memory, options, short).utilisation
        return None if utilisation is None else utilisation.rate

    def _sample(self, result: AgentResult, options: O, request: Mapping[str, Any]) -> Sample:
        values = self.values(result, options)
        if request["seconds"] is None and "elapsed" in self.metrics:
            values["elapsed"] = sum(phase.span for phase in result.phases.values())
        operations = {name: entry for name, entry in self.operations(result, options).items() if entry.ops}
        for name, entry in operations.items():
            values |= latency_values(name, entry.latency)
        phases = _describe_phases(result, operations.values())
        evidence = {"request": json.dumps(request), "phases": phases, **self.evidence(result)}
        if result.cpu is not None:
            values["client_cpu"] = result.cpu.share
            evidence["cpu"] = describe_cpu(result.cpu)
        seconds = sum(phase.seconds for phase in result.phases.values())
        ios = sum(entry.ops for phase in result.phases.values() for entry in phase.operations.values())
        return Sample(
            values=values,
            seconds=seconds,
            ios=ios,
            evidence=evidence,
            operations={name: entry.latency for name, entry in operations.items()},
            invalid=self.invalid(result, options),
            utilisation=_utilisation(result, ios / seconds) if seconds > 0 else None,
            spans={name: phase.times for name, phase in result.phases.items() if phase.times is not None},
        )

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return the other parts of the result as texts."""
        return {name: json.dumps(value) for name, value in result.extra.items() if value}


class DataSetWorkload(AgentWorkload[O]):
    """A load that the agent runs on the data set of the loads by fio, a file or a device."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def dataset(self, options: O, scale: LoadSize) -> str:  # noqa: ARG002
        """Return the key of the data set, which is that of the loads by fio."""
        return fio.data_key(scale)

    def fill(self, attachment: Attachment, options: O, scale: LoadSize) -> None:  # noqa: ARG002
        """Write the whole data set, with incompressible data."""
        size = fio.data_size(attachment, scale)
        request = {
            "command": "loads.fill",
            "path": fio.data_file(attachment, scale),
            "size": size,
            "make": attachment.kind is AttachmentKind.FILESYSTEM,
            "seed": _FILL_SEED,
        }
        run_agent(attachment.client, request, deadline=fio.SLACK + size / fio.SLOWEST_FILL)


def _timeline(result: AgentResult, host: str, first: float, interval: float) -> tuple[Series, ...]:
    """Return rates and percentiles over time, by operation, in seconds since the ``first`` phase began.

    The last interval of a phase ends with the phase.
    """
    rates: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    percentiles: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for phase in result.phases.values():
        for name, entry in phase.operations.items():
            for slot in range(1 + max(entry.timeline, default=-1)):
                latencies = entry.timeline.get(slot, Histogram())
                end = min((slot + 1) * interval, phase.seconds)
                at = round(phase.began - first + end, 6)
                rates[f"{name} operations"].append((at, latencies.count / max(end - slot * interval, 1e-9)))
                for quantile, q in QUANTILES.items():
                    if has_percentile(latencies.count, q):
                        percentiles[f"{name} {quantile}"].append((at, latencies.percentile(q)))
    kinds = ((LOAD, Unit.PER_SECOND, rates), (LATENCY, Unit.SECONDS, percentiles))
    return tuple(
        Series(source, name, unit, host, *map(tuple, zip(*pairs, strict=True)))
        for source, unit, points in kinds
        for name, pairs in points.items()
    )


def require_space(attachment: Attachment, needed: int) -> None:
    """Raise :class:`WorkloadError` unless ``needed`` bytes fit.

    A load that used less than it was given would measure the target's caches.
    """
    free = attachment.size
    if attachment.kind is AttachmentKind.FILESYSTEM:
        if _PLENTY * needed > free:  # other loads may have used some of it
            free = min(free, _free(attachment))
        free = int(free * fio.SHARE_OF_FREE) >> 10 << 10  # whole KiB, for the message
    if needed > free:
        raise WorkloadError(
            f"{attachment.client.name}: the load requires {format_size(needed)}, and {attachment.path} has "
            f"space for {format_size(free)}. Free space, or set a smaller `size` in the profile"
        )


def _free(attachment: Attachment) -> int:
    output = attachment.client.run(
        ["stat", "-f", "--format=%a %S", attachment.path], deadline=fio.SLACK
    ).stdout
    blocks, size = (int(word) for word in output.split())
    return blocks * size


def _shown(field: FieldInfo, value: object) -> object:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, int) and (Mark.SIZE in field.metadata or Size in get_args(field.annotation)):
        return format_size(value)
    return value


def _utilisation(result: AgentResult, rate: float) -> Utilisation:
    """Return the use of the client's processors; the runner adds the ceiling."""
    return Utilisation(
        rate,
        busiest_core=result.cpu.busiest_core if result.cpu is not None else None,
        busy_cores=max(phase.cpu for phase in result.phases.values()),
    )


def _describe_phases(result: AgentResult, stored: Iterable[OpStats]) -> str:
    """Return all results, one phase a line; bins only of operations that are not ``stored`` elsewhere."""
    elsewhere = {id(entry) for entry in stored}
    return "\n".join(
        json.dumps({"phase": name, **_phase_fields(phase, elsewhere)})
        for name, phase in result.phases.items()
    )


def _phase_fields(phase: PhaseStats, elsewhere: Container[int]) -> dict[str, Any]:
    operations: dict[str, dict[str, Any]] = {
        name: {
            **{part: getattr(entry, part) for part in ("ops", "total", "bytes", "total_bytes")},
            **({} if id(entry) in elsewhere else {"latency": entry.latency.to_json()}),
        }
        for name, entry in phase.operations.items()
    }
    numbers = {name: getattr(phase, name) for name in ("seconds", "span", "spread", "tail", "cpu", "overlap")}
    return {**numbers, "operations": operations}
