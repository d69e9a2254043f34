"""Blocks whose write has not got its data yet: they are old, or new, and nothing between (NVM 2.1.4)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, H2CData
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 2.1.4.2")]

SERVED = 2.0
"""Seconds in which a read is complete although a write of its block waits (chosen)."""


def pending(queue: Queue, scratch: Scratch, data: bytes) -> R2T:
    """Submit a write of ``data``, and return the R2T that asks for them."""
    return asked_for(queue, io.write(scratch.nsid, scratch.lba, len(data) // scratch.block_size), data)


def asked_for(queue: Queue, command: Command, data: bytes) -> R2T:
    """Submit a command without its ``data``, and return the R2T that asks for them."""
    cid = queue.submit(command, data=data, inside=False)
    received = queue.receive().pdu
    queue.forget(cid)
    assert isinstance(received, R2T), f"NVMe/TCP 3.3.2.2: not {received}"
    return received


def complete(queue: Queue, r2t: R2T, data: bytes) -> Cqe:
    """Send what ``r2t`` and those after it ask for; return the completion of the write."""
    while True:
        for piece in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            queue.send(piece)
        received = queue.receive().pdu
        if isinstance(received, CapsuleResp):
            return Cqe.decode(received.cqe)
        assert isinstance(received, R2T), f"NVMe/TCP 3.3.2.2: not {received}"
        r2t = received


def abort_pending(session: ControllerSession, queue: Queue, r2t: R2T, data: bytes) -> bool:
    """Abort the command that waits for its data; return whether it was aborted.

    If it was, it is completed as aborted; otherwise it is done when its data have come (Base 5.2.1.2).
    """
    done = session.admin.run(admin.abort(sqid=queue.qid, cid=r2t.cccid))
    if not done.ok or done.cqe.dw0 & 1:
        completion = complete(queue, r2t, data)
        assert completion.status in (StatusCode.SUCCESS, StatusCode.ABORTED_BY_REQUEST), (
            f"5.2.1: a command that was not aborted ended with {status_name(completion.status)}"
        )
        return not completion.ok
    try:
        received = queue.receive().pdu
    except ResponseTimeout:
        pytest.fail(
            f"5.2.1.2: Abort states that it has aborted command {r2t.cccid:#x}, which is not completed: "
            f"nothing came within {queue.deadline:g} s"
        )
    assert isinstance(received, CapsuleResp), f"5.2.1.2: {received} of a command that is reported as aborted"
    status = Cqe.decode(received.cqe).status
    assert status == StatusCode.ABORTED_BY_REQUEST, (
        f"5.2.1.2: Abort states that it has aborted command {r2t.cccid:#x}, which ended with "
        f"{status_name(status)}"
    )
    return True


@pytest.mark.parametrize("where", [
    pytest.param("its queue", marks=pytest.mark.case("NVB-PENDING-QUEUE")),
    pytest.param("another controller", marks=pytest.mark.case("NVB-PENDING-CONTROLLER")),
])  # fmt: skip
@pytest.mark.case(kills=("pending-write-clears",), builds_on=("NVB-RW-01",))
def test_a_block_is_old_until_the_data_of_its_write_come(
    bench: Harness, queue: Queue, scratch: Scratch, where: str
) -> None:
    """A write of one block is atomic: a read before its data are sent returns all of the old data."""
    reader = queue
    if where != "its queue":
        reader = bench.session(name=where).io_queue()
    elif scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command only")
    old, new = write_blocks(queue, scratch, 1, 901), block_data(scratch.block_size, 902)
    r2t = pending(queue, scratch, new)
    for turn in range(2):
        read = reader.submit(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
        try:
            done = reader.wait(read, deadline=min(SERVED, reader.deadline))
        except ResponseTimeout:
            pytest.skip("the controller lets reads of a block wait for a write of it")
        assert done.ok, f"NVM 3.3.4: a read ended with {status_name(done.status)} while a write waits"
        assert done.data == old, (
            f"2.1.4.2: read {turn + 1} of a block through {where}, while a write of it waits for its data, "
            "returns other data than the block has"
        )
    completion = complete(queue, r2t, new)
    assert completion.ok, f"NVM 3.3.6: the write ended with {status_name(completion.status)}"
    assert read_blocks(reader, scratch, 1) == new, "NVM 3.3.6: the block after its write"


@pytest.mark.case(
    "NVB-PENDING-TORN", section="NVM 2.1.4.3", kills=("pending-write-torn",), builds_on=("NVB-RW-01",)
)
def test_a_write_that_is_cut_off_leaves_no_part_of_a_block(
    bench: Harness, queue: Queue, scratch: Scratch
) -> None:
    """Half of a block's data is sent, and the connection closed: the block is all old, or all new."""
    old, new = write_blocks(queue, scratch, 1, 903), block_data(scratch.block_size, 904)
    r2t = pending(queue, scratch, new)
    half = min(r2t.length, queue.icresp.maxh2cdata, scratch.block_size) // 2
    queue.send(H2CData(r2t.cccid, r2t.ttag, 0, new[:half], last=False))
    queue.close()
    reader = bench.session(name="another controller").io_queue()
    for turn in range(2):
        found = read_blocks(reader, scratch, 1)
        assert found in (old, new), (
            f"2.1.4.3: read {turn + 1} of a block returns neither its old nor its new data; the connection "
            f"of its write was closed after {half} bytes"
        )
