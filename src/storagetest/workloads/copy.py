"""Copying: one large file, or a tree of small ones, written, copied, read back and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.measure.run import Metric, Sample
from storagetest.protocols.base import Attachment
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult, OpStats
from storagetest.workloads._metrics import bandwidth, client_cpu, elapsed, latencies, rate
from storagetest.workloads.base import LoadSize, register

_MIB = 1 << 20
_PHASES = ("write", "copy", "read", "delete")
_MOVING = _PHASES[:3]


@register
class Copy(AgentWorkload["Copy.Options"]):
    """Files are written, copied on the target, read back and compared, and deleted.

    `large`: one file a process, of the profile's `size` in all; `tree`: files of about `file_size` of that
    size in all, in a tree of directories. Each phase has at most a quarter of the `runtime`. Copies that
    differ from the written data fail the case.
    """

    name = "copy"
    example: ClassVar[Mapping[str, Any]] = {"kind": "tree", "file_size": "16KiB"}
    headline = ("write_bandwidth", "copy_bandwidth", "read_bandwidth")
    source = "copy_file_range(2)"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **bandwidth(*(f"{phase}_bandwidth" for phase in _MOVING)),
        **rate(*(f"{phase}_files" for phase in _PHASES)),
        **latencies(*_PHASES),
        **elapsed,
        **client_cpu,
    }

    class Options(AgentOptions):
        """Files to copy, and the way to copy them."""

        kind: Literal["large", "tree"] = "large"
        """One large file a process, or a tree of small ones."""

        processes: Annotated[int, Field(ge=1, le=256)] = 1
        """Processes, each with its own files."""

        block_size: Annotated[Size, Field(ge=512, le=64 * _MIB)] = _MIB
        """Bytes a read or a write."""

        file_size: Annotated[Size, Field(ge=2, le=256 * _MIB)] = 16384
        """Mean size of a tree's files; sizes range from half to one and a half times that."""

        depth: Annotated[int, Field(ge=0, le=8)] = 2
        """Levels of directories of a tree."""

        width: Annotated[int, Field(ge=1, le=100)] = 4
        """Directories in each directory of a tree."""

        method: Literal["client", "server"] = "client"
        """Whether data goes through the client, or the server copies it (copy_file_range)."""

        sync: bool = True
        """fsync each file before it counts as done."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.width**self.depth > 10_000:
                raise ValueError(f"width ** depth is {self.width**self.depth}: at most 10000 directories")
            return self

    def request(self, attachment: Attachment, options: Copy.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the four phases; source and copy have the profile's size each."""
        least = options.processes * (_MIB if options.kind == "large" else options.file_size)
        size = max(least, scale.size)
        require_space(attachment, 2 * size)
        known = options.model_dump(exclude={"whole", "seed", "kind", "method"})
        return {
            "command": "loads.copy",
            "path": attachment.path,
            "large": options.kind == "large",
            "size": size,
            "files": max(options.processes, size // (options.file_size + options.file_size // 4)),
            "server": options.method == "server",
            "seconds": None if options.whole else scale.runtime / len(_PHASES),
            "seed": options.seed + scale.repeat,
            **known,
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return the time for 1 MiB/s, or 0.4 s per file if that is more."""
        return float(max(5 * request["size"] / _MIB, 0 if request["large"] else 0.4 * request["files"]))

    def values(self, result: AgentResult, options: Copy.Options) -> dict[str, float]:
        """Return bandwidths, and of a tree the files per second."""
        found: dict[str, float] = {}
        for name, phase in result.phases.items():
            if name in _MOVING:
                found[f"{name}_bandwidth"] = phase.bandwidth("blocks")
            if options.kind == "tree":
                found[f"{name}_files"] = phase.rate("files")
        return found

    def invalid(self, result: AgentResult, options: Copy.Options) -> tuple[str, ...]:
        """A phase in which no block ended while all processes were active has no bandwidth."""
        return tuple(
            f"{name}: no block ended while all {options.processes} processes were active: more data are "
            "needed (size), or more time (runtime)"
            for name, phase in result.phases.items()
            if name in _MOVING and not phase.operations["blocks"].bytes
        )

    def operations(self, result: AgentResult, options: Copy.Options) -> Mapping[str, OpStats]:
        """Return the operations on a file of a tree."""
        if options.kind == "large":
            return {}
        return {name: phase.operations["files"] for name, phase in result.phases.items()}

    def measure(self, attachment: Attachment, options: Copy.Options, scale: LoadSize) -> Sample:
        """Run the four phases. A copy that differs is the target's failure: :class:`AssertionError`."""
        sample = super().measure(attachment, options, scale)
        differs = sample.evidence.get("differs")
        assert differs is None, f"{attachment.client.name}: copies differ from the written data: {differs}"
        return sample
