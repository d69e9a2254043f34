"""A gate that no target meets: what a failure looks like."""

import pytest


@pytest.mark.gate("iops >= 10000000")
def test_fails_on_purpose(measure):
    """Fails: no target of the lab has ten million IOPS."""
    measure("small-random-read", block_size="4KiB", queue_depth=16)
