"""Counters sampled during a case: by a real sampler, aligned with the load, and ended whatever happens."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from processes import processes

from storagetest.counters.base import Snapshot
from storagetest.errors import NotInstalled, WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Sample, Unit
from storagetest.measure.series import Series
from storagetest.polling import wait_until
from storagetest.runner.sampling import CounterSampling, SampleResult, align_series
from storagetest.runner.throughput_watch import ThroughputWatch
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
