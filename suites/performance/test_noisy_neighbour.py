"""A user with greedy neighbours: the slowdown of the user, and the fairness among the neighbours."""

from __future__ import annotations


def test_noisy_neighbour(measure):
    """A user with one I/O in flight is not starved by greedy neighbours, and these share evenly."""
    measure("noisy-neighbour")
