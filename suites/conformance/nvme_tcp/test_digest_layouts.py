"""Digests together with alignment, R2Ts, full capsules and several R2Ts at once (NVMe/TCP 3.3)."""

from __future__ import annotations

import itertools

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleResp, H2CData, ICReq
from storagetest.wire.nvme_tcp.queue import Terminated
from storagetest.wire.tcp import PeerClosed

from .test_digests import COMBINATIONS, needs_digests

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.1.1")]

MAXR2T = 3
"""MAXR2T of a host that four R2Ts of a command may be sent to at once: it is zero's based (3.6.2.2)."""

SIZES = (4, 8, 12, 20, 36, 60, 100, 124, 132, 220)
"""Bytes of data of one PDU: dwords, and no multiple of a block (chosen)."""

ALL_NAMESPACES = 0xFFFFFFFF

BEYOND = 65536
"""Bytes of a write that no capsule holds, which a controller may ask for by several R2Ts (chosen)."""


def _io_queue(bench: Harness, icreq: ICReq) -> Queue:
    """Return an I/O queue with the parameters of ``icreq``; skip if the controller does not take them."""
    try:
        queue = bench.session(icreq=icreq).io_queue()
    except (PeerClosed, Terminated) as refused:
        pytest.skip(
            f"the controller does not support HPDA {icreq.hpda} (NVT-ICREQ-HPDA-{icreq.hpda}): {refused}"
        )
    needs_digests(queue)
    return queue


def _write(queue: Queue, scratch: Scratch, blocks: int, *, inside: bool) -> bytes:
    """Write, in the capsule or outside of it, and return the data."""
    data = block_data(blocks * scratch.block_size, 31)
    done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=inside)
    assert done.ok, f"NVM 3.3.6: a write of {blocks} blocks ended with {status_name(done.status)}"
    return data


@pytest.mark.case(section="NVMe/TCP 3.3, 3.3.1.1")
@pytest.mark.parametrize(("hpda", "digests"), [
    pytest.param(hpda, digests, marks=pytest.mark.case(f"NVT-HPDA-IO-{hpda}-{digests}", kills=kills))
    for hpda, digests, kills in (
        (3, "NONE", ("hpda-io-ignored", "pad-set")),
        (15, "H", ("hpda-io-ignored",)),
        (3, "D", ("hpda-io-ignored", "ddgst-over-pad")),
        (31, "HD", ("hpda-io-ignored", "ddgst-over-pad")),
    )
])  # fmt: skip
def test_data_of_a_read_are_aligned_and_right(
    bench: Harness, scratch: Scratch, hpda: int, digests: str
) -> None:
    """On an I/O queue; the padding before the data is in no digest."""
    header, data_digest = COMBINATIONS[digests]
    queue = _io_queue(bench, ICReq(hpda=hpda, header_digest=header, data_digest=data_digest))
    blocks, unit = scratch.fit(32), (hpda + 1) * 4
    data = _write(queue, scratch, blocks, inside=False)
    done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=len(data))
    assert done.ok, f"NVM 3.3.4: a read of {blocks} blocks ended with {status_name(done.status)}"
    for one in done.pdus_of(C2HData):
        assert one.pdo % unit == 0, f"3.3: PDO of C2HData is {one.pdo}, not a multiple of {unit}"
        assert one.header_digest_ok is (True if header else None), "3.3.1.1: HDGST of C2HData"
        assert one.data_digest_ok is (True if data_digest else None), (
            "3.3: DDGST is of the data alone: padding is protected by no digest"
        )
        assert not any(one.padding), "3.3: bytes of PAD are reserved, so they are 0 (Base 1.4.1.6)"
    assert done.data == data, "NVM 3.3.4: the data that were written"


@pytest.mark.parametrize("digests", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-DGST-R2T-{name}", kills=("r2t-without-digest",)))
    for name in ("H", "HD")
])  # fmt: skip
def test_each_r2t_has_a_header_digest(bench: Harness, scratch: Scratch, digests: str) -> None:
    header, data_digest = COMBINATIONS[digests]
    queue = _io_queue(bench, ICReq(header_digest=header, data_digest=data_digest))
    blocks = scratch.blocks_of(queue.in_capsule_limit + BEYOND)
    data = block_data(blocks * scratch.block_size, 32)
    done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    assert done.ok, f"NVM 3.3.6: a write of {blocks} blocks ended with {status_name(done.status)}"
    found = [one.header_digest_ok for one in done.pdus_of(R2T)]
    assert found == [True] * len(found), (
        "3.3.1.1: with the header digest enabled, each PDU has one that is right; of the R2Ts: "
        f"{', '.join({None: 'none', True: 'right', False: 'wrong'}[one] for one in found)}"
    )


