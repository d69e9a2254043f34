"""Counters: what the files of a client become."""

from pathlib import Path

import pytest

from storagetest.counters import base, snapshot
from storagetest.counters._transferred_bytes import TransferredBytes, transferred_between
from storagetest.counters.base import (
    Kind,
    Reading,
    RequestKind,
    Snapshot,
    all_sources,
    file_system,
    rate_between,
    to_series,
)
from storagetest.counters.block import Block
from storagetest.counters.cifs import Cifs
from storagetest.counters.cpu import Cpu, CpuUsage, cpu_usage, parse_stat
from storagetest.counters.iscsi import IscsiSource
from storagetest.counters.lustre import LustreSource
from storagetest.counters.mountstats import Mountstats, parse_mounts
from storagetest.counters.nic import Nic, traffic
from storagetest.counters.nvme import Nvme
from storagetest.counters.request_counts import count_requests, nfs4_lease_seconds
from storagetest.deprecation import StoragetestDeprecationWarning
from storagetest.hosts.local import LocalHost
from storagetest.measure.unit import Unit


def values(source: base.CounterSource, *texts: dict[str, str]) -> dict[str, list[float]]:
    moments = [Snapshot(10.0 + 2 * number, each) for number, each in enumerate(texts)]
    return {one.name: list(one.values) for one in to_series(source, "h", moments)}


def test_a_block_devices_counters_become_rates_and_times():
    path = "/sys/block/sdb/stat"
    texts = ("100 1 800 50 0 0 0 0 0 10 50", "120 5 960 150 0 0 0 0 3 1010 50 0 0 0 0")
    found = values(Block(), *({path: text} for text in texts))
    assert found["sdb reads"] == [10.0]
    assert found["sdb read"] == [160 * 512 / 2]
    assert found["sdb reads merged"] == [2.0]
    assert found["sdb read time"] == [pytest.approx(0.005)]
    assert found["sdb in flight"] == [0.0, 3.0]
    assert found["sdb busy"] == [0.5]
    assert "sdb writes" not in found  # zero throughout


def test_cards_bytes_and_tcps_trouble():
    def texts(received: int, sent: int, again: int) -> dict[str, str]:
        return {
            "/proc/net/dev": f"Inter-|\n face |\n  eth0:{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n",
            "/proc/net/snmp": f"Tcp: A OutSegs RetransSegs B\nTcp: -1 {100 + 10 * again} {again} 9\n",
        }

    found = values(Nic(), texts(1000, 50, 0), texts(5000, 50, 0), texts(5000, 70, 4))
    assert found["eth0 received"] == [2000.0, 0.0]
    assert found["eth0 sent"] == [0.0, 10.0]
    assert found["TCP retransmits"] == [0.0, 2.0]
    assert found["TCP retransmitted share"] == [0.1]  # in the first interval nothing was sent


@pytest.mark.parametrize(("text", "speed"), [("10000", 1.25e9), ("-1", None), ("", None), (None, None)])
def test_a_cards_speed_is_known_or_not(text: str | None, speed: float | None):
    texts = {"/proc/net/dev": " eth0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n lo: 1 0 0 0 0 0 0 0 2 0 0 0\n"}
    if text is not None:
        texts["/sys/class/net/eth0/speed"] = f"{text}\n"
    found = traffic(texts)
    assert set(found) == {"eth0"}
    assert (found["eth0"].received, found["eth0"].sent, found["eth0"].speed) == (1, 2, speed)


MOUNT = """\
device 10.9.8.7:/a mounted on /mnt/a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t12
\tbytes:\t0 0 0 0 {read} {written} 0 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 767 1 2 0 0 1 1 0 1 0 2 0 0
\tper-op statistics
\t        READ: {ops} {sent} 0 400 8600 {queue} {rtt} {execute} 0
\t     GETATTR: 1 1 0 4 4 0 0 0 0
"""


