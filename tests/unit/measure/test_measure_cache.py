"""Whether the counters show that reads came from the layer that the case requires."""

from __future__ import annotations

import pytest

from storagetest.measure.cache import Cache, why_cache_state_unproven


@pytest.mark.parametrize(
    ("state", "moved", "crossed", "message"),
    [
        (Cache.COLD, 1000, 900, ""),
        (Cache.COLD, 1000, 5000, ""),
        (Cache.COLD, 1000, 899, "89.9% came over the network (eth's counters); at least 90% must"),
        (Cache.COLD, 1000, 0, "0% came over the network"),
        (Cache.COLD, 1000, None, "no counter shows"),
        (Cache.COLD, 0, 0, "transferred no data"),
        (Cache.WARM, 1000, 0, ""),
        (Cache.WARM, 1000, 100, ""),
        (Cache.WARM, 1000, 101, "10.1% came over the network (eth's counters); at most 10% must"),
        (Cache.WARM, 1000, None, "no counter shows"),
        (Cache.DIRECT, 1000, 1000, ""),
        (Cache.DIRECT, 1000, 10, "1.00% came over the network"),
        (Cache.DIRECT, 1000, None, ""),
    ],
)
def test_counters_prove_or_refute_the_cache_state(state, moved, crossed, message):
    found = why_cache_state_unproven(state, moved=moved, crossed=crossed, counter="eth's")
    assert bool(found) == bool(message)
    assert message in found
    assert not found or found.startswith(f"cache {state.value}: not proven: ")
