"""Bonnie: a file by the character and by the block, seeks, and many empty files, as in Bonnie++ 1.03."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.measure.run import Metric
from storagetest.protocols.base import Attachment
from storagetest.units import format_throughput
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult, OpStats
from storagetest.workloads._metrics import bandwidth, client_cpu, elapsed, latencies, rate, share
from storagetest.workloads.base import LoadSize, register

_MIB = 1 << 20
_BYTES_A_FILE = 1 << 14
_STREAMS = ("char_write", "block_write", "rewrite", "char_read", "block_read")
_FILES = tuple(
    f"{order}_{operation}" for order in ("sequential", "random") for operation in ("create", "stat", "delete")
)
_NEAR = 0.8
"""Above this share of the rate of single bytes on a null device, the client is the limit."""


@register
class Bonnie(AgentWorkload["Bonnie.Options"]):
    """One file written and read by the character and by the block, seeks in it, and many empty files.

    The file has the profile's `size` and there is an empty file for every 16 KiB of it, as far as each
    phase's share of the `runtime` suffices. Characters go through a buffered stream, as putc and getc do, but
    Python's (see the agent's module); the evidence names the client's rate without a target.
    """

    name = "bonnie"
    example: ClassVar[Mapping[str, Any]] = {"sync": True, "seekers": 3}
    headline = ("block_write", "block_read", "rewrite", "seeks")
    source = "R. Coker, Bonnie++ 1.03 (https://www.coker.com.au/bonnie++/)"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **bandwidth(*_STREAMS),
        **rate("seeks", *_FILES),
        **latencies("seeks", *_FILES),
        **share(*(f"{each}_cpu" for each in (*_STREAMS, "seeks", *_FILES)), exceeds_one=True),
        **elapsed,
        **client_cpu,
    }

    class Options(AgentOptions):
        """Bonnie++'s parameters."""

        chunk_size: Annotated[Size, Field(ge=256, le=_MIB)] = 8192
        """Bytes a block (`-s size:chunk`)."""

        characters: bool = True
        """Whether to also write and read by the character (`-f` leaves that out)."""

        char_io: Literal["buffered", "syscall"] = "buffered"
        """Through a buffered stream (Bonnie++ 1.03), or each character by a system call (2.00)."""

        seeks: Annotated[int, Field(ge=1)] = 8000
        """Seeks of all seekers; each tenth writes."""

        seekers: Annotated[int, Field(ge=1, le=64)] = 3
        """Processes that seek (5 from Bonnie++ 1.90 on)."""

        files: Annotated[int | None, Field(ge=0)] = None
        """Empty files (`-n`, there in multiples of 1024; published: 16 of them); 0 leaves them out."""

        sync: bool = False
        """fsync after every write, and of the directory after every creation and deletion (`-b`)."""

        sync_on_close: bool = False
        """fsync before a written file is closed, in its time (as Bonnie++ does from 1.90 on)."""

        cold: bool = True
        """Evict the file from the client's cache before it is read; Bonnie++ does not."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.chunk_size & (self.chunk_size - 1):
                raise ValueError(f"chunk_size: {self.chunk_size} is not a power of two")
            return self

    def request(self, attachment: Attachment, options: Bonnie.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of one run; the time is divided evenly among the phases."""
        size = max(_MIB, scale.size // _MIB * _MIB)
        require_space(attachment, size)
        files = size // _BYTES_A_FILE if options.files is None else options.files
        phases = len(_STREAMS) - 2 * (not options.characters) + 1 + (len(_FILES) if files else 0)
        known = options.model_dump(exclude={"whole", "seed", "files", "chunk_size"})
        return {
            "command": "loads.bonnie",
            "path": attachment.path,
            "size": size,
            "chunk": options.chunk_size,
            "files": files,
            "seconds": None if options.whole else scale.runtime / phases,
            "seed": options.seed + scale.repeat,
            **known,
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return the time for 100 kB/s by the character, 20 chunks/s otherwise, and 50 ms a file."""
        size, chunk = request["size"], request["chunk"]
        return float(2 * size / 1e5 + 0.05 * (4 * size / chunk + 2 * request["seeks"] + 6 * request["files"]))

    def values(self, result: AgentResult, options: Bonnie.Options) -> dict[str, float]:  # noqa: ARG002
        """Return Bonnie++'s values in bytes/s and per second, and the CPU share of each."""
        values: dict[str, float] = {}
        for name, phase in result.phases.items():
            if name in _STREAMS:
                values[name] = phase.bandwidth(name)
            else:
                values[name] = phase.rate(_operation_of(name))
            values[f"{name}_cpu"] = phase.cpu
        return values

    def operations(self, result: AgentResult, options: Bonnie.Options) -> Mapping[str, OpStats]:  # noqa: ARG002
        """Return the seeks, and the operations on empty files."""
        return {
            name: phase.operations[_operation_of(name)]
            for name, phase in result.phases.items()
            if name not in _STREAMS
        }

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return the file's size, and whether characters were limited by the client."""
        texts = {"size": json.dumps(result.extra["size"])}
        for name, ceiling in result.extra["ceilings"].items():
            reached = result.phases[name].bandwidth(name)
            limit = "the client" if reached > _NEAR * ceiling else "not the client"
            without_target = f"{format_throughput(ceiling)} on a null device"
            texts[f"{name}_ceiling"] = f"{without_target}, {format_throughput(reached)} here: {limit} limits"
        return texts


def _operation_of(phase: str) -> str:
    """Return the only operation of a phase: ``stat`` for ``random_stat``."""
    return "seeks" if phase == "seeks" else phase.rpartition("_")[2]
