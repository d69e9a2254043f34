"""Open loop: requests at a given rate, independent of the target's responses, as of a service's users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storagetest.config.base import Size
from storagetest.errors import WorkloadError
from storagetest.measure.run import Better, Metric
from storagetest.protocols.base import Attachment
from storagetest.units import format_size
from storagetest.workloads._agent.base import AgentOptions, DataSetWorkload
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._fio.base import data_file, data_size
from storagetest.workloads._metrics import bandwidth, client_cpu, latencies, rate, share
from storagetest.workloads.base import LoadSize, register

_SECTOR = 512
_ASKED = 0.99
"""Minimum share of the requested rate; a repeat below it is INVALID."""


@register
class OpenLoop(DataSetWorkload["OpenLoop.Options"]):
    """Random reads and writes that are due at times drawn in advance: an open loop at a given rate.

    Response time counts from the moment at which a request was due, service time from its start; so the
    response time includes the queueing behind a stall. A load that begins less than 99 % of the rate makes
    the repeat INVALID: use more `workers`, or a lower `rate`. The data set is that of the loads by fio.
    """

    name = "open-loop"
    main_phase = "requests"
    headline = ("iops", "achieved", "service_p99", "response_p99")
    source = (
        "open loops: B. Schroeder, A. Wierman, M. Harchol-Balter, Open Versus Closed: A Cautionary Tale, "
        "NSDI (2006)"
    )
    example: ClassVar[Mapping[str, Any]] = {"rate": 200, "process": "poisson", "read_percent": 70}
    metrics: ClassVar[Mapping[str, Metric]] = {
        **rate("iops"),
        **bandwidth("bandwidth"),
        **share("achieved", better=Better.HIGHER),
        **latencies("response", "service"),
        **client_cpu,
    }

    class Options(AgentOptions):
        """Rate and kind of the requests, and their workers."""

        rate: Annotated[float, Field(gt=0, le=100_000, strict=False)] = 100.0
        """Requests a second, of all workers together."""

        process: Literal["poisson", "linear"] = "poisson"
        """Distribution of the requests: random, as from many independent users, or at even intervals."""

        read_percent: Annotated[int, Field(ge=0, le=100)] = 100
        """How many of a hundred requests are reads."""

        block_size: Annotated[Size, Field(ge=_SECTOR, le=64 << 20, multiple_of=_SECTOR)] = 4096
        """Bytes a request."""

        workers: Annotated[int, Field(ge=1, le=512)] = 16
        """Maximum number of requests in flight."""

        direct: bool = True
        """Bypass the client's page cache (O_DIRECT)."""

    def request(self, attachment: Attachment, options: OpenLoop.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the load, drawn anew for each repeat."""
        size = data_size(attachment, scale) // options.block_size * options.block_size
        if not size:
            raise WorkloadError(
                f"{attachment.client.name}: {self.name}: a block of {format_size(options.block_size)} does "
                "not fit: use a larger size"
            )
        if scale.runtime * options.rate < 1:
            raise WorkloadError(
                f"{self.name}: {options.rate:g} requests a second for {scale.runtime:g} s are not even one; "
                "use a longer runtime"
            )
        return {
            "command": "loads.open_loop",
            "path": data_file(attachment, scale),
            "block": options.block_size,
            "size": size,
            **options.model_dump(include={"workers", "rate", "process", "read_percent", "direct"}),
            "seed": options.seed * 1000 + scale.repeat,
            "seconds": scale.runtime,
        }

    def values(self, result: AgentResult, options: OpenLoop.Options) -> dict[str, float]:
        """Return the rates, and the share of the requested rate that was started."""
        phase = result.phases["requests"]
        return {
            "iops": phase.rate("service"),
            "bandwidth": phase.bandwidth("service"),
            "achieved": self._achieved(result, options),
        }

    def invalid(self, result: AgentResult, options: OpenLoop.Options) -> tuple[str, ...]:
        """Return a reason if the rate was not reached: the load is then not the requested one."""
        reached = self._achieved(result, options)
        if reached >= _ASKED:
            return ()
        rate = f"{reached * options.rate:.4g} of {options.rate:g} requests/s ({reached:.1%})"
        return (f"{options.workers} workers reached {rate}: under {_ASKED:.0%} of the requested rate",)

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return the results of each worker."""
        return {"workers": "\n".join(json.dumps(worker) for worker in result.extra["workers"])}

    @staticmethod
    def _achieved(result: AgentResult, options: OpenLoop.Options) -> float:
        """Return the rate of started requests over the requested rate; late requests extend the time."""
        made = sum(worker["made"] for worker in result.extra["workers"])
        last = max(worker["last"] for worker in result.extra["workers"])
        planned = result.extra["planned"]
        asked = planned / options.rate
        return float(made / planned * asked / max(asked, last))
