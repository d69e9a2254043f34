"""A1: iSCSI and CIFS, one user, by transfer size, and the sweep of MaxBurstLength (2006)."""

import pytest

pytestmark = pytest.mark.experiment("a1")

SIZES = [f"{2**power}KiB" for power in range(10)] + ["1MiB"]
BURSTS = {"burst-64k": "64KiB", "burst-256k": "256KiB", "burst-1m": "1MiB"}


def test_one_user(experiment):
    """80 % random I/O of one worker in both directions; writes with three lengths of a burst."""
    experiment.side("iscsi")
    experiment.side("cifs")
    for name, length in BURSTS.items():
        experiment.side(name, "iscsi", max_burst_length=length, first_burst_length="64KiB")
    load = {"random_percent": 80, "queue_depth": 1, "jobs": 1}
    sizes = experiment.pick(
        lab={"read": ["4KiB", "64KiB"], "write": ["4KiB", "256KiB", "512KiB"]},
        paper={"read": SIZES, "write": SIZES},
    )
    for direction in ("read", "write"):
        for size in sizes[direction]:
            name = f"{direction} {size}"
            sides = ("iscsi", "cifs")
            experiment.point(name, "mixed-access", sides=sides, direction=direction, block_size=size, **load)
    for size in experiment.pick(lab=["256KiB", "512KiB"], paper=SIZES[6:]):
        name = f"write {size}"
        experiment.point(name, "mixed-access", sides=(*BURSTS,), direction="write", block_size=size, **load)
    experiment()
