"""What was written outlives the connection by which it was written, and nothing is written twice.

The kernel makes a lost connection anew and sends again what was not answered: a target that had done it
already must not undo what was written since (NVM Base 9.6; RFC 7143 4.2.2.1, 6.3.5, session reinstatement).
"""

import time

import pytest

from storagetest.agent.testlib import observe
from storagetest.agent.testlib.background_writers import beside
from storagetest.agent.testlib.multipath import paths_of

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(
        level="MUST", section="NVM Base 9.6, RFC 7143 6.3.5", spares="a loop device has no connection"
    ),
]


@pytest.mark.case("BLK-CONN-01")
def test_what_was_written_is_read_after_a_reconnect(blocks):
    """What was written is read after a reconnect."""
    paths = paths_of(blocks)
    blocks.write(0, blocks.count, generation=1)
    blocks.write(64, 64, generation=2)
    for path in paths:
        path.drop()
    blocks.expect(0, 64, generation=1)
    blocks.expect(64, 64, generation=2)
    blocks.expect(128, blocks.count - 128, generation=1)


@pytest.mark.case("BLK-CONN-02")
def test_what_was_written_by_force_is_read_after_a_reconnect(blocks):
    """What was written by force is read after a reconnect."""
    paths = paths_of(blocks)
    blocks.write(0, 32, generation=1)
    blocks.flush()
    for path in paths:
        path.drop()
    blocks.expect(0, 32, generation=1)
    blocks.write(0, 32, generation=2)
    blocks.flush()
    blocks.expect(0, 32, generation=2)


@pytest.mark.case("BLK-CONN-03")
def test_every_write_that_was_answered_beside_a_reconnect_is_there(blocks):
    """Every write that was answered beside a reconnect is there."""
    load = beside(blocks, paths_of(blocks)[0].drop)
    load.expect()
    observe(f"the longest write beside a reconnect took {load.longest:.1f} s")


@pytest.mark.case("BLK-CONN-04")
def test_no_write_is_done_again_after_a_later_one(blocks):
    """No write is done again after a later one."""
    path = paths_of(blocks)[0]

    def drop_twice():
        path.drop()
        time.sleep(0.1)
        path.drop()

    load = beside(blocks, drop_twice, writers=1, places=1, width=8)
    for _ in range(10):
        load.expect()
        time.sleep(0.05)
