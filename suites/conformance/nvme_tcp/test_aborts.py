"""Abort commands that find no command: the others of the queue go on (Base 5.2.1)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, request_event

from .test_pending_writes import abort_pending, complete, pending
from .test_transfers import bulk

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.1", builds_on=("NVA-ABORT-01",)),
]

ABSENT = (0x7777, 0xFFFE)
"""CIDs that no command of these cases has."""


def _abort(session: ControllerSession, qid: int) -> None:
    """Abort commands that are not there; an error is as good as the result that nothing was aborted."""
    for cid in ABSENT:
        done = session.admin.run(admin.abort(sqid=qid, cid=cid))
        assert not done.ok or done.cqe.dw0 & 1, (
            f"5.2.1.2: no command {cid:#x} is outstanding in queue {qid}, but it is reported as aborted"
        )


@pytest.mark.case("NVA-ABORT-NONE-EVENT", kills=("abort-none-takes-event",))
def test_an_abort_that_finds_no_command_ends_no_event_request(session: ControllerSession) -> None:
    """A request that waits for an event goes on, or is completed by one."""
    waits = request_event(session)
    _abort(session, 0)
    assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
    status = session.admin.status_of(waits)
    assert status in (None, StatusCode.SUCCESS), (
        f"5.2.1: Aborts of commands {ABSENT} ended the event request {waits}: {status_name(status or 0)}"
    )


@pytest.mark.case("NVA-ABORT-NONE-WRITE", kills=("abort-none-takes-write",), builds_on=("NVB-RW-01",))
def test_an_abort_that_finds_no_command_ends_no_write(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """A write whose data come after the Aborts is done."""
    new = block_data(bulk(queue, scratch), 921)
    r2t = pending(queue, scratch, new)
    _abort(session, queue.qid)
    done = complete(queue, r2t, new)
    assert done.ok, f"5.2.1: Aborts of other commands ended a write: {status_name(done.status)}"
    found = read_blocks(queue, scratch, len(new) // scratch.block_size)
    assert found == new, "NVM 3.3.6: the blocks after their write"


@pytest.mark.case(
    "NVA-ABORT-WRITE",
    section="Base 5.2.1.2",
    kills=("abort-write-unanswered", "abort-write-success"),
    builds_on=("NVA-ABORT-01", "NVB-RW-01"),
)
def test_a_write_that_is_aborted_is_completed_as_aborted(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """It waits for its data. If it is not aborted it goes on, and is done."""
    new = block_data(bulk(queue, scratch), 922)
    r2t = pending(queue, scratch, new)
    abort_pending(session, queue, r2t, new)
