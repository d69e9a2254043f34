"""PDUs that come in many parts, and segments with the ends and beginnings of several (NVMe/TCP 2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import H2CData, ICReq, Pdu
from storagetest.wire.nvme_tcp.queue import Override

from .test_digests import needs_digests
from .test_segments import PAUSE

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 2", builds_on=("NVB-RW-01",)),
]

PARTS = (5, 3, 17, 48, 1, 2, 127, 64, 31)
"""Bytes of the first parts of a PDU (chosen); the other parts are each as long as all of these."""
MOST_PARTS = 24
"""Parts of a PDU at most, so that a case is over soon (chosen)."""


def _parts(raw: bytes) -> list[bytes]:
    """Cut a PDU into parts of uneven lengths."""
    parts, at = [], 0
    for size in PARTS:
        parts.append(raw[at : at + size])
        at += size
    step = max(sum(PARTS), -(-(len(raw) - at) // MOST_PARTS) | 1)
    parts += [raw[begin : begin + step] for begin in range(at, len(raw), step)]
    return [part for part in parts if part]


def _in_parts(queue: Queue) -> Override:
    """Return an override that sends all parts of a PDU but the last, and returns that one."""

    def override(raw: bytes) -> bytes:
        *parts, last = _parts(raw)
        for part in parts:
            queue.send_raw(part)
            time.sleep(PAUSE / 3)
        return last

    return override


def _joining(held: list[bytes]) -> Override:
    """Return an override that holds a PDU back: ``held`` is to be sent in one segment later."""

    def override(raw: bytes) -> bytes:
        held.append(raw)
        return b""

    return override


def _queue(bench: Harness, *, digests: bool) -> Queue:
    queue = bench.session(icreq=ICReq(header_digest=digests, data_digest=digests)).io_queue()
    needs_digests(queue)
    return queue


def _forms(name: str, mutant: str) -> pytest.MarkDecorator:
    """One case without digests, and one with both."""
    return pytest.mark.parametrize("digests", [
        pytest.param(False, marks=pytest.mark.case(f"NVT-{name}", kills=(mutant,))),
        pytest.param(True, marks=pytest.mark.case(f"NVT-{name}-HD", kills=(mutant,))),
    ])  # fmt: skip


def _claim(queue: Queue, scratch: Scratch, cid: int, data: bytes, what: str) -> None:
    done = queue.wait(cid)
    assert done.ok, f"2: {what}, and the write ended with {status_name(done.status)}"
    assert read_blocks(queue, scratch, len(data) // scratch.block_size) == data, (
        f"2: {what}, and other data are read than were written"
    )


@_forms("SPLIT-MANY-CAPSULE", "many-parts-lost")
def test_a_capsule_with_data_comes_in_many_segments(bench: Harness, scratch: Scratch, digests: bool) -> None:
    """As many blocks as a capsule holds, in parts of 1 to 300 bytes and more."""
    queue, size = _queue(bench, digests=digests), scratch.block_size
    blocks = min(queue.in_capsule_limit // size, scratch.limits.transfer, 8)
    if not blocks:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    data = block_data(blocks * size, 1901)
    command = io.write(scratch.nsid, scratch.lba, blocks)
    cid = queue.submit(command, data=data, inside=True, override=_in_parts(queue))
    _claim(queue, scratch, cid, data, "a CapsuleCmd came in many segments")


@_forms("SPLIT-MANY-DATA", "many-parts-lost")
def test_h2cdata_come_in_many_segments(bench: Harness, scratch: Scratch, digests: bool) -> None:
    """Each H2CData of a write that no capsule holds."""
    queue = _queue(bench, digests=digests)
    blocks = scratch.blocks_of(max(queue.in_capsule_limit + 1, 8192))
    data = block_data(blocks * scratch.block_size, 1902)
    send: Callable[..., bytes] = queue.send

    def in_parts(pdu: object, **options: object) -> bytes:
        if isinstance(pdu, H2CData):
            options["override"] = _in_parts(queue)
        return send(pdu, **options)

    queue.send = in_parts  # type: ignore[method-assign, assignment]
    cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    _claim(queue, scratch, cid, data, "H2CData came in many segments")


@_forms("JOINED-CAPSULES", "joined-data-lost")
def test_capsules_with_data_come_in_one_segment(bench: Harness, scratch: Scratch, digests: bool) -> None:
    """Writes of three blocks, and a read of another one, are sent at once, in both orders."""
    queue, size = _queue(bench, digests=digests), scratch.block_size
    if scratch.limits.outstanding < 4 or queue.in_capsule_limit < size:
        pytest.skip("the queue takes fewer than four commands, or a capsule holds no block")
    other = write_blocks(queue, scratch, 1, 1910, at=3)
    for turn in range(2):
        held: list[bytes] = []
        data = block_data(3 * size, 1911 + turn)
        numbers = (0, 1, 2) if turn else (2, 1, 0)
        cids = [
            queue.submit(
                io.write(scratch.nsid, scratch.lba + one, 1),
                data=data[one * size : (one + 1) * size],
                inside=True,
                override=_joining(held),
            )
            for one in numbers
        ]
        read = queue.submit(io.read(scratch.nsid, scratch.lba + 3, 1), reads=size, override=_joining(held))
        queue.send_raw(b"".join(held))
        for one, cid in zip(numbers, cids, strict=True):
            done = queue.wait(cid)
            assert done.ok, f"2: write {one + 1} of one segment ended with {status_name(done.status)}"
        done = queue.wait(read)
        assert (done.ok, done.data) == (True, other), "2: a read behind writes in one segment"
        assert read_blocks(queue, scratch, 3) == data, "2: blocks after writes that came in one segment"


@_forms("JOINED-DATA", "joined-data-lost")
def test_the_end_of_data_and_the_next_commands_come_in_one_segment(
    bench: Harness, scratch: Scratch, digests: bool
) -> None:
    """Behind the H2CData of a write there is a read, or the first bytes of one."""
    queue, size = _queue(bench, digests=digests), scratch.block_size
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command at a time (CAP.MQES, MAXCMD)")
    blocks = min(scratch.blocks_of(queue.in_capsule_limit + 1), scratch.blocks - 1)
    other = write_blocks(queue, scratch, 1, 1920, at=blocks)
    for turn, cut in enumerate((None, 1, 8, 71)):
        data, reads, send = block_data(blocks * size, 1921 + turn), [], queue.send
        held: list[bytes] = []

        def hold(
            pdu: Pdu,
            *,
            override: Override | None = None,
            held: list[bytes] = held,
            reads: list[int] = reads,
            send: Callable[..., bytes] = send,
            cut: int | None = cut,
        ) -> bytes:
            """Send H2CData together with the read, once the last of them are there."""
            if not isinstance(pdu, H2CData):
                return send(pdu, override=override)
            held.append(queue.encode(pdu))
            if pdu.offset + len(pdu.data) == blocks * size:
                command = io.read(scratch.nsid, scratch.lba + blocks, 1)
                reads.append(queue.submit(command, reads=size, override=_joining(held)))
            if pdu.last:
                raw = b"".join(held)
                end = len(raw) if cut is None or not reads else len(raw) - len(held[-1]) + cut
                held.clear()
                queue.send_raw(raw[:end])
                time.sleep(PAUSE if raw[end:] else 0)
                queue.send_raw(raw[end:])
            return b""

        queue.send = hold  # type: ignore[method-assign]
        try:
            cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
            done = queue.wait(cid)
        finally:
            queue.send = send  # type: ignore[method-assign]
        what = "a read" if cut is None else f"{cut} bytes of a read"
        assert done.ok, f"2: {what} came with the data of a write: {status_name(done.status)}"
        done = queue.wait(reads[0])
        assert (done.ok, done.data) == (True, other), (
            f"2: {what} came in one segment with the data of a write, and ended with "
            f"{status_name(done.status)}, or has other data"
        )
        assert read_blocks(queue, scratch, blocks) == data, f"2: a write with whose data {what} came"
