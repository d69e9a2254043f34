"""Curves over block size, queue depth and jobs: their points meet the gates, and the gates between them."""

import pytest


@pytest.mark.parametrize("direction", ["read", "write"])
def test_sweep_of_block_sizes(measure, direction):
    """One stream with blocks of 4 KiB to 1 MiB: the bandwidth over the block size meets its gates."""
    measure("sweep", over="block_size", direction=direction)


@pytest.mark.parametrize("direction", ["read", "write"])
def test_sweep_of_queue_depths(measure, direction):
    """Random I/O of 4 KiB with 1 to 32 in flight: the IOPS over the queue depth meet their gates."""
    measure("sweep", over="queue_depth", access="random", direction=direction, block_size="4KiB")
