"""Flush and forced unit access: what fsync(2), O_DSYNC and RWF_DSYNC ask of a device.

Whether the device kept its word is seen only when its power is cut (BLK-FLUSH-08); where nobody can cut it,
these cases hold the device to what it says of its write cache, and that a flush and a forced write are taken.
"""

import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.block_range import RWF_DSYNC

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", section="NVM Base 7.2, SBC-3 SYNCHRONIZE CACHE"),
]


@pytest.mark.case("BLK-FLUSH-01", kills=("flush-fails", "flush-loses"))
def test_a_flush_succeeds_and_changes_nothing(block_range):
    """A flush succeeds and changes nothing."""
    block_range.write(0, 32, generation=1)
    block_range.write(0, 16, generation=2)
    block_range.flush()
    block_range.assert_generation(0, 16, generation=2)
    block_range.assert_generation(16, 16, generation=1)


@pytest.mark.case("BLK-FLUSH-02", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-fails",))
def test_a_forced_write_is_read(block_range):
    """A forced write is read."""
    for generation in (1, 2, 3):
        block_range.write(0, 8, generation=generation, flags=RWF_DSYNC)
        block_range.assert_generation(0, 8, generation=generation)


@pytest.mark.parametrize("flag", [
    pytest.param("O_DSYNC", marks=pytest.mark.case("BLK-FLUSH-03", kills=("flush-fails",))),
    pytest.param("O_SYNC", marks=pytest.mark.case("BLK-FLUSH-04", kills=("flush-fails",))),
])  # fmt: skip
@pytest.mark.case(section="open(2)")
def test_a_write_through_this_flag_is_read(block_range, flag):
    """What was written through a descriptor of this flag is read."""
    with block_range.reopen(os.O_DIRECT | getattr(os, flag)) as descriptor:
        for generation in (1, 2):
            block_range.write(0, 8, generation=generation, fd=descriptor)
    block_range.assert_generation(0, 8, generation=2)


@pytest.mark.case("BLK-FLUSH-05", section="Linux, block/writeback_cache_control.rst")
def test_fsync_sends_a_flush_exactly_where_there_is_a_volatile_cache(block_range):
    """fsync(2) sends a flush exactly where there is a volatile cache."""
    cache = block_range.attribute("queue/write_cache")
    if not cache or "flush_ios" not in block_range.statistics():
        skip("this kernel does not say whether there is a cache, or does not count flushes")
    before = block_range.statistics()["flush_ios"]
    for generation in range(1, 5):
        block_range.write(0, generation=generation)
        block_range.flush()
    sent = block_range.statistics()["flush_ios"] - before
    record_observation(f"{cache}: {'flushes are sent' if sent else 'no flush is sent'}")
    if cache == "write back":
        assert sent >= 4, f"a volatile cache, and of 4 fsync(2) {sent} became a flush"


@pytest.mark.case("BLK-FLUSH-06", level="MAY", section="Linux, block/writeback_cache_control.rst")
def test_how_a_forced_write_is_done(block_range):
    """A forced write is one command, or a write and a flush: either will do."""
    before = block_range.statistics().get("flush_ios", 0)
    for generation in range(1, 5):
        block_range.write(0, generation=generation, flags=RWF_DSYNC)
    flushes = block_range.statistics().get("flush_ios", 0) - before
    cache, forced = block_range.attribute("queue/write_cache", "?"), block_range.attribute("queue/fua", "?")
    record_observation(
        f"{cache}, fua {forced}: a forced write is {'a write and a flush' if flushes else 'one command'}"
    )


@pytest.mark.case("BLK-FLUSH-07", kills=("flush-fails", "flush-loses"))
def test_a_flush_with_nothing_to_flush_succeeds(block_range):
    """A flush with nothing to flush succeeds."""
    block_range.write(0)
    for _ in range(4):
        block_range.flush()
    block_range.assert_generation(0)


@pytest.mark.case("BLK-FLUSH-08", kills=("flush-ignored",))
def test_what_was_flushed_survives_a_power_cut(block_range):
    """What was flushed survives a power cut."""
    block_range.write(0, 64, generation=1)
    block_range.flush()
    block_range.write(0, 32, generation=2)
    if not block_range.cut_power():
        skip("nobody has said how to cut this target's power")
    block_range.assert_generation(32, 32, generation=1)
    block_range.assert_any_generation(0, 32, (1, 2))


@pytest.mark.case("BLK-FLUSH-09", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-ignored",))
def test_what_was_written_by_force_survives_a_power_cut(block_range):
    """What was written by force survives a power cut."""
    block_range.write(0, 32, generation=1, flags=RWF_DSYNC)
    if not block_range.cut_power():
        skip("nobody has said how to cut this target's power")
    block_range.assert_generation(0, 32, generation=1)
