"""Transfers by their size: large against small ones, at every offset, on every queue, two at a time.

The blocks have data without a period, so that a block of another place, PDU or command is noticed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme.command import Cqe, in_capsule
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleCmd, CapsuleResp, H2CData, ICReq, encode
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 3.3.4")]

SECOND_R2T = 0.3
"""Seconds to wait for the R2T of a second write before the first is served (chosen)."""

QUEUES = 8
"""I/O queues of a case of many (chosen)."""

SMALL = 8
"""Blocks of a small transfer (chosen)."""


def write(queue: Queue, scratch: Scratch, data: bytes, *, most: int | None = None) -> None:
    """Write ``data`` from the start of the scratch, ``most`` blocks a command."""
    size = scratch.block_size
    for at, blocks in scratch.limits.pieces(0, len(data) // size, most=most):
        done = queue.run(
            io.write(scratch.nsid, scratch.lba + at, blocks), data=data[at * size : (at + blocks) * size]
        )
        assert done.ok, f"a write of {blocks} blocks ended with {status_name(done.status)}"


def read(queue: Queue, scratch: Scratch, blocks: int, *, most: int | None = None) -> bytes:
    """Read ``blocks`` from the start of the scratch, ``most`` a command."""
    data = b""
    for lba, count in scratch.limits.pieces(scratch.lba, blocks, most=most):
        done = queue.run(io.read(scratch.nsid, lba, count), reads=count * scratch.block_size)
        assert done.ok, f"a read of {count} blocks ended with {status_name(done.status)}"
        data += done.data
    return data


def same(seen: bytes, expected: bytes, block_size: int, rule: str) -> None:
    """Claim that the blocks are equal, and name the first that is not."""
    if seen != expected:
        spans = [slice(at, at + block_size) for at in range(0, len(expected), block_size)]
        wrong = [number for number, span in enumerate(spans) if seen[span] != expected[span]]
        raise AssertionError(
            f"{len(seen)} of {len(expected)} bytes came; {len(wrong)} blocks are wrong, the first of them is "
            f"block {wrong[0] if wrong else '?'} of the transfer; {rule}"
        )


LARGE_READ = ("read-far-flipped", "read-repeated", "read-far-short", "read-flipped")
LARGE_WRITE = ("r2t-offset-16-bits", "write-far-lost", "write-pieces-swapped", "write-lost")


@pytest.mark.case("NVT-LARGE-READ", kills=LARGE_READ)
def test_one_large_read_returns_what_small_writes_wrote(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.fit(scratch.blocks)
    data = block_data(blocks * scratch.block_size, 1)
    write(queue, scratch, data, most=min(SMALL, scratch.limits.transfer))
    same(
        read(queue, scratch, blocks), data, scratch.block_size, "3.3.4: every block of the range is returned"
    )


@pytest.mark.case("NVT-LARGE-WRITE", section="NVM 3.3.6", kills=LARGE_WRITE)
def test_one_large_write_is_returned_by_small_reads(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.fit(scratch.blocks)
    data = block_data(blocks * scratch.block_size, 2)
    write(queue, scratch, data)
    seen = read(queue, scratch, blocks, most=min(SMALL, scratch.limits.transfer))
    same(seen, data, scratch.block_size, "3.3.6: every block of the range is written")


@pytest.mark.case("NVT-LARGE-PDUS", section="NVMe/TCP 3.6.2.9", kills=("c2h-reserved-later",))
def test_reserved_fields_of_later_pdus_are_zero(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.fit(scratch.blocks)
    write(queue, scratch, block_data(blocks * scratch.block_size, 3))
    read(queue, scratch, blocks)
    assert not queue.faults, "; ".join(queue.faults)


@pytest.mark.case("NVT-LARGE-DIGEST", section="NVMe/TCP 3.3.1.1", kills=("ddgst-later-wrong",))
def test_large_transfers_with_digests(bench: Harness, scratch: Scratch) -> None:
    """A wrong digest of any PDU of the controller ends the transfer."""
    queue = bench.session(icreq=ICReq(header_digest=True, data_digest=True)).io_queue()
    blocks = scratch.fit(scratch.blocks)
    data = block_data(blocks * scratch.block_size, 4)
    write(queue, scratch, data)
    same(read(queue, scratch, blocks), data, scratch.block_size, "3.3.1.1: digests change no data")


SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Blocks of the transfers: around the powers of two."""


