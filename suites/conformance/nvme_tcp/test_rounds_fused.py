"""Fused operations in direct succession, and several at the same time (Base 3.4.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import StatusCode, status_name
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks

from .test_fused import FIRST, SECOND, fusing

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.4.2", builds_on=("NVB-FUSED-EQUAL", "NVB-FUSED-OTHER")),
]

__all__ = ["fusing"]

Inside = tuple[bool | None, bool | None]
"""Of each half whether its data are in the capsule; None: if they fit."""

ROUNDS = 140
"""Operations in direct succession: each place of a controller's commands is used again (chosen)."""

MOST = 4
"""Operations that are outstanding at the same time (chosen)."""

LATE: dict[str, Inside] = {
    "compare": (False, True),
    "write": (True, False),
    "both": (False, False),
}


def _submit(
    queue: Queue, scratch: Scratch, number: int, halves: tuple[bytes, bytes], inside: Inside
) -> tuple[int, int]:
    """Submit both halves of an operation on a block, one directly behind the other."""
    lba = scratch.lba + number
    compare = replace(io.compare(scratch.nsid, lba, 1), flags=FIRST)
    write = replace(io.write(scratch.nsid, lba, 1), flags=SECOND)
    first = queue.submit(compare, data=halves[0], inside=inside[0])
    return first, queue.submit(write, data=halves[1], inside=inside[1])


def _need_capsule(queue: Queue, scratch: Scratch, inside: Inside) -> None:
    if True in inside and queue.in_capsule_limit < scratch.block_size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data")


@pytest.mark.parametrize("late", [
    pytest.param(late, marks=pytest.mark.case(f"NVB-FUSED-ROUNDS-{late.upper()}"))
    for late in LATE
])  # fmt: skip
@pytest.mark.case(kills=("fused-fails-after-r2t",))
def test_operations_directly_behind_each_other_are_carried_out(
    fusing: Queue, scratch: Scratch, late: str
) -> None:
    """By turns the data of a half are asked for by R2T, and are in the capsule if they fit."""
    _need_capsule(fusing, scratch, LATE[late])
    current = write_blocks(fusing, scratch, 1, 2231)
    for turn in range(ROUNDS):
        new = block_data(scratch.block_size, 2232 + turn)
        inside = (None, None) if turn % 2 else LATE[late]
        for cid in _submit(fusing, scratch, 0, (current, new), inside):
            done = fusing.wait(cid)
            assert done.ok, (
                f"3.4.2: the blocks are equal, but in operation {turn + 1} of {ROUNDS} a half ended with "
                f"{status_name(done.status)}; data that come later, by turns: {late}"
            )
        current = new
    assert read_blocks(fusing, scratch, 1) == current, "3.4.2: the last Write was not carried out"


@pytest.mark.case("NVB-FUSED-TOGETHER-NEITHER", kills=("fused-write-lost",))
def test_operations_that_are_outstanding_together_end_each_by_itself(fusing: Queue, scratch: Scratch) -> None:
    """Each operation has a block of its own, and the block of one differs."""
    count = min(MOST, scratch.limits.outstanding // 2, scratch.blocks)
    if count < 2:
        pytest.skip("the queue takes one operation at a time")
    size = scratch.block_size
    for differs in range(count):
        before = write_blocks(fusing, scratch, count, 2251 + differs)
        new = block_data(count * size, 2261 + differs)
        pieces = [(before[at : at + size], new[at : at + size]) for at in range(0, count * size, size)]
        pieces[differs] = (pieces[differs][1], pieces[differs][1])
        cids = [_submit(fusing, scratch, n, halves, (None, None)) for n, halves in enumerate(pieces)]
        done = [(fusing.wait(first), fusing.wait(second)) for first, second in cids]
        what = f"{count} operations were outstanding, and block {differs} alone differs"
        for number, (compare, write) in enumerate(done):
            if number == differs:
                refused(compare, StatusCode.COMPARE_FAILURE)
                refused(write, StatusCode.ABORTED_FAILED_FUSED)
                continue
            assert (compare.ok, write.ok) == (True, True), (
                f"3.4.2: {what}; the halves of operation {number} ended with {status_name(compare.status)} "
                f"and {status_name(write.status)}"
            )
        found = read_blocks(fusing, scratch, count)
        wanted = new[: differs * size] + before[differs * size : (differs + 1) * size]
        wanted += new[(differs + 1) * size :]
        assert found == wanted, f"3.4.2: {what}; the blocks have not what the other Writes have written"
