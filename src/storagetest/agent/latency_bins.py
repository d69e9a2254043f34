"""Latencies counted in fio's bins, so that the other side merges them without loss.

The layout is that of :mod:`storagetest.measure.histogram`, said once more because nothing of ours is imported
here (a test holds the two together): exact to 127 ns, then 64 bins for every power of two, each named by its
middle, 29 groups in all; what took longer than the last is counted in the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["count", "middle"]

_BITS = 6
_TOP = (1 << (_BITS + 28)) - 1


def middle(ns: int) -> int:
    """Return the name of the bin that ``ns`` is counted in."""
    ns = max(0, min(ns, _TOP))
    shift = ns.bit_length() - _BITS - 1
    if shift <= 0:
        return ns
    return (ns >> shift << shift) + (1 << (shift - 1))


def count(latencies: Iterable[int]) -> dict[int, int]:
    """Return bin → how many of the ``latencies`` (ns) it holds."""
    found: dict[int, int] = {}
    for ns, times in Counter(latencies).items():  # counting equal ones first happens in C
        name = middle(ns)
        found[name] = found.get(name, 0) + times
    return found
