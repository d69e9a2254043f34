"""Edges of an address space or of a lifetime: the last block, high address bits, many associations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, H2CData, ICReq

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.1")]

ASSOCIATIONS = 24
"""Associations of one case, one after another (chosen: more than a target with a small table has)."""

STEADY_READS = 4
"""Reads of the discovery log, of which two in a row have to agree (chosen)."""

WithoutData = Callable[[int, int, int], Command]


def _last(scratch: Scratch, blocks: int) -> Scratch:
    """Return the last ``blocks`` of the namespace."""
    return Scratch(scratch.nsid, scratch.end - blocks, blocks, scratch.end, scratch.limits)


@pytest.mark.case("NVB-LAST-WRITE", section="NVM 3.3.6", kills=("write-last-block-lost",))
def test_the_last_blocks_hold_what_is_written(queue: Queue, scratch: Scratch) -> None:
    end = _last(scratch, 2)
    before = read_blocks(queue, end, 2)
    size = scratch.block_size
    try:
        data = write_blocks(queue, end, 2, 61)
        assert read_blocks(queue, end, 2) == data, "3.3.6: the last two blocks, written together"
        last = write_blocks(queue, end, 1, 62, at=1)
        assert read_blocks(queue, end, 2) == data[:size] + last, "3.3.6: the last block, written alone"
    finally:
        for at in range(2):
            piece = before[at * size : (at + 1) * size]
            queue.run(io.write(scratch.nsid, end.lba + at, 1), data=piece)


@pytest.mark.case("NVB-WRITE-ACROSS-END-KEPT", section="NVM 3.1", kills=("write-across-end-begins",))
def test_a_write_across_the_end_writes_nothing(queue: Queue, scratch: Scratch) -> None:
    if scratch.limits.blocks_of(2 * scratch.block_size) < 2:
        pytest.skip("MDTS allows one block only")
    end = _last(scratch, 1)
    before = read_blocks(queue, end, 1)
    data = block_data(2 * scratch.block_size, 63)
    done = queue.run(io.write(scratch.nsid, end.lba, 2), data=data)
    assert not done.ok, "3.1: a write across the end of the namespace succeeded"
    assert read_blocks(queue, end, 1) == before, (
        f"3.1: the write ended with {status_name(done.status)}, but its first block is on the medium"
    )


@pytest.mark.parametrize("bit", [
    pytest.param(32, marks=pytest.mark.case("NVB-LBA-BIT-32", kills=("lba-high-dword-ignored",))),
    pytest.param(48, marks=pytest.mark.case("NVB-LBA-BIT-48", kills=("lba-high-dword-ignored",))),
    pytest.param(63, marks=pytest.mark.case("NVB-LBA-BIT-63", kills=("lba-high-dword-ignored",))),
])  # fmt: skip
def test_a_high_bit_of_the_lba_is_not_dropped(
    session: ControllerSession, queue: Queue, scratch: Scratch, bit: int
) -> None:
    lba, size = scratch.lba + (1 << bit), scratch.block_size
    if lba < scratch.end:
        pytest.skip(f"the namespace has {scratch.end} blocks, so LBA {lba:#x} is one of them")
    data, other = write_blocks(queue, scratch, 1, 64), block_data(size, 65)
    # Any error will do: which one it is, is the claim of NVB-READ-FAR, NVB-WRITE-FAR and others.
    assert not queue.run(io.read(scratch.nsid, lba, 1), reads=size).ok, (
        f"3.1: a read of LBA {lba:#x} succeeded"
    )
    assert not queue.run(io.write(scratch.nsid, lba, 1), data=other).ok, (
        f"3.1: a write of LBA {lba:#x} succeeded"
    )
    optional: dict[Io, tuple[WithoutData, bytes | None]] = {
        Io.COMPARE: (io.compare, data),
        Io.WRITE_ZEROES: (io.write_zeroes, None),
        Io.VERIFY: (io.verify, None),
    }
    for opcode, (command, sent) in optional.items():
        if session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
            done = queue.run(command(scratch.nsid, lba, 1), data=sent or b"")
            assert not done.ok, f"3.1: {opcode.name} of LBA {lba:#x} succeeded"
    assert read_blocks(queue, scratch, 1) == data, f"3.1: LBA {lba:#x} is not LBA {scratch.lba:#x}"


@pytest.mark.case(
    "NVB-UNC-SEVERAL", section="NVM 3.3.7", kills=("uncorrectable-one-only", "uncorrectable-all-healed")
)
def test_each_of_several_marks_stands_until_its_block_is_written(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    if not session.controller["oncs"] >> ONCS_BITS[Io.WRITE_UNCORRECTABLE] & 1:
        pytest.skip("ONCS: WRITE_UNCORRECTABLE is not supported")
    blocks = 4
    write_blocks(queue, scratch, blocks, 66)
    marks = replace(io.write_zeroes(scratch.nsid, scratch.lba, blocks), opcode=Io.WRITE_UNCORRECTABLE)
    done = queue.run(marks)
    if done.status == StatusCode.INVALID_FIELD:
        pytest.skip(f"Write Uncorrectable takes fewer than {blocks} blocks")
    assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
    try:
        for healed in range(blocks):
            for at in range(blocks):
                read = queue.run(io.read(scratch.nsid, scratch.lba + at, 1), reads=scratch.block_size)
                assert read.ok == (at < healed), (
                    f"3.3.7: {blocks} blocks are marked and the first {healed} of them written again; "
                    f"a read of block {at} ended with {status_name(read.status)}"
                )
            write_blocks(queue, scratch, 1, 67, at=healed)
    finally:
        write_blocks(queue, scratch, blocks, 68)


# Data transfers (NVMe/TCP 3.3.2.2, 3.5)


def _more_than_a_capsule(queue: Queue, scratch: Scratch) -> int:
    """Return a number of blocks that are transferred by R2T, because a capsule does not hold them."""
    return scratch.blocks_of(queue.in_capsule_limit + 4096)


def _asked_for(queue: Queue, scratch: Scratch, data: bytes) -> R2T:
    queue.submit(
        io.write(scratch.nsid, scratch.lba, len(data) // scratch.block_size), data=data, inside=False
    )
    received = queue.receive()
    assert isinstance(received.pdu, R2T), f"3.3.2.2: not {received.pdu}"
    return received.pdu


@pytest.mark.case("NVT-DATA-OVERLAP", section="NVMe/TCP 3.5", kills=("data-overlap-cut",))
def test_data_that_begin_in_the_range_of_an_r2t_and_end_past_it_are_fatal(
    queue: Queue, scratch: Scratch
) -> None:
    data = block_data(_more_than_a_capsule(queue, scratch) * scratch.block_size, 69)
    r2t = _asked_for(queue, scratch, data)
    piece = data[r2t.offset : r2t.offset + r2t.length]
    queue.send(H2CData(r2t.cccid, r2t.ttag, r2t.offset, piece + bytes(4)))
    ending = queue.wait_for_close()
    assert ending.ended, f"3.5: data that end 4 bytes past the range of the R2T are fatal; but: {ending}"


@pytest.mark.case("NVT-DGST-DATA-NEXT", section="NVMe/TCP 3.5", kills=("ddgst-error-sticks",))
def test_writes_after_a_damaged_one_are_as_before(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    if not queue.icresp.data_digest:
        pytest.skip("data digests are not supported")
    damaged = block_data(scratch.block_size, 70)
    r2t = _asked_for(queue, scratch, damaged)
    queue.send(
        H2CData(r2t.cccid, r2t.ttag, r2t.offset, damaged[: r2t.length], last=True),
        override=lambda raw: override_field(raw, "DDGST", 0xDEADBEEF),
    )
    while not isinstance(queue.receive().pdu, CapsuleResp):
        pass
    for seed, inside in ((71, False), (72, None), (73, False)):
        data = block_data(scratch.block_size, seed)
        done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=data, inside=inside)
        assert done.ok, f"3.5: an undamaged write after a damaged one ended with {status_name(done.status)}"
        assert read_blocks(queue, scratch, 1) == data, "3.5: it holds what was written"


# Log pages (Base 5.2.12)


@pytest.mark.case("NVF-DISCOVERY-06", section="Base 5.2.12.3.3", kills=("discovery-genctr-moves",))
def test_the_generation_counter_counts_changes_only(discovery: ControllerSession) -> None:
    seen = [discovery.log_page(LogPage.DISCOVERY, 1024) for _ in range(STEADY_READS)]
    assert any(one == following for one, following in itertools.pairwise(seen)), (
        "5.2.12.3.3: GENCTR counts changes of the log, but it is another in each of "
        f"{STEADY_READS} reads: {[int.from_bytes(one[:8], 'little') for one in seen]}"
    )


# Associations (Base 3.3)


@pytest.mark.case("NVF-ASSOCIATIONS-MANY", section="Base 3.3.2", kills=("associations-leak",))
def test_controllers_are_free_again_after_their_associations(bench: Harness) -> None:
    for number in range(ASSOCIATIONS):
        try:
            session = bench.session(name=f"association {number}")
        except RemoteProtocolError as error:
            raise AssertionError(
                f"3.3.2: association {number + 1} was refused, after {number} that had ended: {error}"
            ) from error
        if number % 2:
            session.close()  # in order
        else:
            session.admin.close()  # abruptly
