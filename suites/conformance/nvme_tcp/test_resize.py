"""A namespace whose size an administrator changes: its data, and the notice of it (NVM 4.1.5.1, Base 5.2.2).

The target's controls ``grow`` and ``shrink`` change the size. Each case restores it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from storagetest.errors import ControlError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import (
    NAMESPACE_NOTICES,
    Harness,
    Scratch,
    block_data,
    refused,
    request_event,
    wwids,
)
from storagetest.wire.nvme_tcp.queue import Queue
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire", "resize"),
    pytest.mark.exclusive,
    pytest.mark.case(level="MUST", section="Base 5.2.26.1.5"),
]

NAMESPACE_CHANGED = 2 | LogPage.CHANGED_NAMESPACES << 16
"""Dword 0 of the event: a notice, Attached Namespace Attribute Changed, and the log page (5.2.2.1)."""
WITHIN = 10.0
"""Seconds in which a controller reports a change of its administrator (chosen)."""
NOT_WITHIN = 2.0
"""Seconds in which an event that may not come would have come (chosen)."""
MANY = 0xFFFFFFFF
"""The first entry of the list if more than 1,024 namespaces have changed (5.2.12.1.5)."""
EVENTS = 4
"""Events of other types that may come before the one that a case waits for (chosen)."""

Controls = Callable[[str], AbstractContextManager[None]]
Resize = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def resize(server_control: Controls, session: ControllerSession, scratch: Scratch) -> Resize:
    """Return what changes the size. Raises ControlError if an earlier case could not restore it."""
    if (found := session.namespace(scratch.nsid)["nsze"]) != scratch.end:
        raise ControlError(
            f"the namespace has {found} blocks, and had {scratch.end} when the run began: `shrink` "
            "has not restored it"
        )
    return lambda: server_control("resize")


def _notified(session: ControllerSession) -> int:
    """Enable the notices, empty the list of namespaces, and return the CID of a request that waits."""
    if not session.controller["oaes"] & NAMESPACE_NOTICES:
        pytest.skip("OAES bit 8: there are no Namespace Attribute Notices")
    done = session.admin.run(admin.set_features(Feature.ASYNC_EVENT, NAMESPACE_NOTICES))
    assert done.ok, f"5.2.26.1.5: OAES has bit 8, and to enable it is not {status_name(done.status)}"
    _changed(session)
    return request_event(session)


def _changed(session: ControllerSession, *, rae: int = 0) -> list[int]:
    """Read the Changed Attached Namespace List; return the NSIDs in it."""
    done = session.admin.run(admin.get_log_page(LogPage.CHANGED_NAMESPACES, 4096, rae=rae), reads=4096)
    assert done.ok, f"5.2.12.1.5: the log page is not {status_name(done.status)}"
    numbers = [int.from_bytes(done.data[at : at + 4], "little") for at in range(0, 4096, 4)]
    return numbers[: numbers.index(0)] if 0 in numbers else numbers


def _is_notified(session: ControllerSession, cid: int, nsid: int, what: str) -> None:
    """Claim that the request is completed by the event of a changed namespace, and that the list has it."""
    for _ in range(EVENTS):
        try:
            event = session.admin.wait(cid, deadline=WITHIN).cqe.dw0
        except ResponseTimeout:
            raise AssertionError(
                f"5.2.26.1.5: no event within {WITHIN:g} s after the namespace {what}, and the notices of "
                "changed namespaces are enabled"
            ) from None
        if event == NAMESPACE_CHANGED:
            break
        cid = session.admin.submit(admin.async_event())
    assert event == NAMESPACE_CHANGED, (
        f"5.2.2.1: after the namespace {what} dword 0 of the event is {event:#x}; of a changed namespace it "
        f"is {NAMESPACE_CHANGED:#x}"
    )
    found = _changed(session)
    assert nsid in found or found == [MANY], (
        f"5.2.12.1.5: after namespace {nsid} {what} the list of changed namespaces is {found}"
    )
    again = _changed(session)
    assert not again, f"5.2.12.1.5: the list is {again} when it is read once more; a read clears it"


def _stays(session: ControllerSession, cid: int, why: str) -> None:
    """Claim that no event of a changed namespace is reported."""
    try:
        event = session.admin.wait(cid, deadline=NOT_WITHIN).cqe.dw0
    except ResponseTimeout:
        return
    if event != NAMESPACE_CHANGED:
        pytest.skip(f"the controller reports another event: {event:#x}")
    raise AssertionError(f"5.2.2: an event of a changed namespace is reported {why}")


def _size_becomes(session: ControllerSession, nsid: int, holds: Callable[[int], bool], wanted: str) -> int:
    """Identify the namespace until its size is as wanted; return the size."""
    until = time.monotonic() + WITHIN
    while not holds(size := session.namespace(nsid)["nsze"]):
        if time.monotonic() > until:
            raise AssertionError(
                f"NVM 4.1.5.1: {WITHIN:g} s after the administrator has changed it, NSZE is {size}; it was "
                f"to be {wanted}"
            )
        time.sleep(0.2)
    return size


def _write(queue: Queue, scratch: Scratch, lba: int, seed: int) -> None:
    """Write one block, which is in the namespace."""
    done = queue.run(io.write(scratch.nsid, lba, 1), data=block_data(scratch.block_size, seed))
    assert done.ok, f"NVM 3.3: a write of LBA {lba} ended with {status_name(done.status)}"


def _expect(queue: Queue, scratch: Scratch, lba: int, seed: int, when: str) -> None:
    """Claim that a block reads as it was written."""
    done = queue.run(io.read(scratch.nsid, lba, 1), reads=scratch.block_size)
    assert done.ok, f"NVM 3.3: a read of LBA {lba} {when} ended with {status_name(done.status)}"
    assert done.data == block_data(scratch.block_size, seed), f"the data of LBA {lba} differ {when}"


@pytest.mark.case(
    "NVB-RESIZE-DATA", section="NVM 4.1.5.1, 3.3", kills=("grown-not-listed", "grown-not-served")
)
def test_a_namespace_grows_and_shrinks(
    session: ControllerSession, queue: Queue, scratch: Scratch, resize: Resize
) -> None:
    """New blocks are usable to the last one, none is behind it, and the old ones keep their data."""
    end = scratch.end
    for seed, lba in enumerate((scratch.lba, end - 1), 1):
        _write(queue, scratch, lba, seed)
    with resize():
        size = _size_becomes(session, scratch.nsid, lambda size: size > end, f"more than {end}")
        for lba in (end, (end + size) // 2, size - 1):
            _write(queue, scratch, lba, lba)
        for lba in (end, (end + size) // 2, size - 1):
            _expect(queue, scratch, lba, lba, "after the growth")
        for seed, lba in enumerate((scratch.lba, end - 1), 1):
            _expect(queue, scratch, lba, seed, "after the growth")
        beyond = queue.run(io.read(scratch.nsid, size, 1), reads=scratch.block_size)
        refused(beyond, StatusCode.LBA_OUT_OF_RANGE)
    _size_becomes(session, scratch.nsid, lambda size: size == end, str(end))
    for seed, lba in enumerate((scratch.lba, end - 1), 1):
        _expect(queue, scratch, lba, seed, "after the shrink")
    refused(queue.run(io.read(scratch.nsid, end, 1), reads=scratch.block_size), StatusCode.LBA_OUT_OF_RANGE)
    beyond = queue.run(io.write(scratch.nsid, end, 1), data=bytes(scratch.block_size))
    refused(beyond, StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case(
    "NVB-RESIZE-QUEUES",
    section="NVM 4.1.5.1, 3.3",
    kills=("grown-first-queue-alone", "shrunk-first-queue-alone"),
    builds_on=("NVB-RESIZE-DATA",),
)
def test_each_queue_has_the_new_size(
    session: ControllerSession, scratch: Scratch, bench: Harness, resize: Resize
) -> None:
    """Queues that were connected before it, of this controller and of another one, and queues of after it."""
    end, other = scratch.end, bench.session(name="the other admin queue")
    queues = {"I/O queue 1": session.io_queue(), "I/O queue 1 of another controller": other.io_queue()}
    if session.io_queues_granted > 1:
        queues["I/O queue 2"] = session.io_queue()
    with resize():
        for one in (other, session):
            size = _size_becomes(one, scratch.nsid, lambda size: size > end, f"more than {end}")
        if other.io_queues_granted > 1:
            queues["an I/O queue that was connected later"] = other.io_queue()
        for number, (name, queue) in enumerate(queues.items()):
            for lba in (min(end + number, size - 1), max(size - 1 - number, end)):
                done = queue.run(io.write(scratch.nsid, lba, 1), data=block_data(scratch.block_size, lba))
                assert done.ok, (
                    f"NVM 4.1.5.1: NSZE is {size}, and a write of LBA {lba} on {name} ended with "
                    f"{status_name(done.status)}"
                )
        for reader in queues.values():
            for lba in range(end, min(end + len(queues), size)):
                _expect(reader, scratch, lba, lba, "after the growth, on each queue")
    for one in (other, session):
        _size_becomes(one, scratch.nsid, lambda size: size == end, str(end))
    for name, queue in queues.items():
        done = queue.run(io.write(scratch.nsid, end, 1), data=bytes(scratch.block_size))
        assert done.status == StatusCode.LBA_OUT_OF_RANGE, (
            f"NVM 3.1: NSZE is {end} again, and a write of LBA {end} on {name} ended with "
            f"{status_name(done.status)}; required: LBA_OUT_OF_RANGE (0h/80h)"
        )


@pytest.mark.case("NVA-RESIZE-NAMES", section="NVM 4.1.5.1", kills=("grown-is-another",))
def test_a_resized_namespace_is_the_same(
    session: ControllerSession, scratch: Scratch, resize: Resize
) -> None:
    """Its identifiers remain fixed throughout the life of the namespace, and it stays active."""
    nsid = scratch.nsid

    def look() -> tuple[object, ...]:
        return session.namespaces(), sorted(wwids(session, nsid)), session.namespace(nsid).block_size

    before = look()
    with resize():
        _size_becomes(session, nsid, lambda size: size > scratch.end, f"more than {scratch.end}")
        found = look()
    assert found == before, (
        f"NVM 4.1.5.1: active namespaces, identifiers and block size are {found} after the growth; they were "
        f"{before}"
    )


@pytest.mark.case(
    "NVA-RESIZE-EVENT",
    kills=("grown-no-event", "grown-other-event", "grown-not-in-list", "grown-list-retained"),
)
def test_growth_and_shrink_are_reported(session: ControllerSession, scratch: Scratch, resize: Resize) -> None:
    cid = _notified(session)
    with resize():
        _is_notified(session, cid, scratch.nsid, "has grown")
        cid = request_event(session)
    _is_notified(session, cid, scratch.nsid, "has shrunk")


@pytest.mark.case("NVA-RESIZE-DISABLED", kills=("grown-event-forced",))
def test_no_notice_is_sent_that_is_not_enabled(
    session: ControllerSession, scratch: Scratch, resize: Resize
) -> None:
    done = session.admin.run(admin.set_features(Feature.ASYNC_EVENT, 0))
    assert done.ok, f"5.2.26.1.5: to disable all events is not {status_name(done.status)}"
    cid = request_event(session)
    with resize():
        _size_becomes(session, scratch.nsid, lambda size: size > scratch.end, f"more than {scratch.end}")
        _stays(session, cid, "while bit 8 of Asynchronous Event Configuration is 0")


@pytest.mark.case(
    "NVA-RESIZE-EACH", kills=("grown-event-once", "grown-list-shared"), builds_on=("NVA-RESIZE-EVENT",)
)
def test_each_controller_reports_it(bench: Harness, scratch: Scratch, resize: Resize) -> None:
    """Each has a list of its own: what one host has read is still to be read by the other."""
    sessions = [bench.session(name=f"admin queue {number}") for number in (1, 2)]
    waiting = [(one, _notified(one)) for one in sessions]
    with resize():
        for session, cid in waiting:
            _is_notified(session, cid, scratch.nsid, "has grown")


@pytest.mark.case(
    "NVA-RESIZE-MASKED", section="Base 5.2.2", kills=("grown-event-again",), builds_on=("NVA-RESIZE-EVENT",)
)
def test_a_second_change_is_not_reported_before_the_list_is_read(
    session: ControllerSession, resize: Resize
) -> None:
    cid = _notified(session)
    with resize():
        event = session.admin.wait(cid, deadline=WITHIN).cqe.dw0
        assert event == NAMESPACE_CHANGED, f"5.2.2.1: dword 0 of the event is {event:#x}"
        cid = session.admin.submit(admin.async_event())
        _stays(session, cid, "again, before the host has read the list")
    _stays(session, cid, "for the shrink, before the host has read the list")
    assert _changed(session), "5.2.12.1.5: the list is empty, although no host has read it"


@pytest.mark.case(
    "NVA-RESIZE-RETAINED",
    section="Base 5.2.12",
    kills=("grown-list-not-retained",),
    builds_on=("NVA-RESIZE-EVENT",),
)
def test_a_read_that_retains_the_event_leaves_it_masked(
    session: ControllerSession, scratch: Scratch, resize: Resize
) -> None:
    """Retain Asynchronous Event: the event stays masked; whether the list stays is a choice."""
    cid = _notified(session)
    with resize():
        session.admin.wait(cid, deadline=WITHIN)
        cid = session.admin.submit(admin.async_event())
        found = _changed(session, rae=1)
        assert scratch.nsid in found or found == [MANY], f"5.2.12: a read with RAE finds {found}"
    _stays(session, cid, "again, although the reads of the list had RAE set")


@pytest.mark.case(
    "NVA-RESIZE-LIST",
    section="Base 4.6",
    kills=("grown-list-descending", "grown-list-twice", "grown-list-rest"),
    builds_on=("NVA-RESIZE-EVENT",),
)
def test_the_list_of_changed_namespaces_is_a_namespace_list(
    session: ControllerSession, scratch: Scratch, resize: Resize
) -> None:
    """NSIDs are in ascending order, a namespace that has changed twice is there once, and the rest is 0."""
    cid = _notified(session)
    with resize():
        session.admin.wait(cid, deadline=WITHIN)
    _size_becomes(session, scratch.nsid, lambda size: size == scratch.end, str(scratch.end))
    raw = session.log_page(LogPage.CHANGED_NAMESPACES, 4096)
    numbers = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, 4096, 4)]
    found = numbers[: numbers.index(0)] if 0 in numbers else numbers
    assert found == sorted(set(found)), (
        f"4.6: the list of changed namespaces is {found[:16]}; required: each NSID once, in ascending order"
    )
    assert not any(numbers[len(found) :]), (
        f"4.6: behind the first {len(found)} entries of the list of changed namespaces one is not 0"
    )
