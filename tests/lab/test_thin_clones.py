"""Thin clones on thin LUNs: what the server counts, and what GET LBA STATUS reports."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from attach_helpers import attach, connect, iscsi

from storagetest.lab import Lab
from storagetest.lab.services import lio, tgt
from storagetest.runner.allocation import allocated_bytes
from storagetest.workloads.base import LoadSize
from storagetest.workloads.thin_clones import ThinClones

pytestmark = pytest.mark.lab

MIB = 1 << 20
SCALE = LoadSize(size=64 * MIB, ramp=0, runtime=1)
LOAD = ThinClones()
OPTIONS = LOAD.Options.model_validate({"clones": 10, "image_data": "4MiB", "clone_data": "256KiB"})
WRITTEN = 4 * MIB + 10 * 256 * 1024


def test_the_server_counts_the_chunks_of_a_thin_lun(client, appliance) -> None:
    (target,) = (one for one in lio.SERVICE.all_targets if one.name == "iscsi-thin")
    argv = target.body["controls"]["allocated"]
    options = iscsi("lab-thin", 0, 6, filesystem="xfs", deadline=180)
    with attach(client, "iscsi", options) as attachment:
        counted = replace(attachment, allocated=lambda: allocated_bytes(appliance, argv, target="thin"))
        sample = LOAD.measure(counted, OPTIONS, SCALE)
    assert sample.values["nominal"] == 640 * MIB
    assert sample.values["written"] == WRITTEN
    assert sample.values["extents"] > 40 * MIB, "clones share the image's data"
    assert WRITTEN <= sample.values["allocated"] < 3 * WRITTEN
    assert sample.evidence["allocated by"] == "the control `allocated` on the server"
    assert "GET LBA STATUS: SCSI status 0x02" in sample.evidence["no_mapped"], "LIO has not got the command"


@pytest.mark.slow
def test_a_target_that_reports_all_blocks_as_mapped_does_not_count() -> None:
    lab = Lab.up(f"lba-{os.getpid()}", clients=1, appliance="userspace", owner=os.getpid())
    try:
        with connect(lab, "client1") as client:
            options = iscsi("lab-plain", 1, 1, erase=tgt.wwid(1), filesystem="xfs", deadline=180)
            with attach(client, "iscsi", options) as attachment:
                sample = LOAD.measure(attachment, OPTIONS, SCALE)
    finally:
        lab.down()
    assert sample.evidence["allocated by"] == "statfs"
    assert "GET LBA STATUS reports every block as mapped" in sample.evidence["no_mapped"]
    assert sample.values["allocated"] == sample.values["used"] >= WRITTEN
