"""Some clients read while others write: the figures of each role."""

import pytest


@pytest.mark.parametrize("read_access", ["random", "sequential"])
def test_readers_and_writers(measure, read_access):
    """Readers and writers at the same time, on one client or on many: each role meets its gates."""
    measure("readers-writers", read_access=read_access)
