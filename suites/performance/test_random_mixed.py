"""Concurrent random reads and writes: the usual model of a transactional load."""

import pytest


@pytest.mark.parametrize("read_percent", [70, 50])
def test_random_mixed(measure, read_percent):
    """Small random reads and writes in a given ratio meet their gates."""
    measure("random-mixed", read_percent=read_percent)
