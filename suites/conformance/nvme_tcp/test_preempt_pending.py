"""Preempt and Abort while commands of the preempted host wait for their data (Base 8.1.24.7)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import block_data, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.pdu import CapsuleResp
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PREEMPT_ABORT,
    ReservingHost,
    allowed,
    hold,
    require_type,
)
from storagetest.wire.tcp import ResponseTimeout

from .test_pending_writes import complete, pending

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.7", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

SETTLED = 1.0
"""Seconds in which a Preempt and Abort that waits for no data is complete (chosen)."""

SOON = 0.3
"""Seconds in which the completion of an aborted write has come, if it comes by itself (chosen)."""

SHORT = dict(zip(Rtype, ("WE", "EA", "WERO", "EARO", "WEAR", "EAAR"), strict=True))


def _completed(queue: Queue) -> Cqe | None:
    """Return the completion of the write that was aborted before its data came; None if none has come."""
    try:
        received = queue.receive(deadline=SOON).pdu
    except ResponseTimeout:
        return None
    assert isinstance(received, CapsuleResp), f"NVMe/TCP 3.3.2.2: not {received}"
    return Cqe.decode(received.cqe)


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-ABORT-PENDING-{name}", kills=("reservation-not-enforced",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
def test_a_write_that_waits_for_its_data_is_not_carried_out_after_preempt_and_abort(
    hosts: Hosts, rtype: Rtype
) -> None:
    """Once Preempt and Abort is complete, no command of the preempted host writes.

    A controller may abort the write, refuse it when its data come, or let Preempt and Abort wait for it.
    """
    first, second = hosts
    require_type(first.scratch, Rtype.WRITE_EXCLUSIVE)
    require_type(first.scratch, rtype)
    old = write_blocks(first.queue, first.scratch, 1, 1401)
    new = block_data(first.scratch.block_size, 1402)
    hold(first, rtype)
    allowed(second.register())
    r2t = pending(first.queue, first.scratch, new)
    command = io.acquire(second.nsid, PREEMPT_ABORT, Rtype.WRITE_EXCLUSIVE)
    keys = io.keys(second.key, 0 if rtype.all_hold else first.key)
    preempt = second.queue.submit(command, data=keys)
    try:
        done = second.queue.wait(preempt, deadline=SETTLED)
    except ResponseTimeout:  # it waits for the write
        complete(first.queue, r2t, new)
        done = second.queue.wait(preempt)
        allowed(done)
        refused(first.write(), StatusCode.RESERVATION_CONFLICT)
        return
    assert done.ok, f"8.1.24.7: Preempt and Abort ended with {status_name(done.status)}"
    try:
        ended = _completed(first.queue) or complete(first.queue, r2t, new)
    except RemoteProtocolError:
        ended = None  # the connection of a host that was preempted was closed
    assert ended is None or not ended.ok, (
        "8.1.24.7: a write of the preempted host, whose data came after Preempt and Abort was complete, "
        "ended with a success"
    )
    assert read_blocks(second.queue, second.scratch, 1) == old, (
        "8.1.24.7: a write of the preempted host, whose data came after Preempt and Abort was complete, was "
        "carried out"
    )
