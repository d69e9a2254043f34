"""Many users: throughput and latency by number of threads, and the knee of that curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Size
from storagetest.measure.run import Better, Metric, Sample
from storagetest.measure.scaling import knee
from storagetest.protocols.base import Attachment
from storagetest.units import format_count, format_duration
from storagetest.workloads._fio.base import FioOptions, FioWorkload, Pattern
from storagetest.workloads._metrics import client_cpu, counts, latencies, latency_values, rate
from storagetest.workloads.base import LoadSize, register

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Threads, one level after another."""

_SHORTEST = 0.5
"""Minimum seconds of a level; the figure of a shorter one is not meaningful."""


@register
class MultiUser(FioWorkload["MultiUser.Options"]):
    """1, 2, 4 … 256 threads with a fixed number of I/Os in flight each: the scaling curve and its knee.

    Each level has its share of the profile's ramp and runtime. Unless `levels` is set, only as many levels
    run, from the first on, as have 0.5 s each. The knee is the level beyond which more threads gain little
    (Kneedle, see :mod:`storagetest.measure.scaling`). If there is no knee, `knee_threads` is the last level
    and the evidence states that.
    """

    name = "multi-user"
    source = (
        "one job a thread at queue depth 1, as in published NVMe/TCP and iSCSI comparisons; the knee: "
        "V. Satopää et al., Finding a Kneedle in a Haystack, ICDCS Workshops (2011)"
    )
    example: ClassVar[Mapping[str, Any]] = {"levels": [1, 4, 16], "read_percent": 70}
    headline = ("iops_at_peak", "threads_at_peak", "knee_threads")
    metrics: ClassVar[Mapping[str, Metric]] = {
        **rate("iops_at_peak", "iops_at_knee"),
        **counts("threads_at_peak", "knee_threads", better=Better.HIGHER),
        **rate(*(f"threads_{level}_iops" for level in LEVELS)),
        **latencies(*(f"threads_{level}" for level in LEVELS)),
        **client_cpu,
    }

    class Options(FioOptions):
        """The levels, and the load of each thread."""

        levels: Annotated[Items[Literal[LEVELS]] | None, Field(min_length=1)] = None  # type: ignore[valid-type]  # mypy wants the numbers once more
        """The numbers of threads, ascending."""

        read_percent: Annotated[int, Field(ge=0, le=100)] = 70
        """How many of a hundred I/Os are reads."""

        block_size: Size = 4096
        """Bytes per I/O, each at a random offset."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 1
        """I/Os in flight, for each thread."""

        @model_validator(mode="after")
        def _ascending(self) -> Self:
            if self.levels is not None and list(self.levels) != sorted(set(self.levels)):
                raise ValueError(f"levels: {', '.join(map(str, self.levels))} do not ascend")
            return self

    def parameters(self, options: MultiUser.Options) -> Mapping[str, Any]:
        """Return the options, the levels as text."""
        levels = None if options.levels is None else ",".join(map(str, options.levels))
        return {**super().parameters(options), "levels": levels}

    def pattern(self, options: MultiUser.Options) -> Pattern:
        """Return one level's I/O: that of as many threads as the last of ``levels`` has."""
        threads = options.levels[-1] if options.levels else 1
        rw = {0: "randwrite", 100: "randread"}.get(options.read_percent, "randrw")
        mixed = options.read_percent if rw == "randrw" else None
        return Pattern(rw, options.block_size, options.queue_depth, threads, read_percent=mixed)

    def measure(self, attachment: Attachment, options: MultiUser.Options, scale: LoadSize) -> Sample:
        """Run the levels one after another."""
        levels = options.levels or _fitting(scale)
        share = replace(scale, ramp=scale.ramp / len(levels), runtime=scale.runtime / len(levels))
        found = {
            level: super(MultiUser, self).measure(
                attachment, options.model_copy(update={"levels": (level,)}), share
            )
            for level in levels
        }
        return _sample(found)

    def ceiling(self, attachment: Attachment, options: MultiUser.Options, scale: LoadSize) -> float | None:
        """Return the result of the highest level on this client without a target."""
        most = (options.levels or _fitting(scale))[-1]
        return super().ceiling(attachment, options.model_copy(update={"levels": (most,)}), scale)


def _fitting(scale: LoadSize) -> Sequence[int]:
    return LEVELS[: max(2, int(scale.runtime / _SHORTEST))]


def _sample(found: Mapping[int, Sample]) -> Sample:
    """Return the levels as one sample, with the values of the curve."""
    iops = {level: sample.values["iops"] for level, sample in found.items()}
    peak = max(iops, key=lambda level: iops[level])
    bend = knee(list(iops.items())) if len(iops) > 1 else None
    at = int(bend) if bend is not None else max(iops)
    operations = {f"threads_{level}": sample.latency for level, sample in found.items() if sample.latency}
    values = {
        "iops_at_peak": iops[peak],
        "threads_at_peak": float(peak),
        "iops_at_knee": iops[at],
        "knee_threads": float(at),
        **{f"threads_{level}_iops": value for level, value in iops.items()},
    }
    for operation, latency in operations.items():
        values |= latency_values(operation, latency)
    busy = [sample.values["client_cpu"] for sample in found.values() if "client_cpu" in sample.values]
    if busy:
        values["client_cpu"] = max(busy)
    first = found[min(found)]
    return Sample(
        values,
        first_ios=tuple(at for sample in found.values() for at in sample.first_ios),
        seconds=sum(sample.seconds for sample in found.values()),
        ios=sum(sample.ios for sample in found.values()),
        evidence={
            "curve": _curve(found, peak, None if bend is None else at),
            "argv": "\n".join(sample.evidence["argv"] for sample in found.values()),
            "size": first.evidence["size"],
        },
        operations=operations,
        invalid=tuple(dict.fromkeys(why for sample in found.values() for why in sample.invalid)),
        began=first.began,
        utilisation=found[peak].utilisation,
    )


def _curve(found: Mapping[int, Sample], peak: int, bend: int | None) -> str:
    """Return the scaling curve as a table, peak and knee marked."""
    lines = ["threads  IOPS     mean      p99"]
    for level, sample in found.items():
        values = sample.values
        latency = "  ".join(format_duration(values[name]).ljust(8) for name in ("latency_mean", "p99"))
        marks = " ".join(name for name, at in (("knee", bend), ("peak", peak)) if level == at)
        lines.append(f"{level:7}  {format_count(values['iops']):7}  {latency}  {marks}".rstrip())
    if bend is None:
        lines.append(f"no knee up to {max(found)} threads: more might do more")
    return "\n".join(lines)
