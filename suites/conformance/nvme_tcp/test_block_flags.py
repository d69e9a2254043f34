"""FUA and LR of commands without Read or Write in their name, many ranges, zeroes over a mark (NVM 3.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, read_blocks, write_blocks

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3")]

LIMITED_RETRY, FORCE_UNIT_ACCESS = 1 << 31, 1 << 30
"""LR and FUA of command dword 12 (NVM 3.3.1, 3.3.5, 3.3.8)."""

SECTION = {Io.COMPARE: "3.3.1", Io.VERIFY: "3.3.5", Io.WRITE_ZEROES: "3.3.8"}


def _needs(session: ControllerSession, opcode: Io) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS bit {ONCS_BITS[opcode]}: {opcode.name} is not supported")


@pytest.mark.parametrize("opcode", [
    pytest.param(opcode, marks=pytest.mark.case(
        f"NVB-FLAGS-{opcode.name}", section=f"NVM {section}", kills=("flags-refused",)))
    for opcode, section in SECTION.items()
])  # fmt: skip
def test_flags_change_nothing_of_what_a_command_does(
    session: ControllerSession, queue: Queue, scratch: Scratch, opcode: Io
) -> None:
    """FUA is of the medium, and LR of retries: the command ends as it does without them."""
    _needs(session, opcode)
    blocks = min(2, scratch.limits.zeroes, scratch.limits.verify)
    for flags in (0, LIMITED_RETRY, FORCE_UNIT_ACCESS, LIMITED_RETRY | FORCE_UNIT_ACCESS):
        data = write_blocks(queue, scratch, blocks, 801)
        command: Command = {
            Io.COMPARE: io.compare,
            Io.VERIFY: io.verify,
            Io.WRITE_ZEROES: io.write_zeroes,
        }[opcode](scratch.nsid, scratch.lba, blocks)
        command = replace(command, cdw12=command.cdw12 | flags)
        done = queue.run(command, data=data if opcode == Io.COMPARE else b"")
        assert done.ok, (
            f"{SECTION[opcode]}: {opcode.name} with LR {flags >> 31} and FUA {flags >> 30 & 1} ends with "
            f"{status_name(done.status)}"
        )
        wanted = bytes(len(data)) if opcode == Io.WRITE_ZEROES else data
        assert read_blocks(queue, scratch, blocks) == wanted, (
            f"{SECTION[opcode]}: blocks after {opcode.name} with LR {flags >> 31}, FUA {flags >> 30 & 1}"
        )


@pytest.mark.case("NVB-DSM-MANY", section="NVM 3.3.3", kills=("dsm-many-refused",))
def test_dataset_management_takes_as_many_ranges_as_it_may(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Every second block is a range of its own, up to DMRL; the blocks between them are kept."""
    _needs(session, Io.DATASET_MANAGEMENT)
    most = min(scratch.limits.discard_ranges, scratch.blocks // 2)
    data, size = write_blocks(queue, scratch, scratch.blocks, 802), scratch.block_size
    for count in sorted({1, most // 2 or 1, most}):
        ranges = io.dsm_ranges((scratch.lba + 2 * at, 1) for at in range(count))
        done = queue.run(io.dataset_management(scratch.nsid, count), data=ranges)
        assert done.ok, (
            f"3.3.3: {count} ranges end with {status_name(done.status)}; "
            f"the controller takes {scratch.limits.discard_ranges} (DMRL)"
        )
    found = read_blocks(queue, scratch, scratch.blocks)
    wrong = [
        at for at in range(1, scratch.blocks, 2) if found[at * size :][:size] != data[at * size :][:size]
    ]
    assert not wrong, f"3.3.3: block {wrong[0]} is between two ranges, and its data changed"


@pytest.mark.case(
    "NVB-UNC-ZEROES", section="NVM 3.3.8", kills=("zeroes-leave-mark",), builds_on=("NVB-UNC-01",)
)
def test_write_zeroes_makes_a_marked_block_readable(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """After Write Zeroes each read returns zeroes, also of a block that could not be read before."""
    for opcode in (Io.WRITE_UNCORRECTABLE, Io.WRITE_ZEROES):
        _needs(session, opcode)
    blocks = min(4, scratch.limits.zeroes)
    write_blocks(queue, scratch, blocks, 803)
    mark = Command(
        Io.WRITE_UNCORRECTABLE,
        nsid=scratch.nsid,
        cdw10=scratch.lba & 0xFFFFFFFF,
        cdw11=scratch.lba >> 32,
        cdw12=blocks - 1,
    )
    assert queue.run(mark).ok, "3.3.7: Write Uncorrectable"
    try:
        done = queue.run(io.write_zeroes(scratch.nsid, scratch.lba, blocks))
        assert done.ok, f"3.3.8: Write Zeroes of marked blocks ends with {status_name(done.status)}"
        done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)
        assert done.ok, f"3.3.8: blocks that were zeroed are not read: {status_name(done.status)}"
        assert done.data == bytes(len(done.data)), "3.3.8: blocks that were zeroed read as zeroes"
    finally:
        write_blocks(queue, scratch, blocks, 804)
