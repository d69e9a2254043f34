"""What holds once holds for each of a family: the end, completions, notifications, namespaces."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Cns, Io, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import descriptors
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import (
    Harness,
    Scratch,
    is_within_reach,
    read_blocks,
    refused,
    write_blocks,
)
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    ReservingHost,
    allowed,
    hold,
    kept_masks,
    mask_of,
    set_mask,
)

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
    pytest.param(Io.VERIFY, marks=pytest.mark.case("NVB-CROSS-VERIFY", section="NVM 3.3.5")),
    pytest.param(Io.WRITE_UNCORRECTABLE, marks=pytest.mark.case("NVB-CROSS-UNC", section="NVM 3.3.7")),
])  # fmt: skip
@pytest.mark.case(kills=("across-end-shortened",))
def test_a_range_across_the_end_is_out_of_range_without_data_too(
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


@pytest.mark.case("NVB-UNC-COMPARE", section="NVM 3.3.1, 3.3.7", kills=("marked-block-compared",))
def test_a_marked_block_is_not_compared(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    for opcode in (Io.COMPARE, Io.WRITE_UNCORRECTABLE):
        if not supported(session, opcode):
            pytest.skip(f"ONCS: {opcode.name} is not supported")
    data = write_blocks(queue, scratch, 1, 75)
    done = queue.run(uncorrectable(scratch.nsid, scratch.lba, 1))
    assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
    try:
        compared = queue.run(io.compare(scratch.nsid, scratch.lba, 1), data=data)
        assert not compared.ok, "3.3.1: the block cannot be read, and Compare found it equal"
    finally:
        write_blocks(queue, scratch, 1, 76)


# Two commands of the admin queue


@pytest.mark.case("NVA-KA-EVENT", section="Base 3.9, 5.2.2", kills=("keep-alive-with-event",))
def test_keep_alive_succeeds_while_an_event_is_awaited(session: ControllerSession) -> None:
    session.admin.submit(admin.async_event())
    for _ in range(2):
        done = session.admin.run(admin.keep_alive())
        assert done.ok, f"3.9: Keep Alive ended with {status_name(done.status)}"


# Completions of commands that failed


@pytest.mark.case("NVT-CQE-SQHD-FAILED", section="Base 4.2.1", kills=("sqhd-of-failed",))
def test_a_command_that_failed_moves_sqhd_too(session: ControllerSession, scratch: Scratch) -> None:
    queue = session.io_queue(sqsize=7)
    heads = []
    for _ in range(6):
        heads.append(queue.run(io.flush(scratch.nsid)).cqe.sqhd)
        heads.append(queue.run(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size).cqe.sqhd)
    assert queue.sqsize is not None
    steps = {(after - before) % (queue.sqsize + 1) for before, after in itertools.pairwise(heads)}
    assert steps == {1}, f"4.2.1: one command moves SQHD by one, but it was {heads}; every second one failed"


# Notifications of reservations (Base 5.2.12.1.35, 5.2.26.1.33)


@pytest.mark.case(
    "NVR-NOTICE-COUNT",
    section="Base 5.2.12.1.35",
    kills=("notice-count-zero", "notice-available"),
    builds_on=(*HOLDING, "NVR-NOTICE-READ"),
)
def test_the_log_page_counts_its_notifications(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """The count of an empty log page is 0, and of no other one; no page is available after the only one."""
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE, CLEAR))
    page = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64)
    found, empty = (second.session.admin.run(page, reads=64) for _ in range(2))
    for one in (found, empty):
        allowed(one)
    count = int.from_bytes(found.data[:8], "little")
    assert found.data[8], "5.2.12.1.35: Clear notifies a registrant"
    assert count, "5.2.12.1.35: the count of a notification is 0, which is that of an empty log page"
    assert not found.data[9], f"5.2.12.1.35: one notification, and {found.data[9]} more log pages"
    assert not any(empty.data[:9]), f"5.2.12.1.35: nothing more happened, and the page is {empty.data.hex()}"


@pytest.mark.case("NVR-MASK-READ", section="Base 5.2.26.1.33", kills=("notice-mask-lost",))
def test_the_notification_mask_is_read_back(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    with kept_masks(first.session, first.nsid):
        for mask in (0b1110, 0b0100, 0):
            allowed(set_mask(first.session, first.nsid, mask))
            found = mask_of(first.session, first.nsid)
            assert found == mask, f"5.2.26.1.33: the mask was set to {mask:#x}, and is {found:#x}"


# Namespaces, and command sets


@pytest.mark.case("NVB-NS-ALTERNATE", section="Base 3.2.1, NVM 3.3.4", kills=("read-of-last-namespace",))
def test_reads_of_two_namespaces_on_one_queue_return_the_data_of_each(
    session: ControllerSession, queue: Queue, scratch: Scratch, bench: Harness
) -> None:
    """Only the namespace of ``erase`` is written; the other one is read."""
    others = [
        nsid
        for nsid in session.namespaces()[:8]
        if nsid != scratch.nsid
        and session.namespace(nsid)["nsze"] >= scratch.end
        and is_within_reach(session, queue, nsid, scratch.lba)
    ]
    if not others:
        pytest.skip("no other namespace that is as large and is read")
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


@pytest.mark.case("NVA-ID-NSTAT", section="Base 5.2.13.2.8", kills=("identify-not-ready",))
def test_a_namespace_that_is_read_states_that_it_is_ready(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    done = session.admin.run(admin.identify(Cns.CSI_INDEPENDENT, nsid=scratch.nsid), reads=4096)
    if not done.ok:
        pytest.skip(f"Identify CNS 08h: {status_name(done.status)}")
    assert read_blocks(queue, scratch, 1)
    assert done.data[14] & 1, "5.2.13.2.8: NRDY of NSTAT is 0, and the namespace was read"


@pytest.mark.case("NVR-REPORT-HOSTS", section="Base 7.8", kills=("report-one-too-many",))
def test_every_registered_controller_of_the_report_has_a_host(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """No host is registered by this case: the report may have others, but none without a Host Identifier."""
    if not session.controller["oncs"] >> 5 & 1 or not session.namespace(scratch.nsid)["rescap"]:
        pytest.skip("reservations are not supported")
    done = queue.run(io.report(scratch.nsid, 4096), reads=4096)
    allowed(done)
    count = int.from_bytes(done.data[5:7], "little")
    for number in range(min(count, 63)):
        entry = done.data[64 * (number + 1) : 64 * (number + 2)]
        assert any(entry[8:24]), f"7.8: REGCTL is {count}, and entry {number} has no host: {entry.hex()}"


@pytest.mark.case("NVA-ID-DESC-ONCE", section="Base 5.2.13.2.3", kills=("identify-descriptor-twice",))
def test_a_namespace_has_one_descriptor_of_each_type(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:4]:
        kinds = [kind for kind, _ in descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid))]
        assert len(kinds) == len(set(kinds)), f"5.2.13.2.3: namespace {nsid} has descriptors of types {kinds}"


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
