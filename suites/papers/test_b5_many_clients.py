"""B5: sequential reads of many clients by block size, and by number of clients (FSPoly, 2014)."""

import pytest

pytestmark = pytest.mark.experiment("b5")

COUNTS = (1, 2, 4, 8, 16, 32, 64, 74)


def test_many_clients(experiment):
    """Three processes on each of all clients; then 1 MiB by 1, 2, 4 ... clients."""
    experiment.side("cluster")
    every = experiment.clients("cluster")
    load = {"direction": "read", "jobs": 3, "queue_depth": 1}
    for size in ("4KiB", "512KiB", "1MiB", "2MiB"):
        experiment.point(f"read {size}", "sequential", clients=every, block_size=size, **load)
    for count in COUNTS:
        if count <= every:
            experiment.point(f"clients {count}", "sequential", clients=count, block_size="1MiB", **load)
    experiment()