@pytest.mark.case("NVT-SIZES-READ", kills=("read-odd-lba",))
def test_reads_of_every_size_at_an_odd_address(queue: Queue, scratch: Scratch) -> None:
    most = scratch.fit(scratch.blocks)
    size = scratch.block_size
    data = block_data(scratch.blocks * size, 5)
    write(queue, scratch, data)
    for blocks in (one for one in SIZES if one <= most):
        at = blocks + 1 - blocks % 2 if blocks < scratch.blocks // 2 else 1
        done = queue.run(io.read(scratch.nsid, scratch.lba + at, blocks), reads=blocks * size)
        expected = data[at * size : (at + blocks) * size]
        same(done.data, expected, size, f"3.3.4: a read of {blocks} blocks from block {at} of the scratch")


@pytest.mark.case("NVT-SIZES-WRITE", section="NVM 3.3.6", kills=("write-8-blocks",))
def test_writes_of_every_size_change_their_blocks_alone(queue: Queue, scratch: Scratch) -> None:
    most, size = min(scratch.fit(scratch.blocks), scratch.blocks - 16), scratch.block_size
    expected = bytearray(block_data(scratch.blocks * size, 6))
    write(queue, scratch, bytes(expected))
    for number, blocks in enumerate(one for one in SIZES if one <= most):
        at = 3 + number % 5
        data = block_data(blocks * size, 100 + number)
        done = queue.run(io.write(scratch.nsid, scratch.lba + at, blocks), data=data)
        assert done.ok, f"a write of {blocks} blocks ended with {status_name(done.status)}"
        expected[at * size : (at + blocks) * size] = data
        seen = read(queue, scratch, scratch.blocks)
        same(seen, bytes(expected), size, f"3.3.6: after a write of {blocks} blocks from block {at}")


