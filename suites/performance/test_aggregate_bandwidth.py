"""The maximum aggregate bandwidth of all clients, and the parameter that limits it.

Connections, block size, processes and clients are searched with as many measurements as the profile's
`search` allows; without any the case is skipped. What is found best is then measured as any case is.
"""

import pytest


@pytest.mark.clients("all")
@pytest.mark.parametrize("direction", ["read", "write"])
def test_aggregate_bandwidth(find_maximum, direction):
    """The best combination found meets its gates."""
    find_maximum(
        "mixed-access",
        direction=direction,
        random_percent=99,
        queue_depth=4,
        block_size=["64KiB", "256KiB", "1MiB", "4MiB"],
        jobs=[1, 2, 4, 8],
    )
