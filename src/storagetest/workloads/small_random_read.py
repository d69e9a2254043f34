"""Small random reads, as of index lookups, mailboxes and virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from storagetest.config.base import Size
from storagetest.workloads._fio.base import FioWorkload, JobsOptions, Pattern
from storagetest.workloads.base import register


@register
class SmallRandomRead(FioWorkload["SmallRandomRead.Options"]):
    """Reads of a small block at random places of a filled file or device, at a fixed queue depth."""

    name = "small-random-read"
    source = "randread of fio(1)"
    example: ClassVar[Mapping[str, Any]] = {"block_size": "4KiB", "queue_depth": 8}

    class Options(JobsOptions):
        """The block and how many are in flight."""

        block_size: Size = 4096
        """Bytes an I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 8
        """I/Os in flight, for each job."""

    def pattern(self, options: SmallRandomRead.Options) -> Pattern:
        """Return fio's ``randread``."""
        return Pattern("randread", options.block_size, options.queue_depth, options.jobs)
