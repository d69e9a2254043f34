"""Reconnects: completed writes are kept after the connection is lost, and no write is repeated.

The kernel reconnects and repeats commands without a response: a target that had executed one already must
not overwrite later data (NVM Base 9.6; RFC 7143 4.2.2.1, 6.3.5, session reinstatement).
"""

import time

import pytest

from storagetest.agent.testlib import record_observation
from storagetest.agent.testlib.background_writers import with_background_writers
from storagetest.agent.testlib.multipath import device_paths

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(
        level="MUST",
        builds_on=("BLK-DATA-01",),
        section="NVM Base 9.6, RFC 7143 6.3.5",
        no_mutant_reason="a loop device has no connection",
    ),
]


@pytest.mark.case("BLK-CONN-01")
def test_written_data_are_read_after_a_reconnect(block_range):
    """Written data are read after a reconnect."""
    paths = device_paths(block_range)
    block_range.write(0, block_range.count, generation=1)
    block_range.write(64, 64, generation=2)
    for path in paths:
        path.reset()
    block_range.assert_generation(0, 64, generation=1)
    block_range.assert_generation(64, 64, generation=2)
    block_range.assert_generation(128, block_range.count - 128, generation=1)


@pytest.mark.case("BLK-CONN-02")
def test_flushed_data_are_read_after_a_reconnect(block_range):
    """Flushed data are read after a reconnect."""
    paths = device_paths(block_range)
    block_range.write(0, 32, generation=1)
    block_range.flush()
    for path in paths:
        path.reset()
    block_range.assert_generation(0, 32, generation=1)
    block_range.write(0, 32, generation=2)
    block_range.flush()
    block_range.assert_generation(0, 32, generation=2)


@pytest.mark.case("BLK-CONN-03")
def test_completed_writes_are_kept_during_a_reconnect(block_range):
    """Every write that completed during a reconnect is read."""
    load = with_background_writers(block_range, device_paths(block_range)[0].reset)
    load.assert_written()
    record_observation(f"the longest write during a reconnect took {load.longest:.1f} s")


@pytest.mark.case("BLK-CONN-04")
def test_reconnect_repeats_no_write(block_range):
    """No write is repeated after a later write."""
    path = device_paths(block_range)[0]

    def drop_twice():
        path.reset()
        time.sleep(0.1)
        path.reset()

    load = with_background_writers(block_range, drop_twice, writers=1, slots=1, width=8)
    for _ in range(10):
        load.assert_written()
        time.sleep(0.05)
