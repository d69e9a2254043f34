"""Boot storm: many virtual machines start at the same time from clones of one image."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import Duration, Size
from storagetest.measure.histogram import merge
from storagetest.measure.run import METRICS, Metric
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.units import format_duration, format_size
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._agent.run import run_agent
from storagetest.workloads._fio.base import SLACK, SLOWEST_FILL
from storagetest.workloads._metrics import client_cpu, latencies, seconds
from storagetest.workloads.base import LoadSize, register

_MIB = 1 << 20
_BYTES_A_READ = 1 << 20
_FEWEST = 16
_SLOWEST_IO = 0.05


@register
class BootStorm(AgentWorkload["BootStorm.Options"]):
    """Virtual machines that start together from clones of one image, each with a list of reads and writes.

    A machine is a process; it reads the shared base image (mostly small, mostly random), then writes to its
    own clone, with pauses. It has booted when its list is complete, however long that takes. The profile's
    `size` is that of the base image, and gives each machine a read for every MiB of it, at least 16, and a
    write for every four reads. On a directory clones are thin files, on a block device regions of it.
    """

    name = "boot-storm"
    main_phase = "boot"
    needs: ClassVar[frozenset[str]] = frozenset()
    example: ClassVar[Mapping[str, Any]] = {"vms": 20, "think": "2ms"}
    headline = ("time_to_last_boot", "iops", "read_p99")
    source = "a boot's disk accesses, in the manner of published boot storms of cloned machines"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **seconds("time_to_first_boot", "time_to_half", "time_to_last_boot"),
        **{name: METRICS[name] for name in ("bandwidth", "iops", "latency_mean")},
        **latencies("read", "write", "flush"),
        **client_cpu,
    }

    class Options(AgentOptions):
        """Number and load of the machines."""

        vms: Annotated[int, Field(ge=1, le=512)] = 20
        """Virtual machines."""

        reads: Annotated[int | None, Field(ge=1)] = None
        """Reads of the base image by each machine."""

        writes: Annotated[int | None, Field(ge=0)] = None
        """Writes of each machine to its clone; each tenth is read back, each sixteenth flushed."""

        think: Annotated[Duration, Field(le=10)] = 0.002
        """The mean pause before each request, in which the guest computes."""

        image_size: Annotated[Size | None, Field(ge=_MIB)] = None
        """The base image's bytes, in place of the profile's size."""

        clone_size: Annotated[Size, Field(ge=_MIB)] = _MIB
        """The part of its clone that a machine writes to while it boots."""

        direct: bool = True
        """Bypass the client's page cache (O_DIRECT), as hypervisors do."""

        interval: Annotated[Duration, Field(ge=0.01)] = 0.5
        """The interval of the latencies over time (published: 5 s)."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            for name in ("image_size", "clone_size"):
                size = getattr(self, name)
                if size is not None and size % _MIB:
                    raise ValueError(f"{name}: {format_size(size)} is not a multiple of 1MiB")
            return self

    def request(self, attachment: Attachment, options: BootStorm.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the storm; the image has the profile's size unless `image_size` is set."""
        clones = options.vms * options.clone_size
        image = max(_MIB, (options.image_size or scale.size) // _MIB * _MIB)
        require_space(attachment, image + clones)
        reads = options.reads or max(_FEWEST, scale.size // _BYTES_A_READ)
        return {
            "command": "loads.boot_storm",
            "step": "boot",
            "path": attachment.path,
            "block": attachment.kind is AttachmentKind.BLOCK,
            "image": image,
            "clone": options.clone_size,
            "reads": reads,
            "writes": reads // 4 if options.writes is None else options.writes,
            "seconds": None,
            "repeat": scale.repeat,
            **options.model_dump(include={"vms", "think", "direct", "interval", "seed"}),
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return the time of all pauses, and of 50 ms for each request of every machine."""
        requests = request["reads"] + 2 * request["writes"]
        return float(requests * (5 * request["think"] + _SLOWEST_IO * request["vms"]))

    def dataset(self, options: BootStorm.Options, scale: LoadSize) -> str | None:
        """Return a key of the data of :meth:`fill`: the image, and on a device the clones' regions."""
        return (
            f"boot-storm:{options.image_size or scale.size}:{options.vms}:{options.clone_size}:{options.seed}"
        )

    def fill(self, attachment: Attachment, options: BootStorm.Options, scale: LoadSize) -> None:
        """Write the base image, and on a device all regions, with incompressible data."""
        request = {**self.request(attachment, options, scale), "step": "fill"}
        size = request["image"] + request["vms"] * request["clone"]
        run_agent(attachment.client, request, deadline=SLACK + size / SLOWEST_FILL)

    def values(self, result: AgentResult, options: BootStorm.Options) -> dict[str, float]:  # noqa: ARG002
        """Return the times to boot, and rates over the whole storm."""
        phase = result.phases["boot"]
        boots = sorted(result.extra["boots"])
        operations = phase.operations
        return {
            "time_to_first_boot": boots[0],
            "time_to_half": statistics.median(boots),
            "time_to_last_boot": boots[-1],
            "bandwidth": phase.bandwidth("read") + phase.bandwidth("write"),
            "iops": phase.rate("read") + phase.rate("write"),
            "latency_mean": merge((operations["read"].latency, operations["write"].latency)).mean,
        }

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return when each machine had booted, and latencies over time."""
        boots = ", ".join(format_duration(each) for each in sorted(result.extra["boots"]))
        return {"boots": boots, "series": json.dumps(result.extra["series"])}
