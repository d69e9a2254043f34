"""Small random reads: index look-ups, mail boxes, virtual machines at work."""

import pytest


@pytest.mark.parametrize("block_size", ["4KiB", "16KiB"])
def test_small_random_read(measure, block_size):
    """Random reads of a small block at a moderate queue depth meet their gates."""
    measure("small-random-read", block_size=block_size)
