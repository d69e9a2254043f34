"""Workers start at the same time; only operations that end while all of them work are counted."""

from __future__ import annotations

import os
import time

import pytest

from storagetest.agent.op_log import OpLog
from storagetest.agent.worker_pool import CommandError, WorkerPool


class Worker:
    """Generates its operations: one every ms from the start, ``ends[index]`` of them."""

    def __init__(self, index: int) -> None:
        self.index = index

    def identity(self) -> tuple[int, int]:
        return self.index, os.getpid()

    def generate(self, barrier, ends):
        log = OpLog(sized=True)
        start = barrier.wait()
        for number in range(ends[self.index]):
            log.ends.append(start + (number + 1) * 1_000_000)
            log.latencies.append(1_000_000)
            log.sizes.append(10)
        return {"op": log}

    def idle(self, barrier):
        barrier.wait()
        return {"op": OpLog()}

    def fails(self, barrier):
        if self.index == 1:
            raise OSError(28, "No space left on device", b"/here/f1")
        barrier.wait()
        return {}

    def breaks(self):
        raise ZeroDivisionError("oops")

    def leaves(self):
        os._exit(3)

    def sleeps(self):
        time.sleep(60)


@pytest.fixture
def pool():
    with WorkerPool(3, Worker, time.monotonic() + 20) as pool:
        yield pool


def test_each_worker_is_a_separate_process(pool):
    identities = pool.call("identity")
    assert [index for index, _ in identities] == [0, 1, 2]
    assert len({pid for _, pid in identities} | {os.getpid()}) == 4
    assert [index for index, _ in pool.call("identity", only=1)] == [1]


def test_only_operations_in_the_common_window_are_counted(pool):
    report = pool.phase("generate", [1000, 5000, 5000])
    entry = report["operations"]["op"]
    spread_ms = report["spread"] * 1000
    assert entry["total"] == 11_000
    assert 3 * (1000 - spread_ms) - 3 <= entry["ops"] <= 3000 + 3 * spread_ms
    assert entry["bytes"] == 10 * entry["ops"]
    assert sum(entry["bins"].values()) == entry["ops"]
    assert report["overlap"]
    assert report["tail"] == pytest.approx(4.0, abs=report["spread"] + 0.001)
    assert report["seconds"] == pytest.approx(1.0, abs=report["spread"] + 0.001)


def test_until_last_end_all_operations_are_counted(pool):
    report = pool.phase("generate", [10, 100, 100], until_last_end=True)
    assert report["operations"]["op"]["ops"] == 210
    assert report["seconds"] == report["span"]


def test_a_phase_runs_on_some_workers_only(pool):
    assert pool.phase("generate", [10, 10, 10], only=[0, 2])["operations"]["op"]["total"] == 20


def test_without_a_common_window_the_span_is_the_window(pool):
    report = pool.phase("idle")
    assert not report["overlap"]
    assert report["operations"]["op"]["ops"] == 0


def test_a_failure_of_a_worker_fails_the_phase(pool):
    with pytest.raises(CommandError) as failed:
        pool.phase("fails")
    assert failed.value.fields == {
        "kind": "os",
        "errno": "ENOSPC",
        "message": "No space left on device",
        "op": "fails",
        "path": "/here/f1",
    }


@pytest.mark.parametrize(
    ("method", "kind", "message"), [("breaks", "bug", "ZeroDivisionError: oops"), ("leaves", "died", "died")]
)
def test_a_worker_that_raises_or_dies_fails_the_call(pool, method, kind, message):
    with pytest.raises(CommandError, match=message) as failed:
        pool.call(method)
    assert failed.value.fields["kind"] == kind


def test_a_call_ends_at_the_deadline_and_the_workers_are_killed():
    with WorkerPool(2, Worker, time.monotonic() + 3) as pool:
        pids = [pid for _, pid in pool.call("identity")]
        with pytest.raises(CommandError, match="2 of 2 workers did not end by the deadline"):
            pool.call("sleeps")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
