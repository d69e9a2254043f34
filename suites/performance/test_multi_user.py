"""Many users at once: how a target scales with them."""

import pytest


@pytest.mark.parametrize(("read_percent", "queue_depth"), [(70, 1), (100, 1), (0, 1), (70, 8)])
def test_multi_user(measure, read_percent, queue_depth):
    """One, two, four and more threads, so many I/Os in flight each: the scaling curve meets its gates."""
    measure("multi-user", read_percent=read_percent, queue_depth=queue_depth)
