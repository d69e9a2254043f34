"""What holds for one command holds for each of its family: the end, reservations, namespaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Cns, Io, Rtype, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, PREEMPT, ReservingHost, allowed, hold

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.1")]


def supported(session: ControllerSession, opcode: Io) -> bool:
    """Whether ONCS announces an optional command (Base 5.2.13.2.1)."""
    bit = ONCS_BITS.get(opcode)
    return bit is None or bool(session.controller["oncs"] >> bit & 1)


def uncorrectable(nsid: int, lba: int, blocks: int) -> Command:
    """Return Write Uncorrectable (NVM 3.3.7)."""
    return replace(io.write_zeroes(nsid, lba, blocks), opcode=Io.WRITE_UNCORRECTABLE)


# Across the end


WITHOUT_DATA: dict[Io, Callable[[int, int, int], Command]] = {
    Io.WRITE_ZEROES: io.write_zeroes,
    Io.VERIFY: io.verify,
    Io.WRITE_UNCORRECTABLE: uncorrectable,
}


@pytest.mark.parametrize("opcode", [
    pytest.param(Io.WRITE_ZEROES, marks=pytest.mark.case("NVB-CROSS-ZEROES", section="NVM 3.3.8")),
    pytest.param(Io.VERIFY, marks=pytest.mark.case("NVB-CROSS-VERIFY", section="NVM 3.3.5")),
    pytest.param(Io.WRITE_UNCORRECTABLE, marks=pytest.mark.case("NVB-CROSS-UNC", section="NVM 3.3.7")),
])  # fmt: skip
@pytest.mark.case(kills=("across-end-shortened",))
def test_a_range_across_the_end_is_out_of_range_for_every_command(
    session: ControllerSession, queue: Queue, scratch: Scratch, opcode: Io
) -> None:
    """By one block and by many: refused, and the last block is as before."""
    if not supported(session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    end = Scratch(scratch.nsid, scratch.end - 1, 1, scratch.end, scratch.limits)
    before = read_blocks(queue, end, 1)
    for blocks in (2, 3):
        done = queue.run(WITHOUT_DATA[opcode](scratch.nsid, end.lba, blocks))
        refused(done, StatusCode.LBA_OUT_OF_RANGE, StatusCode.CAPACITY_EXCEEDED)
        assert read_blocks(queue, end, 1) == before, f"3.1: {blocks} blocks were refused, and one was done"


# Reservations (Base 8.1.24)


WRITERS = (Io.WRITE_ZEROES, Io.WRITE_UNCORRECTABLE, Io.DATASET_MANAGEMENT, Io.COPY)
READERS = (Io.COMPARE, Io.VERIFY)
"""The optional commands of either group; those of Read and Write are NVR-*-OTHER-READ and -WRITE."""


def run(host: ReservingHost, opcode: Io, data: bytes) -> CommandResult:
    """Run a command of ``host`` on the first block of its scratch, which holds ``data``."""
    nsid, lba, queue = host.nsid, host.scratch.lba, host.queue
    if opcode in WITHOUT_DATA:
        return queue.run(WITHOUT_DATA[opcode](nsid, lba, 1))
    if opcode is Io.DATASET_MANAGEMENT:
        return queue.run(io.dataset_management(nsid, 1), data=io.dsm_ranges([(lba, 1)]))
    if opcode is Io.COPY:
        return queue.run(io.copy(nsid, lba, 1), data=io.copy_ranges([(lba + 1, 1)]))
    return queue.run(io.compare(nsid, lba, 1), data=data)


def of_commands(prefix: str, opcodes: tuple[Io, ...]) -> pytest.MarkDecorator:
    """One case for each command."""
    return pytest.mark.parametrize(
        "opcode",
        [pytest.param(one, id=one.name, marks=pytest.mark.case(f"{prefix}-{one.name}")) for one in opcodes],
    )


@of_commands("NVR-EXCLUDES-WRITER", WRITERS)
@pytest.mark.case(section="Base 8.1.24", kills=("conflict-one-command",), builds_on=HOLDING)
def test_no_command_that_writes_passes_a_reservation(
    hosts: tuple[ReservingHost, ReservingHost], opcode: Io
) -> None:
    """Of a host that is not registered, under each type; the block is as before."""
    first, second = hosts
    if not supported(first.session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    data = write_blocks(first.queue, first.scratch, 2, 71)[: first.scratch.block_size]
    allowed(first.register())
    for rtype in Rtype:
        allowed(first.acquire(rtype))
        refused(run(second, opcode, data), StatusCode.RESERVATION_CONFLICT)
        allowed(first.release(rtype))
    assert read_blocks(first.queue, first.scratch, 1) == data, f"8.1.24: {opcode.name} was done"


@of_commands("NVR-EXCLUDES-READER", READERS)
@pytest.mark.case(section="Base 8.1.24", kills=("conflict-one-command",), builds_on=HOLDING)
def test_a_command_that_reads_passes_a_reservation_unless_access_is_exclusive(
    hosts: tuple[ReservingHost, ReservingHost], opcode: Io
) -> None:
    first, second = hosts
    if not supported(first.session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    data = write_blocks(first.queue, first.scratch, 1, 72)
    allowed(first.register())
    for rtype in Rtype:
        allowed(first.acquire(rtype))
        done = run(second, opcode, data)
        if "EXCLUSIVE_ACCESS" in rtype.name:
            refused(done, StatusCode.RESERVATION_CONFLICT)
        else:
            allowed(done)
        allowed(first.release(rtype))


@pytest.mark.parametrize(
    "rtype",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.case(f"NVR-PREEMPT-TYPE-{one.value}"))
        for one in Rtype
    ],
)
@pytest.mark.case(
    section="Base 8.1.24.7", kills=("preempt-type-one",), builds_on=(*HOLDING, "NVR-PREEMPT-01")
)
def test_a_preempted_reservation_has_the_type_of_the_preempting_command(
    hosts: tuple[ReservingHost, ReservingHost], rtype: Rtype
) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE if rtype is not Rtype.WRITE_EXCLUSIVE else Rtype.EXCLUSIVE_ACCESS)
    allowed(second.register())
    allowed(second.acquire(rtype, PREEMPT, victim=first.key))
    found = second.report()
    assert found.rtype == rtype, f"8.1.24.7: the type is {found.rtype}"
    assert [one.key for one in found.registrants] == [second.key], "8.1.24.7: the victim is registered"


# Namespaces, and command sets


@pytest.mark.case("NVB-NS-ALTERNATE", section="Base 3.2.1, NVM 3.3.4", kills=("read-of-last-namespace",))
def test_reads_of_two_namespaces_on_one_queue_return_the_data_of_each(
    session: ControllerSession, queue: Queue, scratch: Scratch, bench: Harness
) -> None:
    """Only the namespace of ``erase`` is written; the other one is read."""
    others = [nsid for nsid in session.namespaces()[:8] if nsid != scratch.nsid]
    if not others or session.namespace(others[0])["nsze"] < scratch.end:
        pytest.skip("no other namespace that is as large")
    limits = session.limits(others[0])
    if limits.block_size != scratch.block_size:
        pytest.skip("the other namespace has blocks of another size")
    other = Scratch(others[0], scratch.lba, 1, scratch.end, limits)
    theirs = read_blocks(bench.session(name="second admin queue").io_queue(), other, 1)
    ours = write_blocks(queue, scratch, 1, 73)
    if ours == theirs:
        pytest.skip("both namespaces have the same data")
    for _ in range(2):
        assert read_blocks(queue, scratch, 1) == ours, f"namespace {scratch.nsid}, after the other one"
        assert read_blocks(queue, other, 1) == theirs, f"namespace {other.nsid}, after the other one"


@pytest.mark.parametrize("cns", [
    pytest.param(Cns.CSI_NAMESPACE, marks=pytest.mark.case("NVA-ID-CSI-NAMESPACE")),
    pytest.param(Cns.CSI_CONTROLLER, marks=pytest.mark.case("NVA-ID-CSI-CONTROLLER")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.13.2.5, 5.2.13.2.6", kills=("identify-any-csi",))
def test_identify_of_a_command_set_that_is_not_there_is_refused(
    session: ControllerSession, scratch: Scratch, cns: Cns
) -> None:
    nsid = scratch.nsid if cns is Cns.CSI_NAMESPACE else 0
    done = session.admin.run(admin.identify(cns, nsid=nsid, csi=0x2F), reads=4096)
    refused(done, StatusCode.INVALID_FIELD, StatusCode.INVALID_IO_COMMAND_SET)
