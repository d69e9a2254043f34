"""PostMark: the small files of a mail server, as J. Katcher published it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.measure.run import Better, Metric, Sample
from storagetest.protocols.base import Attachment
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._metrics import bandwidth, client_cpu, counts, elapsed, latencies, rate
from storagetest.workloads.base import LoadSize, register

_BYTES_A_FILE = 1 << 18
_FEWEST = 16
_OPERATIONS = ("create", "delete", "read", "append")


@register
class Postmark(AgentWorkload["Postmark.Options"]):
    """A pool of small files is created, used in transactions and deleted, as a mail server does.

    A transaction reads or appends to one file, and creates or deletes another. The parameters' defaults are
    the published ones, except that the profile's `size` gives the pool (a file for every 256 KiB, at least
    16) and its `runtime` the transactions.
    """

    name = "postmark"
    main_phase = "transactions"
    example: ClassVar[Mapping[str, Any]] = {"files": 500, "transactions": 500}
    counts_server_writes = True
    headline = ("tps", "read_bandwidth", "write_bandwidth", "transaction_p99")
    source = "J. Katcher, PostMark: a new file system benchmark, Network Appliance TR3022 (1997)"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **rate("tps"),
        **bandwidth("read_bandwidth", "write_bandwidth"),
        **rate("create_alone_ops", "delete_alone_ops", *(f"{name}_ops" for name in _OPERATIONS)),
        **counts("transactions", better=Better.HIGHER),
        **counts("server_writes_per_transaction"),
        **latencies("transaction", *_OPERATIONS),
        **elapsed,
        **client_cpu,
    }

    class Options(AgentOptions):
        """PostMark's parameters."""

        files: Annotated[int | None, Field(ge=1)] = None
        """Files in the pool, of all processes (`set number`; published: 500)."""

        transactions: Annotated[int | None, Field(ge=1)] = None
        """Transactions of all processes (`set transactions`; published: 500), in place of the runtime."""

        low: Annotated[Size, Field(ge=1)] = 500
        """The smallest file's bytes (`set size`)."""

        high: Annotated[Size, Field(ge=1, le=1 << 20)] = 10_000
        """The largest file's bytes (`set size`; 9.77 KiB)."""

        subdirectories: Annotated[int, Field(ge=0, le=100_000)] = 0
        """Directories that the files are spread over (`set subdirectories`)."""

        read_bias: Annotated[int, Field(ge=-1, le=10)] = 5
        """How many in ten are reads, not appends (`set bias read`); -1: neither."""

        create_bias: Annotated[int, Field(ge=-1, le=10)] = 5
        """How many in ten are creations, not deletions (`set bias create`); -1: neither."""

        read_block: Annotated[Size, Field(ge=1, le=1 << 20)] = 512
        """Bytes a read (`set read`)."""

        write_block: Annotated[Size, Field(ge=1, le=1 << 20)] = 512
        """Bytes a write (`set write`)."""

        buffered: bool = True
        """Collect reads and writes as stdio does, into the target's own block size (`set buffering`)."""

        sync: bool = False
        """fsync after each creation and each append. Not in the published program."""

        processes: Annotated[int, Field(ge=1, le=256)] = 1
        """Processes, each with its own pool. The published program has one."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.low > self.high:
                raise ValueError(f"low is {self.low} bytes and high {self.high}: low must not be the larger")
            if self.read_bias < 0 and self.create_bias < 0:
                raise ValueError("read_bias and create_bias are both -1: nothing is left to do")
            if self.whole and self.transactions is None:
                raise ValueError("whole: set transactions too")
            for name in ("files", "transactions"):
                number = getattr(self, name)
                if number is not None and number < self.processes:
                    raise ValueError(f"{name}: {number} are too few for {self.processes} processes")
            return self

    def request(self, attachment: Attachment, options: Postmark.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of one run of PostMark."""
        known = options.model_dump(exclude={"whole", "seed", "files"})
        least = max(_FEWEST, options.processes)
        files = options.files or max(least, scale.size // _BYTES_A_FILE)
        # There may be twice as many files later, and each may be of the largest size.
        require_space(attachment, 2 * files * options.high)
        return {
            "command": "loads.postmark",
            "path": attachment.path,
            "files": files,
            "seconds": None if options.transactions is not None else scale.runtime,
            "seed": options.seed + scale.repeat,
            **known,
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return 0.1 s for each file and each transaction."""
        return float(0.1 * (3 * request["files"] + 4 * request["transactions"]))

    def values(self, result: AgentResult, options: Postmark.Options) -> dict[str, float]:  # noqa: ARG002
        """Return PostMark's values.

        As published, data rates are bytes over the whole time, creation and deletion of the pool included.
        """
        create, work = result.phases["create"], result.phases["transactions"]
        span = sum(phase.span for phase in result.phases.values())
        written = create.operations["create"].total_bytes + sum(
            work.operations[name].total_bytes for name in ("create", "append")
        )
        found = {
            "tps": work.rate("transaction"),
            "transactions": float(work.operations["transaction"].total),
            "read_bandwidth": work.operations["read"].total_bytes / span,
            "write_bandwidth": written / span,
            "create_alone_ops": create.rate("create"),
        }
        if (delete := result.phases.get("delete")) is not None:  # unless the transactions deleted all
            found["delete_alone_ops"] = delete.rate("delete")
        return found | {f"{name}_ops": work.rate(name) for name in _OPERATIONS if work.operations[name].ops}

    def with_server_writes(self, sample: Sample, writes: int, where: str) -> Sample:
        """Return ``sample`` with the server's writes per transaction, creation of the pool included."""
        each = writes / sample.values["transactions"]
        text = f"{writes} write operations, {where}"
        return replace(
            sample,
            values={**sample.values, "server_writes_per_transaction": each},
            evidence={**sample.evidence, "server writes": text},
        )
