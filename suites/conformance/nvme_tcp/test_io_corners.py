"""Corners of I/O: a Copy that fails, the largest MAXR2T, a range without blocks, a protected namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, Rtype, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import ICReq
from storagetest.wire.nvme_tcp.queue import Terminated
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    REPLACE,
    ReservingHost,
    allowed,
    hold,
)
from storagetest.wire.nvme_tcp.session import connect_queue, open_queue

from .test_fabrics import HOSTID_0_SINCE
from .test_write_protection import Protection, protection

__all__ = ["protection"]  # the fixture

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

# Copy (NVM 3.3.2)


@pytest.mark.parametrize("blocks", [
    pytest.param((1, 1), marks=pytest.mark.case("NVB-COPY-FAILED-RANGE")),
    pytest.param((2, 1), marks=pytest.mark.case("NVB-COPY-FAILED-RANGE-OF-TWO")),
])  # fmt: skip
@pytest.mark.case(
    section="NVM 3.3.2",
    kills=("copy-failed-range-beyond", "copy-failed-range-last"),
    builds_on=("NVB-COPY-01",),
)
def test_a_copy_that_fails_states_the_first_range_that_is_not_copied(
    session: ControllerSession, queue: Queue, scratch: Scratch, blocks: tuple[int, int]
) -> None:
    """Dword 0 is the number of a range, and what the ranges before it have is copied; nothing: it is 0.

    The second and last range is past the end of the namespace.
    """
    if not session.controller["oncs"] >> ONCS_BITS[Io.COPY] & 1:
        pytest.skip("ONCS: Copy is not supported")
    data, count = session.namespace(scratch.nsid), sum(blocks)
    if not data["msrc"] or data["mssrl"] < max(blocks) or data["mcl"] < count:
        pytest.skip("MSRC, MSSRL or MCL: such ranges are over a limit")
    source = write_blocks(queue, scratch, blocks[0], 301)
    at = blocks[0]
    before = write_blocks(queue, scratch, count, 302, at=at)
    ranges = io.copy_ranges([(scratch.lba, blocks[0]), (scratch.end, blocks[1])])
    done = queue.run(io.copy(scratch.nsid, scratch.lba + at, 2), data=ranges)
    if done.ok:
        pytest.skip("a Copy from past the end is taken (NVB-COPY-02)")
    found = read_blocks(queue, scratch, count, at=at)
    number, size = done.cqe.dw0, blocks[0] * scratch.block_size
    assert number < 2, f"3.3.2: dword 0 of a Copy of two ranges that fails is {number:#x}: no range"
    if found == before:
        assert number == 0, f"3.3.2: dword 0 of a Copy that fails is {number}; nothing was copied, so it is 0"
    assert not number or found[:size] == source, (
        f"3.3.2: dword 0 of a Copy that fails is {number}, so range 0 was copied, which it was not"
    )


# R2T (NVMe/TCP 3.3.2.2)

LARGE = 65536
"""Bytes of a write that is over most capsules (chosen)."""


@pytest.mark.case("NVT-R2T-MOST", section="NVMe/TCP 3.3.2.2", kills=("maxr2t-overflows",))
def test_a_host_that_allows_the_most_r2ts_is_asked_for_data(
    session: ControllerSession, scratch: Scratch
) -> None:
    """MAXR2T is FFFFFFFFh, zero's based: 2^32 R2Ts. A controller may call it an unsupported parameter."""
    session.io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue")
    try:
        queue = session.io_queue(icreq=ICReq(maxr2t=0xFFFFFFFF))
    except Terminated:
        pytest.skip("MAXR2T of FFFFFFFFh is an unsupported parameter (NVT-ICREQ-MAXR2T-MAX)")
    blocks = min(scratch.blocks_of(LARGE), scratch.blocks)
    data = block_data(blocks * scratch.block_size, 305)
    done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    assert done.ok, f"3.3.2.2: a write with MAXR2T FFFFFFFFh ends with {status_name(done.status)}"
    assert read_blocks(queue, scratch, blocks) == data, "NVM 3.3.6: the blocks have other data"


# Dataset Management (NVM 3.3.3)


