"""Abort of commands other than Write that wait for their data (Base 5.2.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, Rtype, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import REGISTER, ReservingHost

from .test_families import supported
from .test_pending_writes import abort_pending, asked_for

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.1.2", builds_on=("NVA-ABORT-01", "NVB-RW-01")),
]

TYPE = Rtype.WRITE_EXCLUSIVE


def _compare(scratch: Scratch, before: bytes) -> tuple[Command, bytes]:
    return io.compare(scratch.nsid, scratch.lba, 1), before[: scratch.block_size]


def _deallocation(scratch: Scratch, _: bytes) -> tuple[Command, bytes]:
    return io.dataset_management(scratch.nsid, 1), io.dsm_ranges([(scratch.lba + 1, 1)])


def _copy(scratch: Scratch, _: bytes) -> tuple[Command, bytes]:
    return io.copy(scratch.nsid, scratch.lba + 1, 1), io.copy_ranges([(scratch.lba, 1)])


MADE: dict[str, tuple[Io, Callable[[Scratch, bytes], tuple[Command, bytes]]]] = {
    "COMPARE": (Io.COMPARE, _compare),
    "DSM": (Io.DATASET_MANAGEMENT, _deallocation),
    "COPY": (Io.COPY, _copy),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVA-ABORT-{name}", kills=("abort-write-success", "abort-write-unanswered")))
    for name in MADE
])  # fmt: skip
def test_a_command_that_waits_for_its_data_is_aborted_or_done(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """One that was aborted changes nothing. The next command of the queue is done."""
    opcode, make = MADE[name]
    if not supported(session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    if opcode == Io.COPY and not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    before = write_blocks(queue, scratch, 2, 1601)
    command, data = make(scratch, before)
    if abort_pending(session, queue, asked_for(queue, command, data), data):
        found = read_blocks(queue, scratch, 2)
        assert found == before, f"5.2.1.2: {opcode.name} was aborted, and has changed the blocks"
    new = block_data(scratch.block_size, 1602)
    done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=new)
    assert done.ok, f"5.2.1: a Write after the Abort of {opcode.name} ended with {status_name(done.status)}"
    assert read_blocks(queue, scratch, 1) == new, "NVM 3.3.6: the block after its write"


@pytest.mark.case(
    "NVA-ABORT-REGISTER",
    kills=("abort-write-success", "abort-write-unanswered"),
    builds_on=("NVA-ABORT-01", "NVR-REG-01"),
)
def test_a_register_that_waits_for_its_keys_is_aborted_or_done(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    command, data = io.register(first.nsid, REGISTER), io.keys(0, first.key)
    aborted = abort_pending(first.session, first.queue, asked_for(first.queue, command, data), data)
    found = [one.key for one in second.report().registrants]
    assert found == ([] if aborted else [first.key]), (
        f"5.2.1.2: Register of key {first.key:#x} was {'' if aborted else 'not '}aborted; the report has "
        f"{found}"
    )
