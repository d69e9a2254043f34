"""Transfers that cross: each one's data are its own, whatever numbers others on the target have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, H2CData

from .test_pending_writes import asked_for, complete, pending

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.2.2", builds_on=("NVB-RW-01",)),
]

ROUNDS = 4
"""Times that two transfers cross (chosen)."""
CID = 0x0777
"""The Command Identifier of both commands (chosen)."""


@dataclass(frozen=True, slots=True)
class Half:
    """A write that waits, of which one H2CData with the first half of the data may be sent alone."""

    queue: Queue
    r2t: R2T
    data: bytes

    @property
    def middle(self) -> int:
        """Bytes of the first half."""
        return min(self.r2t.length, self.queue.icresp.maxh2cdata) // 8 * 4

    def begin(self) -> None:
        """Send the first half."""
        self.queue.send(H2CData(self.r2t.cccid, self.r2t.ttag, 0, self.data[: self.middle], last=False))

    def end(self) -> None:
        """Send all that is left, and receive the completion."""
        left = replace(self.r2t, offset=self.middle, length=self.r2t.length - self.middle)
        done = complete(self.queue, left, self.data)
        assert done.ok, (
            f"NVM 3.3.6: a write whose data crossed another's ended with {status_name(done.status)}"
        )


def _two(session: ControllerSession, bench: Harness, where: str) -> tuple[Queue, Queue]:
    """Return an I/O queue, and a second one of the same controller or of another host's."""
    first = session.io_queue()
    if where != "queue":
        return first, bench.session(name="another host").io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    return first, session.io_queue()


def _places(name: str, *mutants: str) -> pytest.MarkDecorator:
    """One case of two queues of a controller, and one of two controllers."""
    return pytest.mark.parametrize("where", [
        pytest.param("queue", marks=pytest.mark.case(f"{name}-QUEUE", kills=mutants)),
        pytest.param("controller", marks=pytest.mark.case(f"{name}-CONTROLLER", kills=mutants)),
    ])  # fmt: skip


@_places("NVB-CROSSED", "crossed-writes-torn")
@pytest.mark.case(section="NVM 2.1.4.2")
def test_two_writes_of_a_block_that_cross_leave_the_data_of_one(
    session: ControllerSession, bench: Harness, scratch: Scratch, where: str
) -> None:
    """A write of one block is atomic: the data come in halves, by turns, and the block is one of the two."""
    queues = _two(session, bench, where)
    for turn in range(ROUNDS):
        writes = [
            Half(queue, pending(queue, scratch, data), data)
            for number, queue in enumerate(queues)
            for data in (block_data(scratch.block_size, 1700 + 2 * turn + number),)
        ]
        for write in writes:
            write.begin()
        order = writes if turn % 2 else writes[::-1]
        for write in order:
            write.end()
        for number, queue in enumerate(queues, 1):
            found = read_blocks(queue, scratch, 1)
            assert found in [one.data for one in writes], (
                f"2.1.4.2: two writes of a block crossed, in turn {turn + 1}, and queue {number} reads "
                "neither the data of the one nor of the other; a write of one block is atomic"
            )


def _asked_blocks(queue: Queue, scratch: Scratch) -> int:
    """Return the blocks of a write that no capsule holds, so that its data are asked for."""
    return min(scratch.blocks_of(queue.in_capsule_limit + 1), scratch.blocks // 2)


def _in_turn(writes: Sequence[Half]) -> None:
    for write in writes:
        write.begin()
    for write in writes:
        write.end()


@_places("NVT-CID-BOTH", "cid-of-both-queues")
@pytest.mark.case(section="Base 4.1.1")
def test_a_cid_of_two_queues_names_a_command_of_each(
    session: ControllerSession, bench: Harness, scratch: Scratch, where: str
) -> None:
    """Writes, and then reads, of two blocks by one CID: outstanding on two queues at the same time."""
    queues = _two(session, bench, where)
    blocks = _asked_blocks(queues[0], scratch)
    size = blocks * scratch.block_size
    for turn in range(ROUNDS):
        writes = []
        for number, queue in enumerate(queues):
            data = block_data(size, 1720 + 2 * turn + number)
            command = replace(io.write(scratch.nsid, scratch.lba + number * blocks, blocks), cid=CID + turn)
            writes.append(Half(queue, asked_for(queue, command, data), data))
        _in_turn(writes if turn % 2 else writes[::-1])
        for number, queue in enumerate(queues):
            command = io.read(scratch.nsid, scratch.lba + number * blocks, blocks)
            queue.submit(replace(command, cid=CID - 1 - turn), reads=size)
        for number, queue in enumerate(queues):
            done = queue.wait(CID - 1 - turn)
            assert (done.ok, done.data) == (True, writes[number].data), (
                f"4.1.1: blocks were written and read by a CID that was outstanding on the other {where} "
                f"too, and have other data (or read {number + 1} ended with {status_name(done.status)})"
            )


@_places("NVT-TTAG-OF", "ttag-of-any-queue")
def test_the_tag_of_another_connection_is_none_of_this(
    session: ControllerSession, bench: Harness, scratch: Scratch, where: str
) -> None:
    """H2CData for a write that waits, sent on another connection, which has none that waits."""
    first, second = _two(session, bench, where)
    blocks = _asked_blocks(first, scratch)
    write_blocks(second, scratch, 1, 1741)
    data = block_data(blocks * scratch.block_size, 1742)
    write = Half(first, pending(first, scratch, data), data)
    stray = block_data(write.middle, 1743)
    second.send(H2CData(write.r2t.cccid, write.r2t.ttag, 0, stray, last=False))
    ending = second.wait_for_close()
    assert ending.ended, (
        f"3.3.2.2: TTAG {write.r2t.ttag:#x} is of no R2T of this connection, but of another {where}; "
        f"H2CData with it are a fatal transport error: {ending}"
    )
    assert not any(isinstance(one.pdu, CapsuleResp) for one in ending.before), f"3.3.2.2: {ending}"
    if where == "queue":  # a fatal error of a queue may end its controller
        return
    write.begin()
    write.end()
    assert read_blocks(first, scratch, blocks) == data, (
        "3.3.2.2: H2CData that another connection sent became data of the write"
    )