@pytest.mark.parametrize("digests", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-DGST-FULL-{name}", kills=("capsule-large-cut",)))
    for name in ("D", "HD")
])  # fmt: skip
def test_a_capsule_that_is_full_arrives_with_digests(bench: Harness, scratch: Scratch, digests: str) -> None:
    """In-capsule data of as many blocks as IOCCSZ allows."""
    header, data_digest = COMBINATIONS[digests]
    queue = _io_queue(bench, ICReq(header_digest=header, data_digest=data_digest))
    if queue.in_capsule_limit < scratch.block_size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    blocks = scratch.fit(queue.in_capsule_limit // scratch.block_size)
    data = _write(queue, scratch, blocks, inside=True)
    found = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=len(data)).data
    wrong = next((at for at in range(len(data)) if found[at : at + 1] != data[at : at + 1]), None)
    assert wrong is None, f"3.3.1: byte {wrong} of {len(data)} in a capsule with a data digest is not written"


@pytest.mark.case(
    "NVT-DGST-SHORT", kills=("ddgst-short-wrong",), builds_on=("NVT-DGST-READ-D", "NVA-LOG-PART-SMART")
)
def test_data_of_any_number_of_dwords_have_their_digest(bench: Harness) -> None:
    """Parts of a log page, of which few are as long as a block."""
    session = bench.session(icreq=ICReq(data_digest=True))
    needs_digests(session.admin)
    for size in SIZES:
        command = admin.get_log_page(LogPage.SMART, size, nsid=ALL_NAMESPACES)
        done = session.admin.run(command, reads=size)
        assert done.ok, f"Base 5.2.12: {size} bytes of a log page: {status_name(done.status)}"
        assert len(done.data) == size, f"Base 5.2.12: {len(done.data)} bytes of a log page, not {size}"


@pytest.mark.case("NVT-DGST-PIECES", kills=("ddgst-pieces-refused",), builds_on=("NVT-DGST-WRITE-D",))
def test_h2cdata_of_any_number_of_dwords_are_taken_with_their_digest(
    bench: Harness, scratch: Scratch
) -> None:
    """The write has more data than a capsule holds."""
    queue = _io_queue(bench, ICReq(header_digest=True, data_digest=True))
    blocks = scratch.blocks_of(min(queue.in_capsule_limit, BEYOND) + scratch.block_size)
    data = block_data(blocks * scratch.block_size, 34)
    queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    sizes = itertools.cycle(SIZES)
    while isinstance(asked := queue.receive().pdu, R2T):
        at, end = asked.offset, asked.offset + asked.length
        while at < end:
            piece = data[at : min(at + next(sizes), end)]
            at += len(piece)
            queue.send(H2CData(asked.cccid, asked.ttag, at - len(piece), piece, last=at == end))
    assert isinstance(asked, CapsuleResp), f"3.3.2.2: not {asked}"
    status = Cqe.decode(asked.cqe).status
    assert not status, f"3.5: a write whose H2CData have {SIZES} bytes ended with {status_name(status)}"
    again = bench.session().io_queue()
    assert read_blocks(again, scratch, blocks) == data, f"NVM 3.3.6: the {blocks} blocks after their write"


@pytest.mark.case("NVT-R2T-ORDER", section="NVMe/TCP 3.3.2.2", kills=("r2t-swapped",))
def test_several_r2ts_of_a_command_ask_for_its_data_in_order(bench: Harness, scratch: Scratch) -> None:
    """The host allows more than one R2T at a time."""
    queue = bench.session(icreq=ICReq(maxr2t=MAXR2T)).io_queue()
    blocks = scratch.blocks_of(queue.in_capsule_limit + BEYOND)
    size = blocks * scratch.block_size
    data = block_data(size, 33)
    done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    assert done.ok, f"NVM 3.3.6: a write of {blocks} blocks ended with {status_name(done.status)}"
    asked = [(one.pdu.offset, one.pdu.length) for one in done.pdus_of(R2T) if isinstance(one.pdu, R2T)]
    at = 0
    for offset, length in asked:
        assert offset == at, (
            f"3.3.2.2: R2Ts of one command ask for {asked}, not sequentially; MAXR2T is {MAXR2T}"
        )
        at += length
    assert at == size, f"3.3.2.2: R2Ts ask for {at} of {size} bytes"
    found = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=size).data
    assert found == data, f"NVM 3.3.6: data that were asked for by {len(asked)} R2Ts"
