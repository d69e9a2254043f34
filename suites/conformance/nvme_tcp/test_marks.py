"""What clears the mark of Write Uncorrectable, and what does not: Copy, Dataset Management (NVM 3.3.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, read_blocks, write_blocks

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVM 3.3.7", builds_on=("NVB-UNC-01",)),
]

Marks = Callable[[int, Io], None]


@pytest.fixture
def mark(session: ControllerSession, queue: Queue, scratch: Scratch) -> Iterator[Marks]:
    """Return a function that marks a block, or skips. All blocks are written at the end."""

    def marks(at: int, needed: Io) -> None:
        for opcode in (Io.WRITE_UNCORRECTABLE, needed):
            if not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
                pytest.skip(f"ONCS: {opcode.name} is not supported")
        write_blocks(queue, scratch, 4, 141)
        lba = scratch.lba + at
        command = Command(
            Io.WRITE_UNCORRECTABLE, nsid=scratch.nsid, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=0
        )
        assert queue.run(command).ok, "3.3.7: Write Uncorrectable"
        status = queue.run(io.read(scratch.nsid, lba, 1), reads=scratch.block_size).status
        if status != StatusCode.UNRECOVERED_READ_ERROR:
            pytest.skip(f"a marked block is read with {status_name(status)} (NVB-UNC-01)")

    yield marks
    write_blocks(queue, scratch, 4, 142)


@pytest.mark.case("NVB-UNC-COPY", kills=("copy-leaves-mark",))
def test_a_copy_to_a_marked_block_clears_the_mark(queue: Queue, scratch: Scratch, mark: Marks) -> None:
    mark(2, Io.COPY)
    source = read_blocks(queue, scratch, 1)
    ranges = io.copy_ranges([(scratch.lba, 1)])
    done = queue.run(io.copy(scratch.nsid, scratch.lba + 2, 1), data=ranges)
    assert done.ok, f"3.3.2: Copy to a marked block ends with {status_name(done.status)}"
    done = queue.run(io.read(scratch.nsid, scratch.lba + 2, 1), reads=scratch.block_size)
    assert done.ok, f"3.3.7: a marked block that Copy has written is not read: {status_name(done.status)}"
    assert done.data == source, "3.3.2: a marked block has the data that were copied there"


@pytest.mark.case("NVB-UNC-DSM", kills=("dsm-clears-mark",))
def test_dataset_management_without_ad_clears_no_mark(queue: Queue, scratch: Scratch, mark: Marks) -> None:
    """It is no write, and deallocates nothing."""
    mark(1, Io.DATASET_MANAGEMENT)
    ranges = io.dsm_ranges([(scratch.lba, min(4, scratch.limits.discard))])
    done = queue.run(io.dataset_management(scratch.nsid, 1, deallocate=False), data=ranges)
    assert done.ok, f"3.3.3: Dataset Management without attributes ends with {status_name(done.status)}"
    status = queue.run(io.read(scratch.nsid, scratch.lba + 1, 1), reads=scratch.block_size).status
    assert status == StatusCode.UNRECOVERED_READ_ERROR, (
        f"3.3.7: a read of a marked block, after Dataset Management without AD, ends with "
        f"{status_name(status)}; a write clears the mark, and nothing else"
    )
