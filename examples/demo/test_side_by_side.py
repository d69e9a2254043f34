"""The same loads on every target, with gates that a working target meets."""

import pytest


@pytest.mark.gate("p99 <= 2s")
def test_small_random_write(measure):
    """Random writes of 4 KiB: 99 % of them take two seconds at most."""
    measure("small-random-write", block_size="4KiB", queue_depth=16)


@pytest.mark.gate("bandwidth >= 512KiB/s")
def test_sequential_read(measure):
    """One stream of reads of 256 KiB has a bandwidth of 512 KiB/s at least."""
    measure("sequential", direction="read", block_size="256KiB")
