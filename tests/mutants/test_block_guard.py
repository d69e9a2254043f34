"""No block device is leased if its reads do not prove that it is empty; nothing is written to it."""

import os
from pathlib import Path

import block_guard_disks
import pytest
from block_files import DISK
from block_mutation_run import loop_over, why_not

from storagetest.errors import DataAtRisk
from storagetest.hosts import LocalHost
from storagetest.protocols.local import Local

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))


@pytest.mark.parametrize("kind", block_guard_disks.__all__)
@pytest.mark.parametrize("filesystem", [None, "ext4"])
def test_a_disk_whose_reads_are_no_proof_is_not_leased(kind: str, filesystem: str | None) -> None:
    with loop_over(None, files=f"block_guard_disks:{kind}") as (device, below):
        at, magic = block_guard_disks.EXT4
        handle = os.open(below / DISK, os.O_WRONLY)
        os.pwrite(handle, magic, at)
        os.close(handle)
        before = (below / DISK).read_bytes()
        backing = Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
        options = Local.Options(device=device, erase=f"loop.{backing}", filesystem=filesystem)
        with (
            pytest.raises(DataAtRisk, match=r"the signatures of /dev/loop.* cannot be read"),
            Local().attach(LocalHost(), options),
        ):
            pytest.fail("it was leased")
        assert (below / DISK).read_bytes() == before
