"""Open loop: requests come at their rate, whatever the target makes of it, and wait where it stalls."""

import pytest


@pytest.mark.parametrize("rate", [50, 200])
def test_open_loop(measure, rate):
    """Random reads and writes at a given rate meet their gates, counted from when they were due."""
    measure("open-loop", rate=rate, read_percent=70)
