"""One target under a changing load: more threads, and other block sizes and queue depths."""

import pytest


def test_multi_user(measure):
    """From 1 to 8 threads: the scaling curve, and the knee beyond which more threads gain little."""
    measure("multi-user", levels=[1, 2, 4, 8], read_percent=100)


@pytest.mark.parametrize("queue_depth", [1, 4, 32])
@pytest.mark.parametrize("block_size", ["4KiB", "64KiB"])
def test_block_size_and_queue_depth(measure, block_size, queue_depth):
    """Random reads of two block sizes at three queue depths."""
    measure("small-random-read", block_size=block_size, queue_depth=queue_depth)
