"""What is sampled while a load runs, and evidence of its requests."""

import base64
import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from processes import processes

from storagetest.counters._transferred_bytes import TransferredBytes
from storagetest.counters.base import MOUNTS, RequestKind, Snapshot
from storagetest.errors import NotInstalled, WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Sample
from storagetest.measure.series import Series
from storagetest.measure.unit import Unit
from storagetest.polling import wait_until
from storagetest.runner.request_evidence import RequestCounter
from storagetest.runner.sampling import CounterSampling, SampleResult, align_series
from storagetest.runner.syscall_session import CapturedCalls
from storagetest.runner.throughput_watch import Throughput, ThroughputWatch
from storagetest.workloads.base import LoadSize


def samplers() -> list[int]:
    """Return the agents that this file's tests have started (pytest names the test in its environment)."""
    found = []
    for pid, _, line in processes():
        if "storagetest-agent" in line and Path(line.split()[0]).name.startswith("python3"):
            with suppress(OSError):
                if Path(__file__).name in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                    found.append(pid)
    return found


def test_sampling_runs_until_stopped(monkeypatch: pytest.MonkeyPatch):
    watch = ThroughputWatch("/", 0.01, print)
    monkeypatch.setattr(watch, "receive", Mock())
    with LocalHost("here") as host:
        sampling = CounterSampling((host,), 0.1, watch=watch)
        sampling.start()
        wait_until(lambda: watch.receive.call_count >= 3, 60, "three samples")
        before = time.time() - time.monotonic()
        assert len(samplers()) == 1
        (found,) = sampling.stop()
    assert samplers() == []
    assert found.note == ""
    assert len(found.moments) >= 3
    times = [moment.time for moment in found.moments]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 5
    assert abs(found.clock - before) < 0.5
    assert all("cpu" in moment.texts["/proc/stat"] for moment in found.moments)
    assert "intr" not in found.moments[0].texts["/proc/stat"]  # lines that were not requested are not sent
    assert 0 < found.cost < 1
    assert sampling.stop() == ()


def test_interval_0_samples_nothing_and_nothing_is_started():
    with LocalHost("here") as host:
        sampling = CounterSampling((host,), 0)
        sampling.start()
        assert sampling.stop() == ()


def test_a_machine_without_python_is_a_note_and_no_error(monkeypatch: pytest.MonkeyPatch):
    bare = LocalHost("bare")
    missing = Mock(side_effect=NotInstalled("bare: `python3` is not installed (not on PATH)"))
    monkeypatch.setattr(bare, "run", missing)
    sampling = CounterSampling((bare,), 0.1)
    sampling.start()
    (found,) = sampling.stop()
    assert "python3 is missing" in found.note
    (sample,) = align_series([Sample({}, 1.0, 1)], [0.0], [found], 0.1)
    assert sample.series == ()
    assert sample.evidence["sampling"].startswith("bare: not sampled: ")


def test_a_case_has_its_series_and_leaves_no_sampler(scripted, measure):
    class Slow(scripted):
        def measure(self, attachment, options, scale):
            time.sleep(0.6)
            return super().measure(attachment, options, scale)

    run, _ = measure(Slow([1.0] * 3), LoadSize(1 << 20, 0.0, 0.6, interval=0.2))
    last = run.samples[-1]
    cpu = next(one for one in last.series if (one.source, one.name) == ("cpu", "all"))
    assert cpu.host == "here"
    assert len(cpu.times) >= 2
    assert all(-0.3 <= at <= 0.9 for at in cpu.times)
    assert "of a core" in last.evidence["sampling"]
    assert samplers() == []


def test_a_case_that_breaks_leaves_no_sampler(scripted, measure, monkeypatch: pytest.MonkeyPatch):
    load = scripted([1.0])
    monkeypatch.setattr(load, "measure", Mock(side_effect=WorkloadError("broken")))
    with pytest.raises(WorkloadError, match="broken"):
        measure(load, LoadSize(1 << 20, 0.0, 0.1, interval=0.1))
    assert samplers() == []


def moments(start: float, busy: list[int]) -> tuple[Snapshot, ...]:
    return tuple(
        Snapshot(start + second, {"/proc/stat": f"cpu {ticks} 0 0 {100 * second - ticks} 0\n"})
        for second, ticks in enumerate(busy)
    )


def test_machines_whose_clocks_differ_stand_on_one_time_axis():
    # Our clock is at 1000 when the measuring begins; the client's is 5000 ahead, the server's 9000.
    client = SampleResult("client", moments(5998.0, [0, 0, 0, 50, 100, 100]), clock=5000.0, cost=0.001)
    server = SampleResult("server", moments(9998.0, [0, 0, 0, 100, 100, 100]), clock=9000.0)
    load = Series("load", "read IOPS", Unit.PER_SECOND, "client", (1.0,), (7.0,))
    sample = Sample({}, 2.0, 1, series=(load,), began=6000.0)
    (found,) = align_series([sample], [999.0], [client, server], 1.0)
    assert found.series[0] == load
    by_host = {one.host: dict(zip(one.times, one.values, strict=True)) for one in found.series[1:]}
    assert by_host["client"] == {-1.0: 0.0, 0.0: 0.0, 1.0: 0.5, 2.0: 0.5, 3.0: 0.0}
    assert by_host["server"] == {-1.0: 0.0, 0.0: 0.0, 1.0: 1.0, 2.0: 0.0, 3.0: 0.0}


def test_start_of_the_call_replaces_a_missing_start_of_the_load():
    client = SampleResult("client", moments(5998.0, [0, 0, 0, 50, 100]), clock=5000.0)
    (found,) = align_series([Sample({}, 1.0, 1)], [1000.0], [client], 1.0)
    (cpu,) = found.series
    assert cpu.times == (-1.0, 0.0, 1.0, 2.0)


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


NFS3 = """\
device nas:/export mounted on /mnt with fstype nfs statvers=1.1
\tper-op statistics
\t       GETATTR: 1 1 0 100 100 0 1 1 0
"""


def watch(counts: Mapping[str, int], lost: int) -> RequestCounter:
    session = SimpleNamespace(
        read_files=lambda _: {MOUNTS: NFS3},
        start_rpc_capture=lambda: None,
        stop_rpc_capture=lambda: CapturedCalls(counts, lost),
    )
    return RequestCounter(session, "/mnt/d")  # type: ignore[arg-type]  # the part of a session that is used


@pytest.mark.parametrize(
    ("counts", "lost", "count"),
    [
        ({"100021.2": 1, "100021.4": 1, "100003.1": 5}, 0, 2),
        ({"100003.1": 5}, 0, 0),
        ({"100021.2": 1}, 7, 1),
        ({"100003.1": 5}, 7, None),
    ],
    ids=["seen", "none", "seen, some packets lost", "none, some packets lost"],
)
def test_a_capture_that_lost_packets_never_proves_that_nothing_was_sent(
    counts: Mapping[str, int], lost: int, count: int | None
) -> None:
    with watch(counts, lost).count_requests(RequestKind.LOCK) as seen:
        pass
    assert seen.count == count
    assert ("lost 7 packets" in seen.how) == bool(lost)
