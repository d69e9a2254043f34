"""E: PostMark on NFS and on iSCSI with a file system, and the sweep of wsize (2011)."""

import pytest

pytestmark = pytest.mark.experiment("e")

WSIZES = {"wsize-4k": "4KiB", "wsize-16k": "16KiB", "wsize-64k": "64KiB", "wsize-1m": "1MiB"}


def test_postmark(experiment):
    """The published file sizes on both; files of up to 64 KiB with each wsize."""
    experiment.side("nfs")
    experiment.side("iscsi-fs", "iscsi", filesystem="ext4")
    for name, size in WSIZES.items():
        experiment.side(name, "nfs", wsize=size)
    work = experiment.pick(
        lab={"files": 60, "transactions": 120}, paper={"files": 20_000, "transactions": 50_000}
    )
    experiment.point("postmark", "postmark", sides=("nfs", "iscsi-fs"), whole=True, **work)
    large = {"low": "16KiB", "high": "64KiB"}
    experiment.point("large files", "postmark", sides=(*WSIZES,), whole=True, **large, **work)
    experiment()