def mount(ops: int, rtt: int, execute: int, sent: int = 0, read: int = 0, path: str = "/mnt/a") -> str:
    text = MOUNT.format(ops=ops, rtt=rtt, execute=execute, queue=0, read=read, written=0, sent=sent or ops)
    return text.replace("/mnt/a", path)


def test_an_nfs_mounts_round_trips_and_execute_times():
    path = "/proc/self/mountstats"
    found = values(Mountstats(), {path: mount(10, 100, 120)}, {path: mount(30, 140, 220, sent=32, read=4096)})
    assert found["READ calls"] == [10.0]
    assert found["READ RTT"] == [pytest.approx(0.002)]
    assert found["READ execute"] == [pytest.approx(0.005)]
    assert found["retransmissions"] == [1.0]
    assert found["read from the server"] == [2048.0]
    assert "GETATTR calls" not in found


def test_other_file_systems_are_no_nfs_and_two_mounts_are_distinguished():
    proc = "device proc mounted on /proc with fstype proc\n"
    disk = "device /dev/sda mounted on / with fstype ext4\n"
    text = proc + mount(1, 1, 1) + disk + mount(2, 2, 2, path="/mnt/b")
    calls = [(one.path, one.operations["READ"].calls) for one in parse_mounts(text)]
    assert calls == [("/mnt/a", 1), ("/mnt/b", 2)]
    assert {"/mnt/a READ calls", "/mnt/b READ calls"} <= set(Mountstats().parse({Mountstats.paths[0]: text}))


def test_a_counter_that_began_anew_has_no_point_there():
    path = "/proc/self/mountstats"
    found = values(Mountstats(), *({path: mount(ops, ops, ops)} for ops in (10, 20, 4, 8)))
    assert found["READ calls"] == [5.0, 2.0]


def test_shares_are_added_up():
    text = "1 session 2 share reconnects\n" + 2 * (
        "1) \\\\nas\\a\nSMBs: 9\nBytes read: 100  Bytes written: 200\nReads: 3 total 1 failed\n"
    )
    found = Cifs().parse({"/proc/fs/cifs/Stats": text})
    assert (found["read"].value, found["written"].value, found["requests"].value) == (200, 400, 18)
    assert (found["Reads"].value, found["failed"].value, found["reconnects"].value) == (6, 2, 3)


OLD_SHARE = """
1) \\\\10.77.0.1\\a
SMBs: 23 Oplocks breaks: 0
Reads:  5 Bytes: 262144
Writes: 4 Bytes: 131072
Flushes: 0
Locks: 3 HardLinks: 0 Symlinks: 0
Opens: 1 Closes: 2 Deletes: 6
Posix Opens: 2 Posix Mkdirs: 7
Mkdirs: 0 Rmdirs: 0
Renames: 0 T2 Renames 0
FindFirst: 8 FNext 0 FClose 0
"""


def test_a_share_of_smb1_has_lines_of_its_own_and_is_added_to_the_others():
    found = Cifs().parse({"/proc/fs/cifs/Stats": OLD_SHARE})
    assert (found["read"].value, found["written"].value, found["requests"].value) == (262144, 131072, 23)
    operations = {
        name: found[name].value for name in ("Reads", "Writes", "Locks", "Opens", "Deletes", "Mkdirs")
    }
    assert operations == {"Reads": 5, "Writes": 4, "Locks": 3, "Opens": 3, "Deletes": 6, "Mkdirs": 7}
    new = "2) \\\\nas\\a\nSMBs: 9\nBytes read: 100  Bytes written: 200\nReads: 3 total 1 failed\n"
    both = Cifs().parse({"/proc/fs/cifs/Stats": OLD_SHARE + new})
    assert (both["read"].value, both["Reads"].value, both["failed"].value) == (262244, 8, 1)


