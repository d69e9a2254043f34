"""What holds on the first I/O queue holds on each: digests, the error log, MAXR2T of each command.

So it does for what the controller sends without being asked: an event, on an admin queue with digests.
"""

from __future__ import annotations

import contextlib

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import ControllerSession, Queue, override_field
from storagetest.wire.nvme_tcp.harness import (
    Harness,
    Scratch,
    block_data,
    request_event,
    run_behind,
)
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, ICReq
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost, allowed, hold
from storagetest.wire.tcp import ResponseTimeout

from .test_digests import needs_digests
from .test_log_pages import newest
from .test_pending_writes import asked_for
from .test_transfers import bulk

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.5")]

MOST_QUEUES = 4
"""I/O queues that a case opens at most (chosen)."""

QUIET = 0.15
"""Seconds in which a controller sends a further R2T, if it does (chosen)."""

DIGESTS = {
    "H": ICReq(header_digest=True),
    "D": ICReq(data_digest=True),
    "HD": ICReq(header_digest=True, data_digest=True),
}
"""What an ICReq asks for, by name."""


def _wrong(raw: bytes) -> bytes:
    return override_field(raw, "DDGST", 0xDEADBEEF)


def _queues(session: ControllerSession) -> list[Queue]:
    """Return I/O queues; skip if there is one alone, which other cases are of."""
    first = session.io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue")
    return [first, *(session.io_queue() for _ in range(1, min(session.io_queues_granted, MOST_QUEUES)))]


def _send_damaged(queue: Queue, r2t: R2T, data: bytes) -> int:
    """Send what ``r2t`` and those after it ask for, with wrong digests; return the status of the write."""
    while True:
        for piece in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            queue.send(piece, override=_wrong)
        received = queue.receive().pdu
        if isinstance(received, CapsuleResp):
            return Cqe.decode(received.cqe).status
        assert isinstance(received, R2T), f"3.3.2.2: not {received}"
        r2t = received


@pytest.mark.case(
    "NVT-DGST-EACH-CAPSULE", kills=("ddgst-later-queue",), builds_on=("NVT-DGST-CAPSULE", "NVB-RW-04")
)
def test_damaged_data_in_a_capsule_are_detected_on_each_queue(bench: Harness, scratch: Scratch) -> None:
    session = bench.session(icreq=ICReq(data_digest=True))
    needs_digests(session.admin)
    for queue in _queues(session):
        needs_digests(queue)
        if queue.in_capsule_limit < scratch.block_size:
            pytest.skip(
                f"a capsule takes {queue.in_capsule_limit} bytes, and a block has {scratch.block_size}"
            )
        data = block_data(scratch.block_size, 1310)
        command = io.write(scratch.nsid, scratch.lba, 1)
        done = queue.wait(queue.submit(command, data=data, inside=True, override=_wrong))
        assert done.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
            f"3.5: a capsule on I/O queue {queue.qid} had a wrong data digest, and its command ended with "
            f"{status_name(done.status)}: Transient Transport Error"
        )
        assert queue.run(io.flush(scratch.nsid)).ok, f"3.5: I/O queue {queue.qid} goes on"


@pytest.mark.case(
    "NVT-DGST-EACH-DATA", kills=("ddgst-later-queue",), builds_on=("NVT-DGST-DATA", "NVB-RW-04")
)
def test_damaged_h2cdata_are_detected_on_each_queue(bench: Harness, scratch: Scratch) -> None:
    session = bench.session(icreq=ICReq(data_digest=True))
    needs_digests(session.admin)
    for queue in _queues(session):
        needs_digests(queue)
        blocks = scratch.blocks_of(queue.in_capsule_limit + 4096)
        data = block_data(blocks * scratch.block_size, 1320)
        r2t = asked_for(queue, io.write(scratch.nsid, scratch.lba, blocks), data)
        status = _send_damaged(queue, r2t, data)
        assert status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
            f"3.5: the data of a write on I/O queue {queue.qid} had a wrong digest, and it ended with "
            f"{status_name(status)}: Transient Transport Error"
        )
        assert queue.run(io.flush(scratch.nsid)).ok, f"3.5: I/O queue {queue.qid} goes on"


