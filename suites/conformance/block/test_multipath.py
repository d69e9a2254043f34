"""Several paths to one device: each of them works, and losing one loses no write and repeats none.

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
        level="MUST", section="NVM Base 8.1.1, SPC-4 ALUA", no_mutant_reason="a loop device has one path"
    ),
]

STALL = 20.0
"""Seconds that a write may take while its path is lost."""


def several(block_range):
    """Return the paths; with fewer than two nothing can be lost."""
    paths = device_paths(block_range)
    assert len(paths) > 1, f"of several paths that were asked for the kernel shows {len(paths)}"
    return paths


def lost_and_back(path, work):
    """Do ``work`` without ``path``."""
    path.remove()
    try:
        work()
    finally:
        path.restore()


@pytest.mark.case("BLK-PATH-01")
def test_every_path_is_live(block_range):
    """Every path is live."""
    paths = several(block_range)
    assert all(path.live() for path in paths), ", ".join(f"{path.name} {path.live()}" for path in paths)
    assert len({path.address for path in paths}) == len(paths), "two paths lead to the same portal"


@pytest.mark.case("BLK-PATH-02", level="MAY")
def test_what_the_target_says_of_its_paths(block_range):
    """ANA or ALUA may say what each path is good for."""
    states = [f"{path.address}: {path.ana_state() or 'nothing said'}" for path in several(block_range)]
    record_observation("; ".join(states))


@pytest.mark.case("BLK-PATH-03", section="NVM Base 8.1.1.4")
def test_a_path_has_a_state_that_there_is_and_one_is_accessible(block_range):
    """A path has a state that there is and one is accessible."""
    states = [path.ana_state() for path in several(block_range)]
    if not any(states):
        skip("the target says nothing of its paths (neither ANA nor ALUA)")
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
def test_each_path_alone_carries_reads_and_writes(block_range):
    """Each path alone carries reads and writes."""
    paths = several(block_range)
    for turn, alone in enumerate(paths, start=1):
        others = [path for path in paths if path is not alone]
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
def test_what_one_path_wrote_the_other_reads(block_range):
    """What one path wrote the other reads."""
    paths = several(block_range)
    for generation in (1, 2):
        lost_and_back(paths[0], lambda now=generation: block_range.write(0, 32, generation=2 * now))
        lost_and_back(
            paths[1], lambda now=generation: block_range.assert_generation(0, 32, generation=2 * now)
        )


@pytest.mark.parametrize("which", [
    pytest.param(0, marks=pytest.mark.case("BLK-PATH-06")),
    pytest.param(1, marks=pytest.mark.case("BLK-PATH-07")),
])  # fmt: skip
def test_no_write_is_lost_with_a_path(block_range, which):
    """No write is lost with a path."""
    path = several(block_range)[which]
    load = with_background_writers(block_range, lambda: lost_and_back(path, lambda: time.sleep(0.3)))
    load.expect()
    record_observation(f"the longest write beside the loss took {load.longest:.1f} s")
    assert load.longest <= STALL, f"a write took {load.longest:.1f} s, longer than {STALL:g} s"


@pytest.mark.case("BLK-PATH-08")
def test_no_write_is_done_again_by_the_other_path(block_range):
    """No write is done again by the other path."""
    paths = several(block_range)

    def lose_each():
        for path in paths:
            lost_and_back(path, lambda: time.sleep(0.1))

    load = with_background_writers(block_range, lose_each, writers=1, places=1, width=8)
    for _ in range(10):
        load.expect()
        time.sleep(0.05)


@pytest.mark.case("BLK-PATH-09")
def test_a_path_that_was_reset_comes_back(block_range):
    """A path that was reset comes back."""
    paths = several(block_range)
    block_range.write(0, 16)
    for path in paths:
        path.reset()
    wait_until(STALL, lambda: all(path.live() for path in paths), "every path is live again")
    block_range.assert_generation(0, 16)
