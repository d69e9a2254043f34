"""What the sources read in a kernel's words, and what becomes of it over time."""

from __future__ import annotations

import pytest

from storagetest.counters import base, snapshot
from storagetest.counters.base import Kind, Reading, Snapshot, all_sources, rate_between, to_series
from storagetest.counters.block import Block
from storagetest.counters.cifs import Cifs
from storagetest.counters.cpu import Cpu
from storagetest.counters.iscsi import IscsiSource
from storagetest.counters.lustre import LustreSource
from storagetest.counters.mountstats import Mountstats, parse_mounts
from storagetest.counters.nic import Nic, traffic
from storagetest.counters.nvme import Nvme
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Unit


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
