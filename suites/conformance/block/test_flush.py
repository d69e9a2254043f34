"""Flush and forced unit access: fsync(2), O_DSYNC and RWF_DSYNC.

Only a power cut proves that flushed data persist (BLK-FLUSH-08 and -09). Without one, the cases check that
the device accepts flushes and forced writes, and that these agree with the cache type that it reports.
"""

import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.block_range import RWF_DSYNC

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(
        level="MUST", builds_on=("BLK-DATA-01",), section="NVM Base 7.2, SBC-3 SYNCHRONIZE CACHE"
    ),
]


@pytest.mark.case("BLK-FLUSH-01", kills=("flush-fails", "flush-loses"))
def test_flush_changes_no_data(block_range):
    """A flush succeeds and changes no data."""
    block_range.write(0, 32, generation=1)
    block_range.write(0, 16, generation=2)
    block_range.flush()
    block_range.assert_generation(0, 16, generation=2)
    block_range.assert_generation(16, 16, generation=1)


@pytest.mark.case("BLK-FLUSH-02", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-fails",))
def test_forced_write_is_read(block_range):
    """A forced write is read."""
    for generation in (1, 2, 3):
        block_range.write(0, 8, generation=generation, flags=RWF_DSYNC)
        block_range.assert_generation(0, 8, generation=generation)


@pytest.mark.parametrize("flag", [
    pytest.param("O_DSYNC", marks=pytest.mark.case("BLK-FLUSH-03", kills=("flush-fails",))),
    pytest.param("O_SYNC", marks=pytest.mark.case("BLK-FLUSH-04", kills=("flush-fails",))),
])  # fmt: skip
@pytest.mark.case(section="open(2)")
def test_write_with_this_open_flag_is_read(block_range, flag):
    """Data written through a descriptor with this flag are read."""
    with block_range.reopen(os.O_DIRECT | getattr(os, flag)) as descriptor:
        for generation in (1, 2):
            block_range.write(0, 8, generation=generation, fd=descriptor)
    block_range.assert_generation(0, 8, generation=2)


@pytest.mark.case("BLK-FLUSH-05", section="Linux, block/writeback_cache_control.rst")
def test_fsync_sends_a_flush_to_a_volatile_cache(block_range):
    """fsync(2) sends a flush if the device has a volatile cache."""
    cache = block_range.attribute("queue/write_cache")
    if not cache or "flush_ios" not in block_range.statistics():
        skip("this kernel does not report the write cache or does not count flushes")
    before = block_range.statistics()["flush_ios"]
    for generation in range(1, 5):
        block_range.write(0, generation=generation)
        block_range.flush()
    sent = block_range.statistics()["flush_ios"] - before
    record_observation(f"{cache}: {'flushes are sent' if sent else 'no flush is sent'}")
    if cache == "write back":
        assert sent >= 4, f"a volatile cache, but only {sent} of 4 fsync(2) sent a flush"


@pytest.mark.case("BLK-FLUSH-06", level="MAY", section="Linux, block/writeback_cache_control.rst")
def test_forced_write_is_one_command_or_two(block_range):
    """A forced write is one command, or a write and a flush; both are allowed."""
    before = block_range.statistics().get("flush_ios", 0)
    for generation in range(1, 5):
        block_range.write(0, generation=generation, flags=RWF_DSYNC)
    flushes = block_range.statistics().get("flush_ios", 0) - before
    cache, forced = block_range.attribute("queue/write_cache", "?"), block_range.attribute("queue/fua", "?")
    record_observation(
        f"{cache}, fua {forced}: a forced write is {'a write and a flush' if flushes else 'one command'}"
    )


@pytest.mark.case("BLK-FLUSH-07", kills=("flush-fails", "flush-loses"))
def test_flush_without_new_data_succeeds(block_range):
    """A flush without new data succeeds."""
    block_range.write(0)
    for _ in range(4):
        block_range.flush()
    block_range.assert_generation(0)


@pytest.mark.case("BLK-FLUSH-08", kills=("flush-ignored",))
def test_flushed_data_survive_a_power_cut(block_range):
    """Flushed data survive a power cut."""
    block_range.write(0, 64, generation=1)
    block_range.flush()
    block_range.write(0, 32, generation=2)
    if not block_range.cut_power():
        skip("no control cuts the power of this target")
    block_range.assert_generation(32, 32, generation=1)
    block_range.assert_any_generation(0, 32, (1, 2))


@pytest.mark.case("BLK-FLUSH-09", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-ignored",))
def test_forced_write_survives_a_power_cut(block_range):
    """A forced write survives a power cut."""
    block_range.write(0, 32, generation=1, flags=RWF_DSYNC)
    if not block_range.cut_power():
        skip("no control cuts the power of this target")
    block_range.assert_generation(0, 32, generation=1)
