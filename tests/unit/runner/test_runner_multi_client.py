"""Many clients at once, on this machine: real start barriers, and clients that fail or are lost."""

import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from measured_loads import needs_fio
from processes import processes

from storagetest.errors import WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Run, Sample
from storagetest.measure.series import Series
from storagetest.measure.unit import Unit
from storagetest.polling import wait_until
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import CaseInfo, MultiClientMeasurement, PrefillCache, run_measurement
from storagetest.runner.measurement import Measurement
from storagetest.runner.start_barriers import StartBarrier
from storagetest.runner.synchronized_start import ClientLost, run_synchronized
from storagetest.workloads._custom.python import CustomPythonWorkload
from storagetest.workloads._fio.job import barrier_option
from storagetest.workloads.base import LoadSize, StartBarrierRef
from storagetest.workloads.metadata import Metadata
from storagetest.workloads.readers_writers import ReadersWriters
from storagetest.workloads.small_random_write import SmallRandomWrite

CASE = CaseInfo("test_x", "scripted", "t", "t-v", "local", "many", "smoke")
SCALE = LoadSize(size=1 << 20, ramp=0.0, runtime=0.2)
DONE = Sample({"iops": 1.0}, 0.1, 1)
UPTIME = "read up _ < /proc/uptime; echo $up"
SPREAD = 60.0  # seconds of spread that a loaded machine may need


@pytest.fixture
def hosts() -> Iterator[list[LocalHost]]:
    with ExitStack() as stack:
        yield [stack.enter_context(LocalHost(f"c{number}")) for number in range(3)]


@pytest.fixture
def barriers(hosts) -> Iterator[list[StartBarrier]]:
    with ExitStack() as stack:
        yield [stack.enter_context(StartBarrier(host)) for host in hosts]


@pytest.fixture
def attachments(hosts, tmp_path: Path) -> list[Attachment]:
    def attach(host: LocalHost) -> Attachment:
        (tmp_path / host.name).mkdir()
        path = str(tmp_path / host.name)
        return Attachment(host, path, AttachmentKind.FILESYSTEM, 1 << 30, root=str(tmp_path))

    return [attach(host) for host in hosts]


def wait_at(directory: str) -> str:
    """Return a shell command that waits at the barrier as fio does."""
    (option,) = barrier_option(directory, 1)
    return f"sh -c {shlex.quote(option.removeprefix('--exec_prerun='))}"


def waiting_load(barrier: StartBarrier, then: str = ":"):
    """Return a load that waits at the barrier, and then runs ``then``."""

    def load(start: StartBarrierRef) -> Sample:
        script = f"{wait_at(start.directory)}; {then}"
        return replace(DONE, evidence={"output": barrier.host.run(["sh", "-c", script], deadline=60).stdout})

    return load


def test_all_wait_for_the_last_and_begin_at_the_instant(barriers):
    def tardy(start: StartBarrierRef) -> Sample:
        time.sleep(0.5)
        return waiting_load(barriers[2], UPTIME)(start)

    came = run_synchronized(barriers, [*(waiting_load(each, UPTIME) for each in barriers[:2]), tardy])
    assert [one.client for one in came] == ["c0", "c1", "c2"]
    for one in came:
        (went_in,) = map(float, one.sample.evidence["output"].split())
        assert went_in >= one.instant - one.clock.error - 0.02  # /proc/uptime has hundredths
        assert one.clock.error < 5
        assert abs(one.clock.wall - (time.time() - time.monotonic())) < 5
        assert abs(one.clock.offset) <= one.clock.error  # one machine has one clock


def test_a_barrier_serves_one_start_after_another(barriers):
    for _ in range(3):
        came = run_synchronized(barriers, [waiting_load(each, f"echo {each.name}") for each in barriers])
        assert [one.sample.evidence["output"].strip() for one in came] == ["c0", "c1", "c2"]


def test_first_ios_are_converted_to_the_controllers_clock(barriers):
    def load(start: StartBarrierRef) -> Sample:
        waiting_load(barriers[0])(start)
        return replace(DONE, first_ios=(time.time(),))

    (one,) = run_synchronized(barriers[:1], [load])
    (first,) = one.starts
    assert one.instant - one.clock.error <= first <= time.monotonic() + one.clock.error


def test_load_with_several_starts_waits_each_time(barriers):
    came = run_synchronized(barriers, [waiting_load(each, wait_at(each.directory)) for each in barriers])
    for one in came:
        assert len(one.instants) == len(set(one.instants)) == 2


