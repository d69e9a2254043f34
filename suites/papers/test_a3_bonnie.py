"""A3: Bonnie++ on iSCSI with a file system and on NFSv3, also over file sizes (2006)."""

import pytest

pytestmark = pytest.mark.experiment("a3")

MIB = 1 << 20


def test_bonnie(experiment):
    """The phases of Bonnie++ with an fsync after each write, and block I/O over file sizes."""
    experiment.side("iscsi-fs", "iscsi", filesystem="ext4")
    experiment.side("nfs", version="3")
    phases = {"sync": True, "files": 0}
    main = experiment.pick(lab={"size": 8 * MIB, "runtime": 6.0}, paper={"size": 1000 * MIB})
    experiment.point("bonnie", "bonnie", scale=main, **phases)
    sizes = experiment.pick(
        lab={"4MiB": 4, "16MiB": 16}, paper={"256MiB": 256, "512MiB": 512, "1GiB": 1024, "2GiB": 2048}
    )
    for name, size in sizes.items():
        scale = {"size": size * MIB, **experiment.pick(lab={"runtime": 3.0}, paper={})}
        experiment.point(f"size {name}", "bonnie", characters=False, scale=scale, **phases)
    experiment()
