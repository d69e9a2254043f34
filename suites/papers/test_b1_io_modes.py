"""B1: sequential, random and mixed I/O, plain, direct and by mmap, on two clients (FSPoly, 2014)."""

import pytest

pytestmark = pytest.mark.experiment("b1")

MODES = {
    "plain": {"direct": False, "engine": "psync", "queue_depth": 1},
    "direct": {"direct": True, "engine": "psync", "queue_depth": 1},
    "mmap": {"direct": False, "engine": "mmap", "queue_depth": 1},
}


def test_io_modes(experiment):
    """The bandwidth of each mode; the mixed mode reads and writes half each."""
    experiment.side("cluster")
    clients = min(2, experiment.clients("cluster"))
    for mode, options in MODES.items():
        for direction in ("read", "write"):
            experiment.point(
                f"{direction} {mode}",
                "sequential",
                clients=clients,
                direction=direction,
                block_size="1MiB",
                **options,
            )
    direct = {"clients": clients, "block_size": "64KiB", **MODES["direct"]}
    experiment.point("random read direct", "small-random-read", **direct)
    experiment.point("random write direct", "small-random-write", **direct)
    experiment.point("mixed direct", "random-mixed", read_percent=50, **direct)
    experiment()
