"""A user beside greedy neighbours: how much slower he gets, and whether the neighbours share evenly."""

from __future__ import annotations


def test_noisy_neighbour(measure):
    """A user with one I/O in flight is not starved by greedy neighbours, and these share evenly."""
    measure("noisy-neighbour")
