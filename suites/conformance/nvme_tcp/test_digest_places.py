"""A wrong data digest wherever it is: in any piece of a write, and in the capsules of the admin queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Feature, StatusCode, status_name
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme_tcp import Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, ICReq

from .test_digests import needs_digests
from .test_large import needs_two
from .test_pending_writes import asked_for

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 3.5", builds_on=("NVT-DGST-DATA",)),
]

PIECE = 4096
"""Bytes of an H2CData: the least MAXH2CDATA that is allowed (3.6.2.3)."""

PIECES = 4
"""H2CData of a write, if the limits allow so many (chosen)."""

BEHAVIOR = 512
"""Bytes of Host Behavior Support (Base 5.2.26.1.14)."""


def _wrong(raw: bytes) -> bytes:
    return override_field(raw, "DDGST", 0xDEADBEEF)


def _damaged(queue: Queue, scratch: Scratch, place: str) -> Cqe:
    """Write with one damaged piece; before each later piece, a Flush on the queue is completed."""
    blocks = scratch.blocks_of(max(queue.in_capsule_limit + PIECE, PIECES * PIECE))
    data = block_data(blocks * scratch.block_size, 2401)
    r2t = asked_for(queue, io.write(scratch.nsid, scratch.lba, blocks), data)
    queue.icresp = replace(queue.icresp, maxh2cdata=PIECE)
    sent, damaged = 0, 0
    while True:
        for piece in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
            if sent:
                done = queue.run(io.flush(scratch.nsid))
                assert done.ok, f"Base 7.2: a Flush while a write waits: {status_name(done.status)}"
            end = piece.offset + len(piece.data)
            here = {
                "FIRST": not sent,
                "MIDDLE": bool(sent) and end < len(data),
                "LAST": end == len(data),
            }[place]
            wrong = here and not damaged
            queue.send(piece, override=_wrong if wrong else None)
            sent, damaged = sent + 1, damaged + wrong
        received = queue.receive().pdu
        if isinstance(received, CapsuleResp):
            if not damaged:
                pytest.skip(f"a write of {len(data)} bytes has {sent} pieces")
            return Cqe.decode(received.cqe)
        assert isinstance(received, R2T), f"3.3.2.2: not {received}"
        r2t = received


@pytest.mark.parametrize("place", [
    pytest.param(place, marks=pytest.mark.case(f"NVT-DGST-PLACE-{place}", kills=(mutant,)))
    for place, mutant in (
        ("FIRST", "ddgst-first-unchecked"),
        ("MIDDLE", "ddgst-middle-unchecked"),
        ("LAST", "ddgst-later-unchecked"),
    )
])  # fmt: skip
def test_one_damaged_piece_of_a_write_fails_it(bench: Harness, scratch: Scratch, place: str) -> None:
    """All other pieces are right, and each is received before the next one is sent."""
    needs_two(scratch)
    queue = bench.session(icreq=ICReq(data_digest=True)).io_queue()
    needs_digests(queue)
    status = _damaged(queue, scratch, place).status
    assert status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: the {place.lower()} of the pieces of a write was damaged, and the write ended with "
        f"{status_name(status)}"
    )


@pytest.mark.case("NVT-DGST-CONNECT", kills=("ddgst-admin-unchecked",), builds_on=("NVT-DGST-CAPSULE",))
def test_damaged_data_of_a_connect_are_a_transient_transport_error(bench: Harness) -> None:
    queue = bench.queue(ICReq(data_digest=True))
    needs_digests(queue)
    identity, endpoint = bench.any_host(), bench.endpoint
    data = ConnectData(identity.hostid, endpoint.any_controller, endpoint.subnqn, identity.nqn).encode()
    command = fabrics.connect(qid=0, sqsize=31, kato=120_000)
    done = queue.wait(queue.submit(command, data=data, inside=True, override=_wrong))
    assert done.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: a Connect whose data were damaged ended with {status_name(done.status)}"
    )


@pytest.mark.case("NVT-DGST-FEATURE", kills=("ddgst-admin-unchecked",), builds_on=("NVT-DGST-CAPSULE",))
def test_damaged_data_of_an_admin_command_are_a_transient_transport_error(bench: Harness) -> None:
    """Set Features of Host Behavior Support, of the value that it has; the admin queue goes on."""
    session = bench.session(icreq=ICReq(data_digest=True))
    needs_digests(session.admin)
    got = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    if not got.ok:
        pytest.skip(f"no Host Behavior Support: {status_name(got.status)}")
    command = admin.set_features(Feature.HOST_BEHAVIOR, 0)
    queue = session.admin
    done = queue.wait(queue.submit(command, data=got.data[:BEHAVIOR], inside=True, override=_wrong))
    assert done.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: Set Features whose data were damaged ended with {status_name(done.status)}"
    )
    done = queue.run(command, data=got.data[:BEHAVIOR], inside=True)
    assert done.ok, f"3.5: Set Features after a damaged one ended with {status_name(done.status)}"
