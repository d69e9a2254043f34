"""The time that counts against a silent machine: scripted samples, and processes of this machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storagetest.lab.process_watch import Sample, SilenceClock, ThreadTimes, read_threads
from storagetest.polling import wait_until

IDLE = ThreadTimes()


def clock(*samples: Sample) -> SilenceClock:
    """A clock that starts at 0 s, with one sample for each of its calls, the first one included."""
    following = iter(({}, *samples))
    return SilenceClock(lambda: next(following), 0.0)


@pytest.mark.parametrize(
    ("threads", "silent"),
    [
        ({}, 100.0),
        ({1: IDLE}, 100.0),
        ({1: ThreadTimes(ran=100.0)}, 100.0),
        ({1: ThreadTimes(ran=3.0, waited=97.0)}, 3.0),
        ({1: ThreadTimes(ran=3.0, waited=90.0)}, 10.0),
        ({1: ThreadTimes(ran=2.0, waited=98.0), 2: ThreadTimes(ran=1.0, waited=60.0)}, 3.0),
        ({1: ThreadTimes(ran=150.0), 2: ThreadTimes(ran=50.0)}, 200.0),
        ({1: ThreadTimes(ran=1.0, state="D"), 2: IDLE}, 1.0),
    ],
    ids=[
        "unknown",
        "waits for an event",
        "computes",
        "starved",
        "idle for a while",
        "threads",
        "two",
        "disk",
    ],
)
def test_what_counts_of_100_seconds(threads: Sample, silent: float):
    assert clock(threads).silent(100.0) == silent


def test_an_output_begins_the_count_anew():
    starved, idle = {1: ThreadTimes(1.0, 49.0)}, {1: ThreadTimes(1.0, 49.0)}
    watch = clock(starved, idle)
    watch.restart(50.0)
    assert watch.silent(57.0) == 7.0


def test_a_thread_that_has_ended_still_counts():
    watch = clock({1: IDLE, 2: ThreadTimes(waited=50.0)}, {1: IDLE})
    assert watch.silent(50.0) == 0.0
    assert watch.silent(60.0) == 10.0


def test_only_the_time_in_which_a_thread_was_blocked_is_left_out():
    watch = clock({1: IDLE}, {1: ThreadTimes(state="D")}, {1: IDLE})
    assert [watch.silent(now) for now in (10.0, 30.0, 31.0)] == [10.0, 10.0, 11.0]


def test_a_wait_that_is_not_over_is_left_out():
    runnable = {1: ThreadTimes(ran=1.0, state="R")}
    over = {1: ThreadTimes(ran=1.0, waited=30.0, state="R")}
    watch = clock(runnable, runnable, over, {1: replace(over[1], state="S")})
    assert [watch.silent(now) for now in (10.0, 40.0, 41.0, 50.0)] == [10.0, 10.0, 11.0, 20.0]


@pytest.fixture
def start() -> Iterator:
    running = []

    def run(text: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([sys.executable, "-c", text]))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait()


def test_a_stopped_process_is_blocked(start):
    process = start("import time; time.sleep(60)")
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(
        lambda: any(thread.state == "T" for thread in read_threads(process.pid).values()), 60.0, "the stop"
    )
    process.kill()
    process.wait()
    assert read_threads(process.pid) == {}


BURN = "import os\nos.sched_setaffinity(0, {%d})\nos.nice(%d)\nwhile True: pass"


def test_little_counts_against_a_process_that_gets_no_processor(start):
    """One process may hardly run with three others on its processor, another one sleeps: same time."""
    processor = min(os.sched_getaffinity(0))
    burning = [start(BURN % (processor, nice)) for nice in (19, 0, 0, 0)]
    sleeping = start("import time; time.sleep(600)")
    pids = [burning[0].pid, sleeping.pid]

    def niced() -> bool:
        return os.getpriority(os.PRIO_PROCESS, pids[0]) == 19

    wait_until(niced, 60.0, "the first to be nice")
    clocks = [SilenceClock(lambda pid=pid: read_threads(pid), time.monotonic()) for pid in pids]  # type: ignore[misc]

    def little() -> bool:
        """Whether less than half counts. A wait that is not over is left out, so it takes several samples."""
        now = time.monotonic()
        starved, idle = (watch.silent(now) for watch in clocks)
        return idle > 1.0 and starved < idle / 2

    wait_until(little, 120.0, "little to count against the process that hardly runs", interval=0.2)
