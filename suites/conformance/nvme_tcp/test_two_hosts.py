"""Two hosts at the same time: each sees what the other one changes, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import ONCS_BITS, Feature, Io, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import (
    Harness,
    Scratch,
    block_data,
    read_blocks,
    refused,
    request_event,
    write_blocks,
)
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    read_notice,
)

from .test_pending_writes import complete, pending

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3.4")]

SOURCE, TARGET = 4, 8
"""Blocks of the scratch that one host copies from, and the other one copies to."""

ALL_NAMESPACES = 0xFFFFFFFF
SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
"""A release of this type notifies the other registrants (Base 8.1.24.6)."""


@pytest.fixture
def other(bench: Harness) -> ControllerSession:
    """Return a session of another host."""
    return bench.session(name="the other host's admin queue")


def _needs(session: ControllerSession, *opcodes: Io) -> None:
    for opcode in opcodes:
        if opcode in ONCS_BITS and not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
            pytest.skip(f"ONCS: {opcode.name} is not supported")


# What one host has changed (NVM 3.3)


def _copy(queue: Queue, scratch: Scratch, source: int, target: int) -> None:
    ranges = scratch.limits.copied([(scratch.lba + source, 1)])
    if not ranges:
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    done = queue.run(io.copy(scratch.nsid, scratch.lba + target, 1), data=io.copy_ranges(ranges))
    assert done.ok, f"NVM 3.3.2: Copy ended with {status_name(done.status)}"


def _change(queue: Queue, scratch: Scratch, how: Io) -> bytes:
    """Change the first block of the scratch, and return its new data."""
    if how == Io.WRITE:
        return write_blocks(queue, scratch, 1, 912)
    if how == Io.COPY:
        data = write_blocks(queue, scratch, 1, 913, at=SOURCE)
        _copy(queue, scratch, SOURCE, 0)
        return data
    done = queue.run(io.write_zeroes(scratch.nsid, scratch.lba, 1))
    assert done.ok, f"NVM 3.3.8: Write Zeroes ended with {status_name(done.status)}"
    return bytes(scratch.block_size)


def _claim(queue: Queue, scratch: Scratch, look: Io, *, old: bytes, new: bytes, what: str) -> None:
    """Claim that a Read, a Compare or a Copy is of the ``new`` data of the first block."""
    if look == Io.COMPARE:
        command = io.compare(scratch.nsid, scratch.lba, 1)
        done = queue.run(command, data=new)
        assert done.ok, f"NVM 3.3.1: Compare with new data is {status_name(done.status)}, {what}"
        refused(queue.run(command, data=old), StatusCode.COMPARE_FAILURE)
        return
    if look == Io.COPY:
        _copy(queue, scratch, 0, TARGET)
    found = read_blocks(queue, scratch, 1, at=TARGET if look == Io.COPY else 0)
    assert found == new, f"NVM 3.3: {look.name} is of {'the old' if found == old else 'other'} data, {what}"


@pytest.mark.parametrize(("how", "look"), [
    pytest.param(how, look, marks=pytest.mark.case(f"NVB-HOSTS-{how.name}-{look.name}", kills=kills))
    for how in (Io.WRITE, Io.WRITE_ZEROES, Io.COPY)
    for look, kills in (
        (Io.READ, ("read-of-own-change",)),
        (Io.COMPARE, ("compare-of-own-read",)),
        (Io.COPY, ("copy-of-own-write",)),
    )
])  # fmt: skip
@pytest.mark.case(builds_on=("NVB-SEEN-CONTROLLER",))
def test_a_host_sees_what_another_has_changed(
    queue: Queue, other: ControllerSession, scratch: Scratch, how: Io, look: Io
) -> None:
    """The one that looks has written and read the block before."""
    _needs(other, how, look)
    old = write_blocks(queue, scratch, 1, 911)
    assert read_blocks(queue, scratch, 1) == old, "NVM 3.3.4: a block that was written"
    new = _change(other.io_queue(), scratch, how)
    _claim(queue, scratch, look, old=old, new=new, what=f"after {how.name} by another host")


@pytest.mark.case(
    "NVB-HOSTS-DSM",
    section="NVM 3.3.3.2.1",
    kills=("deallocated-of-own",),
    builds_on=("NVB-DSM-05", "NVB-SEEN-CONTROLLER"),
)
def test_a_deallocated_block_reads_the_same_for_each_host(
    queue: Queue, other: ControllerSession, scratch: Scratch
) -> None:
    """Both hosts have read the block before one of them deallocates it."""
    _needs(other, Io.DATASET_MANAGEMENT)
    queues = (queue, other.io_queue())
    for this, that in (queues, queues[::-1]):
        data = write_blocks(this, scratch, 1, 917)
        assert read_blocks(that, scratch, 1) == data, "NVM 3.3.4: a block that another host has written"
        done = this.run(io.dataset_management(scratch.nsid, 1), data=io.dsm_ranges([(scratch.lba, 1)]))
        assert done.ok, f"NVM 3.3.3: Dataset Management ended with {status_name(done.status)}"
        found = [read_blocks(one, scratch, 1) for one in (this, that, this, that)]
        assert len(set(found)) == 1, (
            "3.3.3.2.1: a block that one host has deallocated does not read the same for it and for another "
            f"one; the reads return {', '.join('the old data' if one == data else 'others' for one in found)}"
        )


@pytest.mark.case("NVB-HOSTS-UNC", section="NVM 3.3.7", kills=("mark-of-own",), builds_on=("NVB-UNC-01",))
def test_a_mark_holds_for_each_host_until_one_writes(
    queue: Queue, other: ControllerSession, scratch: Scratch
) -> None:
    _needs(other, Io.WRITE_UNCORRECTABLE)
    queues = (queue, other.io_queue())
    read = io.read(scratch.nsid, scratch.lba, 1)
    for marks, writes in (queues, queues[::-1]):
        write_blocks(writes, scratch, 1, 914)
        mark = replace(io.verify(scratch.nsid, scratch.lba, 1), opcode=Io.WRITE_UNCORRECTABLE)
        assert marks.run(mark).ok, "NVM 3.3.7: Write Uncorrectable"
        try:
            done = writes.run(read, reads=scratch.block_size)
            assert done.status == StatusCode.UNRECOVERED_READ_ERROR, (
                f"3.3.7: a block that another host has marked is read: {status_name(done.status)}"
            )
        finally:
            data = write_blocks(writes, scratch, 1, 915)
        assert read_blocks(marks, scratch, 1) == data, "3.3.7: a write by another host clears the mark"


# What ends one controller (Base 3.1.3)

ENDS: dict[str, Callable[[ControllerSession], None]] = {
    "RESET": ControllerSession.disable,
    "SHUTDOWN": ControllerSession.close,
    "DROPPED": lambda session: session.admin.close(),
}


@pytest.mark.parametrize("end", [
    pytest.param("RESET", marks=pytest.mark.case("NVF-HOSTS-PENDING-RESET", kills=("end-loses-pending",))),
    pytest.param("SHUTDOWN", marks=pytest.mark.case(
        "NVF-HOSTS-PENDING-SHUTDOWN", kills=("end-loses-pending",))),
    pytest.param("DROPPED", marks=pytest.mark.case(
        "NVF-HOSTS-PENDING-DROPPED", no_mutant_reason="as NVF-HOSTS-PENDING-RESET")),
])  # fmt: skip
@pytest.mark.case(section="Base 3.1.3", builds_on=("NVB-RW-01",))
def test_a_write_that_waits_goes_on_when_another_controller_ends(
    queue: Queue, other: ControllerSession, scratch: Scratch, end: str
) -> None:
    """Each of two hosts has a write that waits for its data; the controller of one ends."""
    blocks = scratch.blocks_of(queue.in_capsule_limit + 1)  # more than a capsule holds, so it is asked for
    data = block_data(blocks * scratch.block_size, 916)
    r2t = pending(queue, scratch, data)
    pending(other.io_queue(), replace(scratch, lba=scratch.lba + blocks), data)
    ENDS[end](other)
    completion = complete(queue, r2t, data)
    assert completion.ok, (
        f"3.1.3: a write ended with {status_name(completion.status)} when another host's controller has ended"
    )
    assert read_blocks(queue, scratch, blocks) == data, "NVM 3.3.6: data of the write"


@pytest.mark.case(
    "NVF-HOSTS-DISCONNECT",
    section="Base 6.4",
    kills=("disconnect-of-every-host",),
    builds_on=("NVF-DISCONNECT-01",),
)
def test_disconnect_is_of_the_queue_of_its_own_controller(
    session: ControllerSession, queue: Queue, other: ControllerSession, scratch: Scratch
) -> None:
    """Both hosts have I/O queue 1."""
    if not session.controller["ofcs"] & 1:
        pytest.skip("OFCS: Disconnect is not supported")
    ended = other.io_queue()
    assert ended.run(fabrics.disconnect()).ok, "6.4: Disconnect of an I/O queue"
    for turn in range(3):
        try:
            done = queue.run(io.flush(scratch.nsid))
        except RemoteProtocolError as error:
            pytest.fail(f"6.4: Disconnect of I/O queue 1 has ended I/O queue 1 of another host: {error}")
        assert done.ok, f"6.4: Flush {turn + 1} on I/O queue 1 of another host: {status_name(done.status)}"


# What is logged (Base 5.2.12)


def _newest(session: ControllerSession) -> int:
    """Return the Error Count of the newest entry of the error log."""
    return int.from_bytes(session.log_page(LogPage.ERROR, 64, nsid=ALL_NAMESPACES)[:8], "little")


@pytest.mark.case(
    "NVA-HOSTS-ERROR-LOG",
    section="Base 5.2.12.1.2",
    kills=("error-log-of-all",),
    builds_on=("NVA-LOG-ERROR-ORDER",),
)
def test_the_error_log_has_no_error_of_another_controller(
    session: ControllerSession, queue: Queue, other: ControllerSession, scratch: Scratch
) -> None:
    reads = other.io_queue()
    before = _newest(session)
    for _ in range(3):
        done = reads.run(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
        assert not done.ok, "NVM 3.1: a read past the end"
    found = _newest(session)
    assert found == before, (
        f"5.2.12.1.2: Error Count {before} was the newest of controller {session.cntlid:#x}; it is {found} "
        f"after three commands of controller {other.cntlid:#x} have failed"
    )
    assert queue.run(io.flush(scratch.nsid)).ok, "Base 7.2: Flush"


# Reservations (Base 8.1.24)


@pytest.mark.case(
    "NVR-HOST-RELEASE",
    section="Base 8.1.24.1",
    kills=("release-of-controller",),
    builds_on=("NVR-HOST-CONTROLLERS",),
)
def test_a_host_releases_on_any_of_its_controllers(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness
) -> None:
    first, second = hosts
    session = bench.session(identity=first.session.identity, name="the holder's other controller")
    again = ReservingHost(session, session.io_queue(), first.scratch, first.key)
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(again.release(Rtype.WRITE_EXCLUSIVE))
    rtype = second.report().rtype
    assert not rtype, (
        f"8.1.24.1: a reservation of type {rtype} is held after its host released it on controller "
        f"{session.cntlid:#x}; it was acquired on {first.session.cntlid:#x}"
    )


@pytest.fixture
def third(hosts: tuple[ReservingHost, ReservingHost], bench: Harness) -> ReservingHost:
    """Return a third host, which is no registrant."""
    session = bench.session(name="third host's admin queue")
    return ReservingHost(session, session.io_queue(), hosts[0].scratch, 0xC3)


@pytest.mark.case(
    "NVR-NOTICE-STRANGER", section="Base 8.1.24.6", kills=("notice-to-strangers",), builds_on=HOLDING
)
def test_a_host_that_is_no_registrant_is_not_notified(
    hosts: tuple[ReservingHost, ReservingHost], third: ReservingHost
) -> None:
    """A reservation is released; two hosts are registrants."""
    first, second = hosts
    hold(first, SHARED)
    allowed(second.register())
    cid = request_event(third.session)
    allowed(first.release(SHARED))
    for _ in range(2):
        assert third.session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok, (
            "5.2.11: Get Features"
        )
    assert third.session.admin.status_of(cid) is None, "8.1.24.6: an event of a host that is no registrant"
    kind = read_notice(third)[0]
    assert not kind, f"8.1.24.6: a host that is no registrant has a notification of type {kind}"


@pytest.mark.case(
    "NVR-NOTICE-EACH",
    section="Base 5.2.12.1.35",
    kills=("notice-read-by-another",),
    builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"),
)
def test_a_notification_stays_when_another_host_reads_its_own(
    hosts: tuple[ReservingHost, ReservingHost], third: ReservingHost
) -> None:
    first, second = hosts
    hold(first, SHARED)
    try:
        for host in (second, third):
            allowed(host.register())
        allowed(first.release(SHARED))
        kinds = [read_notice(host)[0] for host in (second, third)]
    finally:
        third.register(UNREGISTER, current=third.key)
    assert kinds == [2, 2], (
        f"5.2.12.1.35: the log pages of two registrants, read one after the other, have types {kinds}; a "
        "reservation was released (2)"
    )
