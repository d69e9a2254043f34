"""What crossed the wire, by the counter of the file system that a path is on."""

from __future__ import annotations

import pytest

from storagetest.counters._transferred_bytes import TransferredBytes, transferred_between
from storagetest.counters.base import file_system

MOUNTS = """\
device /dev/sda1 mounted on / with fstype ext4
device tmpfs mounted on /run with fstype tmpfs
device 10.0.0.1:/a mounted on /run/storagetest/a with fstype nfs4 statvers=1.1
\tbytes:\t0 0 0 0 {nfs} {nfs} 0 0
device //10.0.0.1/a mounted on /mnt/smb with fstype cifs
device 10.0.0.1@tcp:/l mounted on /mnt/lustre with fstype lustre
device x mounted on /mnt/fuse with fstype fuse.x
"""
OSC = "/sys/kernel/debug/lustre/osc/a/stats"


def texts(nfs: int, smb: int, lustre: int, sectors: int, more: int = 0) -> dict[str, str]:
    return {
        "/proc/self/mountstats": MOUNTS.format(nfs=nfs),
        "/proc/fs/cifs/Stats": f"Bytes read: {smb}  Bytes written: {2 * smb}\n",
        OSC: f"read_bytes 1 samples [bytes] 1 1 {lustre}\n",
        "/sys/block/sda/stat": f"1 0 {sectors} 0 1 0 {sectors} 0 0 0 0\n",
        "/sys/block/sdb/stat": f"1 0 {more} 0 1 0 0 0 0 0 0\n",
    }


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/run/storagetest/a/x/data", TransferredBytes(100, 100, "the NFS mount's")),
        ("/mnt/smb/data", TransferredBytes(7, 14, "the SMB client's")),
        ("/mnt/lustre/data", TransferredBytes(9, 0, "the Lustre client's")),
        ("/var/data", TransferredBytes(10 * 512, 10 * 512, "sda's")),
        ("/dev/disk/by-id/x", TransferredBytes(10 * 512, 10 * 512, "sda's")),
        ("/run/data", None),
        ("/mnt/fuse/data", None),
    ],
)
def test_the_file_system_decides_which_counter_is_read(path, found):
    assert transferred_between(texts(50, 3, 1, 5, 1), texts(150, 10, 10, 15, 2), path) == found


def test_a_counter_that_began_anew_is_not_negative():
    assert transferred_between(
        texts(150, 0, 0, 0), texts(50, 0, 0, 0), "/run/storagetest/a/d"
    ) == TransferredBytes(0, 0, "the NFS mount's")


def test_without_counters_nothing_is_known():
    assert transferred_between({}, {}, "/var/data") is None
    assert transferred_between({}, {"/proc/self/mountstats": MOUNTS}, "/run/storagetest/a/d") is None


def test_the_longest_mount_point_is_the_paths():
    assert file_system(MOUNTS, "/run/storagetest/a/d") == ("/run/storagetest/a", "nfs4")
    assert file_system(MOUNTS, "/run/storagetest/ab") == ("/run", "tmpfs")
    assert file_system("", "/x") == ("", "")
