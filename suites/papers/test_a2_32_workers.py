"""A2: iSCSI and CIFS, 32 workers, by transfer size (2006)."""

import pytest

pytestmark = pytest.mark.experiment("a2")

SIZES = [f"{2**power}KiB" for power in range(10)] + ["1MiB"]


def test_32_workers(experiment):
    """80 % random I/O of 32 workers in both directions."""
    experiment.side("iscsi")
    experiment.side("cifs")
    for size in experiment.pick(lab=["256KiB", "1MiB"], paper=SIZES):
        for direction in ("read", "write"):
            experiment.point(
                f"{direction} {size}",
                "mixed-access",
                direction=direction,
                block_size=size,
                random_percent=80,
                queue_depth=1,
                jobs=32,
            )
    experiment()
