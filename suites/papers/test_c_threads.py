"""C: IOPS and latency of iSCSI and NVMe/TCP by number of threads (2018)."""

import pytest

pytestmark = pytest.mark.experiment("c")

LEVELS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
FEWER_LEVELS = [1, 4, 16, 64, 128, 256]


def test_threads(experiment):
    """One job per thread at queue depth 1, 70 % reads, from 1 to 256 threads."""
    experiment.side("iscsi", **experiment.pick(lab={}, paper={"queue_depth": 1024}))
    experiment.side("iscsi-paths", **experiment.pick(lab={}, paper={"queue_depth": 1024}))
    experiment.side("nvme-tcp")
    experiment.point(
        "threads",
        "multi-user",
        levels=experiment.pick(lab=FEWER_LEVELS, paper=LEVELS),
        read_percent=70,
        queue_depth=1,
        block_size="4KiB",
        scale=experiment.pick(lab={"runtime": 9.0, "ramp": 3.0}, paper={}),
    )
    experiment()
