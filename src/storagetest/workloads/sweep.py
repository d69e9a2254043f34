"""Sweep: one load at several values of one parameter, in one case: a curve whose points can be gated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Size
from storagetest.measure.run import Metric, Sample
from storagetest.protocols.base import Attachment
from storagetest.units import format_count, format_duration, format_size, format_throughput
from storagetest.workloads._fio.base import FioOptions, FioWorkload, Pattern
from storagetest.workloads._fio.job import Division
from storagetest.workloads._metrics import bandwidth, client_cpu, latencies, latency_values, rate
from storagetest.workloads.base import LoadSize, register

LEVELS: Mapping[str, tuple[int, ...]] = {
    "block_size": tuple(2**power for power in range(9, 25)),
    "queue_depth": tuple(2**power for power in range(11)),
    "jobs": tuple(2**power for power in range(9)),
}
"""The values that a parameter may have in a sweep."""

_DEFAULTS: Mapping[str, tuple[int, ...]] = {
    "block_size": (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20),
    "queue_depth": (1, 2, 4, 8, 16, 32),
    "jobs": (1, 2, 4, 8, 16),
}


def _metrics() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for name in (f"{parameter}_{level}" for parameter, levels in LEVELS.items() for level in levels):
        found |= bandwidth(f"{name}_bandwidth") | rate(f"{name}_iops") | latencies(name)
    return found


@register
class Sweep(FioWorkload["Sweep.Options"]):
    """One load with several values of `over`, one value after another in each repeat.

    Each value has its share of the profile's ramp and runtime. The metrics of a value are named after it:
    `block_size_65536_bandwidth`, `queue_depth_8_iops`, `jobs_4_p99`. A gate may relate the points:
    `bandwidth flat within 10 % over block_size from 64KiB to 1MiB`.
    """

    name = "sweep"
    source = "one job per value, as in published curves of throughput over block size or queue depth"
    example: ClassVar[Mapping[str, Any]] = {"over": "queue_depth", "values": [1, 4]}
    headline = ("peak_bandwidth", "peak_iops")
    metrics: ClassVar[Mapping[str, Metric]] = {
        **bandwidth("peak_bandwidth"),
        **rate("peak_iops"),
        **_metrics(),
        **client_cpu,
    }

    class Options(FioOptions):
        """The parameter, its values, and the load."""

        over: Literal["block_size", "queue_depth", "jobs"] = "block_size"
        """The parameter that has several values."""

        values: Annotated[Items[Size] | None, Field(min_length=2)] = None
        """Its values, ascending powers of two; sizes may have units."""

        access: Literal["sequential", "random"] = "sequential"
        """Whether I/Os follow each other, or go to random offsets."""

        direction: Literal["read", "write"] = "read"
        """Operation of the load."""

        block_size: Size = 1 << 20
        """Bytes per I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 4
        """I/Os in flight, for each job."""

        jobs: Annotated[int, Field(ge=1, le=256)] = 1
        """Concurrent workers. Each of several sequential ones has its own part of the file or device."""

        @model_validator(mode="after")
        def _levels(self) -> Self:
            values = list(self.values or ())
            if values != sorted(set(values)):
                raise ValueError(f"values: {', '.join(map(str, values))} do not ascend")
            if unknown := sorted(set(values) - set(LEVELS[self.over])):
                last = LEVELS[self.over][-1]
                raise ValueError(f"values: {unknown[0]} is not a power of two, or above {last}")
            if self.over in self.model_fields_set:
                raise ValueError(f"{self.over}: the sweep is over it, so `values` has its values")
            return self

    def parameters(self, options: Sweep.Options) -> Mapping[str, Any]:
        """Return the options, the values as text, without a value of the parameter of the sweep."""
        found = dict(super().parameters(options))
        del found[options.over]
        values = _levels(options)
        return {**found, "values": ",".join(_shown(options.over, value) for value in values)}

    def pattern(self, options: Sweep.Options) -> Pattern:
        """Return the I/O of one value."""
        sequential = options.access == "sequential"
        parts = sequential and options.jobs > 1
        return Pattern(
            options.direction if sequential else f"rand{options.direction}",
            options.block_size,
            options.queue_depth,
            options.jobs,
            division=Division.PART if parts else Division.WHOLE,
        )

    def measure(self, attachment: Attachment, options: Sweep.Options, scale: LoadSize) -> Sample:
        """Run the values one after another."""
        levels = _levels(options)
        share = replace(scale, ramp=scale.ramp / len(levels), runtime=scale.runtime / len(levels))
        measure = super().measure
        found = {level: measure(attachment, _at(options, level), share) for level in levels}
        return _sample(found, options.over)

    def ceiling(self, attachment: Attachment, options: Sweep.Options, scale: LoadSize) -> None:
        """Return None: each value has a limit of its own."""


def _levels(options: Sweep.Options) -> tuple[int, ...]:
    return tuple(options.values) if options.values is not None else _DEFAULTS[options.over]


def _at(options: Sweep.Options, level: int) -> Sweep.Options:
    """Return the options of one value; each has a seed of its own, so that none reads what another read."""
    return options.model_copy(update={options.over: level, "seed": options.seed + level})


def _shown(parameter: str, level: int) -> str:
    return format_size(level) if parameter == "block_size" else str(level)


def _sample(found: Mapping[int, Sample], parameter: str) -> Sample:
    """Return the values of all levels as one sample."""
    values = {
        f"peak_{quantity}": max(sample.values[quantity] for sample in found.values())
        for quantity in ("bandwidth", "iops")
    }
    operations = {f"{parameter}_{level}": sample.latency for level, sample in found.items() if sample.latency}
    for level, sample in found.items():
        name = f"{parameter}_{level}"
        values |= {f"{name}_{quantity}": sample.values[quantity] for quantity in ("bandwidth", "iops")}
        values |= latency_values(name, operations[name]) if name in operations else {}
    busy = [sample.values["client_cpu"] for sample in found.values() if "client_cpu" in sample.values]
    first = found[min(found)]
    return Sample(
        values | ({"client_cpu": max(busy)} if busy else {}),
        seconds=sum(sample.seconds for sample in found.values()),
        ios=sum(sample.ios for sample in found.values()),
        evidence={
            "curve": _table(found, parameter),
            "argv": "\n".join(sample.evidence["argv"] for sample in found.values()),
            "size": first.evidence["size"],
        },
        operations=operations,
        invalid=tuple(dict.fromkeys(why for sample in found.values() for why in sample.invalid)),
        began=first.began,
        utilisation=max(found.values(), key=lambda sample: sample.values["client_cpu"]).utilisation
        if busy
        else None,
        first_ios=tuple(at for sample in found.values() for at in sample.first_ios),
    )


def _table(found: Mapping[int, Sample], parameter: str) -> str:
    rows = [[parameter, "bandwidth", "IOPS", "mean", "p99"]]
    for level, sample in found.items():
        values = sample.values
        rows.append(
            [
                _shown(parameter, level),
                format_throughput(values["bandwidth"]),
                format_count(values["iops"]),
                format_duration(values["latency_mean"]),
                format_duration(values["p99"]),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
