"""Many commands at once: the depth of a queue, transfer tags, and reads after each kind of change."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storagetest.wire.nvme import fabrics, io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, Property, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, H2CData, ICReq
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.3.3.1")]

MOST = 128
"""Commands that a case has outstanding at most (chosen)."""

UNREAD = 16 << 20
"""Bytes of data that wait in a controller, if its limits allow as many: more than the buffers of a TCP
connection hold (chosen)."""

PAUSE = 1.5
"""Seconds in which the host reads nothing (chosen)."""

TRANSFERS = 257
"""Transfers (R2Ts) of a case: more than a tag of 8 bits can number."""


def _asked_for(queue: Queue, scratch: Scratch) -> int:
    """Return the blocks of a write that a capsule does not hold, so that the controller asks for its data."""
    return scratch.blocks_of(queue.in_capsule_limit + 1)


# Depth (Base 3.3.3.1): SQSIZE + 1 entries, of which one stays empty


@pytest.mark.case("NVT-DEPTH-IO", kills=("depth-halved",))
def test_an_io_queue_serves_as_many_commands_as_it_has_room_for(
    session: ControllerSession, scratch: Scratch
) -> None:
    count = min(scratch.limits.outstanding, MOST)
    queue = session.io_queue(sqsize=count)
    blocks = _asked_for(queue, scratch)
    data = block_data(blocks * scratch.block_size, 91)
    command = io.write(scratch.nsid, scratch.lba, blocks)
    # By R2T, so that all are outstanding until this host sends data.
    cids = [queue.submit(command, data=data, inside=False) for _ in range(count)]
    for number, cid in enumerate(cids):
        done = queue.wait(cid)
        assert done.ok, (
            f"3.3.3.1: write {number + 1} of {count} outstanding ended with {status_name(done.status)}; "
            f"SQSIZE is {count}"
        )
    assert read_blocks(queue, scratch, blocks) == data, f"3.3.6: data of {count} writes at once"


@pytest.mark.parametrize("digests", [
    pytest.param(False, marks=pytest.mark.case("NVT-DEPTH-UNREAD")),
    pytest.param(True, marks=pytest.mark.case("NVT-DEPTH-UNREAD-DIGESTS")),
])  # fmt: skip
@pytest.mark.case(section="TCP 3.3.2.1", kills=("unread-byte-lost",), builds_on=("NVT-DEPTH-IO",))
def test_data_that_wait_for_a_slow_host_are_whole(
    session: ControllerSession, queue: Queue, scratch: Scratch, digests: bool
) -> None:
    """The data of all reads are more than the connection takes while the host reads nothing of it."""
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    depth = min(scratch.limits.outstanding, MOST)
    most = scratch.blocks_of(UNREAD // depth)
    data, size = write_blocks(queue, scratch, most, 97), scratch.block_size
    icreq = ICReq(header_digest=digests, data_digest=digests)
    slow = session.io_queue(sqsize=depth, icreq=icreq)
    counts = [max(1, most - number) for number in range(depth)]
    reads = [slow.submit(io.read(scratch.nsid, scratch.lba, one), reads=one * size) for one in counts]
    time.sleep(PAUSE)
    for number, (cid, count) in enumerate(zip(reads, counts, strict=True), 1):
        done = slow.wait(cid)
        assert done.ok, f"read {number} of {depth} whose data waited ended with {status_name(done.status)}"
        assert done.data == data[: count * size], (
            f"3.3.2.1: read {number} of {depth} whose data waited has {len(done.data)} bytes of "
            f"{count * size}, and they are not those that were written"
        )


@pytest.mark.case("NVT-DEPTH-ADMIN", kills=("depth-admin-halved",))
def test_the_admin_queue_serves_as_many_commands_as_it_has_room_for(session: ControllerSession) -> None:
    queue = session.admin
    count = min(queue.sqsize or 1, MOST)
    cids = [queue.submit(fabrics.property_get(Property.CSTS)) for _ in range(count)]
    for number, cid in enumerate(cids):
        done = queue.wait(cid)
        assert done.ok, (
            f"3.3.3.1: command {number + 1} of {count} outstanding ended with {status_name(done.status)}"
        )


# Transfer tags (NVMe/TCP 3.3.2.2, 3.6.2.10)


def _tags(done: CommandResult) -> list[int]:
    return [received.pdu.ttag for received in done.pdus if isinstance(received.pdu, R2T)]


@pytest.mark.case("NVT-TTAG-DONE", section="NVMe/TCP 3.3.2.2", kills=("ttag-finished-taken",))
def test_data_of_a_command_that_is_complete_are_fatal(bench: Harness, queue: Queue, scratch: Scratch) -> None:
    blocks = _asked_for(queue, scratch)
    data = block_data(blocks * scratch.block_size, 92)
    cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    done = queue.wait(cid)
    assert done.ok, f"3.3.6: a write ended with {status_name(done.status)}"
    tags, late = _tags(done), block_data(min(scratch.block_size, queue.icresp.maxh2cdata), 93)
    queue.send(H2CData(cid, tags[-1], 0, late, last=True))
    ending = queue.wait_for_close()
    assert ending.ended, f"3.3.2.2: TTAG {tags[-1]:#x} was of a command that is complete; but: {ending}"
    other = bench.session(name="another association").io_queue()
    assert read_blocks(other, scratch, blocks) == data, "3.3.2.2: data of no outstanding R2T were written"


@pytest.mark.case("NVT-TTAG-OTHER", section="NVMe/TCP 3.3.2.2", kills=("ttag-finished-other",))
def test_data_by_the_tag_of_a_command_that_is_complete_are_fatal(queue: Queue, scratch: Scratch) -> None:
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue has room for one command only")
    blocks = _asked_for(queue, scratch)
    data, command = (
        block_data(blocks * scratch.block_size, 94),
        io.write(scratch.nsid, scratch.lba, blocks),
    )
    held = queue.submit(command, data=data, inside=False)
    r2t = queue.receive().pdu  # held, so that its tag is not given again
    assert isinstance(r2t, R2T), f"3.3.2.2: not {r2t}"
    second = queue.submit(command, data=data, inside=False)
    try:
        done = queue.wait(second, deadline=min(1.0, queue.deadline))
    except ResponseTimeout:
        pytest.skip("the controller serves one write after the other")
    tags = _tags(done)
    if r2t.ttag in tags:
        pytest.skip("tags are of one command each, so none is of another")
    queue.forget(held)
    queue.send(H2CData(held, tags[-1], r2t.offset, data[: r2t.length], last=True))
    ending = queue.wait_for_close()
    assert ending.ended, f"3.3.2.2: TTAG {tags[-1]:#x} is of no outstanding R2T; but: {ending}"


@pytest.mark.case("NVT-TTAG-MANY", section="NVMe/TCP 3.6.2.10", kills=("ttag-wrap-loses",))
def test_data_of_many_transfers_arrive(queue: Queue, scratch: Scratch) -> None:
    blocks, at_once = _asked_for(queue, scratch), min(16, scratch.limits.outstanding, queue.sqsize or 1)
    command, number = io.write(scratch.nsid, scratch.lba, blocks), 0
    while number < TRANSFERS:
        data = block_data(blocks * scratch.block_size, 1000 + number)
        cids = [queue.submit(command, data=data, inside=False) for _ in range(at_once)]
        for done in map(queue.wait, cids):
            assert done.ok, f"3.3.2.2: a write ended with {status_name(done.status)}"
            number += len(_tags(done))
    assert read_blocks(queue, scratch, blocks) == data, (
        f"3.3.2.2: data of the last writes are others, after {number} transfers of a queue"
    )


# What a read returns (NVM 3.3.4): the last change, whichever queue made it, and whatever was read before


def _seen(reader: Queue, writer: Queue, scratch: Scratch, by: str) -> None:
    for round_ in range(3):
        data = write_blocks(writer, scratch, 2, 300 + round_)
        for which in ("at once", "again"):
            assert read_blocks(reader, scratch, 2) == data, (
                f"3.3.4: blocks that {by} has written are read {which} with their data of before"
            )


@pytest.mark.case("NVB-SEEN-QUEUE", section="NVM 3.3.4", kills=("cache-of-queue",))
def test_a_queue_reads_what_another_has_written_each_time(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    _seen(queue, session.io_queue(), scratch, "another queue")


@pytest.mark.case("NVB-SEEN-CONTROLLER", section="NVM 3.3.4", kills=("cache-of-queue",))
def test_a_controller_reads_what_another_has_written_each_time(
    queue: Queue, bench: Harness, scratch: Scratch
) -> None:
    _seen(queue, bench.session(name="another controller").io_queue(), scratch, "another controller")


SOURCE = 4
"""The block of the scratch that is copied."""

Change = Callable[[Queue, Scratch], bytes]
"""Changes the first block of the scratch and returns what it holds then."""


def _by_zeroes(queue: Queue, scratch: Scratch) -> bytes:
    done = queue.run(io.write_zeroes(scratch.nsid, scratch.lba, 1))
    assert done.ok, f"3.3.8: Write Zeroes ended with {status_name(done.status)}"
    return bytes(scratch.block_size)


def _by_copy(queue: Queue, scratch: Scratch) -> bytes:
    ranges = scratch.limits.copied([(scratch.lba + SOURCE, 1)])
    done = queue.run(io.copy(scratch.nsid, scratch.lba, 1), data=io.copy_ranges(ranges))
    assert done.ok, f"3.3.2: Copy ended with {status_name(done.status)}"
    return read_blocks(queue, scratch, 1, at=SOURCE)


@pytest.mark.parametrize(("opcode", "change"), [
    pytest.param(
        Io.WRITE_ZEROES, _by_zeroes, marks=pytest.mark.case("NVB-SEEN-ZEROES", kills=("cache-writes-only",))
    ),
    pytest.param(Io.COPY, _by_copy, marks=pytest.mark.case("NVB-SEEN-COPY", kills=("cache-writes-only",))),
])  # fmt: skip
@pytest.mark.case(section="NVM 3.3.4")
def test_a_read_returns_what_another_command_has_changed(
    session: ControllerSession, queue: Queue, scratch: Scratch, opcode: Io, change: Change
) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    write_blocks(queue, scratch, 1, 95, at=SOURCE)
    before = write_blocks(queue, scratch, 1, 96)
    assert read_blocks(queue, scratch, 1) == before, "3.3.4: a block that was written"
    after = change(queue, scratch)
    assert read_blocks(queue, scratch, 1) == after, (
        f"3.3.4: a block is read with its data of before {opcode.name}"
    )
