"""Divide the suite's probability of a false alarm among its gates. Pure.

The gates of a case are known only when it calls ``measure`` with its parameters. The number counted at
collection is an upper bound: the most gates that a case of the workload can have on its variant. The workload
is one of the names in the case's code and parameters; a case that names none may run any.
Rules:

1. With N gates collected, each is judged at 1/(N + 1) of the suite's error probability.
2. The last share is for unforeseen gates, such as those of a case that measures twice: the k-th of these is
   judged at 1/2^k of it. So the shares never add up to more than one (weighted Bonferroni correction).
3. Each worker of a parallel run has a last share of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class ErrorBudget:
    """Divides a suite's error probability. ``allotted``: number of foreseen gates by node id."""

    def __init__(self, allotted: Mapping[str, int], *, workers: int = 1) -> None:
        self._left = dict(allotted)
        self._total = sum(allotted.values()) + workers
        self._unforeseen = 0

    def take(self, nodeid: str, gates: int) -> int:
        """Return the number of gates that share the error with each of these ``gates`` of a case."""
        left = self._left.get(nodeid, 0)
        if gates <= left:
            self._left[nodeid] = left - gates
            return self._total
        self._unforeseen += gates
        return int(self._total * 2 ** min(self._unforeseen, 200))


def max_gates(constants: Iterable[object], workloads: Iterable[str], most: Callable[[str], int]) -> int:
    """Return the largest number of gates of a case with these ``constants`` in its code and parameters."""
    known = list(workloads)
    named = {constant for constant in constants if isinstance(constant, str)} & set(known)
    if named:
        return sum(most(name) for name in named)
    return max((most(name) for name in known), default=0)
