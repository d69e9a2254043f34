"""What crossed the wire, of texts as kernels print them."""

from __future__ import annotations

import pytest

from storagetest.counters.request_counts import RequestKind, count_requests, nfs4_lease_seconds
from storagetest.deprecation import StoragetestDeprecationWarning

V42 = """\
device proc mounted on /proc with fstype proc
device nas:/a mounted on /run/storagetest/x with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x68800,sessions,lease_time=10,lease_expired=0
\tbytes:\t0 0 0 0 4096 8192 1 2
\tper-op statistics
\t        READ: 2 2 0 400 8600 0 3 4 0
\t       WRITE: 10 11 0 43000 1600 1 25 30 0
\t        OPEN: 3 3 0 900 900 0 1 1 0
\t OPEN_NOATTR: 1 1 0 900 900 0 1 1 0
\t        LOCK: {lock} {lock} 0 100 100 0 1 1 0
\t       LOCKU: 0 0 0 0 0 0 0 0 0
\t     GETATTR: 7 7 0 100 100 0 1 1 0
"""
V3 = """\
device nas:/a mounted on /run/storagetest/y with fstype nfs statvers=1.1
\topts:\trw,vers=3
\tper-op statistics
\t     GETATTR: 5 5 0 100 100 0 1 1 0
\t      RENAME: 2 2 0 100 100 0 1 1 0
"""


def texts(lock: int = 0) -> dict[str, str]:
    return {"/proc/self/mountstats": V42.format(lock=lock) + V3}


def test_nfs_counts_its_own_mount_and_knows_its_lease():
    found = count_requests(texts(lock=4), "/run/storagetest/x/case")
    assert found.counts[RequestKind.LOCK] == 4
    assert found.counts[RequestKind.QUERY] == 11
    assert (found.counts[RequestKind.READ], found.counts[RequestKind.WRITE]) == (2, 10)
    more = found.since(count_requests(texts(lock=1), "/run/storagetest/x"))
    assert more.counts[RequestKind.LOCK] == 3
    assert more.counts[RequestKind.READ] == 0
    assert nfs4_lease_seconds(texts(), "/run/storagetest/x/case") == 10.0


def test_version_3_has_no_counter_of_locks():
    found = count_requests(texts(), "/run/storagetest/y/case")
    assert RequestKind.LOCK not in found.counts
    assert found.counts[RequestKind.CHANGE] == 2
    assert nfs4_lease_seconds(texts(), "/run/storagetest/y/case") is None


def test_smb_counts_all_shares():
    mounts = "device //nas/a mounted on /run/storagetest/z with fstype cifs\n"
    stats = "SMBs: 29\nReads: 2 total 0 failed\nWrites: 10 total 0 failed\nLocks: 5 total 1 failed\n"
    both = {"/proc/self/mountstats": mounts, "/proc/fs/cifs/Stats": stats}
    counts = count_requests(both, "/run/storagetest/z/case").counts
    assert (counts[RequestKind.LOCK], counts[RequestKind.WRITE]) == (5, 10)


MDC = "/sys/kernel/debug/lustre/mdc/l-MDT0000-mdc-ffff8c12/stats"
LUSTRE = {
    "/proc/self/mountstats": "device nas@tcp:/l mounted on /run/storagetest/l with fstype lustre\n",
    MDC: "ldlm_ibits_enqueue 9 samples [reqs] 1 1 9 9\nldlm_flock_enqueue 3 samples [reqs] 1 1 3 3\n",
    "/sys/kernel/debug/lustre/osc/l-OST0000-osc-ffff8c12/stats": "write_bytes 2 samples [bytes] 1 9 10 82\n",
    "/proc/fs/lustre/mdc/l-MDT0000-mdc-ffff8c12/md_stats": (
        "intent_lock 20 samples [reqs]\nunlink 4 samples [reqs]\n"
    ),
}


def test_lustre_counts_requests_and_not_what_the_clients_locks_answered():
    found = count_requests(LUSTRE, "/run/storagetest/l/case").counts
    counts = {"query": 9, "read": 0, "write": 2, "change": 13, "list": 0, "lock": 3}
    assert {kind.value: count for kind, count in found.items()} == counts


def test_without_lustres_requests_only_its_changes_are_known():
    without = {path: text for path, text in LUSTRE.items() if path != MDC}
    assert count_requests(without, "/run/storagetest/l/case").counts == {RequestKind.CHANGE: 4}


def test_of_anything_else_nothing_is_known():
    local = {"/proc/self/mountstats": "device /dev/vda mounted on / with fstype ext4\n"}
    for known in (local, {}):
        assert count_requests(known, "/tmp") is None


def test_the_old_name_of_a_request_kind_is_accepted_with_a_warning():
    with pytest.warns(StoragetestDeprecationWarning, match="ask is deprecated .* Use query"):
        assert RequestKind("ask") is RequestKind.QUERY
