"""Current throughput: read from a real sampler, converted to rates, without effect on the sampling."""

from __future__ import annotations

import base64
import json
import zlib
from unittest.mock import Mock

import pytest

from storagetest.counters._transferred_bytes import TransferredBytes
from storagetest.hosts.local import LocalHost
from storagetest.polling import wait_until
from storagetest.runner.sampling import CounterSampling
from storagetest.runner.throughput_watch import Throughput, ThroughputWatch
from storagetest.workloads.base import LoadSize

MOUNT = """\
device proc mounted on /proc with fstype proc
device nas:/x mounted on /mnt with fstype nfs4 statvers=1.1
\tbytes:\t10 10 0 0 {read} {written} 1 1
"""


def line(at: float, texts: object) -> dict:
    return {"at": at, "now": base64.b64encode(zlib.compress(json.dumps(texts).encode())).decode()}


def mount(at: float, read: int, written: int) -> dict:
    return line(at, {"/proc/self/mountstats": MOUNT.format(read=read, written=written)})


def test_two_moments_make_a_rate():
    received: list[Throughput] = []
    watch = ThroughputWatch("/mnt/dir/file", 2.0, received.append)
    watch.receive(mount(10.0, 1000, 0))
    assert received == []
    watch.receive(mount(12.0, 5000, 300))
    watch.receive(mount(14.5, 5000, 300))
    assert received == [
        Throughput(2000, 150, 2.0, "the NFS mount's"),
        Throughput(0, 0, 2.5, "the NFS mount's"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"at": 1, "now": "!"},
        {"at": "x", "now": ""},
        line(1.0, []),
        line(1.0, 7),
        {"at": 1.0, "now": None},
    ],
)
def test_unreadable_lines_are_skipped(line):
    received: list[Throughput] = []
    watch = ThroughputWatch("/mnt", 2.0, received.append)
    watch.receive(mount(0.0, 0, 0))
    watch.receive(line)
    watch.receive(mount(2.0, 100, 0))
    assert [flow.read for flow in received] == [50]


def test_no_counter_gives_no_rate():
    received: list[Throughput] = []
    watch = ThroughputWatch("/tmp/x", 2.0, received.append)
    for at in range(3):
        text = "device tmpfs mounted on /tmp with fstype tmpfs\n"
        watch.receive(line(float(at), {"/proc/self/mountstats": text}))
    assert received == []


def test_a_real_sampler_sends_counters_while_it_samples(tmp_path, monkeypatch):
    watch = ThroughputWatch(str(tmp_path), 0.1, print)
    receive = Mock(wraps=watch.receive)
    monkeypatch.setattr(watch, "receive", receive)
    with LocalHost("here") as host:
        sampling = CounterSampling((host,), 0.05, watch=watch)
        sampling.start()
        wait_until(lambda: receive.call_count >= 3, 30, "three messages")
        (found,) = sampling.stop()
    assert found.note == ""
    assert "/proc/stat" in found.moments[-1].texts
    (message,) = receive.call_args_list[0].args
    texts = json.loads(zlib.decompress(base64.b64decode(message["now"])))
    assert "/proc/stat" not in texts  # what no rate is made of is not sent
    kept = texts["/proc/self/mountstats"].splitlines()
    assert all(one.startswith(("device ", "\tbytes:")) for one in kept)


def test_case_reports_throughput_in_its_phase(scripted, measure, monkeypatch):
    seen = []

    class Slow(scripted):
        def measure(self, attachment, options, scale):
            wait_until(lambda: any(one.throughput for one in seen), 30, "a throughput", interval=0.02)
            return super().measure(attachment, options, scale)

    moved = iter(range(10**6))
    monkeypatch.setattr(
        "storagetest.runner.throughput_watch.transferred_between",
        lambda *_: TransferredBytes(next(moved), 0, "a test's"),
    )
    scale = LoadSize(1 << 20, 0.0, 0.1, interval=0.05)
    run, _ = measure(Slow([1.0, 1.0]), scale, repeats=2, on_progress=seen.append, watch_interval=0.05)
    assert len(run.samples) == 2
    assert {one.phase.name for one in seen if one.throughput} <= {"FILL", "MEASURE", "CEILING"}
    begins = [(one.phase.name, one.repeat) for one in seen if not one.throughput]
    assert begins[-3:] == [("MEASURE", 1), ("MEASURE", 2), ("DONE", 2)]
    assert seen[-1].last[0][0].name == "iops"
