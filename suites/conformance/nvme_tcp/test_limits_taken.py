"""Commands of exactly as much as is allowed are done: MDTS, MSSRL, MCL and MSRC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.limits import UNLIMITED
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVM 3.3.2", builds_on=("NVB-COPY-01",)),
]

Ranges = list[tuple[int, int]]


def _longest(scratch: Scratch) -> Ranges:
    """One range of MSSRL blocks."""
    return [(scratch.lba, scratch.limits.copy_range)]


def _most_blocks(scratch: Scratch) -> Ranges:
    """As many ranges as MCL blocks need; the last one may be shorter."""
    limits = scratch.limits
    return [
        (scratch.lba + at, min(limits.copy_range, limits.copy_total - at))
        for at in range(0, limits.copy_total, limits.copy_range)
    ]


def _most_ranges(scratch: Scratch) -> Ranges:
    """As many ranges as MSRC allows, of one block each."""
    return [(scratch.lba + at, 1) for at in range(scratch.limits.copy_ranges)]


@pytest.mark.parametrize("planned", [
    pytest.param(_longest, marks=pytest.mark.case("NVB-COPY-MSSRL", kills=("copy-mssrl-refused",))),
    pytest.param(_most_blocks, marks=pytest.mark.case("NVB-COPY-MCL", kills=("copy-mcl-refused",))),
    pytest.param(_most_ranges, marks=pytest.mark.case("NVB-COPY-MSRC", kills=("copy-msrc-refused",))),
])  # fmt: skip
def test_a_copy_of_a_limit_itself_is_done(
    session: ControllerSession, queue: Queue, scratch: Scratch, planned: Callable[[Scratch], Ranges]
) -> None:
    """The limits are the largest values that are allowed."""
    limits = scratch.limits
    if not session.controller["oncs"] >> ONCS_BITS[Io.COPY] & 1 or not limits.copied([(0, 1)]):
        pytest.skip("ONCS, MSSRL or MCL: no block may be copied")
    ranges = planned(scratch)
    total = sum(blocks for _, blocks in ranges)
    if len(ranges) > limits.copy_ranges or total > min(limits.copy_total, scratch.blocks // 2):
        pytest.skip(f"{len(ranges)} ranges of {total} blocks are over another limit, or over these blocks")
    half = scratch.blocks // 2
    data = write_blocks(queue, scratch, total, 971)
    write_blocks(queue, scratch, total, 972, at=half)
    command = io.copy(scratch.nsid, scratch.lba + half, len(ranges))
    done = queue.run(command, data=io.copy_ranges(ranges))
    assert done.ok, (
        f"3.3.2: a Copy of {len(ranges)} ranges, {total} blocks together, ends with "
        f"{status_name(done.status)}; MSRC allows {limits.copy_ranges} ranges, MSSRL {limits.copy_range} "
        f"blocks of each, MCL {limits.copy_total} together"
    )
    assert read_blocks(queue, scratch, total, at=half) == data, f"3.3.2: {total} blocks after their Copy"


@pytest.mark.parametrize("opcode", [
    pytest.param(Io.READ, marks=pytest.mark.case("NVB-MDTS-READ-MOST", kills=("read-mdts-refused",))),
    pytest.param(Io.WRITE, marks=pytest.mark.case("NVB-MDTS-WRITE-MOST", kills=("write-mdts-refused",))),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.13.2.1", builds_on=("NVB-RW-01",))
def test_a_transfer_of_mdts_itself_is_done(queue: Queue, scratch: Scratch, opcode: Io) -> None:
    """MDTS is the largest transfer that is allowed."""
    most = scratch.limits.transfer
    if most > scratch.blocks:
        pytest.skip(f"MDTS: one transfer may be of more than these {scratch.blocks} blocks")
    half = replace(scratch, limits=replace(scratch.limits, transfer=(most + 1) // 2))
    data, size = write_blocks(queue, half, most, 973), most * scratch.block_size
    if opcode == Io.WRITE:
        data = block_data(size, 974)
        done = queue.run(io.write(scratch.nsid, scratch.lba, most), data=data)
    else:
        done = queue.run(io.read(scratch.nsid, scratch.lba, most), reads=size)
    assert done.ok, (
        f"5.2.13.2.1: MDTS allows {size} bytes, but a {opcode.name.capitalize()} of {most} blocks ends with "
        f"{status_name(done.status)}"
    )
    found = read_blocks(queue, half, most) if opcode == Io.WRITE else done.data
    assert found == data, f"NVM 3.3: {most} blocks that one command has transferred are others"


@pytest.mark.case(
    "NVB-MDTS-COMPARE",
    section="Base 5.2.13.2.1",
    kills=("mdts-of-compares-ignored",),
    builds_on=("NVB-MDTS-WRITE",),
)
def test_a_compare_over_mdts_is_refused(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """Its data are equal to those of the blocks, so that no other status is right."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.COMPARE] & 1:
        pytest.skip("ONCS: COMPARE is not supported")
    blocks = scratch.limits.transfer + 1
    if blocks > UNLIMITED or scratch.lba + blocks > scratch.end:
        pytest.skip("MDTS sets no limit that a Compare could reach")
    data = read_blocks(queue, scratch, blocks)
    done = queue.run(io.compare(scratch.nsid, scratch.lba, blocks), data=data)
    assert done.status == StatusCode.INVALID_FIELD, (
        f"5.2.13.2.1: a Compare of {blocks} blocks, one more than MDTS allows, ended with "
        f"{status_name(done.status)}; required: Invalid Field in Command"
    )
