"""The classic access specification: 80 % random, 20 % sequential, reads and writes apart, 1 KiB to 1 MiB."""

import pytest

sizes = pytest.mark.parametrize("block_size", ["4KiB", "64KiB", "1KiB", "16KiB", "256KiB", "1MiB"])


@sizes
def test_mixed_access_read(measure, block_size):
    """Reads of one size, mostly at random places, meet their gates."""
    measure("mixed-access", direction="read", block_size=block_size)


@sizes
def test_mixed_access_write(measure, block_size):
    """Overwrites of one size, mostly at random places, meet their gates."""
    measure("mixed-access", direction="write", block_size=block_size)
