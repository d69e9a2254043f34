"""Blocks of one value, and one block among others that cannot be read (NVM 3.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, read_blocks, write_blocks

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3.6")]

VALUES = (0x00, 0xFF, 0x01, 0x80, 0x55, 0x20)
"""The byte of each block: zeroes, ones, and bytes that stand for nothing elsewhere (chosen)."""


@pytest.mark.case("NVB-RW-UNIFORM", kills=("read-ff-zero", "write-zero-kept"), builds_on=("NVB-RW-01",))
def test_blocks_of_one_value_are_stored_as_any_other(queue: Queue, scratch: Scratch) -> None:
    """Two blocks of one value are written between two others."""
    size = scratch.block_size
    for value in VALUES:
        old = write_blocks(queue, scratch, 4, value)
        block = bytes((value,)) * size
        for at in (1, 2):
            done = queue.run(io.write(scratch.nsid, scratch.lba + at, 1), data=block)
            assert done.ok, f"a write of bytes {value:02x}h ended with {status_name(done.status)}"
        wanted = old[:size] + block * 2 + old[3 * size :]
        found = read_blocks(queue, scratch, 4)
        assert found == wanted, f"3.3.6: blocks of bytes {value:02x}h were written between two others"


@pytest.mark.case(
    "NVB-COMPARE-UNIFORM", section="NVM 3.3.1", kills=("compare-zero-equal",), builds_on=("NVB-COMPARE-01",)
)
def test_compare_takes_a_block_of_one_value_for_no_other(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Compare of each value with the block that has it, and with one that does not."""
    if not session.controller["oncs"] & 1:
        pytest.skip("ONCS bit 0: Compare is not supported")
    size = scratch.block_size
    for value in VALUES:
        block, other = bytes((value,)) * size, bytes((value ^ 1,)) + bytes((value,)) * (size - 1)
        done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=block)
        assert done.ok, f"a write of bytes {value:02x}h ended with {status_name(done.status)}"
        for data, wanted in ((block, StatusCode.SUCCESS), (other, StatusCode.COMPARE_FAILURE)):
            done = queue.run(io.compare(scratch.nsid, scratch.lba, 1), data=data)
            assert done.status == wanted, (
                f"3.3.1: Compare of a block of bytes {value:02x}h, the first of them {data[0]:02x}h, ended "
                f"with {status_name(done.status)}"
            )


# A block among others that Write Uncorrectable has marked


MOST = 8
"""Blocks of the range, at most (chosen)."""

COMMANDS: dict[str, tuple[Io, str]] = {
    "READ": (Io.READ, "NVM 3.3.4"),
    "VERIFY": (Io.VERIFY, "NVM 3.3.5"),
    "COMPARE": (Io.COMPARE, "NVM 3.3.1"),
    "COPY": (Io.COPY, "NVM 3.3.2"),
}


def in_one(scratch: Scratch, opcode: Io) -> int:
    """Return the blocks of one command; skip if they are not two at least."""
    limits = scratch.limits
    most = {Io.VERIFY: limits.verify, Io.COPY: min(limits.copy_range, limits.copy_total)}
    blocks = min(MOST, most.get(opcode, limits.transfer))
    if blocks < 2:
        pytest.skip(f"{opcode.name} of this controller takes {blocks} blocks of a range")
    return blocks


def run_on(queue: Queue, scratch: Scratch, opcode: Io, data: bytes) -> CommandResult:
    """Run the command on the first blocks, which hold ``data`` if they can be read."""
    nsid, lba, blocks = scratch.nsid, scratch.lba, len(data) // scratch.block_size
    if opcode == Io.COMPARE:
        return queue.run(io.compare(nsid, lba, blocks), data=data)
    if opcode == Io.COPY:
        return queue.run(io.copy(nsid, lba + MOST, 1), data=io.copy_ranges([(lba, blocks)]))
    if opcode == Io.VERIFY:
        return queue.run(io.verify(nsid, lba, blocks))
    return queue.run(io.read(nsid, lba, blocks), reads=len(data))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVB-UNC-AMONG-{name}", section=section, kills=(f"marked-among-{name.lower()}",)))
    for name, (_, section) in COMMANDS.items()
])  # fmt: skip
@pytest.mark.case(section="NVM 3.3.7", level="MUST", builds_on=("NVB-UNC-01",))
def test_a_range_with_a_block_that_cannot_be_read_fails_wherever_the_block_is(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """The marked block is the first, one in the middle, and the last; the blocks before it are read."""
    opcode, section = COMMANDS[name]
    for one in {Io.WRITE_UNCORRECTABLE, opcode} - {Io.READ}:
        if not session.controller["oncs"] >> ONCS_BITS[one] & 1:
            pytest.skip(f"ONCS: {one.name} is not supported")
    blocks, size = in_one(scratch, opcode), scratch.block_size
    try:
        for at in sorted({0, blocks // 2, blocks - 1}):
            data = write_blocks(queue, scratch, blocks, 90 + at)
            marked = replace(io.verify(scratch.nsid, scratch.lba + at, 1), opcode=Io.WRITE_UNCORRECTABLE)
            done = queue.run(marked)
            assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
            if at:
                done = run_on(queue, scratch, opcode, data[: at * size])
                assert done.ok, f"{section}: the blocks before the marked one: {status_name(done.status)}"
            done = run_on(queue, scratch, opcode, data)
            assert not done.ok, f"{section}: block {at + 1} of {blocks} cannot be read, and {name} succeeds"
    finally:
        write_blocks(queue, scratch, blocks, 99)
