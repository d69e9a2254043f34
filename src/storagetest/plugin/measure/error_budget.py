"""How many gates a suite has, so that its false alarms can be shared out among them. Pure.

Which gates a case has is known only when it calls ``measure`` with its parameters, so what is counted at
collection is an upper bound: the most gates that a case of the workload can have on its variant. The workload
is taken from the names that the case has in its code and its parameters; one that names none may run any.
Rules:

1. With N gates collected, each is judged at 1/(N + 1) of what the suite may err.
2. The last share is for what was not foreseen, such as a case that measures twice: the k-th gate of these is
   judged at 1/2^k of it. So the shares add up to one at most, whatever was guessed (Bonferroni, weighted).
3. Each worker of a parallel run has a last share of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

__all__ = ["ErrorBudget", "max_gates"]


class ErrorBudget:
    """Shares a suite's error out. ``allotted`` are the gates foreseen, by node id."""

    def __init__(self, allotted: Mapping[str, int], *, workers: int = 1) -> None:
        self._left = dict(allotted)
        self._total = sum(allotted.values()) + workers
        self._unforeseen = 0

    def take(self, nodeid: str, gates: int) -> int:
        """Return the number of gates that each of these ``gates`` of a case has to share the error with."""
        left = self._left.get(nodeid, 0)
        if gates <= left:
            self._left[nodeid] = left - gates
            return self._total
        self._unforeseen += gates
        return int(self._total * 2 ** min(self._unforeseen, 200))


def max_gates(constants: Iterable[object], workloads: Iterable[str], most: Callable[[str], int]) -> int:
    """Return the most gates that a case with these ``constants`` in its code and parameters can have."""
    known = list(workloads)
    named = {constant for constant in constants if isinstance(constant, str)} & set(known)
    if named:
        return sum(most(name) for name in named)
    return max((most(name) for name in known), default=0)
