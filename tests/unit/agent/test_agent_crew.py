"""Workers start together, and only what was done while all were at work is counted."""

from __future__ import annotations

import os
import time

import pytest

from storagetest.agent.op_log import OpLog
from storagetest.agent.worker_pool import CommandError, WorkerPool


class Worker:
    """Makes up its operations: ``begin`` to ``end`` ms after the gate, one every ms."""

    def __init__(self, index: int) -> None:
        self.index = index

    def who(self) -> tuple[int, int]:
        return self.index, os.getpid()

    def made_up(self, gate, ends):
        lane = OpLog(sized=True)
        began = gate.wait()
        for number in range(ends[self.index]):
            lane.ends.append(began + (number + 1) * 1_000_000)
            lane.latencies.append(1_000_000)
            lane.sizes.append(10)
        return {"op": lane}

    def idle(self, gate):
        gate.wait()
        return {"op": OpLog()}

    def fails(self, gate):
        if self.index == 1:
            raise OSError(28, "No space left on device", b"/here/f1")
        gate.wait()
        return {}

    def breaks(self):
        raise ZeroDivisionError("oops")

    def leaves(self):
        os._exit(3)

    def sleeps(self):
        time.sleep(60)


@pytest.fixture
def crew():
    with WorkerPool(3, Worker, time.monotonic() + 20) as workers:
        yield workers


def test_each_worker_is_a_process_of_its_own(crew):
    found = crew.call("who")
    assert [index for index, _ in found] == [0, 1, 2]
    assert len({pid for _, pid in found} | {os.getpid()}) == 4
    assert [index for index, _ in crew.call("who", only=1)] == [1]


def test_only_what_all_did_at_once_is_counted(crew):
    report = crew.phase("made_up", [10, 100, 100])
    lane = report["operations"]["op"]
    late = report["spread"] * 1000
    assert lane["total"] == 210
    assert 3 * (10 - late) - 3 <= lane["ops"] <= 30 + 3 * late
    assert lane["bytes"] == 10 * lane["ops"]
    assert sum(lane["bins"].values()) == lane["ops"]
    assert report["overlap"]
    assert report["tail"] == pytest.approx(0.09, abs=report["spread"] + 0.001)
    assert report["seconds"] == pytest.approx(0.01, abs=report["spread"] + 0.001)


def test_to_the_last_all_is_counted(crew):
    report = crew.phase("made_up", [10, 100, 100], to_the_last=True)
    assert report["operations"]["op"]["ops"] == 210
    assert report["seconds"] == report["span"]


def test_some_of_them_are_enough(crew):
    assert crew.phase("made_up", [10, 10, 10], only=[0, 2])["operations"]["op"]["total"] == 20


def test_where_all_were_never_at_work_at_once_the_span_is_the_window(crew):
    report = crew.phase("idle")
    assert not report["overlap"]
    assert report["operations"]["op"]["ops"] == 0


def test_one_that_fails_is_a_failure_of_all(crew):
    with pytest.raises(CommandError) as failed:
        crew.phase("fails")
    assert failed.value.fields == {
        "kind": "os",
        "errno": "ENOSPC",
        "message": "No space left on device",
        "op": "fails",
        "path": "/here/f1",
    }


@pytest.mark.parametrize(
    ("method", "kind", "message"),
    [("breaks", "bug", "ZeroDivisionError: oops"), ("leaves", "died", "died")],
)
def test_one_that_breaks_or_dies_is_too(crew, method, kind, message):
    with pytest.raises(CommandError, match=message) as failed:
        crew.call(method)
    assert failed.value.fields["kind"] == kind


def test_nobody_waits_past_the_deadline_and_nobody_is_left():
    with WorkerPool(2, Worker, time.monotonic() + 0.3) as crew:
        pids = [pid for _, pid in crew.call("who")]
        with pytest.raises(CommandError, match="2 of 2 workers were not done in time"):
            crew.call("sleeps")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
