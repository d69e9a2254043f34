"""Count latencies in fio's bins, so that the controller merges the counts without loss.

The layout is that of :mod:`storagetest.measure.histogram`, repeated here because the agent imports only its
own package (a test compares the two): exact to 127 ns, then 64 bins for every power of two, each named by
its middle, 29 groups in all; longer latencies are counted in the last bin. An interval of a timeline has 8
bins for every power of two, so that a long load sends little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_BITS = 6
_TOP = (1 << (_BITS + 28)) - 1

COARSE = 3
"""Bits of 8 bins for every power of two; their middles are within 6.25 % of the latencies."""


def middle(ns: int, bits: int = _BITS) -> int:
    """Return the middle of the bin in which ``ns`` is counted, of 2**``bits`` for every power of two."""
    ns = max(0, min(ns, _TOP))
    shift = ns.bit_length() - bits - 1
    if shift <= 0:
        return ns
    return (ns >> shift << shift) + (1 << (shift - 1))


def count(latencies: Iterable[int], bits: int = _BITS) -> dict[int, int]:
    """Return the number of ``latencies`` (ns) in each bin, by the bin's middle."""
    bins: dict[int, int] = {}
    for ns, times in Counter(latencies).items():  # Counter counts equal values in C
        name = middle(ns, bits)
        bins[name] = bins.get(name, 0) + times
    return bins
