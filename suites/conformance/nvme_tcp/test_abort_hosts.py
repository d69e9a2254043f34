"""Abort names a command of its own controller, whichever host was connected first (Base 5.2.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, request_event

from .test_pending_writes import asked_for, complete

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.1", builds_on=("NVA-ABORT-01",)),
]

HOSTS = 3
"""Hosts of a case (chosen): one is connected between two others."""

CID = 0x5A17
"""The identifier of the command that no other host has (chosen)."""

WHICH = {"FIRST": 0, "SECOND": 1, "LAST": 2}
"""The host whose command another one names, in the order in which they were connected."""


@pytest.fixture
def three(bench: Harness) -> list[ControllerSession]:
    """Return sessions of :data:`HOSTS` hosts; skip if fewer are let in."""
    made: list[ControllerSession] = []
    for number in range(1, HOSTS + 1):
        try:
            made.append(bench.session(name=f"host {number}"))
        except RemoteProtocolError as error:
            if not made:
                raise
            pytest.skip(f"{len(made)} hosts are let in at the same time: {error}")
    return made


def _abort(session: ControllerSession, qid: int, whose: str) -> None:
    """Abort the command that another host has; claim that none was."""
    done = session.admin.run(admin.abort(sqid=qid, cid=CID))
    if done.ok:  # an error is as good: there is no such command
        assert done.cqe.dw0 & 1, (
            f"5.2.1: Abort states that it has aborted command {CID:#x} of queue {qid}, which controller "
            f"{session.cntlid:#x} does not have; the {whose} host has one"
        )


@pytest.mark.parametrize("which", [
    pytest.param(which, marks=pytest.mark.case(f"NVA-ABORT-HOSTS-{which}")) for which in WHICH
])  # fmt: skip
@pytest.mark.case(kills=("abort-of-any-host",))
def test_an_abort_ends_no_event_request_of_another_host(three: list[ControllerSession], which: str) -> None:
    """The others abort the CID of a request that waits for an event, on queue 0."""
    victim = three[WHICH[which]]
    request_event(victim, cid=CID)
    for other in three:
        if other is not victim:
            _abort(other, 0, which.lower())
            done = victim.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
            assert done.ok, f"5.2.11: not {status_name(done.status)}"
            assert victim.admin.status_of(CID) is None, (
                f"5.2.1: Abort of controller {other.cntlid:#x} has ended command {CID:#x} of controller "
                f"{victim.cntlid:#x}, which was connected as the {which.lower()} of {HOSTS}"
            )


@pytest.mark.parametrize("which", [
    pytest.param(which, marks=pytest.mark.case(f"NVA-ABORT-HOSTS-IO-{which}")) for which in WHICH
])  # fmt: skip
@pytest.mark.case(kills=("abort-of-any-host",), builds_on=("NVA-ABORT-01", "NVB-RW-01"))
def test_an_abort_ends_no_write_of_another_host(
    three: list[ControllerSession], scratch: Scratch, which: str
) -> None:
    """The others abort the CID of a write that waits for its data, on the I/O queue of the same number."""
    queues = [session.io_queue(qid=1) for session in three]
    victim, queue = three[WHICH[which]], queues[WHICH[which]]
    blocks = scratch.blocks_of(queue.in_capsule_limit + scratch.block_size)
    data = block_data(blocks * scratch.block_size, 2301)
    r2t = asked_for(queue, replace(io.write(scratch.nsid, scratch.lba, blocks), cid=CID), data)
    for other in three:
        if other is not victim:
            _abort(other, 1, which.lower())
    completion = complete(queue, r2t, data)
    assert completion.ok, (
        f"5.2.1: the write of the {which.lower()} host ended with {status_name(completion.status)}; other "
        "hosts have aborted a command of its CID on their own queue"
    )
    assert read_blocks(queue, scratch, blocks) == data, f"NVM 3.3.6: {blocks} blocks after their write"