def test_scsi_counts_in_hexadecimal_and_lio_in_megabytes():
    session = "/sys/class/iscsi_session/session1"
    lio = "/sys/kernel/config/target/iscsi/iqn.x/tpgt_1/lun/lun_{}/statistics/scsi_tgt_port/read_mbytes"
    found = IscsiSource().parse(
        {
            f"{session}/state": "FAILED\n",
            f"{session}/device/target2:0:0/2:0:0:0/iotmo_cnt": "0x1f\n",
            lio.format(0): "3\n",
            lio.format(1): "4\n",
        }
    )
    assert found["session1 logged in"].value == 0
    assert found["2:0:0:0 timeouts"].value == 31
    assert found["target read"].value == 7 << 20


def test_a_controller_that_reconnects_is_not_live():
    found = Nvme().parse({"/sys/class/nvme/nvme3/state": "connecting\n"})
    assert found["nvme3 live"] == Reading(0.0, Unit.COUNT, Kind.GAUGE, keep=True)


def test_lustres_layers_are_apart_and_its_targets_added_up():
    line = "read_bytes 4 samples [bytes] 1 9 20 100\nreq_waittime 4 samples [usec] 1 9 2000000 99\n"
    found = LustreSource().parse(
        {
            "/proc/fs/lustre/osc/a/stats": line,
            "/proc/fs/lustre/osc/b/stats": line,
            "/proc/fs/lustre/llite/x/stats": "open 3 samples [reqs]\n",
        }
    )
    assert found["osc read_bytes"].value == 40
    assert found["osc req_waittime time"].value == 4.0
    assert found["osc req_waittime time"].per == 8
    assert found["llite open calls"].value == 3


def test_processors_are_shown_even_at_rest():
    texts = [{"/proc/stat": f"cpu 0 0 0 {idle} 0\ncpu0 0 0 0 {idle} 0\n"} for idle in (10, 20)]
    assert values(Cpu(), *texts) == {"all": [0.0], "cpu0": [0.0]}


@pytest.mark.parametrize(
    ("before", "now", "seconds", "shown"),
    [
        (None, Reading(5, Unit.COUNT, Kind.GAUGE), 0, 5),
        (None, Reading(5, Unit.PER_SECOND), 1, None),
        (Reading(5, Unit.PER_SECOND), Reading(9, Unit.PER_SECOND), 2, 2.0),
        (Reading(5, Unit.PER_SECOND), Reading(9, Unit.PER_SECOND), 0, None),
        (Reading(5, Unit.PER_SECOND), Reading(4, Unit.PER_SECOND), 1, None),
        (Reading(5, Unit.SECONDS, Kind.QUOTIENT, 5), Reading(6, Unit.SECONDS, Kind.QUOTIENT, 5), 1, None),
        (Reading(5, Unit.SECONDS, Kind.QUOTIENT, 5), Reading(6, Unit.SECONDS, Kind.QUOTIENT, 7), 1, 0.5),
    ],
)
def test_what_is_shown_of_two_readings(before, now, seconds, shown):
    assert rate_between(before, now, seconds) == shown


def test_this_machines_own_counters_are_read_by_the_very_command():
    with LocalHost("here") as host:
        done = host.run(["sh", "-c", snapshot.command()], deadline=30, check=False)
    texts = snapshot.parse(done.stdout)
    found = {source.name: source.parse(source.select(texts)) for source in all_sources()}
    assert found["cpu"]["all"].value > 0
    assert "TCP retransmits" in found["nic"]
    assert any(name.endswith(" reads") for name in found["block"])


BEFORE = """\
cpu  100 10 50 1000 40 5 5 0 20 0
cpu0 60 5 30 500 20 3 3 0 10 0
cpu1 40 5 20 500 20 2 2 0 10 0
intr 12345 0 0
"""


def after(cpu0: str, cpu1: str) -> str:
    whole = " ".join(str(int(a) + int(b)) for a, b in zip(cpu0.split(), cpu1.split(), strict=True))
    return f"cpu  {whole}\ncpu0 {cpu0}\ncpu1 {cpu1}\n"


