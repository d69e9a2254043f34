"""Cache states: the same reads with cold caches, from the client's cache, and with O_DIRECT."""


def test_cache_state(measure, cache_state):
    """Random reads meet their gates with caches cold, warm and bypassed; counters prove which it was."""
    measure("small-random-read", **cache_state)
