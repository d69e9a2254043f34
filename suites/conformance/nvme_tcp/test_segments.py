"""PDUs that TCP delivers in parts: the stream has no boundaries but those of the PDUs (NVMe/TCP 2)."""

from __future__ import annotations

import time

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleCmd, CapsuleResp, H2CData, ICReq
from storagetest.wire.nvme_tcp.queue import Override

from .test_digests import needs_digests

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 2", builds_on=("NVB-RW-01",)),
]

PAUSE = 0.03
"""Seconds between two parts, so that TCP sends them in two segments (chosen)."""

H2CDATA, CAPSULE = 24, 72
"""Bytes of the header of H2CData (3.6.2.8) and of CapsuleCmd, which has the queue entry (3.6.2.6)."""


def _cuts(header: int, length: int) -> list[int]:
    """Return where a PDU of ``length`` bytes is cut: in each header, in the data, and in the digests."""
    ends = (1, 7, 8, header - 1, header, header + 1, header + 4, (header + length) // 2)
    return sorted({at for at in (*ends, length - 5, length - 4, length - 1) if 0 < at < length})


def _in_two(queue: Queue, at: int) -> Override:
    """Return an override that sends the first ``at`` bytes of a PDU, and returns those that are left."""

    def override(raw: bytes) -> bytes:
        queue.send_raw(raw[:at])
        time.sleep(PAUSE)
        return raw[at:]

    return override


def _queue(bench: Harness, *, digests: bool) -> Queue:
    queue = bench.session(icreq=ICReq(header_digest=digests, data_digest=digests)).io_queue()
    needs_digests(queue)
    return queue


def _claim_written(queue: Queue, scratch: Scratch, status: int, data: bytes, what: str) -> None:
    assert not status, f"2: {what}, and the write ended with {status_name(status)}"
    assert read_blocks(queue, scratch, len(data) // scratch.block_size) == data, (
        f"2: {what}, and other data are read than were written"
    )


def _forms(name: str, mutant: str) -> pytest.MarkDecorator:
    """One case without digests, and one with both."""
    return pytest.mark.parametrize("digests", [
        pytest.param(False, marks=pytest.mark.case(f"NVT-SPLIT-{name}", kills=(mutant,))),
        pytest.param(True, marks=pytest.mark.case(f"NVT-SPLIT-{name}-HD", kills=(mutant, "split-digests"))),
    ])  # fmt: skip


@_forms("CAPSULE", "split-capsule-lost")
def test_a_capsule_with_data_comes_in_two_segments(bench: Harness, scratch: Scratch, digests: bool) -> None:
    """The cut is in the header, behind it, in the data and in the digests."""
    queue, size = _queue(bench, digests=digests), scratch.block_size
    if queue.in_capsule_limit < size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    length = len(queue.encode(CapsuleCmd(bytes(64), bytes(size))))
    for number, at in enumerate(_cuts(CAPSULE, length)):
        data = block_data(size, 1500 + number)
        cid = queue.submit(
            io.write(scratch.nsid, scratch.lba, 1), data=data, inside=True, override=_in_two(queue, at)
        )
        what = f"the first {at} of {length} bytes of the CapsuleCmd came alone"
        _claim_written(queue, scratch, queue.wait(cid).status, data, what)


@_forms("DATA", "split-data-lost")
def test_h2cdata_come_in_two_segments(bench: Harness, scratch: Scratch, digests: bool) -> None:
    """The cut is in the header, behind it, in the data and in the digests."""
    queue = _queue(bench, digests=digests)
    blocks = scratch.blocks_of(queue.in_capsule_limit + 1)  # so much that it is asked for by R2T
    size = blocks * scratch.block_size
    lengths = {len(queue.encode(H2CData(0, 0, 0, bytes(size)))), H2CDATA + 16}
    for number, at in enumerate(sorted({at for length in lengths for at in _cuts(H2CDATA, length)})):
        data = block_data(size, 1520 + number)
        cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
        while isinstance(pdu := queue.receive().pdu, R2T):
            for part in queue.split_data(pdu, data[pdu.offset : pdu.offset + pdu.length]):
                queue.send(part, override=_in_two(queue, at))
        queue.forget(cid)
        assert isinstance(pdu, CapsuleResp), f"2: the first {at} bytes of H2CData came alone; then came {pdu}"
        what = f"the first {at} bytes of H2CData came alone"
        _claim_written(queue, scratch, Cqe.decode(pdu.cqe).status, data, what)


@pytest.mark.case("NVT-SPLIT-NEXT", kills=("split-next-lost",))
def test_a_segment_ends_within_the_next_command(queue: Queue, scratch: Scratch) -> None:
    """A read and a part of the next read come together, and the other part comes later."""
    size = scratch.block_size
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command at a time (CAP.MQES, MAXCMD)")
    data = write_blocks(queue, scratch, 2, 1540)
    for at in (1, 8, 71):
        held: list[bytes] = []

        def hold(raw: bytes, held: list[bytes] = held) -> bytes:
            held.append(raw)
            return b""

        def send(raw: bytes, held: list[bytes] = held, at: int = at) -> bytes:
            queue.send_raw(held[0] + raw[:at])
            time.sleep(PAUSE)
            return raw[at:]

        cids = [
            queue.submit(io.read(scratch.nsid, scratch.lba + number, 1), reads=size, override=override)
            for number, override in enumerate((hold, send))
        ]
        for number, cid in enumerate(cids):
            done = queue.wait(cid)
            assert (done.ok, done.data) == (True, data[number * size : (number + 1) * size]), (
                f"2: the first {at} bytes of the second CapsuleCmd came with the first one, and read "
                f"{number + 1} ended with {status_name(done.status)}, or has other data"
            )
