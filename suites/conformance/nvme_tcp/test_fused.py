"""Fused Compare and Write (Base 3.4.2): both halves, or neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.4.2")]

FIRST, SECOND = 0x41, 0x42
"""FUSE 01b and 10b, with PSDT 01b (Base 4.1.1)."""

FUSES = 522
"""Offset of FUSES in Identify Controller; bit 0 is Compare and Write (5.2.13.2.1)."""


@pytest.fixture
def fusing(session: ControllerSession, scratch: Scratch) -> Queue:
    """Return an I/O queue of a controller that supports fused Compare and Write; skip if it does not."""
    if not session.controller.raw[FUSES] & 1:
        pytest.skip("FUSES bit 0: no fused Compare and Write")
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue has room for one command only")
    return session.io_queue()


def _compare_and_write(
    queue: Queue,
    scratch: Scratch,
    expected: bytes,
    new: bytes,
    *,
    inside: tuple[bool | None, bool | None] = (None, None),
) -> tuple[CommandResult, CommandResult]:
    """Run both halves; ``inside`` states of each whether its data are in the capsule."""
    blocks = len(new) // scratch.block_size
    compare = replace(io.compare(scratch.nsid, scratch.lba, blocks), flags=FIRST)
    write = replace(io.write(scratch.nsid, scratch.lba, blocks), flags=SECOND)
    first = queue.submit(compare, data=expected, inside=inside[0])
    second = queue.submit(write, data=new, inside=inside[1])
    return queue.wait(first), queue.wait(second)


@pytest.mark.case("NVB-FUSED-EQUAL", kills=("fused-write-lost",))
def test_a_write_whose_compare_succeeds_is_carried_out(fusing: Queue, scratch: Scratch) -> None:
    before = write_blocks(fusing, scratch, 1, 71)
    new = block_data(scratch.block_size, 72)
    for done in _compare_and_write(fusing, scratch, before, new):
        assert done.ok, f"3.4.2: the blocks are equal, but a half ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, 1) == new, "3.4.2: the Write was carried out"


@pytest.mark.case("NVB-FUSED-OTHER", kills=("fused-apart", "fused-wrong-status"))
def test_a_write_whose_compare_fails_is_not_carried_out(fusing: Queue, scratch: Scratch) -> None:
    before = write_blocks(fusing, scratch, 1, 73)
    compare, write = _compare_and_write(
        fusing, scratch, before[:-1] + bytes([before[-1] ^ 1]), block_data(scratch.block_size, 74)
    )
    assert read_blocks(fusing, scratch, 1) == before, "3.4.2: the Compare failed, but the Write was done"
    refused(compare, StatusCode.COMPARE_FAILURE)
    refused(write, StatusCode.ABORTED_FAILED_FUSED)


@pytest.mark.case("NVB-FUSED-R2T", kills=("fused-apart-by-r2t",), builds_on=("NVB-FUSED-OTHER",))
def test_halves_whose_data_are_asked_for_are_fused(fusing: Queue, scratch: Scratch) -> None:
    """The data of both halves come by R2T and H2CData, in whichever order the controller asks for them."""
    before = write_blocks(fusing, scratch, 1, 81)
    new = block_data(scratch.block_size, 82)
    compare, write = _compare_and_write(fusing, scratch, new, new, inside=(False, False))
    assert read_blocks(fusing, scratch, 1) == before, "3.4.2: the Compare failed, but the Write was done"
    refused(compare, StatusCode.COMPARE_FAILURE)
    refused(write, StatusCode.ABORTED_FAILED_FUSED)
    for done in _compare_and_write(fusing, scratch, before, new, inside=(False, False)):
        assert done.ok, f"3.4.2: the blocks are equal, but a half ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, 1) == new, "3.4.2: the Write was carried out"


@pytest.mark.parametrize("late", [
    pytest.param("compare", marks=pytest.mark.case("NVB-FUSED-COMPARE-LATER")),
    pytest.param("write", marks=pytest.mark.case("NVB-FUSED-WRITE-LATER")),
])  # fmt: skip
@pytest.mark.case(kills=("fused-apart",), builds_on=("NVB-FUSED-OTHER",))
def test_halves_are_fused_if_the_data_of_one_of_them_come_later(
    fusing: Queue, scratch: Scratch, late: str
) -> None:
    """The data of one half are in its capsule, those of the other one are asked for by R2T."""
    if fusing.in_capsule_limit < scratch.block_size:
        pytest.skip(f"IOCCSZ allows {fusing.in_capsule_limit} bytes of in-capsule data")
    before, new = write_blocks(fusing, scratch, 1, 83), block_data(scratch.block_size, 84)
    inside = (late != "compare", late != "write")
    compare, write = _compare_and_write(fusing, scratch, new, new, inside=inside)
    assert read_blocks(fusing, scratch, 1) == before, "3.4.2: the Compare failed, but the Write was done"
    refused(compare, StatusCode.COMPARE_FAILURE)
    refused(write, StatusCode.ABORTED_FAILED_FUSED)
    for done in _compare_and_write(fusing, scratch, before, new, inside=inside):
        assert done.ok, f"3.4.2: the blocks are equal, but a half ended with {status_name(done.status)}"
    assert read_blocks(fusing, scratch, 1) == new, "3.4.2: the Write was carried out"


@pytest.mark.case("NVB-FUSED-ALONE", kills=("fused-apart",))
def test_a_half_without_the_other_is_aborted(fusing: Queue, scratch: Scratch) -> None:
    before = write_blocks(fusing, scratch, 1, 75)
    write = replace(io.write(scratch.nsid, scratch.lba, 1), flags=SECOND)
    done = fusing.run(write, data=block_data(scratch.block_size, 76))
    assert read_blocks(fusing, scratch, 1) == before, "3.4.2: a Write without its Compare was carried out"
    refused(done, StatusCode.ABORTED_MISSING_FUSED)


@pytest.mark.case("NVB-FUSED-AFTER", kills=("fused-write-lost",))
def test_operations_follow_each_other(fusing: Queue, scratch: Scratch) -> None:
    current = write_blocks(fusing, scratch, 1, 77)
    for seed in (78, 79, 80):
        new = block_data(scratch.block_size, seed)
        assert not _compare_and_write(fusing, scratch, new, new)[0].ok, "3.4.2: the blocks differ"
        assert all(done.ok for done in _compare_and_write(fusing, scratch, current, new)), (
            "3.4.2: the blocks are equal, after an operation that failed"
        )
        current = new
    assert read_blocks(fusing, scratch, 1) == current, "3.4.2: the last Write was carried out"
