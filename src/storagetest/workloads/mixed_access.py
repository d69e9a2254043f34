"""The classic access specification: mostly random, partly sequential, one direction at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storagetest.config.base import Size
from storagetest.workloads._fio.base import FioWorkload, JobsOptions, Pattern
from storagetest.workloads.base import register


@register
class MixedAccess(FioWorkload["MixedAccess.Options"]):
    """Reads or overwrites of which most go to random places and the rest follow on from the one before."""

    name = "mixed-access"
    source = (
        "the access specification 80 % random, 20 % sequential of "
        "published comparisons of iSCSI, CIFS and NFS"
    )
    example: ClassVar[Mapping[str, Any]] = {"direction": "read", "block_size": "64KiB"}

    class Options(JobsOptions):
        """The direction, how random, the block and how many are in flight."""

        direction: Literal["read", "write"] = "read"
        """Whether it reads or writes."""

        random_percent: Annotated[int, Field(ge=1, le=99)] = 80
        """How many of a hundred I/Os go to a random place."""

        block_size: Size = 4096
        """Bytes an I/O."""

        queue_depth: Annotated[int, Field(ge=1, le=4096)] = 8
        """I/Os in flight, for each job."""

    def pattern(self, options: MixedAccess.Options) -> Pattern:
        """Return fio's ``randread`` or ``randwrite`` with its share of sequential I/O."""
        return Pattern(
            f"rand{options.direction}",
            options.block_size,
            options.queue_depth,
            options.jobs,
            random_percent=options.random_percent,
        )
