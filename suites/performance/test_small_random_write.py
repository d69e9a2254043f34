"""Small random writes: databases, mail stores and virtual machines."""

import pytest


@pytest.mark.parametrize("block_size", ["4KiB", "16KiB"])
def test_small_random_write(measure, block_size):
    """Random writes of a small block at a moderate queue depth meet their gates."""
    measure("small-random-write", block_size=block_size)
