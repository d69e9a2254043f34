"""Flush and forced unit access: what fsync(2), O_DSYNC and RWF_DSYNC ask of a device.

Whether the device kept its word is seen only when its power is cut (BLK-FLUSH-08); where nobody can cut it,
these cases hold the device to what it says of its write cache, and that a flush and a forced write are taken.
"""

import os

import pytest

from storagetest.agent.testlib import lacks, observe
from storagetest.agent.testlib.block_range import RWF_DSYNC

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", section="NVM Base 7.2, SBC-3 SYNCHRONIZE CACHE"),
]


@pytest.mark.case("BLK-FLUSH-01", kills=("flush-fails", "flush-loses"))
def test_a_flush_succeeds_and_changes_nothing(blocks):
    """A flush succeeds and changes nothing."""
    blocks.write(0, 32, generation=1)
    blocks.write(0, 16, generation=2)
    blocks.flush()
    blocks.expect(0, 16, generation=2)
    blocks.expect(16, 16, generation=1)


@pytest.mark.case("BLK-FLUSH-02", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-fails",))
def test_a_forced_write_is_read(blocks):
    """A forced write is read."""
    for generation in (1, 2, 3):
        blocks.write(0, 8, generation=generation, flags=RWF_DSYNC)
        blocks.expect(0, 8, generation=generation)


@pytest.mark.parametrize("flag", [
    pytest.param("O_DSYNC", marks=pytest.mark.case("BLK-FLUSH-03", kills=("flush-fails",))),
    pytest.param("O_SYNC", marks=pytest.mark.case("BLK-FLUSH-04", kills=("flush-fails",))),
])  # fmt: skip
@pytest.mark.case(section="open(2)")
def test_a_write_through_this_flag_is_read(blocks, flag):
    """What was written through a descriptor of this flag is read."""
    with blocks.opened(os.O_DIRECT | getattr(os, flag)) as descriptor:
        for generation in (1, 2):
            blocks.write(0, 8, generation=generation, fd=descriptor)
    blocks.expect(0, 8, generation=2)


@pytest.mark.case("BLK-FLUSH-05", section="Linux, block/writeback_cache_control.rst")
def test_fsync_sends_a_flush_exactly_where_there_is_a_volatile_cache(blocks):
    """fsync(2) sends a flush exactly where there is a volatile cache."""
    cache = blocks.attribute("queue/write_cache")
    if not cache or "flush_ios" not in blocks.statistics():
        lacks("this kernel does not say whether there is a cache, or does not count flushes")
    before = blocks.statistics()["flush_ios"]
    for generation in range(1, 5):
        blocks.write(0, generation=generation)
        blocks.flush()
    sent = blocks.statistics()["flush_ios"] - before
    observe(f"{cache}: {'flushes are sent' if sent else 'no flush is sent'}")
    if cache == "write back":
        assert sent >= 4, f"a volatile cache, and of 4 fsync(2) {sent} became a flush"


@pytest.mark.case("BLK-FLUSH-06", level="MAY", section="Linux, block/writeback_cache_control.rst")
def test_how_a_forced_write_is_done(blocks):
    """A forced write is one command, or a write and a flush: either will do."""
    before = blocks.statistics().get("flush_ios", 0)
    for generation in range(1, 5):
        blocks.write(0, generation=generation, flags=RWF_DSYNC)
    flushes = blocks.statistics().get("flush_ios", 0) - before
    cache, forced = blocks.attribute("queue/write_cache", "?"), blocks.attribute("queue/fua", "?")
    observe(f"{cache}, fua {forced}: a forced write is {'a write and a flush' if flushes else 'one command'}")


@pytest.mark.case("BLK-FLUSH-07", kills=("flush-fails", "flush-loses"))
def test_a_flush_with_nothing_to_flush_succeeds(blocks):
    """A flush with nothing to flush succeeds."""
    blocks.write(0)
    for _ in range(4):
        blocks.flush()
    blocks.expect(0)


@pytest.mark.case("BLK-FLUSH-08", kills=("flush-ignored",))
def test_what_was_flushed_survives_a_power_cut(blocks):
    """What was flushed survives a power cut."""
    blocks.write(0, 64, generation=1)
    blocks.flush()
    blocks.write(0, 32, generation=2)
    if not blocks.cut_power():
        lacks("nobody has said how to cut this target's power")
    blocks.expect(32, 32, generation=1)
    blocks.expect_either(0, 32, (1, 2))


@pytest.mark.case("BLK-FLUSH-09", section="NVM 3.3.6 FUA, SBC-3 FUA", kills=("flush-ignored",))
def test_what_was_written_by_force_survives_a_power_cut(blocks):
    """What was written by force survives a power cut."""
    blocks.write(0, 32, generation=1, flags=RWF_DSYNC)
    if not blocks.cut_power():
        lacks("nobody has said how to cut this target's power")
    blocks.expect(0, 32, generation=1)
