"""Random reads and writes at the same time: the usual model of a transactional load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from storagetest.config.base import Size
from storagetest.workloads._fio.base import FioWorkload, JobsOptions, Pattern
from storagetest.workloads.base import register


@register
class RandomMixed(FioWorkload["RandomMixed.Options"]):
    """Reads and overwrites of a small block at random places, in a given ratio, at a fixed queue depth."""

    name = "random-mixed"
    source = "randrw of fio(1)"
    example: ClassVar[Mapping[str, Any]] = {"read_percent": 70, "block_size": "4KiB"}

    class Options(JobsOptions):
        """The ratio, the block and how many are in flight."""

        read_percent: Annotated[int, Field(ge=1, le=99)] = 70
        """How many of a hundred I/Os are reads."""

        block_size: Size = 4096
        """Bytes an I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 8
        """I/Os in flight, for each job."""

    def pattern(self, options: RandomMixed.Options) -> Pattern:
        """Return fio's ``randrw``; figures are of both directions together."""
        return Pattern(
            "randrw", options.block_size, options.queue_depth, options.jobs, read_percent=options.read_percent
        )
