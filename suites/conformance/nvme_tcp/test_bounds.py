"""The last blocks of a namespace, SGLs without length, and what deallocated blocks are to each command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command, transport_sgl
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import REGISTER, ReservingHost

from .test_families import supported, uncorrectable

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.1")]

BLOCKS = 2
"""Blocks of a command up to the end (chosen), if its limit allows as many."""

Made = tuple[Command, bytes]


def _need(session: ControllerSession, *opcodes: Io) -> None:
    for opcode in opcodes:
        if not supported(session, opcode):
            pytest.skip(f"ONCS: {opcode.name} is not supported")


def _copied(scratch: Scratch) -> None:
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")


def _copy_from(end: Scratch, _: bytes, to: int) -> Made:
    return io.copy(end.nsid, to, 1), io.copy_ranges([(end.lba, end.blocks)])


def _copy_to(end: Scratch, _: bytes, source: int) -> Made:
    return io.copy(end.nsid, end.lba, 1), io.copy_ranges([(source, end.blocks)])


UP_TO_END: dict[str, tuple[Io, Callable[[Scratch, bytes, int], Made], str]] = {
    "COMPARE": (Io.COMPARE, lambda s, data, _: (io.compare(s.nsid, s.lba, s.blocks), data), "3.3.1"),
    "VERIFY": (Io.VERIFY, lambda s, _, __: (io.verify(s.nsid, s.lba, s.blocks), b""), "3.3.5"),
    "ZEROES": (Io.WRITE_ZEROES, lambda s, _, __: (io.write_zeroes(s.nsid, s.lba, s.blocks), b""), "3.3.8"),
    "UNC": (
        Io.WRITE_UNCORRECTABLE,
        lambda s, _, __: (uncorrectable(s.nsid, s.lba, s.blocks), b""),
        "3.3.7",
    ),
    "DSM": (
        Io.DATASET_MANAGEMENT,
        lambda s, _, __: (io.dataset_management(s.nsid, 1), io.dsm_ranges([(s.lba, s.blocks)])),
        "3.3.3",
    ),
    "COPY-FROM": (Io.COPY, _copy_from, "3.3.2"),
    "COPY-TO": (Io.COPY, _copy_to, "3.3.2"),
}
"""By name: a command of blocks up to the end; how it is made, of their data and another LBA; its section."""

KILLS = dict.fromkeys(UP_TO_END, "last-block-of-others-refused") | dict.fromkeys(
    ("DSM", "COPY-FROM"), "last-range-refused"
)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVB-LAST-{name}", section=f"NVM {section}", kills=(KILLS[name],), builds_on=("NVB-LAST-BLOCK",)))
    for name, (_, _, section) in UP_TO_END.items()
])  # fmt: skip
def test_a_command_up_to_the_last_block_is_within_the_range(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Of the last block, and of the last two. What the command leaves is claimed of Write Zeroes and Copy."""
    opcode, make, section = UP_TO_END[name]
    _need(session, opcode)
    limits = scratch.limits
    if opcode == Io.COPY:
        _copied(scratch)
    copied = min(limits.copy_range, limits.copy_total)
    most = {"ZEROES": limits.zeroes, "UNC": limits.marks, "VERIFY": limits.verify, "DSM": limits.discard}
    most |= {"COPY-FROM": copied, "COPY-TO": copied}
    for blocks in range(1, min(BLOCKS, limits.transfer, most.get(name, BLOCKS)) + 1):
        end = Scratch(scratch.nsid, scratch.end - blocks, blocks, scratch.end, limits, scratch.rescap)
        kept = read_blocks(queue, end, blocks)
        try:
            data, other = write_blocks(queue, end, blocks, 1880), write_blocks(queue, scratch, blocks, 1881)
            command, sent = make(end, data, scratch.lba)
            done = queue.run(command, data=sent)
            assert done.ok, (
                f"{section}: {name} of the last {blocks} of {scratch.end} blocks ended with "
                f"{status_name(done.status)}"
            )
            if name in ("ZEROES", "COPY-TO"):
                wanted = bytes(len(data)) if name == "ZEROES" else other
                assert read_blocks(queue, end, blocks) == wanted, f"{section}: the blocks after {name}"
            elif name == "COPY-FROM":
                assert read_blocks(queue, scratch, blocks) == data, f"{section}: the copy of the last blocks"
        finally:
            queue.run(io.write(end.nsid, end.lba, blocks), data=kept)


# Addresses whose upper dword alone is past the end

