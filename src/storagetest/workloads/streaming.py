"""Streaming: readers that take a frame at fixed times and must not stall."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from storagetest.config.base import Duration, Size
from storagetest.errors import WorkloadError
from storagetest.measure.run import Better, Metric
from storagetest.protocols.base import Attachment
from storagetest.units import format_size
from storagetest.workloads._agent.base import AgentOptions, DataSetWorkload
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._fio.base import data_file, data_size
from storagetest.workloads._metrics import bandwidth, client_cpu, counts, latencies, seconds, share
from storagetest.workloads.base import LoadSize, register

_SECTOR = 4096
_ASKED = 0.99
"""Share of the requested rate; a reader that reaches less makes the sample invalid."""


@register
class Streaming(DataSetWorkload["Streaming.Options"]):
    """Fixed-rate readers, an open loop: every frame is due at a fixed time, however late the last one was.

    A frame that is not read within `deadline` of that time is missed. Response time counts from that time,
    service time from the start of the read, so a stall counts for every frame that it delays. A
    reader that reaches less than 99 % of the rate makes the repeat INVALID. Each reader has its share of
    the data set of the profile's `size`; its `runtime` is the length of the stream.
    """

    name = "streaming"
    main_phase = "play"
    headline = ("missed", "longest_gap", "bandwidth", "response_p99")
    source = (
        "open loops: B. Schroeder, A. Wierman, M. Harchol-Balter, Open Versus Closed: A Cautionary Tale, "
        "NSDI (2006)"
    )
    example: ClassVar[Mapping[str, Any]] = {"streams": 4, "frame_size": "64KiB", "frames_per_second": 25}
    metrics: ClassVar[Mapping[str, Metric]] = {
        **counts("deadline_misses"),
        **share("missed"),
        **share("achieved", better=Better.HIGHER),
        **seconds("longest_gap", "longest_response"),
        **bandwidth("bandwidth"),
        **latencies("response", "service"),
        **client_cpu,
    }

    class Options(AgentOptions):
        """Number of the readers, and size and rate of their frames."""

        streams: Annotated[int, Field(ge=1, le=512)] = 4
        """Readers, each in its own part of the data set."""

        frame_size: Annotated[Size, Field(ge=_SECTOR, le=64 << 20, multiple_of=_SECTOR)] = 64 << 10
        """Bytes per frame."""

        frames_per_second: Annotated[float, Field(gt=0, le=10_000, strict=False)] = 25.0
        """Frames per second of each reader."""

        deadline: Annotated[Duration, Field(gt=0, le=60)] = 0.2
        """Time after its due time within which a frame must be read: a player's buffer."""

        direct: bool = True
        """Bypass the client's page cache (O_DIRECT)."""

    def request(self, attachment: Attachment, options: Streaming.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the readers, each with its share of the data set."""
        size = data_size(attachment, scale) // options.streams // options.frame_size * options.frame_size
        if not size:
            raise WorkloadError(
                f"{attachment.client.name}: {self.name}: {options.streams} frames of "
                f"{format_size(options.frame_size)} do not fit: use a larger size or fewer streams"
            )
        if scale.runtime * options.frames_per_second < 2:
            raise WorkloadError(
                f"{self.name}: {options.frames_per_second:g} frames a second for {scale.runtime:g} s: fewer "
                "than two frames are no stream; use a longer runtime"
            )
        return {
            "command": "loads.streaming",
            "path": data_file(attachment, scale),
            "streams": options.streams,
            "frame": options.frame_size,
            "size": size,
            "rate": options.frames_per_second,
            "within": options.deadline,
            "direct": options.direct,
            "seconds": scale.runtime,
        }

    def values(self, result: AgentResult, options: Streaming.Options) -> dict[str, float]:  # noqa: ARG002
        """Return the missed frames, the longest gap, and the bandwidth."""
        readers = result.extra["readers"]
        frames, missed = (sum(reader[name] for reader in readers) for name in ("frames", "missed"))
        return {
            "deadline_misses": float(missed),
            "missed": missed / frames,
            "achieved": min(reader["achieved"] for reader in readers),
            "longest_gap": max(reader["longest_gap"] for reader in readers),
            "longest_response": max(reader["longest_response"] for reader in readers),
            "bandwidth": result.phases["play"].bandwidth("service"),
        }

    def invalid(self, result: AgentResult, options: Streaming.Options) -> tuple[str, ...]:
        """Return a reason if a reader did not keep up: the load is then not the requested one."""
        slowest = min(reader["achieved"] for reader in result.extra["readers"])
        if slowest >= _ASKED:
            return ()
        rate, size = options.frames_per_second, format_size(options.frame_size)
        reached = f"reached {slowest * rate:.3g} of {rate:g} frames/s of {size} ({slowest:.1%})"
        return (
            f"the slowest of {options.streams} readers {reached}: under {_ASKED:.0%} of the requested rate",
        )

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return the results of each reader."""
        return {"readers": "\n".join(json.dumps(reader) for reader in result.extra["readers"])}
