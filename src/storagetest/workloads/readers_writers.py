"""Readers and writers: some clients read while the others write, with the figures of each role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.errors import WorkloadError
from storagetest.measure.run import Metric, Sample
from storagetest.protocols.base import Attachment
from storagetest.units import format_size
from storagetest.workloads import _metrics
from storagetest.workloads._fio.base import FioOptions, FioWorkload, Pattern, first_ios, utilisation
from storagetest.workloads._fio.job import FioJob
from storagetest.workloads._fio.parse import FioResult
from storagetest.workloads.base import LoadSize, register

ROLES = ("read", "write")

BlockSize = Annotated[Size, Field(ge=512, multiple_of=512)]
Depth = Annotated[int, Field(ge=1, le=4096)]
Access = Literal["sequential", "random"]


@register
class ReadersWriters(FioWorkload["ReadersWriters.Options"]):
    """Readers and writers that run at the same time, each with a load of its own and figures of its own.

    Of several clients the first `readers` read, and the others write. One client alone does both, with a
    worker each. `data_set` decides whether the clients use the same data. A metric of a role is that of all
    its clients: rates are summed over the time in which all clients of both roles are active.
    """

    name = "readers-writers"
    source = "rw, bs and iodepth of fio(1); one job for each role"
    example: ClassVar[Mapping[str, Any]] = {"read_access": "random", "write_block_size": "64KiB"}
    headline = ("read_bandwidth", "write_bandwidth", "read_iops", "write_iops", "write_p99", "read_p99")
    metrics: ClassVar[Mapping[str, Metric]] = {
        **_metrics.bandwidth(*(f"{role}_bandwidth" for role in ROLES)),
        **_metrics.rate(*(f"{role}_iops" for role in ROLES)),
        **_metrics.latencies(*ROLES),
        **_metrics.client_cpu,
    }

    class Options(FioOptions):
        """The number of readers, and the load of each role."""

        readers: Annotated[int, Field(ge=1)] | None = None
        """Clients that read; half of them if it is not set."""

        read_access: Access = "random"
        """Whether readers read front to back, or at random offsets."""

        read_block_size: BlockSize = 4096
        """Bytes per read."""

        read_queue_depth: Depth = 8
        """Reads in flight, for each reader; 1 for synchronous engines."""

        write_access: Access = "sequential"
        """Whether writers write front to back, or at random offsets."""

        write_block_size: BlockSize = 1 << 20
        """Bytes per write."""

        write_queue_depth: Depth = 4
        """Writes in flight, for each writer; 1 for synchronous engines."""

        @model_validator(mode="after")
        def _any_cache(self) -> Self:
            if self.cache is not None:
                raise ValueError(f"cache: {self.cache} requires loads that only read; writers write")
            return self

    def parameters(self, options: ReadersWriters.Options) -> Mapping[str, Any]:
        """Return the options, sizes with their unit."""
        sizes = {f"{role}_block_size": format_size(getattr(options, f"{role}_block_size")) for role in ROLES}
        return {**super().parameters(options), **sizes}

    def pattern(self, options: ReadersWriters.Options) -> Pattern:
        """Return the I/O of the role that needs the larger data set."""
        return max(
            (_pattern(options, role) for role in ROLES), key=lambda one: one.block_size * one.queue_depth
        )

    def measure(self, attachment: Attachment, options: ReadersWriters.Options, scale: LoadSize) -> Sample:
        """Run the load of this client's role; of both roles if there is one client."""
        roles = _roles(options, scale)
        larger = self.job(attachment, options, scale)
        jobs = [_job(larger, options, role) for role in roles]
        done = self.run(attachment, options, scale, *jobs)
        by_role = dict(zip(roles, done.results, strict=True))
        values = {
            name: value for role, each in by_role.items() for name, value in _values(role, each).items()
        }
        if done.cpu is not None:
            values["client_cpu"] = done.cpu.share
        return Sample(
            values,
            seconds=max(each.seconds for each in done.results),
            ios=sum(each.ios for each in done.results),
            evidence={**done.evidence, "size": format_size(larger.size), "role": " and ".join(roles)},
            operations={role: each.latency for role, each in by_role.items()},
            series=done.series,
            began=done.began,
            utilisation=utilisation(done),
            first_ios=first_ios(done),
            role=" and ".join(roles),
        )

    def ceiling(self, *_: object) -> None:
        """Return None: no single value describes the client under loads of different kinds."""


def _roles(options: ReadersWriters.Options, scale: LoadSize) -> tuple[str, ...]:
    """Return the roles of the client with the number ``scale.client``."""
    if scale.clients == 1:
        return ROLES
    readers = options.readers if options.readers is not None else scale.clients // 2
    if readers >= scale.clients:
        raise WorkloadError(
            f"readers-writers: readers={readers} of {scale.clients} clients leave none to write: use more "
            "clients or fewer readers"
        )
    return ("read",) if scale.client < readers else ("write",)


def _pattern(options: ReadersWriters.Options, role: str) -> Pattern:
    random = getattr(options, f"{role}_access") == "random"
    depth = 1 if options.engine in {"psync", "mmap"} else getattr(options, f"{role}_queue_depth")
    return Pattern(f"rand{role}" if random else role, getattr(options, f"{role}_block_size"), depth)


def _job(like: FioJob, options: ReadersWriters.Options, role: str) -> FioJob:
    pattern = _pattern(options, role)
    return replace(
        like,
        name=role,
        rw=pattern.rw,
        block_size=pattern.block_size,
        queue_depth=pattern.queue_depth,
        seed=((like.seed or 0) + ROLES.index(role)) % 2**32,
    )


def _values(role: str, result: FioResult) -> dict[str, float]:
    return {
        f"{role}_bandwidth": result.bytes / result.seconds,
        f"{role}_iops": result.ios / result.seconds,
        **_metrics.latency_values(role, result.latency),
    }