@pytest.mark.case("NVB-DSM-EMPTY", section="NVM 3.3.3", kills=("dsm-empty-is-one", "dsm-empty-is-rest"))
def test_a_range_without_blocks_deallocates_none(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Its length is 0. Whether the command succeeds is left open; all blocks have their data."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.DATASET_MANAGEMENT] & 1:
        pytest.skip("ONCS: Dataset Management is not supported")
    data = write_blocks(queue, scratch, scratch.blocks, 303)
    ranges = io.dsm_ranges([(scratch.lba + 1, 0)])
    done = queue.run(io.dataset_management(scratch.nsid, 1), data=ranges)
    assert read_blocks(queue, scratch, scratch.blocks) == data, (
        "3.3.3: a Dataset Management command whose one range has 0 blocks has deallocated others; it ended "
        f"with {status_name(done.status)}"
    )


# Reservations of a write protected namespace (Base 8.1.16)


@pytest.mark.case(
    "NVR-PROTECTED",
    section="Base 5.2.26.1.35",
    kills=("protected-reservations",),
    builds_on=(*HOLDING, "NVA-PROTECT-STATE"),
)
def test_a_protected_namespace_is_reserved(
    hosts: tuple[ReservingHost, ReservingHost], protection: Protection
) -> None:
    """Reservation commands write no block: each of the four is carried out, and the state holds."""
    first, second = hosts
    if first.nsid != protection.nsid:
        pytest.skip("the namespace of the hosts is another one")
    rtype = first.types[0]
    protection.protect()
    hold(first, rtype)
    allowed(second.register())
    found = first.report()
    assert (found.rtype, len(found.registrants)) == (rtype, 2), (
        f"7.8: the report of a write protected namespace has type {found.rtype} and {len(found.registrants)} "
        f"registrants; type {int(rtype)} and 2 were made"
    )
    allowed(first.register(REPLACE, current=first.key, new=0xA2))
    first.key = 0xA2
    allowed(first.release(rtype))
    allowed(first.release(rtype, CLEAR))
    assert not first.report().registrants, "8.1.24.8: a Clear of a protected namespace leaves registrants"


# The host of an I/O queue (Base 6.3)


@pytest.mark.case(
    "NVR-QUEUES-HOSTID-0",
    section="Base 6.3",
    kills=("hostid-0-is-a-host",),
    builds_on=(*HOLDING, "NVF-CONNECT-HOSTID-0"),
)
def test_an_io_queue_without_a_host_identifier_is_its_controllers_host(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    """A Host Identifier of 0h is ignored: the holder writes on the queue, and another host does not."""
    first, _ = hosts
    if first.session.controller["ver"] < HOSTID_0_SINCE:
        pytest.skip("VER: a Host Identifier of 0h is not defined before 2.1")
    queues = [_without_hostid(host.session) for host in hosts]
    hold(first, first.types[0])
    own, other = (replace(host, queue=queue) for host, queue in zip(hosts, queues, strict=True))
    done = own.write()
    assert done.ok, (
        "6.3: a write of the holder on an I/O queue whose Connect has Host Identifier 0h ends with "
        f"{status_name(done.status)}"
    )
    done = other.write()
    assert not done.ok, (
        "8.1.24.1: a write of another host on an I/O queue whose Connect has Host Identifier 0h succeeds "
        f"under a reservation of type {Rtype(first.types[0])}"
    )


def _without_hostid(session: ControllerSession) -> Queue:
    """Connect I/O queue 2 with Host Identifier 0h."""
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue")
    queue = open_queue(session.endpoint, session.icreq, name="I/O queue without a host", note=session.note)
    session.io_queues.append(queue)
    done = connect_queue(
        queue,
        subnqn=session.endpoint.subnqn,
        identity=replace(session.identity, hostid=bytes(16)),
        qid=2,
        sqsize=min(31, session.cap.mqes),
        cntlid=session.cntlid,
    )
    assert done.ok, f"6.3: Connect with Host Identifier 0h ends with {status_name(done.status)}"
    queue.in_capsule_limit = session.controller.in_capsule_limit
    return queue
