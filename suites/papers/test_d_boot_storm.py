"""D: a boot storm of 20 virtual machines from an SMB share and from an iSCSI LUN (2011)."""

import pytest

pytestmark = pytest.mark.experiment("d")


def test_boot_storm(experiment):
    """20 machines start at once from clones of one image, on either protocol."""
    experiment.side("cifs")
    experiment.side("iscsi")
    scale = experiment.pick(lab={"size": 16 << 20, "sample_interval": 1.0}, paper={"sample_interval": 5.0})
    length = experiment.pick(lab={"reads": 100}, paper={})
    interval = experiment.pick(lab=0.5, paper=5.0)
    experiment.point("storm", "boot-storm", vms=20, interval=interval, scale=scale, **length)
    experiment()
