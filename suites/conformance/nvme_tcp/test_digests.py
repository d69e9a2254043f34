"""Header and data digests (NVMe/TCP 3.3.1.1, 3.5)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import ONCS_BITS, Cns, Io, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, C2HTermReq, CapsuleResp, H2CData, ICReq
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.1.1")]

HEADER, DATA = ("hdgst-wrong", "digest-flags-lost"), ("ddgst-wrong", "digest-flags-lost")

COMBINATIONS = {"NONE": (False, False), "H": (True, False), "D": (False, True), "HD": (True, True)}


def combinations(prefix: str, kills: dict[str, tuple[str, ...]]) -> pytest.MarkDecorator:
    """One case for each of the four combinations of digests; ``kills`` by combination, "" for the others."""
    return pytest.mark.parametrize(
        "icreq",
        [
            pytest.param(
                ICReq(header_digest=header, data_digest=data),
                id=name,
                marks=pytest.mark.case(f"{prefix}-{name}", kills=kills.get(name, kills[""])),
            )
            for name, (header, data) in COMBINATIONS.items()
        ],
    )


def needs_digests(queue: Queue) -> None:
    """Skip where the controller has not agreed to the digests that were asked for."""
    for what, asked, got in (
        ("header", queue.icreq.header_digest, queue.digests.header),
        ("data", queue.icreq.data_digest, queue.digests.data),
    ):
        if asked and not got:
            pytest.skip(f"the controller does not enable the {what} digest, as it may (3.6.2.3)")


@combinations("NVT-DGST-NEGOTIATE", {"": ("icresp-digest-unasked",), "HD": ("icresp-hlen",)})
def test_a_digest_is_enabled_only_where_the_host_asked(bench: Harness, icreq: ICReq) -> None:
    icresp = bench.queue(icreq).icresp
    assert icresp.header_digest <= icreq.header_digest, "3.3.1.1: HDGST_ENABLE was not asked for"
    assert icresp.data_digest <= icreq.data_digest, "3.3.1.1: DDGST_ENABLE was not asked for"


@pytest.mark.case("NVT-DGST-UNASKED", kills=("icresp-digest-unasked",))
def test_no_digest_is_enabled_that_was_not_asked_for(bench: Harness) -> None:
    icresp = bench.queue(ICReq()).icresp
    assert (icresp.header_digest, icresp.data_digest) == (False, False)


@combinations("NVT-DGST-ADMIN", {"": ("digest-unwanted",), "H": HEADER, "HD": HEADER})
def test_responses_carry_what_was_negotiated(bench: Harness, icreq: ICReq) -> None:
    session = bench.session(icreq=icreq)
    needs_digests(session.admin)
    done = session.admin.run(fabrics.property_get(Property.VS))
    response = done.pdus_of(CapsuleResp)[0]
    assert (response.header_digest_ok is not None) == icreq.header_digest, "3.3.1.1: HDGSTF as negotiated"
    assert response.data_digest_ok is None, "3.6.2.7: a CapsuleResp has no data digest"


@combinations(
    "NVT-DGST-READ", {"": ("digest-flags-lost",), "NONE": ("digest-unwanted",), "D": DATA, "HD": DATA}
)
def test_data_to_the_host_carries_what_was_negotiated(bench: Harness, icreq: ICReq) -> None:
    session = bench.session(icreq=icreq)
    needs_digests(session.admin)
    done = session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096)
    assert done.ok
    for pdu in done.pdus_of(C2HData):
        assert pdu.header_digest_ok is (True if icreq.header_digest else None), "3.3.1.1: HDGST of C2HData"
        assert pdu.data_digest_ok is (True if icreq.data_digest else None), "3.3.1.1: DDGST of C2HData"


@combinations("NVT-DGST-WRITE", {"": ("write-lost",)})
def test_data_written_is_data_read(bench: Harness, icreq: ICReq, scratch: Scratch) -> None:
    session = bench.session(icreq=icreq)
    queue = session.io_queue()
    needs_digests(queue)
    blocks = scratch.blocks_of(queue.in_capsule_limit + 4096)  # so much that it is asked for by R2T
    size = blocks * scratch.block_size
    data = block_data(size, 7)
    assert queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data, inside=False).ok
    assert queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=size).data == data


@pytest.mark.case("NVT-DGST-CAPSULE", section="NVMe/TCP 3.5", kills=("ddgst-not-checked",))
def test_a_capsule_with_damaged_data_is_a_transient_transport_error(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    _write(queue, scratch, 1)
    done = _write(queue, scratch, 2, damaged=True)
    assert done.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, f"3.5: not {status_name(done.status)}"


@pytest.mark.case("NVT-DGST-CAPSULE-NOT-WRITTEN", section="NVMe/TCP 3.5", kills=("ddgst-not-checked",))
def test_damaged_data_in_a_capsule_is_not_written(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    _write(queue, scratch, 1)
    with contextlib.suppress(PeerClosed):  # which breaks another rule
        assert not _write(queue, scratch, 2, damaged=True).ok, "3.5: a data digest error is a failed command"
    again = bench.session().io_queue()
    done = again.run(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
    assert done.data == block_data(scratch.block_size, 1), "3.5: what failed its digest reached the medium"


@pytest.mark.case("NVT-DGST-CAPSULE-LIVES", section="NVMe/TCP 3.5", kills=("ddgst-fatal",))
def test_the_connection_outlives_damaged_data_in_a_capsule(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    _write(queue, scratch, 2, damaged=True)
    assert _write(queue, scratch, 3).ok, "3.5: a data digest error is not fatal"


@pytest.mark.case("NVT-DGST-DATA", section="NVMe/TCP 3.5", kills=("ddgst-not-checked",))
def test_h2cdata_that_is_damaged_is_a_transient_transport_error(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    cqe = _write_damaged(queue, scratch)
    assert cqe.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, f"3.5: not {status_name(cqe.status)}"


@pytest.mark.case(
    "NVT-DGST-COMPARE", section="NVMe/TCP 3.5", kills=("ddgst-of-write-alone",), builds_on=("NVT-DGST-DATA",)
)
def test_damaged_data_of_a_compare_are_a_transient_transport_error(bench: Harness, scratch: Scratch) -> None:
    """The data differ from those of the blocks, too, but what was received is not what was sent."""
    session = bench.session(icreq=ICReq(data_digest=True))
    if not session.controller["oncs"] >> ONCS_BITS[Io.COMPARE] & 1:
        pytest.skip("ONCS: COMPARE is not supported")
    queue = session.io_queue()
    needs_digests(queue)
    cqe = _write_damaged(queue, scratch, command=io.compare)
    assert cqe.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, f"3.5: not {status_name(cqe.status)}"


@pytest.mark.case("NVT-DGST-DATA-LATER", section="NVMe/TCP 3.5", kills=("ddgst-later-unchecked",))
def test_damage_of_a_later_h2cdata_is_a_transient_transport_error(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(header_digest=True, data_digest=True)).io_queue()
    needs_digests(queue)
    cqe = _write_damaged(queue, scratch, later=True)
    assert cqe.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, f"3.5: not {status_name(cqe.status)}"


@pytest.mark.case(
    "NVT-DGST-DATA-NOT-WRITTEN", section="NVMe/TCP 3.5", level="SHOULD", kills=("ddgst-data-written",)
)
def test_damaged_h2cdata_is_not_written(bench: Harness, scratch: Scratch) -> None:
    """A write that fails leaves its blocks undefined, but data known to be damaged has no use there."""
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    size = scratch.block_size
    before = queue.run(io.read(scratch.nsid, scratch.lba, 1), reads=size).data
    with contextlib.suppress(PeerClosed):  # which breaks another rule
        _write_damaged(queue, scratch)
    again = bench.session().io_queue()
    done = again.run(io.read(scratch.nsid, scratch.lba, 1), reads=size)
    assert done.data == before, "3.5: data that failed their digest reached the medium"


@pytest.mark.case("NVT-DGST-DATA-LIVES", section="NVMe/TCP 3.5", kills=("ddgst-fatal",))
def test_the_connection_outlives_damaged_h2cdata(bench: Harness, scratch: Scratch) -> None:
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    _write_damaged(queue, scratch)
    assert _write(queue, scratch, 3).ok, "3.5: a data digest error is not fatal"


@pytest.mark.case("NVT-DGST-ICREQ", section="NVMe/TCP 3.3.1.1", kills=("icresp-with-digest",))
def test_icreq_and_icresp_have_no_digest(bench: Harness) -> None:
    queue = bench.queue(ICReq(header_digest=True, data_digest=True))
    received = queue.link.transcript[-1].data
    assert len(received) == 128, "3.3.1.1: ICResp carries no digest, whatever it negotiates"


@pytest.mark.case("NVT-DGST-PER-QUEUE", section="NVMe/TCP 3.3.1.1", kills=("digest-flags-lost",))
def test_each_connection_negotiates_for_itself(session: ControllerSession) -> None:
    queue = session.io_queue(icreq=ICReq(header_digest=True, data_digest=True))
    needs_digests(queue)
    assert not session.admin.digests.header
    assert queue.run(io.flush(session.own_namespace())).pdus_of(CapsuleResp)[0].header_digest_ok, (
        "3.3.1.1: of this connection"
    )


def _write(queue: Queue, scratch: Scratch, seed: int, *, damaged: bool = False) -> CommandResult:
    override = (lambda raw: override_field(raw, "DDGST", 0xDEADBEEF)) if damaged else None
    if damaged and queue.in_capsule_limit < scratch.block_size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    cid = queue.submit(
        io.write(scratch.nsid, scratch.lba, 1),
        data=block_data(scratch.block_size, seed),
        inside=True if damaged else None,
        override=override,
    )
    return queue.wait(cid)


PIECES = 4
"""H2CData PDUs of each R2T of a damaged write (chosen)."""


def _write_damaged(
    queue: Queue,
    scratch: Scratch,
    *,
    later: bool = False,
    command: Callable[[int, int, int], Command] = io.write,
) -> Cqe:
    """Write by R2T and H2CData, the first with a wrong DDGST, or a ``later`` one; return the completion.

    ``command`` is another one than Write that transfers as much data.
    """
    blocks = scratch.blocks_of(queue.in_capsule_limit + 4096)
    data = block_data(blocks * scratch.block_size, 9)
    queue.icresp = replace(
        queue.icresp, maxh2cdata=min(queue.icresp.maxh2cdata, len(data) // PIECES // 4 * 4)
    )
    queue.submit(command(scratch.nsid, scratch.lba, blocks), data=data, inside=False)
    while True:
        received = queue.receive()
        if isinstance(received.pdu, CapsuleResp):
            return Cqe.decode(received.pdu.cqe)
        assert not isinstance(received.pdu, C2HTermReq), (
            f"3.5: a wrong data digest ends with a C2HTermReq, FES {received.pdu.fes:02x}h; it is no fatal "
            "error, also if the rest of the data comes: the write ends with Transient Transport Error"
        )
        assert isinstance(received.pdu, R2T), f"3.3.2.2: not {received.pdu}"
        r2t = received.pdu
        for pdu in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            assert isinstance(pdu, H2CData)
            damaged = pdu.offset == 0 if not later else pdu.last
            queue.send(
                pdu, override=(lambda raw: override_field(raw, "DDGST", 0xDEADBEEF)) if damaged else None
            )
