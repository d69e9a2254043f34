"""Whether reads came from where the case says, by what crossed the wire. Pure.

Rules:

- ``cold``: at least 90 % of the bytes that the load read came from the target. The rest is what it read
  twice; a file too small for the run, or a cache that was not dropped, shows here.
- ``warm``: at most 10 % did.
- ``direct``: at least 90 % of all bytes read and written crossed. (fio asked for O_DIRECT; a file system may
  take it and use its cache all the same.) Where no counter tells, fio's word stands.

What cannot be shown, of ``cold`` and ``warm``, is not assumed: INVALID.
"""

from __future__ import annotations

from enum import Enum

from storagetest.units import format_ratio, format_size

__all__ = ["Cache", "why_cache_state_unproven"]

MOSTLY = 0.90
HARDLY = 0.10


class Cache(Enum):
    """What the client's cache holds of the data set when the measuring begins, or that it is passed by."""

    COLD = "cold"
    WARM = "warm"
    DIRECT = "direct"


def why_cache_state_unproven(state: Cache, *, moved: int, crossed: int | None, counter: str = "") -> str:
    """Return why ``state`` is not shown by the counters; an empty text where it is.

    ``moved`` are the bytes that the load read (``direct``: and wrote), ``crossed`` those that crossed (None:
    no counter tells), as ``counter`` says.
    """
    if crossed is None:
        if state is Cache.DIRECT:
            return ""
        return f"cache {state.value}: not proven: no counter shows whether reads crossed the wire"
    if moved <= 0:
        return f"cache {state.value}: not proven: the load moved nothing"
    share = crossed / moved
    if share <= HARDLY if state is Cache.WARM else share >= MOSTLY:
        return ""
    bound = f"at most {HARDLY:.0%}" if state is Cache.WARM else f"at least {MOSTLY:.0%}"
    return (
        f"cache {state.value}: not proven: of {format_size(moved)} that the load moved, {format_ratio(share)}"
        f" crossed the wire ({counter} counters), and {bound} should have"
    )
