"""I/O queues without SQ flow control: commands fail there as elsewhere, and transfers are whole.

A controller may complete a read by its data alone (NVMe/TCP 3.3.2.1), but no command that has failed.
"""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import ICReq

from .test_other_sides import NO_FLOW_CONTROL

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.2.1", builds_on=("NVB-RW-01",)),
]

SIZES = (1, 2, 7, 16, 33, 64)
"""Blocks of a transfer, as far as the limits allow them (chosen)."""

READS = 8
"""Reads that are outstanding together, at most (chosen)."""


@pytest.fixture
def unchecked(session: ControllerSession) -> Queue:
    """Return an I/O queue whose SQ flow control is disabled."""
    queue = session.io_queue(cattr=NO_FLOW_CONTROL)
    if queue.sq_flow_control:
        pytest.skip("the controller does not disable SQ flow control")
    return queue


@pytest.mark.case("NVT-NO-FLOW-PAST-END", kills=("no-flow-never-fails",), builds_on=("NVB-READ-AT-END",))
def test_a_read_past_the_end_fails_without_flow_control(unchecked: Queue, scratch: Scratch) -> None:
    done = unchecked.run(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    assert not done.ok, "NVM 3.3.4: a read past the end succeeds on a queue without SQ flow control"


@pytest.mark.case("NVT-NO-FLOW-COMPARE", kills=("no-flow-never-fails",), builds_on=("NVB-COMPARE-02",))
def test_a_compare_fails_without_flow_control(
    session: ControllerSession, unchecked: Queue, scratch: Scratch
) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[Io.COMPARE] & 1:
        pytest.skip("ONCS: Compare is not supported")
    data = bytearray(write_blocks(unchecked, scratch, 1, 321))
    data[-1] ^= 1
    done = unchecked.run(io.compare(scratch.nsid, scratch.lba, 1), data=bytes(data))
    assert done.status == StatusCode.COMPARE_FAILURE, (
        f"NVM 3.3.1: a Compare of data that differ ends with {status_name(done.status)} on a queue without "
        "SQ flow control"
    )


@pytest.mark.case("NVT-NO-FLOW-MARKED", kills=("no-flow-never-fails",), builds_on=("NVB-UNC-01",))
def test_a_marked_block_is_not_read_without_flow_control(
    session: ControllerSession, unchecked: Queue, scratch: Scratch
) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[Io.WRITE_UNCORRECTABLE] & 1:
        pytest.skip("ONCS: Write Uncorrectable is not supported")
    write_blocks(unchecked, scratch, 1, 322)
    lba = scratch.lba
    command = Command(Io.WRITE_UNCORRECTABLE, nsid=scratch.nsid, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32)
    marked = unchecked.run(command)
    done = unchecked.run(io.read(scratch.nsid, lba, 1), reads=scratch.block_size)
    write_blocks(unchecked, scratch, 1, 323)
    assert marked.ok, f"NVM 3.3.7: Write Uncorrectable ends with {status_name(marked.status)}"
    assert not done.ok, "NVM 3.3.7: a marked block is read on a queue without SQ flow control"


@pytest.mark.case("NVT-NO-FLOW-SIZES", kills=("no-flow-write-lost", "no-flow-read-short"))
def test_transfers_of_each_size_are_whole_without_flow_control(
    session: ControllerSession, unchecked: Queue, scratch: Scratch
) -> None:
    """Each is written and read on that queue, and read on another one, if there may be two."""
    _transfers(session, unchecked, scratch)


@pytest.mark.case("NVT-NO-FLOW-SIZES-HD", kills=("no-flow-digest-wrong",), builds_on=("NVT-NO-FLOW-SIZES",))
def test_transfers_of_each_size_are_whole_without_flow_control_with_digests(
    session: ControllerSession, scratch: Scratch
) -> None:
    """A C2HData that completes its command has its digests as any other."""
    icreq = ICReq(header_digest=True, data_digest=True)
    queue = session.io_queue(icreq=icreq, cattr=NO_FLOW_CONTROL)
    if queue.sq_flow_control or not queue.digests.data:
        pytest.skip("the controller has no data digests, or does not disable SQ flow control")
    _transfers(session, queue, scratch)


def _transfers(session: ControllerSession, unchecked: Queue, scratch: Scratch) -> None:
    """Write transfers of each size on the queue, and read them there and on another queue."""
    readers = {"that queue": unchecked}
    if session.io_queues_granted > 1:
        readers["another queue"] = session.io_queue()
    for number, wanted in enumerate(SIZES):
        blocks = min(scratch.fit(wanted), scratch.blocks)
        data = block_data(blocks * scratch.block_size, 330 + number)
        done = unchecked.run(io.write(scratch.nsid, scratch.lba, blocks), data=data)
        assert done.ok, f"NVM 3.3.6: a write of {blocks} blocks ended with {status_name(done.status)}"
        for which, reader in readers.items():
            found = read_blocks(reader, scratch, blocks)
            assert found == data, (
                f"NVM 3.3.6: {blocks} blocks that were written on a queue without SQ flow control are others "
                f"when {which} reads them"
            )


@pytest.mark.case("NVT-NO-FLOW-TOGETHER", kills=("no-flow-reads-mixed",))
def test_reads_together_have_each_its_data_without_flow_control(unchecked: Queue, scratch: Scratch) -> None:
    count = min(READS, scratch.limits.outstanding, scratch.blocks)
    if count < 2:
        pytest.skip("MQES or MAXCMD: one command at a time")
    size, data = scratch.block_size, write_blocks(unchecked, scratch, count, 340)
    cids = [unchecked.submit(io.read(scratch.nsid, scratch.lba + at, 1), reads=size) for at in range(count)]
    for at, cid in enumerate(cids):
        done = unchecked.wait(cid)
        assert done.ok, f"NVM 3.3.4: read {at + 1} of {count} ended with {status_name(done.status)}"
        assert done.data == data[at * size : (at + 1) * size], (
            f"NVM 3.3.4: read {at + 1} of {count} that are outstanding together has other data"
        )
