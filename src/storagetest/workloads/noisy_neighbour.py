"""Noisy neighbour: how loads without a rate limit slow down a small one, and how evenly they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.measure.run import Better, Metric, Sample
from storagetest.measure.scaling import jain
from storagetest.protocols.base import Attachment
from storagetest.units import format_count, format_size
from storagetest.workloads import _metrics
from storagetest.workloads._fio.base import FioOptions, FioWorkload, Pattern, first_ios, utilisation
from storagetest.workloads._fio.job import FioJob
from storagetest.workloads._fio.parse import FioResult
from storagetest.workloads._fio.run import FioOutcome
from storagetest.workloads.base import LoadSize, register


@register
class NoisyNeighbour(FioWorkload["NoisyNeighbour.Options"]):
    """A victim with one small I/O in flight, first alone, then together with neighbours without a rate limit.

    Each takes half of the profile's runtime. `slowdown` is the victim's mean latency with neighbours divided
    by its mean latency alone. `fairness` is Jain's index of the rates of the identical neighbours: 1 if all
    are equal, 1/n if one has the complete rate. All use the same file or device.
    """

    name = "noisy-neighbour"
    source = "R. Jain, D. Chiu, W. Hawe, A Quantitative Measure of Fairness, DEC-TR-301 (1984)"
    example: ClassVar[Mapping[str, Any]] = {"neighbours": 4, "neighbour_block_size": "64KiB"}
    headline = ("slowdown", "fairness", "alone_iops", "beside_p99")
    metrics: ClassVar[Mapping[str, Metric]] = {
        **_metrics.counts("slowdown"),
        **_metrics.share("fairness", better=Better.HIGHER),
        **_metrics.rate("alone_iops", "beside_iops", "neighbours_iops"),
        **_metrics.bandwidth("neighbours_bandwidth"),
        **_metrics.latencies("alone", "beside", "neighbours"),
        **_metrics.client_cpu,
    }

    class Options(FioOptions):
        """Operations of the victim and of the neighbours."""

        direction: Literal["read", "write"] = "read"
        """Operation of the victim, at random offsets."""

        block_size: Size = 4096
        """Bytes of the victim's I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 1
        """The victim's I/Os in flight."""

        neighbours: Annotated[int, Field(ge=2, le=64)] = 4
        """Neighbours, each a separate worker."""

        neighbour_direction: Literal["read", "write"] = "write"
        """Operation of each neighbour, at random offsets."""

        neighbour_block_size: Annotated[Size, Field(ge=512, multiple_of=512)] = 64 << 10
        """Bytes of a neighbour's I/O."""

        neighbour_queue_depth: Annotated[int, Field(ge=1, le=4096)] = 8
        """A neighbour's I/Os in flight; 1 for synchronous engines."""

        @model_validator(mode="after")
        def _any_cache(self) -> Self:
            if self.cache is not None:
                raise ValueError(f"cache: {self.cache} requires loads that only read; neighbours may write")
            return self

    def parameters(self, options: NoisyNeighbour.Options) -> Mapping[str, Any]:
        """Return the options, sizes with their unit."""
        found = super().parameters(options)
        return {**found, "neighbour_block_size": format_size(options.neighbour_block_size)}

    def pattern(self, options: NoisyNeighbour.Options) -> Pattern:
        """Return the victim's I/O."""
        return Pattern(f"rand{options.direction}", options.block_size, options.queue_depth)

    def measure(self, attachment: Attachment, options: NoisyNeighbour.Options, scale: LoadSize) -> Sample:
        """Run the victim alone, then with its neighbours."""
        half = replace(scale, ramp=scale.ramp / 2, runtime=scale.runtime / 2)
        victim = self.job(attachment, options, half)
        others = [_neighbour(victim, options, number) for number in range(options.neighbours)]
        exclusive = self.run(attachment, options, half, victim)
        shared = self.run(attachment, options, half, victim, *others)
        return _sample(exclusive, shared, victim.size)

    def ceiling(self, *_: object) -> None:
        """Return None: no single value describes the client under loads of different kinds."""


def _neighbour(victim: FioJob, options: NoisyNeighbour.Options, number: int) -> FioJob:
    """Return one neighbour's job, on the victim's file, at the same time and by the same engine."""
    one_in_flight = options.engine in {"psync", "mmap"}
    return replace(
        victim,
        name=f"neighbour{number}",
        rw=f"rand{options.neighbour_direction}",
        block_size=options.neighbour_block_size,
        queue_depth=1 if one_in_flight else options.neighbour_queue_depth,
        seed=((victim.seed or 0) + 1 + number) % 2**32,
        log_interval=0.0,
    )


def _sample(exclusive: FioOutcome, shared: FioOutcome, size: int) -> Sample:
    victim, *neighbours = shared.results
    rates = [_rate(each) for each in neighbours]
    pooled = sum((each.latency for each in neighbours[1:]), start=neighbours[0].latency)
    operations = {"alone": exclusive.result.latency, "beside": victim.latency, "neighbours": pooled}
    values = {
        "slowdown": victim.latency_mean / exclusive.result.latency_mean,
        "fairness": jain(rates),
        "alone_iops": _rate(exclusive.result),
        "beside_iops": _rate(victim),
        "neighbours_iops": sum(rates),
        "neighbours_bandwidth": sum(each.bytes / each.seconds for each in neighbours),
    }
    for operation, latency in operations.items():
        values |= _metrics.latency_values(operation, latency)
    if shared.cpu is not None:
        values["client_cpu"] = shared.cpu.share
    return Sample(
        values,
        seconds=exclusive.result.seconds + victim.seconds,
        ios=exclusive.result.ios + sum(each.ios for each in shared.results),
        evidence={
            "argv": f"{exclusive.evidence['argv']}\n{shared.evidence['argv']}",
            "neighbours": ", ".join(f"{format_count(each)}/s" for each in rates),
            "size": format_size(size),
        },
        operations=operations,
        began=exclusive.began,
        utilisation=utilisation(shared),
        first_ios=first_ios(exclusive, shared),
    )


def _rate(result: FioResult) -> float:
    return result.ios / result.seconds
