"""``blocks``: a range of the case's own on a device that may be overwritten, as a
:class:`~storagetest.agent.casekit.blocks.Blocks`.

Siblings have ranges that do not overlap, unless the device is too small for all of them: then ranges are
used again, one case after the other. Every case has a seed of its own, so that what an earlier one left is
known for what it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from storagetest.agent.casekit.blocks import EDGE, RANGE, Blocks, places
from storagetest.agent.casekit.claims import lacks

__all__ = ["BESIDE", "give"]

BESIDE = 1
"""Cases at once: what one asks of the device (a flush, a lost path, a counter) is every other's, too."""


@contextmanager
def give(path: str, case: dict[str, Any]) -> Iterator[Blocks]:
    """Lend the range; what is written there stays until the device is released."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        room = places(os.lseek(descriptor, 0, os.SEEK_END))
    finally:
        os.close(descriptor)
    if room == 0:
        lacks(f"{path} is too small: {2 * EDGE + RANGE} bytes are the least")
    seed = int.from_bytes(os.urandom(6), "little")
    with Blocks(path, EDGE + case["index"] % room * RANGE, RANGE, seed=seed) as blocks:
        yield blocks
