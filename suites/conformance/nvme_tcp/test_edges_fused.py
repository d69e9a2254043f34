"""Fused Compare and Write at its edges: other halves, ranges, queues, reservations (Base 3.4.2)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost, hold

from .test_fused import FIRST, FUSES, SECOND

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.4.2", builds_on=("NVB-FUSED-EQUAL",)),
]

ACWU = slice(532, 534)
"""Bytes of Identify Controller: the blocks, zero's based, that a fused operation may have (5.2.13.2.1)."""

ROUNDS = 8
"""Operations of each queue in a case of two queues (chosen)."""

PAUSE = 0.02
"""Seconds between the first and the second halves there, in which the first ones come (chosen)."""

LEADS = (0.0, 0.1, 0.5)
"""Seconds that a command has had to come, in each attempt to abort it (chosen)."""

AT_ONCE = 3
"""Commands that are outstanding at once in a case."""


def fusing_queue(session: ControllerSession, scratch: Scratch, *, sqsize: int = 31) -> Queue:
    """Return an I/O queue of a controller that supports fused Compare and Write; skip if it does not."""
    if not session.controller.raw[FUSES] & 1:
        pytest.skip("FUSES bit 0: no fused Compare and Write")
    if scratch.limits.outstanding < AT_ONCE:
        pytest.skip(f"the queue takes fewer than {AT_ONCE} commands at once")
    return session.io_queue(sqsize=sqsize)


@pytest.fixture
def fusing(session: ControllerSession, scratch: Scratch) -> Queue:
    """Return an I/O queue for fused operations."""
    return fusing_queue(session, scratch)


def first(scratch: Scratch, blocks: int = 1, *, lba: int | None = None) -> Command:
    """Return the Compare of a fused operation."""
    return replace(io.compare(scratch.nsid, scratch.lba if lba is None else lba, blocks), flags=FIRST)


def second(scratch: Scratch, blocks: int = 1, *, lba: int | None = None) -> Command:
    """Return the Write of a fused operation."""
    return replace(io.write(scratch.nsid, scratch.lba if lba is None else lba, blocks), flags=SECOND)


def run_both(
    queue: Queue, halves: tuple[Command, Command], data: tuple[bytes, bytes]
) -> tuple[CommandResult, CommandResult]:
    """Submit two halves behind each other, and return how each of them ended."""
    cids = [queue.submit(half, data=part) for half, part in zip(halves, data, strict=True)]
    return queue.wait(cids[0]), queue.wait(cids[1])


