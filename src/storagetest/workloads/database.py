"""Database: a log that is flushed at each commit, and random pages at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from storagetest.config.base import Size
from storagetest.errors import WorkloadError
from storagetest.measure.run import Metric
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.units import format_size
from storagetest.workloads._agent.base import AgentOptions, DataSetWorkload
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._fio.base import data_file, data_size
from storagetest.workloads._metrics import bandwidth, client_cpu, latencies, rate
from storagetest.workloads.base import LoadSize, register

_MIB = 1 << 20
_LOG_PART = 16
_LARGEST_LOG = 64 * _MIB


@register
class Database(DataSetWorkload["Database.Options"]):
    """One writer appends to a log and flushes each record; other workers read and overwrite random pages.

    A commit is a record written and fdatasync(2) returned. The log has a sixteenth of the profile's `size`,
    64 MiB at most; it is preallocated and written circularly, as by databases that recycle their logs. The
    pages are the data set of the loads by fio.
    """

    name = "database"
    main_phase = "work"
    headline = ("tps", "page_iops", "commit_p99")
    source = "the write-ahead log and page accesses of transactional databases; fdatasync(2)"
    example: ClassVar[Mapping[str, Any]] = {"page_size": "16KiB", "page_workers": 4}
    metrics: ClassVar[Mapping[str, Metric]] = {
        **rate("tps", "page_iops"),
        **bandwidth("log_bandwidth", "page_bandwidth"),
        **latencies("commit", "page_read", "page_write"),
        **client_cpu,
    }

    class Options(AgentOptions):
        """The log's records, and the pages."""

        commit_size: Annotated[Size, Field(ge=512, le=_MIB)] = 4096
        """Bytes a commit appends to the log."""

        page_size: Annotated[Size, Field(ge=512, le=_MIB, multiple_of=512)] = 8192
        """Bytes a page."""

        page_workers: Annotated[int, Field(ge=1, le=256)] = 4
        """Processes that read and write pages, each one page at a time."""

        read_percent: Annotated[int, Field(ge=0, le=100)] = 70
        """How many of a hundred pages are read; the others are overwritten."""

        direct: bool = True
        """Read and write pages past the client's page cache (O_DIRECT). The log is flushed in any case."""

    def request(self, attachment: Attachment, options: Database.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of log writer and page workers."""
        size = data_size(attachment, scale)
        log = min(_LARGEST_LOG, max(_MIB, size // _LOG_PART // _MIB * _MIB))
        device = attachment.kind is AttachmentKind.BLOCK
        data = size - log if device else size
        if data <= 0:
            raise WorkloadError(f"{attachment.client.name}: {self.name}: {format_size(size)} holds no pages")
        return {
            "command": "loads.database",
            "path": data_file(attachment, scale),
            "logs": None if device else attachment.path,
            "log": log,
            "data": data,
            "record": options.commit_size,
            "page": options.page_size,
            "workers": options.page_workers,
            "read_percent": options.read_percent,
            "direct": options.direct,
            "seconds": scale.runtime,
            "seed": options.seed + scale.repeat,
        }

    def values(self, result: AgentResult, options: Database.Options) -> dict[str, float]:  # noqa: ARG002
        """Return commits and pages per second."""
        work = result.phases["work"]
        pages = [name for name in work.operations if name.startswith("page_")]
        return {
            "tps": work.rate("commit"),
            "page_iops": sum(work.rate(name) for name in pages),
            "log_bandwidth": work.bandwidth("commit"),
            "page_bandwidth": sum(work.bandwidth(name) for name in pages),
        }