def test_loads_of_the_controller_wait_at_the_barrier(barriers):
    def load(start: StartBarrierRef) -> Sample:
        start.wait()
        return DONE

    came = run_synchronized(barriers, [load] * 3)
    assert all(one.starts[0] >= one.instant for one in came)


def test_failing_load_aborts_the_others_and_its_error_is_raised(barriers):
    ended = []

    def waits(start: StartBarrierRef) -> Sample:
        try:
            return waiting_load(barriers[0])(start)
        finally:
            ended.append("waiting")

    def fails(start: StartBarrierRef) -> Sample:
        time.sleep(0.3)
        raise WorkloadError("c1: no space")

    with pytest.raises(WorkloadError, match="c1: no space"):
        run_synchronized(barriers[:2], [waits, fails])
    assert ended == ["waiting"]
    with pytest.raises(ClientLost, match=r"143|Terminated"):  # a stopped barrier starts no load
        run_synchronized(barriers[:1], [waiting_load(barriers[0])])


def test_lost_client_is_named_and_the_other_loads_are_ended(barriers, tmp_path):
    running, ended = tmp_path / "running", threading.Event()

    def other(start: StartBarrierRef) -> Sample:
        try:
            return waiting_load(barriers[0], f"touch {running}; exec sleep 60")(start)
        finally:
            ended.set()

    def dies(start: StartBarrierRef) -> Sample:
        waiting_load(barriers[1])(start)
        wait_until(running.exists, 60, "the other load", interval=0.01)
        kill_barrier(barriers[1])
        ended.wait(60)
        return DONE

    with pytest.raises(ClientLost, match=r"^c1 was lost during the run"):
        run_synchronized(barriers[:2], [other, dies])
    assert ended.is_set()
    shutil.rmtree(barriers[1].directory)


def kill_barrier(barrier: StartBarrier) -> None:
    """Kill the process that has the barrier's FIFOs open."""
    for pid, _, _ in processes():
        with suppress(OSError):
            files = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
            if any(file.is_relative_to(barrier.directory) for file in files):
                os.kill(pid, signal.SIGKILL)


def test_barrier_removes_its_directory(hosts):
    with StartBarrier(hosts[0]) as barrier:
        place = Path(barrier.directory)
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


def multi_client(load, attachments, *, options=None, scale=SCALE, **more) -> MultiClientMeasurement:
    common = {"case": CASE, "fills": PrefillCache(), "limit": SPREAD}
    read = load.Options.model_validate(options or {})
    return MultiClientMeasurement(load, read, attachments, scale, **common, **more)


def run(bench: MultiClientMeasurement, repeats: int = 2) -> Run:
    return run_measurement(bench, repeats=repeats, max_repeats=repeats, gates=[])[0]


def test_many_clients_give_one_run(attachments):
    result = run(multi_client(Counting(), attachments))
    assert result.client == "c0, c1, c2"
    assert len(result.samples) == 2
    for sample in result.samples:
        assert 0 < sample.values["iops"] <= 600.001
        assert [member.client for member in sample.concurrency.members] == ["c0", "c1", "c2"]
        assert sample.ios == 30
    assert result.invalid == ()


def test_load_that_ignores_the_barrier_is_invalid(attachments, scripted):
    class Hasty(scripted):  # type: ignore[misc,valid-type]
        headline = ("iops",)

    result = run(multi_client(Hasty([1.0] * 9), attachments), repeats=1)
    assert any("waits for no common start" in why for why in result.invalid)


def test_a_lost_client_leaves_the_repeats_that_were_whole(attachments, monkeypatch):
    class Breaking(Counting):
        @staticmethod
        def function(attachment: Attachment, scale: LoadSize) -> Sample:
            if scale.repeat == 1 and attachment.client.name == "c1":
                (barrier,) = (each for each in bench._barriers if each.name == "c1")
                kill_barrier(barrier)
                shutil.rmtree(barrier.directory)
                time.sleep(1.0)
            return Counting.function(attachment, scale)

    bench = multi_client(Breaking(), attachments)
    result = run(bench, repeats=3)
    assert len(result.samples) == 1
    assert any(why.startswith("c1 was lost during the run") for why in result.invalid)


def test_equal_values_of_clients_appear_once_and_others_by_client(attachments):
    negotiated = [{"vers": "4.2", "rsize": str(number)} for number in range(3)]
    unlike = [replace(one, negotiated=its) for one, its in zip(attachments, negotiated, strict=True)]
    found = run(multi_client(Counting(), unlike), repeats=1).negotiated
    assert (found["vers"], found["rsize of c1"]) == ("4.2", "1")


