"""The H2CData of a write, one after the other: their order, LAST_PDU and digests (NVMe/TCP 3.3.2.2, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, H2CData, ICReq

from .test_digests import needs_digests

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.2.2")]

PIECES = 4
"""H2CData PDUs of an R2T (chosen)."""

SILENCE = 1.0
"""Seconds in which a write without its data does not succeed (chosen)."""

LARGE = 65536
"""Bytes of a large write (chosen)."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that waits for the data of ``r2t``."""

    queue: Queue
    cid: int
    data: bytes
    r2t: R2T

    @property
    def step(self) -> int:
        """Bytes of one H2CData."""
        return max(min(self.queue.icresp.maxh2cdata, self.r2t.length // PIECES // 4 * 4), 4)

    def send(self, at: int, *, last: bool = False) -> None:
        """Send the H2CData of ``step`` bytes from byte ``at`` of the transfer on."""
        piece = self.data[at : at + self.step]
        self.queue.send(H2CData(self.r2t.cccid, self.r2t.ttag, at, piece, last=last))

    def answer(self) -> None:
        """Send all data of the R2T."""
        end = self.r2t.offset + self.r2t.length
        for pdu in self.queue.split_data(self.r2t, self.data[self.r2t.offset : end]):
            self.queue.send(pdu)


def begin(queue: Queue, scratch: Scratch, *, seed: int, size: int) -> Write:
    """Submit a write of about ``size`` bytes that no capsule holds; return it with its first R2T."""
    blocks = scratch.blocks_of(max(size, queue.in_capsule_limit + 1))
    data = block_data(blocks * scratch.block_size, seed)
    cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    r2t = queue.receive().pdu
    assert isinstance(r2t, R2T), f"3.3.2.2: not {r2t}"
    return Write(queue, cid, data, r2t)


def _claim_fatal(queue: Queue, what: str) -> None:
    ending = queue.wait_for_close()
    completed = any(isinstance(received.pdu, CapsuleResp) for received in ending.before)
    assert ending.ended, f"3.3.2.2: {what} are a fatal transport error; but: {ending}"
    assert not completed, f"3.3.2.2: {what} are a fatal transport error, and the write ended: {ending}"


@pytest.mark.case("NVT-PIECES-GAP", kills=("data-later-gap-ignored",), builds_on=("NVT-DATA-GAP-END",))
def test_a_gap_behind_the_first_piece_is_fatal(queue: Queue, scratch: Scratch) -> None:
    write = begin(queue, scratch, seed=131, size=4096)
    write.send(write.r2t.offset)
    write.send(write.r2t.offset + 2 * write.step)
    _claim_fatal(queue, f"H2CData that skip {write.step} bytes behind the first ones")


@pytest.mark.case("NVT-PIECES-BACK", kills=("data-again-ignored",), builds_on=("NVT-DATA-GAP-END",))
def test_data_that_were_sent_before_are_fatal(queue: Queue, scratch: Scratch) -> None:
    write = begin(queue, scratch, seed=132, size=4096)
    write.send(write.r2t.offset)
    write.send(write.r2t.offset + write.step)
    write.send(write.r2t.offset)
    _claim_fatal(queue, "H2CData at an offset whose data have come")


@pytest.mark.case("NVT-PIECES-FIRST-R2T", kills=("data-again-ignored",), builds_on=("NVT-DATA-GAP-END",))
def test_data_of_an_r2t_that_was_answered_are_fatal(queue: Queue, scratch: Scratch) -> None:
    """They come by the tag of the second R2T, and are data that the first one asked for."""
    write = begin(queue, scratch, seed=133, size=LARGE)
    if write.r2t.length == len(write.data):
        pytest.skip(f"a write of {len(write.data)} bytes has one R2T")
    write.answer()
    second = queue.receive().pdu
    assert isinstance(second, R2T), f"3.3.2.2: not {second}"
    again = replace(write, r2t=second)
    again.send(second.offset - min(again.step, second.offset))  # the second one may be the longer one
    _claim_fatal(queue, "H2CData before the range of their R2T")


@pytest.mark.case("NVT-PIECES-LAST", section="NVMe/TCP 3.6.2.8", kills=("last-pdu-completes",))
def test_a_last_pdu_that_is_not_the_last_does_not_complete_a_write(
    queue: Queue, bench: Harness, scratch: Scratch
) -> None:
    """LAST_PDU comes with the first of several pieces, and no more data. A fatal error is right, too."""
    write = begin(queue, scratch, seed=134, size=4096)
    write.send(write.r2t.offset, last=True)
    ending = queue.wait_for_close(deadline=SILENCE)
    done = [received.pdu for received in ending.before if isinstance(received.pdu, CapsuleResp)]
    assert not any(Cqe.decode(one.cqe).ok for one in done), (
        f"3.6.2.8: {write.step} of {write.r2t.length} bytes have come, with LAST_PDU, and the write succeeded"
    )
    queue.close()
    again = bench.session(name="a look").io_queue()
    current = write_blocks(again, scratch, 1, 135)
    assert read_blocks(again, scratch, 1) == current, "3.3.2.2: a write after one that was left"


@pytest.mark.case(
    "NVT-PIECES-DIGEST",
    section="NVMe/TCP 3.5",
    kills=("ddgst-middle-unchecked",),
    builds_on=("NVT-DGST-DATA",),
)
def test_damage_in_the_middle_of_a_large_write_is_detected(bench: Harness, scratch: Scratch) -> None:
    """The second of the pieces around the middle is damaged; all others are right."""
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    write = begin(queue, scratch, seed=136, size=LARGE)
    queue.icresp = replace(queue.icresp, maxh2cdata=write.step)
    middle, damaged = len(write.data) // 2, 0
    received = R2T(write.cid, write.r2t.ttag, write.r2t.offset, write.r2t.length)
    while isinstance(received, R2T):
        end = received.offset + received.length
        for number, pdu in enumerate(queue.split_data(received, write.data[received.offset : end])):
            wrong = number == 1 and received.offset <= middle < end
            damaged += wrong
            queue.send(
                pdu, override=(lambda raw: override_field(raw, "DDGST", 0xDEADBEEF)) if wrong else None
            )
        received = queue.receive().pdu  # type: ignore[assignment]
    assert isinstance(received, CapsuleResp), f"3.5: a wrong data digest ends with {received}"
    assert damaged == 1, "one piece was damaged"
    status = Cqe.decode(received.cqe).status
    assert status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: one piece in the middle of {len(write.data)} bytes was damaged: not {status_name(status)}"
    )
