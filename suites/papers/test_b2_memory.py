"""B2: a memory file system of the client, the ceiling of every other target (FSPoly, 2014)."""

import pytest

pytestmark = pytest.mark.experiment("b2")


def test_memory(experiment):
    """Sequential and random I/O by a few processes, and by too many."""
    experiment.side("memory")
    load = {"direct": False, "engine": "psync", "queue_depth": 1, "block_size": "1MiB"}
    for jobs in (1, 2, 8):
        experiment.point(f"sequential read {jobs}", "sequential", direction="read", jobs=jobs, **load)
    experiment.point("sequential write 2", "sequential", direction="write", jobs=2, **load)
    experiment.point("random read 2", "small-random-read", jobs=2, **load)
    experiment.point("random write 2", "small-random-write", jobs=2, **load)
    experiment()