@pytest.mark.case(
    "NVT-TWO-LARGE", section="NVMe/TCP 3.3.2.2", kills=("write-pieces-swapped", "r2t-wrong-cid")
)
def test_a_large_write_and_a_large_read_at_the_same_time(queue: Queue, scratch: Scratch) -> None:
    needs_two(scratch)
    blocks = min(scratch.fit(scratch.blocks), scratch.blocks // 2)
    size = blocks * scratch.block_size
    old, new = block_data(size, 7), block_data(size, 8)
    write(queue, scratch, old)
    reading = queue.submit(io.read(scratch.nsid, scratch.lba, blocks), reads=size)
    writing = queue.submit(io.write(scratch.nsid, scratch.lba + blocks, blocks), data=new)
    assert queue.wait(writing).ok
    same(queue.wait(reading).data, old, scratch.block_size, "3.3.2: a read during a write of other blocks")
    done = queue.run(io.read(scratch.nsid, scratch.lba + blocks, blocks), reads=size)
    same(done.data, new, scratch.block_size, "3.3.2: a write during a read of other blocks")


def needs_two(scratch: Scratch) -> None:
    """Skip if the controller takes only one command at a time on a queue."""
    if scratch.limits.outstanding < 2:
        pytest.skip(f"CAP.MQES or MAXCMD allows {scratch.limits.outstanding} commands at once, not 2")


@pytest.mark.case(
    "NVT-TWO-READS",
    section="NVMe/TCP 3.3.2.1",
    no_mutant_reason="a proxy cannot make two reads overlap: a controller may end one before the other",
)
def test_two_large_reads_at_the_same_time(queue: Queue, scratch: Scratch) -> None:
    needs_two(scratch)
    blocks = min(scratch.fit(scratch.blocks), scratch.blocks // 2)
    size = blocks * scratch.block_size
    data = block_data(2 * size, 13)
    write(queue, scratch, data)
    cids = [queue.submit(io.read(scratch.nsid, scratch.lba + at, blocks), reads=size) for at in (0, blocks)]
    for at, cid in ((size, cids[1]), (0, cids[0])):
        same(
            queue.wait(cid).data, data[at : at + size], scratch.block_size, "3.3.2.1: each read has its data"
        )


@pytest.mark.case("NVT-TWO-WRITES", section="NVMe/TCP 3.3.2.2", kills=("two-writes-mixed",))
def test_h2cdata_of_two_writes_are_interleaved(queue: Queue, scratch: Scratch) -> None:
    needs_two(scratch)
    blocks = min(scratch.blocks_of(queue.in_capsule_limit + 8192), scratch.blocks // 2)
    size = blocks * scratch.block_size
    data = {}
    for seed, at in ((14, 0), (15, blocks)):
        command, payload = io.write(scratch.nsid, scratch.lba + at, blocks), block_data(size, seed)
        data[queue.submit(command, data=payload, inside=False)] = payload
    pending: list[R2T] = []
    left = set(data)
    while left:
        try:
            pdu = queue.receive(deadline=SECOND_R2T if pending else None).pdu
        except ResponseTimeout:  # a controller may serve one write after the other
            assert pending, "3.3.2.2: neither an R2T nor a response came for a write"
            send_in_turn(queue, pending, data)
            pending = []
            continue
        if isinstance(pdu, CapsuleResp):
            cqe = Cqe.decode(pdu.cqe)
            assert cqe.ok, f"3.3.2.2: a write ended with {status_name(cqe.status)}"
            left.discard(cqe.cid)
            queue.forget(cqe.cid)
        else:
            assert isinstance(pdu, R2T), f"3.3.2.2: not {pdu}"
            pending.append(pdu)
        if len(pending) == len(left):
            send_in_turn(queue, pending, data)
            pending = []
    done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=size)
    first, second = data.values()
    same(done.data, first, scratch.block_size, "3.3.2.2: TTAG names the write that the data is of")
    done = queue.run(io.read(scratch.nsid, scratch.lba + blocks, blocks), reads=size)
    same(done.data, second, scratch.block_size, "3.3.2.2: TTAG names the write that the data is of")


def send_in_turn(queue: Queue, r2ts: list[R2T], data: dict[int, bytes]) -> None:
    """Send the first half of each R2T's data, and then the second halves."""
    pieces = [_halves(one, data[one.cccid]) for one in r2ts]
    for piece in (one for half in zip(*pieces, strict=True) for one in half):
        for part in _within(piece, queue.icresp.maxh2cdata):
            queue.send(part)


def _halves(r2t: R2T, data: bytes) -> tuple[H2CData, H2CData]:
    """Return the data of an R2T as two PDUs."""
    middle = r2t.offset + r2t.length // 8 * 4
    end = r2t.offset + r2t.length
    return (
        H2CData(r2t.cccid, r2t.ttag, r2t.offset, data[r2t.offset : middle], last=False),
        H2CData(r2t.cccid, r2t.ttag, middle, data[middle:end], last=True),
    )


def _within(pdu: H2CData, most: int) -> list[H2CData]:
    """Return ``pdu`` as PDUs of at most ``most`` bytes of data."""
    return [
        H2CData(
            pdu.cccid,
            pdu.ttag,
            pdu.offset + at,
            pdu.data[at : at + most],
            last=pdu.last and at + most >= len(pdu.data),
        )
        for at in range(0, len(pdu.data), most)
    ]


@pytest.mark.case("NVT-TWO-QUEUES", section="NVM 3.3.6", kills=("second-queue-loses",))
def test_two_queues_write_at_the_same_time(session: ControllerSession, scratch: Scratch) -> None:
    first = session.io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    second = session.io_queue()
    blocks = min(scratch.fit(scratch.blocks), scratch.blocks // 2)
    size = blocks * scratch.block_size
    data = block_data(2 * size, 16)
    one = first.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data[:size])
    two = second.submit(io.write(scratch.nsid, scratch.lba + blocks, blocks), data=data[size:])
    assert second.wait(two).ok
    assert first.wait(one).ok
    same(read(first, scratch, 2 * blocks), data, scratch.block_size, "3.3.6: each queue's write is kept")


@pytest.mark.case("NVT-SGL-06", section="Base 3.3.2.1.3", kills=("sgl-offset-ignored",))
def test_data_are_taken_from_the_offset_in_the_capsule(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    if not session.controller["sgls"] >> 20 & 1:
        pytest.skip("SGLS bit 20: offsets in the capsule are not supported")
    size = scratch.block_size
    if queue.in_capsule_limit < 2 * size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than two blocks")
    data = block_data(2 * size, 17)
    command = replace(io.write(scratch.nsid, scratch.lba, 1), cid=901, dptr=in_capsule(size, offset=size))
    queue.send(CapsuleCmd(command.encode(), data))
    pdu = queue.receive().pdu
    assert isinstance(pdu, CapsuleResp), f"3.3.2.1.3: not {pdu}"
    assert Cqe.decode(pdu.cqe).ok, f"3.3.2.1.3: SGLS allows offsets, not {Cqe.decode(pdu.cqe)}"
    same(read(queue, scratch, 1), data[size:], size, "3.3.2.1.3: the data begin at the offset of the SGL")


@pytest.mark.case("NVB-RW-07", section="NVM 3.3.6", kills=("second-queue-loses",))
def test_what_the_second_queue_writes_is_read_by_the_first(
    session: ControllerSession, scratch: Scratch
) -> None:
    first = session.io_queue()
    if session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    second = session.io_queue()
    data = block_data(scratch.blocks * scratch.block_size, 10)
    write(second, scratch, data)
    same(read(first, scratch, scratch.blocks), data, scratch.block_size, "3.3.6: queues share the namespace")


# Legal padding (NVMe/TCP 3.3): PDO is a multiple of CPDA, and not the least one


def padded(queue: Queue) -> int:
    """Return the largest alignment, as in ICResp, that is a multiple of CPDA and pads a PDU to PDO 128."""
    unit = queue.icresp.cpda + 1
    return unit * (32 // unit) - 1


@pytest.mark.case("NVB-QUEUES-EACH", section="NVM 3.3.4", kills=("third-queue-reads-other",))
def test_every_queue_writes_and_reads_the_same_blocks(session: ControllerSession, scratch: Scratch) -> None:
    """What each of the queues writes is read by each: up to :data:`QUEUES` of them, in turn."""
    queues = [session.io_queue()]
    count, size = min(QUEUES, session.io_queues_granted, scratch.blocks), scratch.block_size
    queues += [session.io_queue() for _ in range(1, count)]
    for number, queue in enumerate(queues):
        done = queue.run(io.write(scratch.nsid, scratch.lba + number, 1), data=block_data(size, number))
        assert done.ok, f"3.3.6: a write by I/O queue {number + 1} ended with {status_name(done.status)}"
    for reader, queue in enumerate(queues):
        for number in range(count):
            done = queue.run(io.read(scratch.nsid, scratch.lba + number, 1), reads=size)
            assert done.ok, f"3.3.4: a read by I/O queue {reader + 1} ended with {status_name(done.status)}"
            assert done.data == block_data(size, number), (
                f"3.3.4: I/O queue {reader + 1} does not read what queue {number + 1} wrote to block {number}"
            )


@pytest.mark.case("NVT-PDO-PAD-CAPSULE", section="NVMe/TCP 3.3", level="SHOULD", kills=("pdo-ignored",))
def test_padded_data_in_a_capsule_are_taken_from_pdo(queue: Queue, scratch: Scratch) -> None:
    size = scratch.block_size
    if queue.in_capsule_limit < size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    data, alignment = block_data(size, 11), padded(queue)

    def pad(raw: bytes) -> bytes:
        return encode(CapsuleCmd(raw[8:72], data), alignment=alignment)

    command = io.write(scratch.nsid, scratch.lba, 1)
    done = queue.wait(queue.submit(command, data=data, inside=True, override=pad))
    assert done.ok, f"3.3: a PDO of {(alignment + 1) * 4} is legal, not {status_name(done.status)}"
    same(read(queue, scratch, 1), data, size, "3.3: the data begin at PDO")


@pytest.mark.case("NVT-PDO-PAD-DATA", section="NVMe/TCP 3.3", level="SHOULD", kills=("pdo-ignored",))
def test_padded_h2cdata_are_taken_from_pdo(queue: Queue, scratch: Scratch) -> None:
    blocks, size = scratch.blocks_of(queue.in_capsule_limit + 16384), scratch.block_size
    data, alignment = block_data(blocks * size, 12), padded(queue)
    cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    while isinstance(r2t := queue.receive().pdu, R2T):
        for pdu in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            assert isinstance(pdu, H2CData)
            queue.send_raw(encode(pdu, alignment=alignment))
    queue.forget(cid)
    assert isinstance(r2t, CapsuleResp), f"3.3: H2CData with a PDO of {(alignment + 1) * 4} ended with {r2t}"
    assert Cqe.decode(r2t.cqe).ok, f"3.3: not {status_name(Cqe.decode(r2t.cqe).status)}"
    same(read(queue, scratch, blocks), data, size, "3.3: the data begin at PDO")