FAR_BITS = (32, 48, 63)
"""Bits of an LBA that are in its upper dword (chosen)."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVB-HIGH-{name}", section=f"NVM {UP_TO_END[name][2]}", kills=("far-of-others-taken",)))
    for name in ("COMPARE", "VERIFY", "ZEROES")
])  # fmt: skip
def test_a_block_whose_address_has_one_bit_more_is_none_of_the_namespace(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Its lower dword is the address of a block that is there, and is as before."""
    opcode, make, section = UP_TO_END[name]
    _need(session, opcode)
    before = write_blocks(queue, scratch, 1, 1885)
    for bit in FAR_BITS:
        lba = scratch.lba + (1 << bit)
        if lba < scratch.end:
            continue
        command, sent = make(Scratch(scratch.nsid, lba, 1, scratch.end, scratch.limits), before, 0)
        done = queue.run(command, data=sent)
        assert not done.ok, (
            f"{section}: {name} of LBA {lba:#x} succeeds; the namespace has {scratch.end} blocks"
        )
        assert read_blocks(queue, scratch, 1) == before, (
            f"{section}: {name} of LBA {lba:#x} has changed a block"
        )


# SGLs without length (Base 4.3.2)


def _claim_too_short(queue: Queue, nsid: int, command: Command, what: str) -> None:
    done = queue.wait(queue.submit(command, dptr=transport_sgl(0)))
    assert not done.ok, f"4.3.2: {what} succeeds; the length of its SGL is 0: Data SGL Length Invalid"
    done = queue.run(io.flush(nsid))
    assert done.ok, f"4.3.2: the Flush behind a command whose SGL is empty: {status_name(done.status)}"


EMPTY: dict[str, Callable[[Scratch], Command]] = {
    "READ": lambda s: io.read(s.nsid, s.lba, 1),
    "WRITE": lambda s: io.write(s.nsid, s.lba, 1),
    "COMPARE": lambda s: io.compare(s.nsid, s.lba, 1),
    "DSM": lambda s: io.dataset_management(s.nsid, 1),
    "COPY": lambda s: io.copy(s.nsid, s.lba + 1, 1),
}
"""By name: a command that transfers data."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-SGL-NONE-{name}", kills=("sgl-empty-taken",)))
    for name in EMPTY
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_a_command_whose_sgl_is_empty_fails(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """It has no data to transfer, and changes no block."""
    command = EMPTY[name](scratch)
    _need(session, Io(command.opcode))
    before = write_blocks(queue, scratch, BLOCKS, 1882)
    _claim_too_short(queue, scratch.nsid, command, name)
    assert read_blocks(queue, scratch, BLOCKS) == before, f"4.3.2: {name} without data has changed a block"


@pytest.mark.case(
    "NVT-SGL-NONE-REGISTER", section="Base 4.3.2", kills=("sgl-empty-taken",), builds_on=("NVT-SGL-04",)
)
def test_a_register_whose_sgl_is_empty_fails(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    before = first.report()
    _claim_too_short(first.queue, first.nsid, io.register(first.nsid, REGISTER), "Reservation Register")
    after = first.report()
    assert after == before, f"4.3.2: a Register without keys: the report was {before}, and is {after}"


# Deallocated blocks (NVM 3.3.3.2.1): what Read returns is what the others find


def _compares(scratch: Scratch, found: bytes) -> Made:
    return io.compare(scratch.nsid, scratch.lba, 1), found


def _verifies(scratch: Scratch, _: bytes) -> Made:
    return io.verify(scratch.nsid, scratch.lba, 1), b""


def _copies(scratch: Scratch, _: bytes) -> Made:
    return io.copy(scratch.nsid, scratch.lba + BLOCKS, 1), io.copy_ranges([(scratch.lba, 1)])


LOOKS = {"COMPARE": (Io.COMPARE, _compares), "VERIFY": (Io.VERIFY, _verifies), "COPY": (Io.COPY, _copies)}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-DSM-THEN-{name}", kills=("deallocated-is-lost",)))
    for name in LOOKS
])  # fmt: skip
@pytest.mark.case(section="NVM 3.3.3.2.1", builds_on=("NVB-DSM-05",))
def test_a_deallocated_block_is_to_each_command_what_a_read_returns(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Error Recovery has its default, so that no read of a deallocated block is an error (DULBE)."""
    opcode, make = LOOKS[name]
    _need(session, Io.DATASET_MANAGEMENT, opcode)
    if opcode == Io.COPY:
        _copied(scratch)
    write_blocks(queue, scratch, BLOCKS + 1, 1883)
    done = queue.run(io.dataset_management(scratch.nsid, 1), data=io.dsm_ranges([(scratch.lba, 1)]))
    assert done.ok, f"3.3.3: Dataset Management ended with {status_name(done.status)}"
    found = read_blocks(queue, scratch, 1)
    command, sent = make(scratch, found)
    done = queue.run(command, data=sent)
    assert done.ok, (
        f"3.3.3.2.1: {name} of a deallocated block, which is read as {found[:8].hex()}…, ended with "
        f"{status_name(done.status)}"
    )
    if name == "COMPARE":
        done = queue.run(command, data=block_data(len(found), 1884))
        assert done.status == StatusCode.COMPARE_FAILURE, (
            f"3.3.1: Compare of a deallocated block with other data: {status_name(done.status)}"
        )
    elif name == "COPY":
        assert read_blocks(queue, scratch, 1, at=BLOCKS) == found, "3.3.2: the copy of a deallocated block"