def test_finish_adds_the_series_of_every_client_to_each_repeat(attachments, monkeypatch):
    def finish(member: Measurement) -> None:
        series = Series("cpu", "all", Unit.RATIO, member.client, (0.0,), (1.0,))
        member.samples = tuple(replace(sample, series=(series,)) for sample in member.samples)

    monkeypatch.setattr(Measurement, "finish", finish)
    for sample in run(multi_client(Counting(), attachments)).samples:
        assert [series.host for series in sample.series] == ["c0", "c1", "c2"]


def test_longer_repeats_are_longer_on_every_client(attachments):
    with multi_client(Counting(), attachments) as bench:
        bench.prepare()
        bench.measure(1)
        bench.lengthen(2.0, "because")
        bench.measure(1)
        bench.finish()
    assert [one.sample.seconds for one in bench.last_client_runs] == [2 * SCALE.runtime] * 3
    (sample,) = bench.run.samples
    assert sample.evidence["runtime"] == "400 ms instead of 200 ms: because"


@needs_fio
@pytest.mark.parametrize("data", ["own", "shared"])
def test_with_a_real_fio_and_a_cooldown(attachments, data):
    options = {"direct": False, "engine": "psync", "queue_depth": 1, "jobs": 2}
    scale = replace(SCALE, ramp=0.1, runtime=0.5, cooldown=0.2)
    bench = multi_client(SmallRandomWrite(), attachments, options=options, scale=scale, data=data)
    result = run(bench, repeats=1)
    (sample,) = result.samples
    assert result.invalid == ()
    assert sample.concurrency.spread is not None
    assert sample.latency.count == pytest.approx(sample.ios, rel=0.01)
    assert sample.values["iops"] > 0
    files = sorted(Path(attachments[0].path).parent.rglob("*.dat"))
    assert len(files) == (3 if data == "own" else 1)


def test_every_phase_of_an_agent_begins_together(attachments):
    scale = replace(SCALE, runtime=1.0)
    bench = multi_client(Metadata(), attachments, options={"processes": 1, "files": 20}, scale=scale)
    (sample,) = run(bench, repeats=1).samples
    assert sample.concurrency.spread is not None
    _, *phases = sample.evidence["start"].splitlines()
    assert all("all clients active" in phase for phase in phases)
    assert sample.values["create_ops"] > 0


ROLES = {"read_block_size": "4KiB", "write_block_size": "8KiB", "engine": "psync", "direct": False}


@needs_fio
@pytest.mark.parametrize(("readers", "writing"), [(None, ["c1", "c2"]), (2, ["c2"])])
def test_some_clients_read_while_the_others_write(attachments, readers, writing):
    options = {**ROLES, "readers": readers}
    bench = multi_client(ReadersWriters(), attachments, options=options, scale=replace(SCALE, runtime=0.5))
    (sample,) = run(bench, repeats=1).samples
    values = sample.values
    assert set(values) == set(ReadersWriters.metrics)
    assert values["read_bandwidth"] == pytest.approx(4096 * values["read_iops"], rel=0.01)
    assert values["write_bandwidth"] == pytest.approx(8192 * values["write_iops"], rel=0.01)
    wrote = {one.client for one in sample.concurrency.members if "write_iops" in one.values}
    read = {one.client for one in sample.concurrency.members if "read_iops" in one.values}
    assert (sorted(wrote), sorted(read)) == (writing, sorted({"c0", "c1", "c2"} - set(writing)))
    assert sample.evidence["roles"].splitlines()[1] == f"write: {', '.join(writing)}"
    assert sum(one.count for one in sample.operations.values()) == pytest.approx(sample.ios, rel=0.01)


@needs_fio
def test_one_client_alone_has_both_roles(attachments):
    load, options = ReadersWriters(), ReadersWriters.Options.model_validate(ROLES)
    load.fill(attachments[0], options, SCALE)
    sample = load.measure(attachments[0], options, replace(SCALE, runtime=0.5))
    assert set(sample.values) == set(ReadersWriters.metrics)
    assert sample.role == "read and write"


@needs_fio
def test_readers_leave_a_client_to_write(attachments):
    bench = multi_client(ReadersWriters(), attachments, options={**ROLES, "readers": 3})
    with pytest.raises(WorkloadError, match="readers=3 of 3 clients leave none to write"):
        run(bench, repeats=1)
