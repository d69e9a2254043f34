"""D: a boot storm of 20 virtual machines from SMB and from iSCSI, and the space of clones (2011)."""

import pytest

pytestmark = pytest.mark.experiment("d")

MIB, GIB = 1 << 20, 1 << 30


def test_boot_storm(experiment):
    """20 machines start at once from clones of one image, on either protocol."""
    experiment.side("cifs")
    experiment.side("iscsi")
    scale = experiment.pick(lab={"size": 16 << 20, "sample_interval": 1.0}, paper={"sample_interval": 5.0})
    length = experiment.pick(lab={"reads": 100}, paper={})
    interval = experiment.pick(lab=0.5, paper=5.0)
    experiment.point("storm", "boot-storm", vms=20, interval=interval, scale=scale, **length)
    experiment()


def test_space(experiment):
    """40 clones of one image: what they allocate, against their nominal size."""
    experiment.side("clones", "cifs")
    experiment.side("thin-fs", "iscsi-thin", filesystem="xfs")
    image = experiment.pick(lab=64 * MIB, paper=40 * GIB)
    space = {"clones": 40, "image_size": image}
    experiment.point("sparse", "thin-clones", sides=("clones",), method="sparse", **space)
    experiment.point("reflinks", "thin-clones", method="reflink", **space)
    experiment()