@pytest.mark.case("NVB-FUSED-FIRST", kills=("fused-first-runs",))
def test_a_compare_without_its_write_is_aborted(fusing: Queue, scratch: Scratch) -> None:
    """A Read follows the first half; both end, and the next operation is carried out."""
    before, new = write_blocks(fusing, scratch, 1, 91), block_data(scratch.block_size, 92)
    half = fusing.submit(first(scratch), data=before)
    read = fusing.submit(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
    refused(fusing.wait(half), StatusCode.ABORTED_MISSING_FUSED)
    done = fusing.wait(read)
    assert done.ok, f"3.4.2: a Read behind a first half ended with {status_name(done.status)}"
    for done in run_both(fusing, (first(scratch), second(scratch)), (before, new)):
        assert done.ok, f"3.4.2: a half after an aborted one ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, 1) == new, "3.4.2: the Write after an aborted half was carried out"


@pytest.mark.case("NVB-FUSED-FIRST-TWICE", kills=("fused-first-forgotten",))
def test_a_compare_before_a_fused_operation_is_aborted(fusing: Queue, scratch: Scratch) -> None:
    """Two first halves, and a second one: the second belongs to the one before it."""
    before, new = write_blocks(fusing, scratch, 1, 93), block_data(scratch.block_size, 94)
    alone = fusing.submit(first(scratch), data=before)
    compare, write = run_both(fusing, (first(scratch), second(scratch)), (before, new))
    refused(fusing.wait(alone), StatusCode.ABORTED_MISSING_FUSED)
    for name, done in (("Compare", compare), ("Write", write)):
        assert done.ok, f"3.4.2: the {name} behind another first half ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, 1) == new, "3.4.2: the Write is fused with the Compare before it"


@pytest.mark.parametrize(("blocks", "at"), [
    pytest.param((1, 1), 1, marks=pytest.mark.case("NVB-FUSED-RANGE-LBA")),
    pytest.param((1, 2), 0, marks=pytest.mark.case("NVB-FUSED-RANGE-LONGER")),
    pytest.param((2, 1), 0, marks=pytest.mark.case("NVB-FUSED-RANGE-SHORTER")),
])  # fmt: skip
@pytest.mark.case(section="NVM 2.1.3.1", level="SHOULD", kills=("fused-any-range",))
def test_halves_of_different_blocks_are_aborted(
    fusing: Queue, scratch: Scratch, blocks: tuple[int, int], at: int
) -> None:
    """Both should end with Invalid Field, and no block is written."""
    if scratch.fit(2) < 2:
        pytest.skip("a transfer has one block")
    before = write_blocks(fusing, scratch, 3, 95)
    size = scratch.block_size
    halves = first(scratch, blocks[0]), second(scratch, blocks[1], lba=scratch.lba + at)
    ended = run_both(fusing, halves, (before[: blocks[0] * size], block_data(blocks[1] * size, 96)))
    assert read_blocks(fusing, scratch, 3) == before, (
        f"2.1.3.1: a Write of {blocks[1]} blocks, {at} behind the {blocks[0]} of its Compare, was carried out"
    )
    for done in ended:
        refused(done, StatusCode.INVALID_FIELD, StatusCode.ATOMIC_WRITE_UNIT_EXCEEDED)


@pytest.mark.case("NVB-FUSED-BLOCKS", kills=("fused-compares-first-block",), builds_on=("NVB-FUSED-OTHER",))
def test_every_block_is_compared(fusing: Queue, session: ControllerSession, scratch: Scratch) -> None:
    """Each block but one is equal. A controller may refuse more than ACWU + 1 blocks."""
    most = int.from_bytes(session.controller.raw[ACWU], "little") + 1
    count, size = scratch.fit(min(most, 4)), scratch.block_size
    if count < 2:
        pytest.skip("ACWU or MDTS: a fused operation has one block")
    before, new = write_blocks(fusing, scratch, count, 97), block_data(count * size, 98)
    for wrong in range(count):
        expected = bytearray(before)
        expected[(wrong + 1) * size - 1] ^= 1
        ended = run_both(fusing, (first(scratch, count), second(scratch, count)), (bytes(expected), new))
        assert read_blocks(fusing, scratch, count) == before, (
            f"3.4.2: block {wrong + 1} of {count} differs, but the Write was done"
        )
        refused(ended[0], StatusCode.COMPARE_FAILURE)
        refused(ended[1], StatusCode.ABORTED_FAILED_FUSED)
    for done in run_both(fusing, (first(scratch, count), second(scratch, count)), (before, new)):
        assert done.ok, f"3.4.2: {count} blocks are equal, but a half ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, count) == new, "3.4.2: the Write of several blocks was carried out"


@pytest.mark.case("NVB-FUSED-PAST-END", kills=("fused-write-unaborted",), builds_on=("NVB-FUSED-OTHER",))
def test_a_write_whose_compare_is_refused_is_aborted(fusing: Queue, scratch: Scratch) -> None:
    """The blocks are past the end of the namespace."""
    data, end = block_data(scratch.block_size, 99), scratch.end
    compare, write = run_both(fusing, (first(scratch, lba=end), second(scratch, lba=end)), (data, data))
    refused(compare, StatusCode.LBA_OUT_OF_RANGE)
    refused(write, StatusCode.ABORTED_FAILED_FUSED, StatusCode.LBA_OUT_OF_RANGE)


@pytest.mark.case("NVB-FUSED-QUEUES", kills=("fused-across-queues",), builds_on=("NVB-FUSED-OTHER",))
def test_each_queue_has_halves_of_its_own(session: ControllerSession, scratch: Scratch) -> None:
    """The halves of two queues come by turns; the Compare of one fails. In several rounds."""
    left = fusing_queue(session, scratch)
    if session.io_queues_granted < 2:
        pytest.skip("one I/O queue is granted")
    right, size, at = session.io_queue(), scratch.block_size, scratch.lba + 1
    current = write_blocks(left, scratch, 2, 101)
    for number in range(ROUNDS):
        new = block_data(2 * size, 150 + number)
        equal = left.submit(first(scratch), data=current[:size])
        other = right.submit(first(scratch, lba=at), data=new[size:])
        time.sleep(PAUSE)
        written = left.submit(second(scratch), data=new[:size])
        aborted = right.submit(second(scratch, lba=at), data=new[size:])
        for name, queue, cid in (("Write", left, written), ("Compare", left, equal)):
            done = queue.wait(cid)
            assert done.ok, f"3.4.2: the {name} between halves of another queue: {status_name(done.status)}"
        refused(right.wait(other), StatusCode.COMPARE_FAILURE)
        refused(right.wait(aborted), StatusCode.ABORTED_FAILED_FUSED)
        current = new[:size] + current[size:]
        assert read_blocks(left, scratch, 2) == current, (
            "3.4.2: of two operations on two queues, the one whose Compare succeeded is carried out"
        )


@pytest.mark.case("NVB-FUSED-WRAP", kills=("fused-wrap-lost",))
def test_halves_in_the_last_and_the_first_slot_are_fused(
    session: ControllerSession, scratch: Scratch
) -> None:
    """A queue of few entries. A single command between the rounds moves the halves by one slot."""
    queue = fusing_queue(session, scratch, sqsize=4)
    current = write_blocks(queue, scratch, 1, 103)
    for number in range(2 * (queue.sqsize or 4) + 4):
        new = block_data(scratch.block_size, 104 + number)
        for done in run_both(queue, (first(scratch), second(scratch)), (current, new)):
            assert done.ok, f"3.4.2: a half of operation {number + 1} ended with {status_name(done.status)}"
        current = new
        assert read_blocks(queue, scratch, 1) == current, f"3.4.2: the Write of operation {number + 1}"


@pytest.mark.case(
    "NVB-FUSED-CONFLICT",
    section="NVM 2.1.3.1, Base 8.1.24.1",
    kills=("fused-past-reservation",),
    builds_on=HOLDING,
)
def test_a_fused_write_is_excluded_by_a_reservation(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """The Compare is allowed, and succeeds: "its completion status is unaffected" by that of the Write."""
    holder, other = hosts
    queue = fusing_queue(other.session, other.scratch)
    before = write_blocks(queue, other.scratch, 1, 121)
    hold(holder, Rtype.WRITE_EXCLUSIVE)
    new = block_data(other.scratch.block_size, 122)
    compare, write = run_both(queue, (first(other.scratch), second(other.scratch)), (before, new))
    assert read_blocks(queue, other.scratch, 1) == before, (
        "8.1.24.1: another host holds Write Exclusive, but a fused Write was carried out"
    )
    refused(write, StatusCode.RESERVATION_CONFLICT)
    assert compare.ok, (
        f"2.1.3.1: its Write does not affect the status of a Compare, which is {status_name(compare.status)}"
    )


@pytest.mark.case("NVB-FUSED-ABORT", section="Base 5.2.1.2", kills=("fused-abort-internal",))
def test_a_half_that_is_aborted_is_completed_as_aborted(
    session: ControllerSession, fusing: Queue, scratch: Scratch
) -> None:
    """The Compare, which waits for its Write. If it is not aborted, both are carried out.

    The Abort is sent on another connection, and may come before the Compare: later attempts leave it time.
    """
    current = write_blocks(fusing, scratch, 1, 961)
    for seed, pause in enumerate(LEADS, start=962):
        compare = fusing.submit(first(scratch), data=current)
        time.sleep(pause)
        done = session.admin.run(admin.abort(sqid=fusing.qid, cid=compare))
        if done.ok and not done.cqe.dw0 & 1:
            status = fusing.wait(compare).status
            assert status == StatusCode.ABORTED_BY_REQUEST, (
                f"5.2.1.2: Abort states that it has aborted a Compare of a fused operation, which ended with "
                f"{status_name(status)}"
            )
            return
        new = block_data(scratch.block_size, seed)
        write = fusing.submit(second(scratch), data=new)
        for half in (compare, write):
            assert fusing.wait(half).ok, "5.2.1: a fused operation whose Compare was not aborted"
        current = read_blocks(fusing, scratch, 1)
        assert current == new, "3.4.2: the Write of a fused operation that succeeded"
