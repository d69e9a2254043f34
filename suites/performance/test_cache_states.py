"""Cache states: the same reads with nothing in any cache, with everything in the client's, and past it."""


def test_cache_state(measure, cache_state):
    """Random reads meet their gates with caches cold, warm and bypassed; counters prove which it was."""
    measure("small-random-read", **cache_state)
