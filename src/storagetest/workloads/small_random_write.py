"""Small random writes, as of databases, mail servers and virtual machines."""

from __future__ import annotations

from storagetest.workloads._fio.base import Pattern
from storagetest.workloads.base import register
from storagetest.workloads.small_random_read import SmallRandomRead


@register
class SmallRandomWrite(SmallRandomRead):
    """Writes of a small block at random places of a filled file or device, at a fixed queue depth."""

    name = "small-random-write"
    source = "randwrite of fio(1)"

    def pattern(self, options: SmallRandomRead.Options) -> Pattern:
        """Return fio's ``randwrite``."""
        return Pattern("randwrite", options.block_size, options.queue_depth, options.jobs)
