"""Many clients at once, on this machine: real gates, real waiting, and clients that fail or go away."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from storagetest.config.base import WorkloadOptions
from storagetest.errors import WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Run, Sample, Unit
from storagetest.measure.series import Series
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import CaseInfo, MultiClientMeasurement, PrefillCache, run_measurement
from storagetest.runner.measurement import Measurement
from storagetest.runner.start_barriers import StartBarrier
from storagetest.runner.synchronized_start import ClientLost, run_synchronized
from storagetest.workloads._custom.python import CustomPythonWorkload
from storagetest.workloads._fio.job import barrier_option
from storagetest.workloads.base import LoadSize, StartBarrierRef, workloads
from storagetest.workloads.small_random_write import SmallRandomWrite

CASE = CaseInfo("test_x", "scripted", "t", "t-v", "local", "many", "smoke")
SCALE = LoadSize(size=1 << 20, ramp=0.0, runtime=0.2)
UPTIME = "read up _ < /proc/uptime; echo $up"
PATIENT = 60.0  # seconds of spread that a loaded machine may need


@pytest.fixture
def hosts() -> Iterator[list[LocalHost]]:
    with ExitStack() as stack:
        yield [stack.enter_context(LocalHost(f"c{number}")) for number in range(3)]


@pytest.fixture
def gates(hosts) -> Iterator[list[StartBarrier]]:
    with ExitStack() as stack:
        yield [stack.enter_context(StartBarrier(host)) for host in hosts]


@pytest.fixture
def attachments(hosts, tmp_path: Path) -> list[Attachment]:
    made = []
    for host in hosts:
        (tmp_path / host.name).mkdir()
        made.append(
            Attachment(
                host, str(tmp_path / host.name), AttachmentKind.FILESYSTEM, 1 << 30, root=str(tmp_path)
            )
        )
    return made


def at_the_door(gate: StartBarrier, *, says: str = "", then: str = ""):
    """A load as fio is one: it waits for a shell that waits at the door, and goes on."""

    def load(start: StartBarrierRef) -> Sample:
        (option,) = barrier_option(start.directory, 1)
        wait = shlex.quote(option.removeprefix("--exec_prerun="))
        script = f"sh -c {wait}; {then or ':'}; echo {says}"
        done = gate.host.run(["sh", "-c", script], deadline=60)
        return Sample({"iops": 1.0}, 0.1, 1, evidence={"said": done.stdout})

    return load


def test_all_wait_for_the_last_and_begin_at_the_instant(gates):
    late = threading.Event()

    def tardy(start: StartBarrierRef) -> Sample:
        late.wait(0.5)
        return at_the_door(gates[2], then=UPTIME)(start)

    came = run_synchronized(gates, [*(at_the_door(gate, then=UPTIME) for gate in gates[:2]), tardy])
    assert [one.client for one in came] == ["c0", "c1", "c2"]
    for one in came:
        (went_in,) = map(float, one.sample.evidence["said"].split())
        assert went_in >= one.instant - one.clock.error - 0.02  # nobody before it (/proc/uptime: hundredths)
        assert one.clock.error < 5
        assert abs(one.clock.wall - (time.time() - time.monotonic())) < 5
        assert abs(one.clock.offset) <= one.clock.error  # one machine has one clock


def test_a_gate_serves_one_start_after_another(gates):
    for _ in range(3):
        came = run_synchronized(gates, [at_the_door(gate, says=gate.name) for gate in gates])
        assert [one.sample.evidence["said"].strip() for one in came] == ["c0", "c1", "c2"]


def test_first_ios_that_a_load_knows_are_told_by_our_clock(gates):
    def load(start: StartBarrierRef) -> Sample:
        at_the_door(gates[0])(start)
        return Sample({"iops": 1.0}, 0.1, 1, first_ios=(time.time(),))

    (one,) = run_synchronized(gates[:1], [load])
    (first,) = one.starts
    assert one.instant - one.clock.error <= first <= time.monotonic() + one.clock.error


def test_who_begins_several_times_waits_each_time(gates):
    came = run_synchronized(gates, [at_the_door(gate, then=_again(gate)) for gate in gates])
    assert {len(one.instants) for one in came} == {2}
    assert {len(set(one.instants)) for one in came} == {2}


def _again(gate: StartBarrier) -> str:
    (option,) = barrier_option(gate.directory, 1)
    return f"sh -c {shlex.quote(option.removeprefix('--exec_prerun='))}"


def test_loads_of_our_own_machine_wait_here(gates):
    def load(start: StartBarrierRef) -> Sample:
        start.wait()
        return Sample({"iops": 1.0}, 0.1, 1)

    came = run_synchronized(gates, [load] * 3)
    assert all(one.starts[0] >= one.instant for one in came)


def test_one_that_fails_calls_the_others_off_and_is_what_is_raised(gates):
    ended = []

    def waits(start: StartBarrierRef) -> Sample:
        try:
            return at_the_door(gates[0])(start)
        finally:
            ended.append("waiting")

    def fails(start: StartBarrierRef) -> Sample:
        time.sleep(0.3)
        raise WorkloadError("c1: no room")

    with pytest.raises(WorkloadError, match="c1: no room"):
        run_synchronized(gates[:2], [waits, fails])
    assert ended == ["waiting"]
    with pytest.raises(ClientLost, match=r"143|Terminated"):  # a gate that was stopped lets nobody in
        run_synchronized(gates[:1], [at_the_door(gates[0])])


def test_a_client_that_goes_away_in_mid_run_is_named_and_the_others_are_ended(gates, tmp_path):
    running = tmp_path / "running"

    def runs(start: StartBarrierRef) -> Sample:
        return at_the_door(gates[0], then=f"touch {running}; exec sleep 60")(start)

    def dies(start: StartBarrierRef) -> Sample:
        sample = at_the_door(gates[1])(start)
        while not running.exists():
            time.sleep(0.01)
        for pid in _gate_pids(gates[1]):
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)
        return sample

    began = time.monotonic()
    with pytest.raises(ClientLost, match=r"^c1 was lost during the run"):
        run_synchronized(gates[:2], [runs, dies])
    assert time.monotonic() - began < 55  # the other one did not sleep to its end
    shutil.rmtree(gates[1].directory)


def _gate_pids(gate: StartBarrier) -> list[int]:
    """The process that has the gate's FIFOs open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                files = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(file.startswith(f"{gate.directory}/") for file in files):
                found.append(int(entry.name))
    return found


