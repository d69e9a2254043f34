"""B4: NFS by block size, by connections and by clients (FSPoly, 2014)."""

import pytest

pytestmark = pytest.mark.experiment("b4")


def test_nfs(experiment):
    """Sequential I/O in both directions."""
    nfs, four = "nfs", "connections-4"
    available = experiment.clients(nfs)
    experiment.side(nfs, nconnect=1)
    experiment.side(four, nfs, nconnect=4)
    sizes = experiment.pick(
        lab=["4KiB", "256KiB", "1MiB"], paper=["1KiB", "4KiB", "16KiB", "64KiB", "256KiB", "1MiB"]
    )
    for direction in ("read", "write"):
        for size in sizes:
            sides = [nfs, four] if size == "1MiB" else [nfs]
            name = f"{direction} {size}"
            experiment.point(name, "sequential", sides=sides, direction=direction, block_size=size)
        for clients in (2, 4):
            if clients <= available:
                experiment.point(
                    f"{direction} 1MiB by {clients}",
                    "sequential",
                    sides=[nfs],
                    clients=clients,
                    direction=direction,
                    block_size="1MiB",
                )
    experiment()
