"""Many commands at once: none is lost, none is starved, and the queue's depth is kept.

SAM-5 (task set full) and RFC 7143 4.2.2.1 (MaxCmdSN); NVM Base 3.3.1 (a queue's entries). What the kernel had
in flight is its own count (inflight, in sysfs), read while the load runs.
"""

import threading

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [pytest.mark.needs("block"), pytest.mark.case(level="MUST", section="SAM-5, NVM Base 3.3.1")]


def crowded(block_range, writers, turns):
    """Write with ``writers`` at once, each its own blocks; return the most that was in flight."""
    share = block_range.count // writers
    over = threading.Event()
    ended, most = [], [0]

    def look():
        while not over.wait(0.001):
            most[0] = max(most[0], sum(map(int, block_range.attribute("inflight", "0 0").split())))

    def work(which):
        if which == writers:
            look()
            return
        for turn in range(turns):
            block_range.write(which * share + turn % share, generation=1 + turn // share)
        ended.append(which)
        if len(ended) == writers:
            over.set()

    run_threads(work, writers + 1, over=over)
    for which in range(writers):
        for place in range(min(turns, share)):
            block_range.assert_generation(which * share + place, generation=1 + (turns - 1 - place) // share)
    return most[0]


def depth_of(block_range):
    """Return how many commands the kernel may have in flight."""
    scsi = block_range.attribute("device/queue_depth")
    if scsi:
        return int(scsi)
    queues = len(block_range.listed("mq")) or 1
    return queues * int(block_range.attribute("queue/nr_requests", "0"))


@pytest.mark.case("BLK-DEPTH-01", kills=("write-lost-under-load",))
def test_no_write_of_many_at_once_is_lost(block_range):
    """No write of many at once is lost."""
    crowded(block_range, 16, 24)


@pytest.mark.case("BLK-DEPTH-02")
def test_more_at_once_than_the_queue_takes_are_all_answered(block_range):
    """More at once than the queue takes are all answered."""
    depth = depth_of(block_range)
    if not 0 < depth <= 96:
        skip(f"a depth of {depth}: more processes than one client has threads for")
    crowded(block_range, depth + 16, 6)


@pytest.mark.case("BLK-DEPTH-03")
def test_no_more_is_in_flight_than_the_queue_takes(block_range):
    """No more is in flight than the queue takes."""
    depth = depth_of(block_range)
    most = crowded(block_range, 32, 12)
    if most == 0:
        skip("nothing was ever seen in flight: the device is faster than the looking")
    record_observation(f"at most {most} in flight, of {depth}")
    assert most <= depth, f"{most} commands were in flight on a queue of {depth}"


@pytest.mark.case("BLK-DEPTH-04")
def test_reads_and_writes_at_once_do_not_mix(block_range):
    """Reads and writes at once do not mix."""
    block_range.write(0, 64)

    def work(which):
        for turn in range(32):
            if which % 2:
                block_range.assert_generation((which * 7 + turn) % 64)
            else:
                block_range.write(64 + which * 32 + turn, generation=3)

    run_threads(work, 8)
    for which in range(0, 8, 2):
        block_range.assert_generation(64 + which * 32, 32, generation=3)


@pytest.mark.case("BLK-DEPTH-05", kills=("write-swapped",))
def test_neighbours_written_at_once_are_each_their_own(block_range):
    """Neighbours written at once are each their own."""
    for generation in range(1, 9):
        run_threads(lambda which, now=generation: block_range.write(which, generation=now), 16)
        block_range.assert_generation(0, 16, generation=generation)
