"""B3: the maximum of a cluster file system, one parameter at a time (FSPoly, 2014)."""

import pytest

pytestmark = pytest.mark.experiment("b3")


def test_search(experiment):
    """The stepwise search in both directions, with its table of steps."""
    experiment.side("cluster")
    sizes = experiment.pick(lab=["64KiB", "1MiB"], paper=["4KiB", "64KiB", "256KiB", "1MiB", "4MiB"])
    jobs = experiment.pick(lab=1, paper=[1, 2, 4, 8])
    for direction in ("read", "write"):
        experiment.search(
            direction,
            "mixed-access",
            sides=["cluster"],
            direction=direction,
            random_percent=1,
            block_size=sizes,
            jobs=jobs,
        )
    experiment()