def test_the_share_is_of_all_cores_and_the_busiest_is_named():
    # cpu0: 90 busy of 100 ticks; cpu1: 10 busy of 100.
    now = after("110 5 60 505 25 5 11 0 10 0", "50 5 20 585 25 2 2 0 10 0")
    assert cpu_usage(parse_stat(BEFORE), parse_stat(now)) == CpuUsage(share=0.5, busiest_core=0.9, cores=2)


def test_stolen_time_is_busy_and_waiting_for_io_is_not():
    idle = "cpu  0 0 0 0 0 0 0 0 0 0\n"
    assert cpu_usage(parse_stat(idle), parse_stat("cpu  0 0 0 60 0 0 0 40 0 0\n")) == CpuUsage(0.4, 0.4, 0)
    assert cpu_usage(parse_stat(idle), parse_stat("cpu  0 0 0 60 40 0 0 0 0 0\n")) == CpuUsage(0.0, 0.0, 0)


def test_time_of_virtual_machines_is_not_counted_twice():
    zero, now = parse_stat("cpu  0 0 0 0 0 0 0 0 0 0"), parse_stat("cpu  50 0 0 50 0 0 0 0 50 0")
    assert cpu_usage(zero, now) == CpuUsage(0.5, 0.5, 0)


def test_old_kernels_have_fewer_columns():
    assert cpu_usage(parse_stat("cpu 0 0 0 0 0"), parse_stat("cpu 1 0 0 3 0")) == CpuUsage(0.25, 0.25, 0)


def test_no_time_passed_no_share():
    assert cpu_usage(parse_stat(BEFORE), parse_stat(BEFORE)) is None


def test_what_runs_backwards_stays_a_share():
    zero, now = parse_stat("cpu 10 0 0 100 50"), parse_stat("cpu 20 0 0 105 40")
    assert 0 <= cpu_usage(zero, now).share <= 1


def test_a_core_that_came_meanwhile_has_no_share():
    zero = parse_stat("cpu 0 0 0 0 0\ncpu0 0 0 0 0 0")
    now = parse_stat("cpu 1 0 0 3 0\ncpu0 1 0 0 3 0\ncpu1 9 0 0 0 0")
    assert cpu_usage(zero, now) == CpuUsage(0.25, 0.25, 2)


@pytest.mark.parametrize("text", ["", "intr 1", "cpu0 1 2 3 4 5", "cpu 1 2", "cpu a b c d e"])
def test_what_is_no_proc_stat_is_refused(text):
    with pytest.raises(ValueError):
        parse_stat(text)


def test_this_machines_own_can_be_read():
    times = parse_stat(Path("/proc/stat").read_text())
    assert times.cores
    assert 0 < times.busy < times.total


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


def byte_texts(nfs: int, smb: int, lustre: int, sectors: int, more: int = 0) -> dict[str, str]:
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
    assert transferred_between(byte_texts(50, 3, 1, 5, 1), byte_texts(150, 10, 10, 15, 2), path) == found


def test_a_counter_that_began_anew_is_not_negative():
    assert transferred_between(
        byte_texts(150, 0, 0, 0), byte_texts(50, 0, 0, 0), "/run/storagetest/a/d"
    ) == TransferredBytes(0, 0, "the NFS mount's")


def test_without_counters_nothing_is_known():
    assert transferred_between({}, {}, "/var/data") is None
    assert transferred_between({}, {"/proc/self/mountstats": MOUNTS}, "/run/storagetest/a/d") is None


def test_the_longest_mount_point_is_the_paths():
    assert file_system(MOUNTS, "/run/storagetest/a/d") == ("/run/storagetest/a", "nfs4")
    assert file_system(MOUNTS, "/run/storagetest/ab") == ("/run", "tmpfs")
    assert file_system("", "/x") == ("", "")