def test_nothing_of_a_gate_is_left(hosts):
    with StartBarrier(hosts[0]) as gate:
        place = Path(gate.directory)
        assert (place / "barrier").is_dir()
    assert not place.exists()


class Counting(CustomPythonWorkload):
    """Figures by client, given beforehand."""

    name = "counting"
    needs = frozenset()
    metrics: ClassVar[Any] = SmallRandomWrite.metrics
    headline = ("iops",)
    source = "here"
    figures: ClassVar[dict[str, float]] = {"c0": 100.0, "c1": 200.0, "c2": 300.0}

    @staticmethod
    def function(attachment: Attachment, scale: LoadSize) -> Sample:
        time.sleep(scale.runtime)
        return Sample({"iops": Counting.figures[attachment.client.name]}, scale.runtime, 10)


def crowd(load, attachments, scale=SCALE, **more) -> MultiClientMeasurement:
    options = more.pop("options", None) or WorkloadOptions()
    return MultiClientMeasurement(
        load, options, attachments, scale, case=CASE, fills=PrefillCache(), limit=PATIENT, **more
    )


def run(bench: MultiClientMeasurement, repeats: int = 2) -> Run:
    return run_measurement(bench, repeats=repeats, max_repeats=repeats, gates=[])[0]


def test_a_crowd_is_one_run_of_all(attachments):
    result = run(crowd(Counting(), attachments))
    assert result.client == "c0, c1, c2"
    assert len(result.samples) == 2
    for sample in result.samples:
        assert 0 < sample.values["iops"] <= 600.001
        assert sample.concurrency is not None
        assert [member.client for member in sample.concurrency.members] == ["c0", "c1", "c2"]
        assert sample.ios == 30
    assert result.invalid == ()


