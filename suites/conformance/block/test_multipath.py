"""Several paths to one device: each path works, and the loss of one loses and repeats no write.

NVM Base 8.1.1 (Asymmetric Namespace Access) and native multipath; SPC-4 5.15 (asymmetric logical unit access)
and the device mapper's multipath target.
"""

import time

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.background_writers import with_background_writers
from storagetest.agent.testlib.multipath import device_paths, wait_until

pytestmark = [
    pytest.mark.needs("block", "multipath"),
    pytest.mark.case(
        level="MUST",
        builds_on=("BLK-DATA-01",),
        section="NVM Base 8.1.1, SPC-4 ALUA",
        no_mutant_reason="a loop device has one path",
    ),
]

STALL = 20.0
"""Seconds that a write may take while its path is lost; chosen."""


def require_paths(block_range):
    """Return the paths; assert that there are at least two."""
    paths = device_paths(block_range)
    assert len(paths) > 1, f"several paths were configured, but the kernel shows {len(paths)}"
    return paths


def without_path(path, work):
    """Run ``work`` while ``path`` is removed."""
    path.remove()
    try:
        work()
    finally:
        path.restore()


@pytest.mark.case("BLK-PATH-01")
def test_every_path_is_live(block_range):
    """Every path is live, and each leads to its own portal."""
    paths = require_paths(block_range)
    assert all(path.live() for path in paths), ", ".join(f"{path.name} {path.live()}" for path in paths)
    assert len({path.address for path in paths}) == len(paths), "two paths lead to the same portal"


@pytest.mark.case("BLK-PATH-02", level="MAY")
def test_target_reports_path_states(block_range):
    """ANA or ALUA may report the state of each path."""
    states = [f"{path.address}: {path.ana_state() or 'not reported'}" for path in require_paths(block_range)]
    record_observation("; ".join(states))


@pytest.mark.case("BLK-PATH-03", section="NVM Base 8.1.1.4")
def test_path_states_are_valid_and_one_is_accessible(block_range):
    """Every path has a defined state, and at least one is accessible."""
    states = [path.ana_state() for path in require_paths(block_range)]
    if not any(states):
        skip("the target reports no path states (neither ANA nor ALUA)")
    known = {"optimized", "non-optimized", "inaccessible", "persistent-loss", "change"}
    known |= {
        "active/optimized",
        "active/non-optimized",
        "standby",
        "unavailable",
        "transitioning",
        "lba-dependent",
    }
    assert set(states) <= known, f"states {states}"
    assert any(state.endswith("optimized") for state in states), f"no path is accessible: {states}"


@pytest.mark.case("BLK-PATH-04")
def test_each_single_path_transfers_reads_and_writes(block_range):
    """Reads and writes succeed with each path as the only one."""
    paths = require_paths(block_range)
    for turn, used in enumerate(paths, start=1):
        others = [path for path in paths if path is not used]
        for path in others:
            path.remove()
        try:
            block_range.write(0, 64, generation=turn)
            block_range.assert_generation(0, 64, generation=turn)
        finally:
            for path in others:
                path.restore()
    block_range.assert_generation(0, 64, generation=len(paths))


@pytest.mark.case("BLK-PATH-05")
def test_data_written_by_one_path_are_read_by_the_other(block_range):
    """Data that were written by one path are read by the other."""
    paths = require_paths(block_range)
    for generation in (1, 2):
        without_path(paths[0], lambda now=generation: block_range.write(0, 32, generation=2 * now))
        without_path(
            paths[1], lambda now=generation: block_range.assert_generation(0, 32, generation=2 * now)
        )


@pytest.mark.parametrize("which", [
    pytest.param(0, marks=pytest.mark.case("BLK-PATH-06")),
    pytest.param(1, marks=pytest.mark.case("BLK-PATH-07")),
])  # fmt: skip
def test_loss_of_a_path_loses_no_write(block_range, which):
    """No completed write is lost with a path."""
    path = require_paths(block_range)[which]
    load = with_background_writers(block_range, lambda: without_path(path, lambda: time.sleep(0.3)))
    load.assert_written()
    record_observation(f"the longest write during the loss took {load.longest:.1f} s")
    assert load.longest <= STALL, f"a write took {load.longest:.1f} s, longer than {STALL:g} s"


@pytest.mark.case("BLK-PATH-08")
def test_loss_of_a_path_repeats_no_write(block_range):
    """No write is repeated by the other path after a later write."""
    paths = require_paths(block_range)

    def lose_each():
        for path in paths:
            without_path(path, lambda: time.sleep(0.1))

    load = with_background_writers(block_range, lose_each, writers=1, slots=1, width=8)
    for _ in range(10):
        load.assert_written()
        time.sleep(0.05)


@pytest.mark.case("BLK-PATH-09")
def test_reset_path_becomes_live_again(block_range):
    """A path becomes live again after a reset."""
    paths = require_paths(block_range)
    block_range.write(0, 16)
    for path in paths:
        path.reset()
    wait_until(STALL, lambda: all(path.live() for path in paths), "every path is live again")
    block_range.assert_generation(0, 16)
