"""Commands of exactly as much as is allowed are done: MDTS, WZSL, MSSRL, MCL and MSRC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, StatusCode, status_name
from storagetest.wire.nvme.limits import UNLIMITED
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import ICReq

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVM 3.3.2", builds_on=("NVB-COPY-01",)),
]

Ranges = list[tuple[int, int]]

SAMPLES = 16
"""Blocks of a large range that are looked at, at equal distances (chosen); and the last one."""

LARGEST = 8 << 20
"""Bytes of the largest transfer, or Copy, that a case carries out (chosen)."""

LONG = 30.0
"""Timeout in seconds of a command of many blocks (chosen)."""


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


def _of_mdts(scratch: Scratch) -> Scratch:
    """Return blocks for a transfer of MDTS: the scratch, or a part of the second half of the namespace."""
    most = scratch.limits.transfer
    if most * scratch.block_size > LARGEST:
        pytest.skip(f"MDTS: one transfer may be of more than {LARGEST >> 20} MiB")
    if most <= scratch.blocks:
        return scratch
    first = scratch.end // 2
    if first + most > scratch.end:
        pytest.skip(f"MDTS allows {most} blocks, and half of the namespace has {scratch.end - first}")
    return replace(scratch, lba=first, blocks=most)


@pytest.mark.case("NVB-COPY-LARGE", kills=("copy-mssrl-half",))
def test_every_block_of_a_large_copy_is_copied(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """One range of as many blocks as MSSRL and MCL allow, and the half that may be written holds."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.COPY] & 1 or not scratch.limits.copied([(0, 1)]):
        pytest.skip("ONCS, MSSRL or MCL: no block may be copied")
    first, half = scratch.end // 2, (scratch.end - scratch.end // 2) // 2
    most = LARGEST // scratch.block_size
    total = min(scratch.limits.copy_range, scratch.limits.copy_total, half - 1, most)
    samples = {*range(0, total, max(total // SAMPLES, 1)), total - 1}
    source = replace(scratch, lba=first, blocks=half)
    target = replace(scratch, lba=first + half, blocks=half)
    data = {at: write_blocks(queue, source, 1, 980 + at, at=at) for at in samples}
    for at in samples:
        write_blocks(queue, target, 1, 981, at=at)
    behind = write_blocks(queue, target, 1, 982, at=total)
    command = io.copy(scratch.nsid, target.lba, 1)
    cid = queue.submit(command, data=io.copy_ranges([(source.lba, total)]))
    done = queue.wait(cid, deadline=LONG)
    assert done.ok, f"3.3.2: a Copy of {total} blocks in one range ends with {status_name(done.status)}"
    left = [at for at in sorted(samples) if read_blocks(queue, target, 1, at=at) != data[at]]
    assert not left, f"3.3.2: of {total} copied blocks these are not those of the source: {left}"
    assert read_blocks(queue, target, 1, at=total) == behind, f"3.3.2: the block behind {total} copied ones"


@pytest.mark.parametrize("opcode", [
    pytest.param(Io.READ, marks=pytest.mark.case("NVB-MDTS-READ-MOST", kills=("read-mdts-refused",))),
    pytest.param(Io.WRITE, marks=pytest.mark.case("NVB-MDTS-WRITE-MOST", kills=("write-mdts-refused",))),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.13.2.1", builds_on=("NVB-RW-01",))
def test_a_transfer_of_mdts_itself_is_done(queue: Queue, scratch: Scratch, opcode: Io) -> None:
    """MDTS is the largest transfer that is allowed."""
    scratch = _of_mdts(scratch)
    most = scratch.limits.transfer
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
    "NVB-MDTS-COMPARE-MOST",
    section="Base 5.2.13.2.1",
    kills=("compare-mdts-refused",),
    builds_on=("NVB-COMPARE-01",),
)
def test_a_compare_of_mdts_itself_is_done(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """Equal data, and data that differ in the last byte alone."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.COMPARE] & 1:
        pytest.skip("ONCS: COMPARE is not supported")
    scratch = _of_mdts(scratch)
    most, size = scratch.limits.transfer, scratch.limits.transfer * scratch.block_size
    half = replace(scratch, limits=replace(scratch.limits, transfer=(most + 1) // 2))
    data = write_blocks(queue, half, most, 975)
    command = io.compare(scratch.nsid, scratch.lba, most)
    done = queue.run(command, data=data)
    assert done.ok, (
        f"5.2.13.2.1: MDTS allows {size} bytes, but a Compare of {most} equal blocks ends with "
        f"{status_name(done.status)}"
    )
    done = queue.run(command, data=data[:-1] + bytes([data[-1] ^ 1]))
    assert done.status == StatusCode.COMPARE_FAILURE, (
        f"NVM 3.3.1: a Compare of {most} blocks ends with {status_name(done.status)}; the last byte differs"
    )


@pytest.mark.case(
    "NVB-MOST-ZEROES-WZSL",
    section="NVM 4.1.5.4",
    kills=("wzsl-itself-refused", "zeroes-15-bits"),
    builds_on=("NVB-ZEROES-01",),
)
def test_write_zeroes_of_wzsl_itself_zeroes_every_block(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """The largest range that WZSL, NLB and half of the namespace allow; and the block behind it stays."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.WRITE_ZEROES] & 1:
        pytest.skip("ONCS: WRITE_ZEROES is not supported")
    first = scratch.end // 2
    most = min(session.limits(scratch.nsid).zeroes, scratch.end - first - 1)
    largest = replace(scratch, lba=first, blocks=most + 1)
    samples = {*range(0, most, max(most // SAMPLES, 1)), most - 1}
    for at in samples:
        write_blocks(queue, largest, 1, 978, at=at)
    behind = write_blocks(queue, largest, 1, 979, at=most)
    done = queue.wait(queue.submit(io.write_zeroes(scratch.nsid, first, most)), deadline=LONG)
    assert done.ok, (
        f"4.1.5.4: WZSL allows {most} blocks, but Write Zeroes of them ends with {status_name(done.status)}"
    )
    left = [at for at in sorted(samples) if any(read_blocks(queue, largest, 1, at=at))]
    assert not left, f"3.3.8: of {most} zeroed blocks these are not zero: {left}"
    assert read_blocks(queue, largest, 1, at=most) == behind, f"3.3.8: the block behind {most} zeroed ones"


@pytest.mark.parametrize("digests", [
    pytest.param(True, marks=pytest.mark.case("NVT-MDTS-DIGEST")),
    pytest.param(False, marks=pytest.mark.case("NVT-MDTS-SIDES")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.13.2.1", kills=("read-mdts-last-byte",), builds_on=("NVB-RW-01",))
def test_transfers_of_mdts_on_two_queues_at_the_same_time(
    bench: Harness, scratch: Scratch, digests: bool
) -> None:
    """Two hosts write as much as MDTS allows, each blocks of its own, and then read those of the other."""
    scratch = _of_mdts(scratch)
    most, size = scratch.limits.transfer, scratch.limits.transfer * scratch.block_size
    near = replace(scratch, lba=scratch.end - 2 * most)
    if near.lba < scratch.end // 2:
        pytest.skip(f"MDTS allows {most} blocks, and a quarter of the namespace has fewer")
    icreq = ICReq(header_digest=digests, data_digest=digests)
    queues = [bench.session(icreq=icreq, name=f"host {number}").io_queue() for number in (1, 2)]
    lbas, data = (near.lba, near.lba + most), (block_data(size, 976), block_data(size, 977))
    writes = [
        queue.submit(io.write(scratch.nsid, lba, most), data=one, inside=False)
        for queue, lba, one in zip(queues, lbas, data, strict=True)
    ]
    for queue, cid in zip(queues, writes, strict=True):
        done = queue.wait(cid)
        assert done.ok, f"5.2.13.2.1: a Write of MDTS, {size} bytes, ends with {status_name(done.status)}"
    reads = [
        queue.submit(io.read(scratch.nsid, lba, most), reads=size)
        for queue, lba in zip(queues, lbas[::-1], strict=True)
    ]
    for queue, cid, one in zip(queues, reads, data[::-1], strict=True):
        done = queue.wait(cid)
        assert done.ok, f"5.2.13.2.1: a Read of MDTS, {size} bytes, ends with {status_name(done.status)}"
        assert done.data == one, f"NVM 3.3.4: {most} blocks that another host has written at once are others"


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
