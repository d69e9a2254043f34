"""Open loop: requests arrive at a fixed rate, independent of the target, and queue if it stalls."""

import pytest


@pytest.mark.parametrize("rate", [50, 200])
def test_open_loop(measure, rate):
    """Random reads and writes at a given rate meet their gates, counted from when they were due."""
    measure("open-loop", rate=rate, read_percent=70)
