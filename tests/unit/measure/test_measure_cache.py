"""Whether the counters show that reads came from where the case says."""

from __future__ import annotations

import pytest

from storagetest.measure.cache import Cache, why_cache_state_unproven


@pytest.mark.parametrize(
    ("state", "moved", "crossed", "said"),
    [
        (Cache.COLD, 1000, 900, ""),
        (Cache.COLD, 1000, 5000, ""),
        (Cache.COLD, 1000, 899, "89.9% crossed the wire (eth's counters), and at least 90% should have"),
        (Cache.COLD, 1000, 0, "0% crossed the wire"),
        (Cache.COLD, 1000, None, "no counter shows"),
        (Cache.COLD, 0, 0, "moved nothing"),
        (Cache.WARM, 1000, 0, ""),
        (Cache.WARM, 1000, 100, ""),
        (Cache.WARM, 1000, 101, "10.1% crossed the wire (eth's counters), and at most 10% should have"),
        (Cache.WARM, 1000, None, "no counter shows"),
        (Cache.DIRECT, 1000, 1000, ""),
        (Cache.DIRECT, 1000, 10, "1.00% crossed the wire"),
        (Cache.DIRECT, 1000, None, ""),
    ],
)
def test_what_is_shown_and_what_is_not(state, moved, crossed, said):
    found = why_cache_state_unproven(state, moved=moved, crossed=crossed, counter="eth's")
    assert bool(found) == bool(said)
    assert said in found
    assert not found or found.startswith(f"cache {state.value}: not proven: ")
