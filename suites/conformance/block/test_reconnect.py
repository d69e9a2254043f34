"""What was written outlives the connection by which it was written, and nothing is written twice.

The kernel makes a lost connection anew and sends again what was not answered: a target that had done it
already must not undo what was written since (NVM Base 9.6; RFC 7143 4.2.2.1, 6.3.5, session reinstatement).
"""

import threading
import time

import pytest

from storagetest.agent.casekit import observe
from storagetest.agent.casekit.crowd import together
from storagetest.agent.casekit.paths import paths_of

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
    path = paths_of(blocks)[0]
    share, writers = 32, 4
    over = threading.Event()
    answered = [0] * writers
    longest = [0.0]

    def work(which):
        if which == writers:
            time.sleep(0.1)
            try:
                path.drop()
                time.sleep(0.2)
            finally:
                over.set()
            return
        while not over.is_set():
            began = time.monotonic()
            turn = answered[which]
            blocks.write(which * share + turn % share, generation=1 + turn // share)
            answered[which] += 1
            longest[0] = max(longest[0], time.monotonic() - began)

    together(work, writers + 1, over=over)
    for which, turns in enumerate(answered):
        for place in range(min(share, turns)):
            blocks.expect(which * share + place, generation=1 + (turns - 1 - place) // share)
    observe(f"the longest write beside a reconnect took {longest[0]:.1f} s")


@pytest.mark.case("BLK-CONN-04")
def test_no_write_is_done_again_after_a_later_one(blocks):
    """No write is done again after a later one."""
    path = paths_of(blocks)[0]
    over = threading.Event()
    last = [0]

    def work(which):
        if which:
            try:
                for _ in range(2):
                    time.sleep(0.1)
                    path.drop()
            finally:
                over.set()
            return
        while not over.is_set():
            last[0] += 1
            blocks.write(0, 8, generation=last[0])

    together(work, 2, over=over)
    for _ in range(10):
        blocks.expect(0, 8, generation=last[0])
        time.sleep(0.05)
