"""Prove the cache state of reads by the bytes that were transferred from the target. Pure.

Rules:

- ``cold``: at least 90 % of the bytes that the load read came from the target. The rest was read twice. A
  file too small for the run, or a page cache that was not dropped, fails this check.
- ``warm``: at most 10 % came from the target.
- ``direct``: at least 90 % of all bytes read and written were transferred. (A file system may accept O_DIRECT
  and use its cache nevertheless.) Without a counter, fio's option is trusted.

A ``cold`` or ``warm`` state that cannot be proven makes the run INVALID.
"""

from __future__ import annotations

from enum import Enum

from storagetest.units import format_ratio, format_size

MOSTLY = 0.90
HARDLY = 0.10


class Cache(Enum):
    """State of the client's page cache for the data set at the start: empty, filled, or bypassed."""

    COLD = "cold"
    WARM = "warm"
    DIRECT = "direct"


def why_cache_state_unproven(state: Cache, *, moved: int, crossed: int | None, counter: str = "") -> str:
    """Return why counters do not prove ``state``; an empty text if they do.

    ``moved`` are the bytes that the load read (``direct``: and wrote). ``crossed`` are those transferred by
    the counter named ``counter`` (None: there is no counter).
    """
    if crossed is None:
        if state is Cache.DIRECT:
            return ""
        return f"cache {state.value}: not proven: no counter shows whether reads came from the target"
    if moved <= 0:
        return f"cache {state.value}: not proven: the load transferred no data"
    share = crossed / moved
    if share <= HARDLY if state is Cache.WARM else share >= MOSTLY:
        return ""
    bound = f"at most {HARDLY:.0%}" if state is Cache.WARM else f"at least {MOSTLY:.0%}"
    return (
        f"cache {state.value}: not proven: of {format_size(moved)} of the load, {format_ratio(share)}"
        f" came over the network ({counter} counters); {bound} must"
    )
