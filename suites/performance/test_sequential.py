"""Sequential streams: backups, media, scans. Small blocks show what an I/O costs, large ones the rate."""

import pytest

block_sizes = pytest.mark.parametrize(
    "block_size", ["1MiB", "64KiB", "1KiB", "4KiB", "16KiB", "256KiB", "4MiB"]
)


@block_sizes
def test_sequential_write(measure, block_size):
    """One stream written from front to back meets its gates."""
    measure("sequential", direction="write", block_size=block_size)


@block_sizes
def test_sequential_read(measure, block_size):
    """One stream read from front to back meets its gates."""
    measure("sequential", direction="read", block_size=block_size)