@pytest.mark.case(
    "NVA-LOG-ERROR-QUEUES",
    section="Base 5.2.12.1.2",
    kills=("error-log-first-queue",),
    builds_on=("NVA-LOG-ERROR-COMMAND",),
)
def test_an_entry_of_the_error_log_names_each_queue(session: ControllerSession, scratch: Scratch) -> None:
    """The last queue first, so that an entry is none of what an earlier queue has left."""
    size, looked = scratch.block_size, 0
    for queue in reversed(_queues(session)):
        before = newest(session)
        cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=size)
        if queue.wait(cid).ok:
            pytest.skip("a read past the end succeeds (NVB-READ-AT-END)")
        entry = newest(session)
        if entry.count <= before.count:
            continue
        looked += 1
        assert (entry.sqid, entry.cid) == (queue.qid, cid), (
            f"5.2.12.1.2: the entry of a read that failed on I/O queue {queue.qid} with CID {cid:#x} has "
            f"SQID {entry.sqid} and CID {entry.cid:#x}"
        )
    if not looked:
        pytest.skip("the controller logs no error for a read past the end")


@pytest.mark.parametrize("maxr2t", [
    pytest.param(value, marks=pytest.mark.case(
        f"NVT-R2T-LIMIT-COMPARE-{value + 1}", kills=("r2t-over-limit-compare",)))
    for value in (0, 1)
])  # fmt: skip
@pytest.mark.case(section="NVMe/TCP 3.3.2.2", builds_on=("NVT-R2T-LIMIT-1", "NVB-COMPARE-01"))
def test_outstanding_r2ts_of_a_compare_do_not_exceed_maxr2t(
    bench: Harness, scratch: Scratch, maxr2t: int
) -> None:
    session = bench.session(icreq=ICReq(maxr2t=maxr2t))
    if not session.controller["oncs"] & 1:
        pytest.skip("ONCS: COMPARE is not supported")
    queue = session.io_queue()
    size = bulk(queue, scratch)
    command = io.compare(scratch.nsid, scratch.lba, size // scratch.block_size)
    asked_for(queue, command, block_data(size, 1330))
    outstanding = 1
    with contextlib.suppress(ResponseTimeout):
        while True:  # nothing is sent, so what comes now is outstanding all at once
            outstanding += isinstance(queue.receive(deadline=QUIET).pdu, R2T)
    assert outstanding <= maxr2t + 1, (
        f"3.3.2.2: {outstanding} R2Ts for a Compare of {size} bytes; MAXR2T allows {maxr2t + 1}"
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-EVENT-DIGEST-{name}", kills=kills))
    for name, kills in (("H", ("event-without-digest",)), ("HD", ("event-without-digest",)))
])  # fmt: skip
@pytest.mark.case(section="NVMe/TCP 3.3.1.1", builds_on=(*HOLDING, "NVR-NOTICE-RELEASE"))
def test_an_event_has_the_digest_of_its_queue(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness, name: str
) -> None:
    """A second controller of the registrant has an admin queue with digests, on which the event comes."""
    first, second = hosts
    session = bench.session(identity=second.session.identity, icreq=DIGESTS[name])
    needs_digests(session.admin)
    waiting = request_event(session)
    hold(first, Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    allowed(second.register())
    allowed(first.release(Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY))
    done = session.admin.wait(waiting)
    event = done.cqe.dw0
    assert event & 7 == 6, f"5.2.2: the event after a release is {event:#x}: not an I/O command's"
    run_behind(session)


@pytest.mark.case("NVA-ABORT-DIGEST", section="NVMe/TCP 3.3.1.1", kills=("aborted-without-digest",))
def test_an_aborted_event_request_has_the_digest_of_its_queue(bench: Harness) -> None:
    """If it is aborted: then the controller completes a command that came long before."""
    session = bench.session(icreq=DIGESTS["H"])
    needs_digests(session.admin)
    waiting = request_event(session)
    done = session.admin.run(admin.abort(sqid=0, cid=waiting))
    assert done.ok, f"5.2.1: Abort is not {status_name(done.status)}"
    if done.cqe.dw0 & 1:
        pytest.skip("Abort states that the command is not aborted, as it may")
    session.admin.wait(waiting)
    run_behind(session)
