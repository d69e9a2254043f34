"""Reads of every namespace: past its own end, and in flight together with those of others (Base 3.2.1)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, is_within_reach, write_blocks

from .test_block_options import mark
from .test_namespaces import MOST

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.2.1")]

IN_FLIGHT = 16
"""Reads that are sent at once (chosen)."""


@pytest.mark.parametrize(("before", "blocks"), [
    pytest.param(0, 1, marks=pytest.mark.case("NVB-NS-AT-END")),
    pytest.param(1, 2, marks=pytest.mark.case("NVB-NS-ACROSS-END")),
])  # fmt: skip
@pytest.mark.case(
    section="NVM 3.3.4", kills=("end-of-first-namespace",), builds_on=("NVB-NS-READ", "NVB-READ-AT-END")
)
def test_a_read_past_the_end_of_each_namespace_is_refused(
    session: ControllerSession, queue: Queue, before: int, blocks: int
) -> None:
    """The end is that of the namespace which the read names. Which status that has is NVB-READ-AT-END's."""
    for nsid in session.namespaces()[:MOST]:
        data = session.namespace(nsid)
        size, end = data.block_size, data["nsze"]
        if end < 2 or not queue.run(io.read(nsid, end - 1, 1), reads=size).ok:
            continue
        done = queue.run(io.read(nsid, end - before, blocks), reads=blocks * size)
        assert not done.ok, (
            f"NVM 3.3.4: NSID {nsid} has {end} blocks, but a read of {blocks} from {end - before} succeeds"
        )


@pytest.mark.case(
    "NVB-NS-TOGETHER", kills=("namespace-of-busy-queue",), builds_on=("NVB-NS-READ", "NVB-RW-01")
)
def test_reads_of_several_namespaces_in_flight_have_each_its_own_data(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Each read, sent together with the others in both orders, returns what it returns alone."""
    nsids = session.namespaces()[: min(MOST, scratch.limits.outstanding)]
    places = {scratch.nsid: (scratch.lba, scratch.block_size)}
    for nsid in [nsid for nsid in nsids if nsid != scratch.nsid][: scratch.limits.outstanding - 1]:
        data = session.namespace(nsid)
        lba = min(scratch.lba, data["nsze"] - 1)
        if is_within_reach(session, queue, nsid, lba):
            places[nsid] = (lba, data.block_size)
    if len(places) < 2:
        pytest.skip("no other namespace is read, or the queue takes one command")
    write_blocks(queue, scratch, 1, 911)

    def submit(nsid: int) -> int:
        lba, size = places[nsid]
        return queue.submit(io.read(nsid, lba, 1), reads=size)

    alone = {nsid: {queue.wait(submit(nsid)).data} for nsid in places}
    for turn in (list(places), list(places)[::-1]):
        order = (turn * IN_FLIGHT)[: min(IN_FLIGHT, scratch.limits.outstanding)]
        done = [(nsid, queue.wait(cid)) for nsid, cid in [(nsid, submit(nsid)) for nsid in order]]
        for nsid in places:
            alone[nsid].add(queue.wait(submit(nsid)).data)
        for number, (nsid, one) in enumerate(done, start=1):
            assert one.ok, f"3.2.1: a read of NSID {nsid} ended with {status_name(one.status)}"
            assert one.data in alone[nsid], (
                f"3.2.1: read {number} of {len(order)} that were sent at once is of NSID {nsid}, but returns "
                f"{one.data[:16].hex()}, which no read of it returns alone"
            )


@pytest.mark.parametrize("opcode", [
    pytest.param(Io.READ, marks=pytest.mark.case("NVB-NS-MARK-READ", kills=("mark-of-all-namespaces",))),
    pytest.param(Io.VERIFY, marks=pytest.mark.case(
        "NVB-NS-MARK-VERIFY", kills=("verify-of-first-namespace",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("NVB-NS-READ", "NVB-UNC-01"))
def test_a_mark_of_one_namespace_is_in_no_other(
    session: ControllerSession, queue: Queue, scratch: Scratch, opcode: Io
) -> None:
    """Nothing is written to the others: a block that is read or verified before the mark is so after it."""
    for needed in (Io.WRITE_UNCORRECTABLE, opcode):
        if needed in ONCS_BITS and not session.controller["oncs"] >> ONCS_BITS[needed] & 1:
            pytest.skip(f"ONCS: {needed.name} is not supported")
    others = [nsid for nsid in session.namespaces()[:MOST] if nsid != scratch.nsid]
    if not others:
        pytest.skip("the subsystem has one namespace")

    def status(nsid: int) -> int:
        data = session.namespace(nsid)
        lba = min(scratch.lba, data["nsze"] - 1)
        if opcode == Io.VERIFY:
            return queue.run(io.verify(nsid, lba, 1)).status
        return queue.run(io.read(nsid, lba, 1), reads=data.block_size).status

    write_blocks(queue, scratch, 1, 912)
    before = {nsid: status(nsid) for nsid in others}
    mark(queue, scratch, 0, 1)
    try:
        for nsid in others:
            after = status(nsid)
            assert before[nsid] or not after, (
                f"3.2.1: after Write Uncorrectable of NSID {scratch.nsid} a {opcode.name} of NSID {nsid} "
                f"ends with {status_name(after)}, and before it with {status_name(before[nsid])}"
            )
    finally:
        write_blocks(queue, scratch, 1, 913)