def test_a_load_that_waits_for_nobody_is_invalid(attachments, scripted):
    class Hasty(scripted):  # type: ignore[misc,valid-type]
        headline = ("iops",)

    result = run(crowd(Hasty([1.0] * 9), attachments, options=Hasty.Options()), repeats=1)
    assert any("waits for no common start" in why for why in result.invalid)


def test_a_lost_client_leaves_the_repeats_that_were_whole(attachments, monkeypatch):
    class Breaking(Counting):
        taken: ClassVar[list[int]] = []

        @staticmethod
        def function(attachment: Attachment, scale: LoadSize) -> Sample:
            if scale.repeat == 1 and attachment.client.name == "c1":
                for gate in bench._barriers:
                    if gate.name == "c1":
                        for pid in _gate_pids(gate):
                            os.kill(pid, signal.SIGKILL)
                        shutil.rmtree(gate.directory)
                time.sleep(1.0)
            return Counting.function(attachment, scale)

    bench = crowd(Breaking(), attachments)
    result = run(bench, repeats=3)
    assert len(result.samples) == 1
    assert any(why.startswith("c1 was lost during the run") for why in result.invalid)


def test_what_clients_have_in_common_is_said_once_and_the_rest_by_name(attachments):
    unlike = [
        replace(each, negotiated={"vers": "4.2", "rsize": str(number)})
        for number, each in enumerate(attachments)
    ]
    result = run(crowd(Counting(), unlike), repeats=1)
    assert result.negotiated["vers"] == "4.2"
    assert result.negotiated["rsize of c1"] == "1"


def test_finish_adds_the_series_of_every_client_to_each_repeat(attachments, monkeypatch):
    def finish(member: Measurement) -> None:
        series = Series("cpu", "all", Unit.RATIO, member.client, (0.0,), (1.0,))
        member._samples = tuple(replace(sample, series=(series,)) for sample in member._samples)

    monkeypatch.setattr(Measurement, "finish", finish)
    for sample in run(crowd(Counting(), attachments)).samples:
        assert [series.host for series in sample.series] == ["c0", "c1", "c2"]


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed here")
@pytest.mark.parametrize("data", ["own", "shared"])
def test_with_a_real_fio_and_a_cooldown(attachments, data):
    load = SmallRandomWrite()
    options = load.Options.model_validate({"direct": False, "engine": "psync", "queue_depth": 1, "jobs": 2})
    scale = replace(SCALE, ramp=0.1, runtime=0.5, cooldown=0.2)
    result = run(crowd(load, attachments, scale, options=options, data=data), repeats=1)
    (sample,) = result.samples
    assert result.invalid == ()
    assert sample.concurrency is not None
    assert sample.concurrency.spread is not None
    assert sample.latency is not None
    assert sample.latency.count == pytest.approx(sample.ios, rel=0.01)
    assert sample.values["iops"] > 0
    files = sorted(Path(attachments[0].path).parent.rglob("*.dat"))
    assert len(files) == (3 if data == "own" else 1)


def test_every_phase_of_an_agent_begins_together(attachments):
    load = workloads.get("metadata")()
    options = load.Options.model_validate({"processes": 1, "files": 20})
    result = run(crowd(load, attachments, replace(SCALE, runtime=1.0), options=options), repeats=1)
    (sample,) = result.samples
    assert sample.concurrency is not None
    assert sample.concurrency.spread is not None
    assert (
        sample.evidence["start"].count("all clients active") == len(sample.evidence["start"].splitlines()) - 1
    )
    assert sample.values["create_ops"] > 0
