"""C2HTermReq of data that come too late or twice: it has the fields of any fatal error (NVMe/TCP 3.6.2.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import R2T, Fes, H2CData

from .test_fatal_errors import SILENCE, is_header_of
from .test_write_pieces import Write, begin

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.6.2.5")]

Late = Callable[[Queue, Scratch], H2CData]

FIELDS = {1: "FLAGS", 2: "HLEN", 3: "PDO", 4: "PLEN", 8: "CCCID", 10: "TTAG", 12: "DATAO", 16: "DATAL"}
"""Fields of an H2CData, which FEI of a C2HTermReq may name, by their offset (3.6.2.8)."""

SIZE = 32 << 10
"""Bytes of a write (chosen)."""


def _data(write: Write, at: int, length: int) -> H2CData:
    piece = write.data[at : at + length].ljust(length, b"\0")
    return H2CData(write.r2t.cccid, write.r2t.ttag, at, piece, last=False)


def _of_complete_write(queue: Queue, scratch: Scratch) -> H2CData:
    blocks = scratch.blocks_of(max(SIZE, queue.in_capsule_limit + 1))
    data = block_data(blocks * scratch.block_size, 2131)
    cid = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    done = queue.wait(cid)
    assert done.ok, f"3.3.6: a write ended with {status_name(done.status)}"
    r2t = next(one.pdu for one in done.pdus if isinstance(one.pdu, R2T))
    return H2CData(cid, r2t.ttag, 0, data[: min(512, queue.icresp.maxh2cdata)], last=True)


def _first_again(queue: Queue, scratch: Scratch) -> H2CData:
    write = begin(queue, scratch, seed=2132, size=SIZE)
    if 2 * write.step > write.r2t.length:
        pytest.skip("the R2T has one piece only")
    write.send(write.r2t.offset)
    return _data(write, write.r2t.offset, write.step)


def _longer_than_asked(queue: Queue, scratch: Scratch) -> H2CData:
    write = begin(queue, scratch, seed=2133, size=SIZE)
    at, end = write.r2t.offset, write.r2t.offset + write.r2t.length
    step = max(min(write.step, queue.icresp.maxh2cdata - 4) // 4 * 4, 4)
    while end - at > step:
        queue.send(_data(write, at, step))
        at += step
    return replace(_data(write, at, end - at + 4), last=True)


def _of_two_writes(queue: Queue, scratch: Scratch) -> H2CData:
    if scratch.limits.outstanding < 2:
        pytest.skip("the queue takes one command at a time")
    first = begin(queue, scratch, seed=2134, size=SIZE)
    second = begin(queue, scratch, seed=2135, size=SIZE)
    if first.r2t.cccid == second.r2t.cccid:
        pytest.skip("the controller asks for the data of one write before those of the other")
    pdu = _data(first, first.r2t.offset, first.step)
    return replace(pdu, ttag=second.r2t.ttag)


LATE: dict[str, tuple[Late, str]] = {
    "DONE": (_of_complete_write, "data by the tag of a write that is complete"),
    "AGAIN": (_first_again, "the first data again"),
    "OVER": (_longer_than_asked, "last data that are 4 bytes longer than the R2T asks for"),
    "CROSSED": (_of_two_writes, "data with the CCCID of a write and the TTAG of another"),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVT-TERM-{name}", kills=("term-fes-done" if name == "DONE" else "term-fes",)))
    for name in LATE
])  # fmt: skip
@pytest.mark.case(builds_on=("NVT-DATA-UNSOLICITED-TERM",))
def test_the_c2htermreq_of_late_data_names_the_error(queue: Queue, scratch: Scratch, name: str) -> None:
    """FES is one of the errors of data, FEI a field of the PDU in error, and the data are its header."""
    late, what = LATE[name]
    pdu = late(queue, scratch)
    raw = queue.encode(pdu)
    queue.send_raw(raw)
    ending = queue.wait_for_close()
    request = ending.request
    if request is None or ending.term is None:
        pytest.skip(f"no C2HTermReq: other cases judge that ({ending})")
    fatal = {Fes.INVALID_HEADER_FIELD, Fes.SEQUENCE_ERROR, Fes.OUT_OF_RANGE, Fes.LIMIT_EXCEEDED}
    expected = ", ".join(f"{fes:02x}h" for fes in sorted(fatal))
    assert request.fes in fatal, f"3.6.2.5: FES for {what} is {request.fes:02x}h, which is none of {expected}"
    if request.fes == Fes.INVALID_HEADER_FIELD:
        assert request.fei in FIELDS, (
            f"3.6.2.5: FES for {what} is 01h, and FEI {request.fei:#x}, where no field begins: it is the "
            f"offset of one of {', '.join(FIELDS.values())}"
        )
    assert request.data, f"3.6.2.5: the C2HTermReq for {what} has no data: they are the header in error"
    assert is_header_of(raw, request.data), (
        f"3.6.2.5: the C2HTermReq for {what} carries {request.data.hex()}: its data are the header of the "
        f"PDU in error, {raw[:24].hex()}"
    )
    assert len(ending.term.raw) <= 152, f"3.6.2.5: PLEN is {len(ending.term.raw)}; it is 152 at most"
    after = queue.what_follows(deadline=SILENCE)
    assert not after, f"3.5: after the C2HTermReq for {what} came {after}: it is the last PDU"
