"""Concurrent commands: none is lost or starved, and the queue depth is respected.

SAM-5 (task set full) and RFC 7143 4.2.2.1 (MaxCmdSN); NVM Base 3.3.1 (a queue's entries). The number
of commands in flight is the kernel's count (inflight, in sysfs), read while the load runs.
"""

import threading

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="SAM-5, NVM Base 3.3.1"),
]


def write_concurrently(block_range, writers, turns):
    """Write with ``writers`` threads, each to its own blocks; return the maximum number in flight."""
    share = block_range.count // writers
    finished = threading.Event()
    completed, most = [], [0]

    def watch_in_flight():
        while not finished.wait(0.001):
            most[0] = max(most[0], sum(map(int, block_range.attribute("inflight", "0 0").split())))

    def work(which):
        if which == writers:
            watch_in_flight()
            return
        for turn in range(turns):
            block_range.write(which * share + turn % share, generation=1 + turn // share)
        completed.append(which)
        if len(completed) == writers:
            finished.set()

    run_threads(work, writers + 1, over=finished)
    for which in range(writers):
        for index in range(min(turns, share)):
            block_range.assert_generation(which * share + index, generation=1 + (turns - 1 - index) // share)
    return most[0]


def depth_of(block_range):
    """Return the maximum number of commands that the kernel sends at once."""
    scsi = block_range.attribute("device/queue_depth")
    if scsi:
        return int(scsi)
    queues = len(block_range.list_sysfs("mq")) or 1
    return queues * int(block_range.attribute("queue/nr_requests", "0"))


@pytest.mark.case("BLK-DEPTH-01", kills=("write-lost-under-load",))
def test_concurrent_writes_are_not_lost(block_range):
    """No write of many concurrent ones is lost."""
    write_concurrently(block_range, 16, 24)


@pytest.mark.case("BLK-DEPTH-02")
def test_more_commands_than_the_queue_depth_all_complete(block_range):
    """More concurrent writes than the queue depth all complete."""
    depth = depth_of(block_range)
    if not 0 < depth <= 96:
        skip(f"a queue depth of {depth}: more threads than one client can run")
    write_concurrently(block_range, depth + 16, 6)


@pytest.mark.case("BLK-DEPTH-03")
def test_commands_in_flight_are_at_most_the_queue_depth(block_range):
    """The number of commands in flight is at most the queue depth."""
    depth = depth_of(block_range)
    most = write_concurrently(block_range, 32, 12)
    if most == 0:
        skip("no command was seen in flight: the device is faster than the sampling")
    record_observation(f"at most {most} in flight, of {depth}")
    assert most <= depth, f"{most} commands were in flight on a queue of {depth}"


@pytest.mark.case("BLK-DEPTH-04")
def test_concurrent_reads_and_writes_do_not_mix(block_range):
    """Concurrent reads and writes of different blocks do not affect each other."""
    block_range.write(0, 64)

    def work(which):
        for turn in range(32):
            if which % 2:
                block_range.assert_generation((which * 7 + turn) % 64)
            else:
                block_range.write(64 + which // 2 * 32 + turn, generation=3)

    run_threads(work, 8)
    for writer in range(4):
        block_range.assert_generation(64 + writer * 32, 32, generation=3)


@pytest.mark.case("BLK-DEPTH-05", kills=("write-swapped",))
def test_concurrent_writes_of_neighbours_are_separate(block_range):
    """Blocks that are written concurrently to neighbouring positions are each stored correctly."""
    for generation in range(1, 9):
        run_threads(lambda which, now=generation: block_range.write(which, generation=now), 16)
        block_range.assert_generation(0, 16, generation=generation)
