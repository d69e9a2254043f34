"""Metadata: calls that create, look up and remove names, by many processes at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Size
from storagetest.measure.run import Metric
from storagetest.protocols.base import Attachment
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult, OpStats
from storagetest.workloads._metrics import client_cpu, elapsed, rate, timed
from storagetest.workloads.base import LoadSize, register

OPERATIONS = (
    "mkdir", "rmdir", "create", "open", "stat", "readdir",
    "setattr", "xattr", "rename", "link", "symlink", "unlink",
)  # fmt: skip
"""In the order in which they are measured."""

_BYTES_A_FILE = 4096
_DIRECTORIES = 100_000


@register
class Metadata(AgentWorkload["Metadata.Options"]):
    """Metadata operations, one kind after another, by many processes, in private or shared directories.

    In each phase all processes do one operation; `readdir` lists a whole directory. Operations that a target
    does not support (`xattr` over NFSv3, hard links on some) are left out, and the evidence names them. The
    profile's `size` gives the number of files, one for every 4 KiB; the phase's share of the `runtime` limits
    how many are created.
    """

    name = "metadata"
    example: ClassVar[Mapping[str, Any]] = {
        "processes": 4,
        "shared": True,
        "operations": ["create", "stat", "unlink"],
    }
    headline = ("create_ops", "stat_ops", "unlink_ops", "create_p99")
    source = "the operations of mdtest (https://github.com/hpc/ior) and the calls that it leaves out"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **timed(*OPERATIONS),
        **rate("readdir_entries"),
        **elapsed,
        **client_cpu,
    }

    class Options(AgentOptions):
        """The operations, and the directories that they work in."""

        processes: Annotated[int, Field(ge=1, le=256)] = 4
        """Processes, each with its own files."""

        operations: Annotated[Items[Literal[OPERATIONS]], Field(min_length=1)] = OPERATIONS  # type: ignore[valid-type]  # mypy wants the names once more
        """The operations to measure, in any order."""

        shared: bool = False
        """Whether all processes work in one tree of directories, rather than each in its own."""

        files: Annotated[int | None, Field(ge=1)] = None
        """Files of all processes; by default one for every 4 KiB of the profile's size."""

        files_per_directory: Annotated[int | None, Field(ge=1)] = None
        """Files in each directory, in place of `files`."""

        depth: Annotated[int, Field(ge=0, le=16)] = 0
        """Levels of directories below the first; the files are in those of the lowest."""

        width: Annotated[int, Field(ge=1, le=10_000)] = 1
        """Directories in each directory, if there are levels."""

        file_size: Annotated[Size, Field(le=1 << 20)] = 0
        """Bytes that are written into each new file; part of `create`."""

        cold: bool = False
        """Drop the client's caches before `open`, `stat` and `readdir`; use each name once; requires root."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.files is not None and self.files_per_directory is not None:
                raise ValueError("files and files_per_directory: give one of them")
            if self.directories > _DIRECTORIES:
                raise ValueError(f"width ** depth is {self.directories}: at most {_DIRECTORIES} directories")
            if self.files is not None and self.files < self.processes:
                raise ValueError(f"files: {self.files} are too few for {self.processes} processes")
            return self

        @property
        def directories(self) -> int:
            """Directories with files in them, in one tree."""
            return int(self.width**self.depth)

    def request(self, attachment: Attachment, options: Metadata.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the operations; the time is divided evenly among them."""
        phases = {*options.operations, "create", *(["mkdir"] if "rmdir" in options.operations else [])}
        return {
            "command": "loads.metadata",
            "path": attachment.path,
            "operations": list(options.operations),
            "files": _files(attachment, options, scale),
            "seconds": None if options.whole else scale.runtime / len(phases),
            "seed": options.seed + scale.repeat,
            **options.model_dump(include={"processes", "shared", "depth", "width", "file_size", "cold"}),
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return 50 ms for each operation on each file."""
        return float(0.05 * request["files"] * (len(OPERATIONS) + 3))

    def values(self, result: AgentResult, options: Metadata.Options) -> dict[str, float]:
        """Return the rate of each requested operation that the target supports."""
        found = {f"{name}_ops": result.phases[name].rate(name) for name in self.operations(result, options)}
        if "readdir" in options.operations:
            found["readdir_entries"] = result.phases["readdir"].bandwidth("readdir")
        return found

    def invalid(self, result: AgentResult, options: Metadata.Options) -> tuple[str, ...]:
        """An operation of which none ended while all processes were active has no rate."""
        return tuple(
            f"{name}: none ended while all {options.processes} processes were active: more files are needed "
            "(files), or more time (runtime)"
            for name, entry in self.operations(result, options).items()
            if entry.total and not entry.ops
        )

    def operations(self, result: AgentResult, options: Metadata.Options) -> Mapping[str, OpStats]:
        """Return each requested operation that the target supports."""
        return {
            name: result.phases[name].operations[name] for name in options.operations if name in result.phases
        }


def _files(attachment: Attachment, options: Metadata.Options, scale: LoadSize) -> int:
    """Return how many files all processes have together. Raises :class:`WorkloadError` if they do not fit."""
    a_file = max(_BYTES_A_FILE, options.file_size)
    files = options.files or scale.size // a_file
    if options.files is None and options.files_per_directory is not None:
        trees = 1 if options.shared else options.processes
        files = options.files_per_directory * options.directories * trees
    files = max(options.processes, files)
    require_space(attachment, files * a_file)
    return files
