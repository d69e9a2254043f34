"""Sequential streams: backups, media, scans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storagetest.config.base import Size
from storagetest.workloads._fio.base import FioWorkload, JobsOptions, Pattern
from storagetest.workloads._fio.job import Division
from storagetest.workloads.base import register


@register
class Sequential(FioWorkload["Sequential.Options"]):
    """Streams that read or overwrite a filled file or device from front to back, again and again.

    Each of several jobs has a part of the file or device of its own, or a file (`files: per-job`).
    """

    name = "sequential"
    source = "read and write of fio(1)"
    added_options = FioWorkload.added_options | {"jobs"}
    example: ClassVar[Mapping[str, Any]] = {"direction": "read", "block_size": "1MiB"}

    class Options(JobsOptions):
        """The direction, the block and how many are in flight."""

        direction: Literal["read", "write"] = "read"
        """Whether the stream reads or writes."""

        block_size: Size = 1 << 20
        """Bytes an I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 4
        """I/Os in flight, for each job."""

    def pattern(self, options: Sequential.Options) -> Pattern:
        """Return fio's ``read`` or ``write``."""
        division = Division.PART if options.jobs > 1 else Division.WHOLE
        return Pattern(
            options.direction, options.block_size, options.queue_depth, options.jobs, division=division
        )
