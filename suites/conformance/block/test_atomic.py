"""Atomicity of writes: a concurrent reader sees the old or the new logical block, never a mixture.

SBC-3 and NVM Command Set 2.1.4 (AWUN, which is at least one logical block). Larger
units are recorded: the physical block, and the atomic unit of the kernel (queue/atomic_write_unit_max_bytes,
Linux 6.11).
"""

import os
import threading

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.concurrent import run_threads

pytestmark = [
    pytest.mark.needs("block"),
    pytest.mark.case(level="MUST", builds_on=("BLK-DATA-01",), section="NVM 2.1.4, SBC-3"),
]

TURNS = 60


def write_during_reads(block_range, first, count, read):
    """Write two generations in turn, TURNS times, while other threads call ``read``."""
    block_range.write(first, count, generation=1)
    finished = threading.Event()
    reads = []

    def work(which):
        if which:
            while not finished.is_set():
                read()
                reads.append(1)
        else:
            for turn in range(TURNS):
                block_range.write(first, count, generation=1 + turn % 2)
            finished.set()

    run_threads(work, 3, over=finished)
    if len(reads) < 2:
        skip(f"only {len(reads)} reads during {TURNS} writes: too few to prove anything")


@pytest.mark.case("BLK-ATOM-01", kills=("tears-while-read",))
def test_logical_block_is_not_torn(block_range):
    """A reader sees a block as it was before a write or as it is after it."""
    write_during_reads(block_range, 0, 1, lambda: block_range.assert_any_generation(0, 1, (1, 2)))


@pytest.mark.case("BLK-ATOM-02", kills=("tears-while-read",))
def test_each_of_many_blocks_is_not_torn(block_range):
    """A reader sees each block of a larger write as it was before the write or as it is after it."""
    write_during_reads(block_range, 0, 32, lambda: block_range.assert_any_generation(0, 32, (1, 2)))


@pytest.mark.case("BLK-ATOM-03", level="MAY", section="NVM 2.1.4, SBC-3 Block Limits")
def test_physical_block_may_be_atomic(block_range):
    """A write of a physical block may be atomic."""
    count = block_range.physical // block_range.logical
    mixed = []

    def read():
        if len(set(block_range.assert_any_generation(0, count, (1, 2)))) > 1:
            mixed.append(1)

    write_during_reads(block_range, 0, count, read)
    record_observation(
        f"physical block of {block_range.physical} bytes: {'mixed' if mixed else 'whole'} while written"
    )


@pytest.mark.case("BLK-ATOM-04", section="Linux, ABI sysfs-block: atomic_write_unit_max_bytes")
def test_atomic_unit_is_not_torn(block_range):
    """A reader sees a write of the atomic unit completely or not at all."""
    unit = int(block_range.attribute("queue/atomic_write_unit_max_bytes", "0"))
    if unit <= block_range.logical:
        skip("the kernel reports no atomic unit larger than a block")
    count = min(unit // block_range.logical, block_range.count)
    first = -(-block_range.offset // unit) * unit - block_range.offset

    def read():
        generations = set(block_range.assert_any_generation(first // block_range.logical, count, (1, 2)))
        assert len(generations) == 1, f"a write of {unit} bytes was seen half done"

    write_during_reads(block_range, first // block_range.logical, count, read)


@pytest.mark.case("BLK-ATOM-05")
def test_each_block_of_concurrent_writes_is_of_one_writer(block_range):
    """Each block of two concurrent writes is that of one writer."""
    for _ in range(12):
        run_threads(lambda which: block_range.write(0, 16, generation=1 + which), 2)
        block_range.assert_any_generation(0, 16, (1, 2))


@pytest.mark.case("BLK-ATOM-06", section="write(2)", kills=("write-torn",))
def test_completed_write_is_read_completely(block_range):
    """After a write has returned, every descriptor reads all of it."""
    with block_range.reopen(os.O_DIRECT) as other:
        for generation in range(1, 17):
            block_range.write(0, 64, generation=generation)
            block_range.assert_generation(0, 64, generation=generation, fd=other)
