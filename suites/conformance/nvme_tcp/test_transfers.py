"""Moving data: C2HData (NVMe/TCP 3.3.2.1), R2T and H2CData (3.3.2.2), SGLs and capsules (3.3.1, 3.3.2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe, in_capsule, sgl, transport_sgl
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, H2CData, ICReq
from storagetest.wire.nvme_tcp.queue import Terminated
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.2.1")]

Observe = Callable[[str], None]
DISABLE_FLOW_CONTROL = 0x04
BEYOND = (32768, 131072, 1 << 20)
"""Bytes of writes that are more than a capsule holds (chosen)."""


def asked_for(queue: Queue, scratch: Scratch, size: int) -> tuple[int, R2T]:
    """Submit a write of ``size`` bytes outside the capsule; return its CID and the first R2T."""
    cid = queue.submit(
        io.write(scratch.nsid, scratch.lba, size // scratch.block_size), data=block_data(size), inside=False
    )
    received = queue.receive()
    assert isinstance(received.pdu, R2T), f"3.3.2.2: data is asked for by R2T, not {received.pdu}"
    return cid, received.pdu


def bulk(queue: Queue, scratch: Scratch, *, beyond: int = 32768) -> int:
    """Return the bytes of a write: ``beyond`` more than a capsule holds, or as many as MDTS allows."""
    return scratch.blocks_of(queue.in_capsule_limit + beyond) * scratch.block_size


def needs_outstanding(scratch: Scratch, count: int) -> None:
    """Skip if the controller takes fewer than ``count`` commands at once on a queue."""
    if scratch.limits.outstanding < count:
        pytest.skip(f"CAP.MQES or MAXCMD allows {scratch.limits.outstanding} commands at once, not {count}")


# C2HData (3.3.2.1, 3.6.2.9)


@pytest.mark.case("NVT-C2H-01", kills=("c2h-gap", "c2h-swapped", "c2h-short", "c2h-overrun"))
def test_a_read_returns_every_byte_in_order(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.blocks_of(32768)
    size = blocks * scratch.block_size
    assert queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=block_data(size)).ok
    done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=size)
    assert done.ok
    assert len(done.data) == size, f"3.3.2.1: {len(done.data)} bytes of {size} came"
    assert done.data == block_data(size)


@pytest.mark.case("NVT-C2H-02", kills=("c2h-last-missing", "c2h-last-early"))
def test_last_pdu_is_on_the_last_and_on_no_other(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.fit(64)
    done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)
    assert done.ok, f"a read of {blocks} blocks, which MDTS allows, ended with {status_name(done.status)}"
    marks = [one.pdu.last for one in done.pdus_of(C2HData) if isinstance(one.pdu, C2HData)]
    assert marks == [False] * (len(marks) - 1) + [True], (
        f"LAST_PDU of the C2HData is {marks}; 3.3.2.1: it is in the last PDU alone"
    )


@pytest.mark.case("NVT-C2H-03", kills=("success-without-disabling",))
def test_success_is_used_only_by_a_controller_that_can_disable_sq_flow_control(
    session: ControllerSession, observe: Observe
) -> None:
    done = session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096)
    if done.pdus_of(CapsuleResp):
        observe("while SQ flow control is on, a CapsuleResp ends every command")
        return
    queue = session.io_queue(cattr=DISABLE_FLOW_CONTROL)
    assert not queue.sq_flow_control, "3.3.2.1: SUCCESS wants support for disabling SQHD updates"


@pytest.mark.case("NVT-C2H-FLOW", level="SHOULD", kills=("success-with-flow",))
def test_success_is_not_used_while_sq_flow_control_is_on(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """A C2HData has no SQHD. SHOULD: the text speaks of a controller that *supports* disabling."""
    blocks = scratch.fit(8)
    reads = [queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)]
    reads.append(session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096))
    for name, done in zip(("a read", "Identify"), reads, strict=True):
        assert done.pdus_of(CapsuleResp), (
            f"3.3.2.1: C2HData with SUCCESS ends {name} on a queue whose SQ flow control is on, so the host "
            "receives no SQHD"
        )


@pytest.mark.case("NVT-C2H-04", level="MAY")
def test_success_without_flow_control(session: ControllerSession, scratch: Scratch, observe: Observe) -> None:
    queue = session.io_queue(cattr=DISABLE_FLOW_CONTROL)
    blocks = scratch.fit(8)
    done = queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)
    assert done.ok
    observe("SQ flow control stays on" if queue.sq_flow_control else "SQ flow control goes off when asked")
    observe(
        "a CapsuleResp ends the read" if done.pdus_of(CapsuleResp) else "C2HData with SUCCESS ends the read"
    )


@pytest.mark.case("NVT-C2H-05", section="NVMe/TCP 3.3.2.1", kills=("c2h-success-and-response",))
def test_no_response_follows_success(session: ControllerSession, scratch: Scratch) -> None:
    queue = session.io_queue(cattr=DISABLE_FLOW_CONTROL)
    blocks = scratch.fit(8)
    for _ in range(2):
        queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=blocks * scratch.block_size)
    assert queue.run(io.flush(scratch.nsid)).ok, "3.3.2.1: after SUCCESS there is no CapsuleResp"


@pytest.mark.case(section="NVMe/TCP 3.3")
@pytest.mark.parametrize(
    "hpda",
    [
        pytest.param(value, marks=pytest.mark.case(f"NVT-HPDA-{value}", kills=("c2h-misaligned",)))
        for value in (1, 3, 15, 31)
    ],
)
def test_data_begins_where_hpda_wants_it(bench: Harness, hpda: int) -> None:
    try:
        session = bench.session(icreq=ICReq(hpda=hpda, header_digest=True))
    except (PeerClosed, Terminated) as refused:
        pytest.skip(f"the controller does not support HPDA {hpda} (NVT-ICREQ-HPDA-{hpda}): {refused}")
    done = session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096)
    for one in done.pdus_of(C2HData):
        assert one.pdo % ((hpda + 1) * 4) == 0, f"3.3: PDO {one.pdo} is not a multiple of {(hpda + 1) * 4}"


@pytest.mark.case("NVT-C2H-07", section="NVMe/TCP 3.6.2.9", kills=("c2h-reserved",))
def test_reserved_fields_of_c2hdata_are_zero(session: ControllerSession) -> None:
    for one in session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096).pdus_of(C2HData):
        assert (one.raw[10:12], one.raw[20:24]) == (bytes(2), bytes(4)), (
            "Base 1.4.1.6: reserved fields are 0h"
        )
        assert one.raw[1] & 0xF0 == 0, "Base 1.4.1.6: reserved flags are 0"


@pytest.mark.case("NVT-C2H-08", kills=("c2h-wrong-cid",))
def test_data_of_two_commands_is_distinguished(queue: Queue, scratch: Scratch) -> None:
    needs_outstanding(scratch, 2)
    size = scratch.block_size
    for at in (0, 1):
        queue.run(io.write(scratch.nsid, scratch.lba + at, 1), data=block_data(size, at))
    cids = [queue.submit(io.read(scratch.nsid, scratch.lba + at, 1), reads=size) for at in (0, 1)]
    for at, cid in reversed(list(enumerate(cids))):
        assert queue.wait(cid).data == block_data(size, at), "3.3.2.1: CCCID identifies the data's command"


@pytest.mark.case("NVT-C2H-09", level="MAY")
def test_a_read_that_fails_may_have_returned_data(queue: Queue, scratch: Scratch, observe: Observe) -> None:
    done = queue.run(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    observe(f"{len(done.data)} bytes before {status_name(done.status)}")


# R2T and H2CData (3.3.2.2)


@pytest.mark.case("NVT-R2T-01", section="NVMe/TCP 3.3.2.2", kills=("r2t-gap", "r2t-overrun", "r2t-zero"))
def test_r2ts_cover_the_data_once_and_in_order(queue: Queue, scratch: Scratch) -> None:
    size = bulk(queue, scratch)
    done = queue.run(
        io.write(scratch.nsid, scratch.lba, size // scratch.block_size), data=block_data(size), inside=False
    )
    assert done.ok
    covered = [(one.pdu.offset, one.pdu.length) for one in done.pdus_of(R2T) if isinstance(one.pdu, R2T)]
    at = 0
    for offset, length in covered:
        assert offset == at, f"3.3.2.2: R2Ts are not contiguous: {covered}"
        at += length
    assert at == size, f"3.3.2.2: R2Ts ask for {at} of {size} bytes"


@pytest.mark.case(section="NVMe/TCP 3.3.2.2")
@pytest.mark.parametrize(
    "maxr2t",
    [
        pytest.param(
            value,
            marks=pytest.mark.case(
                f"NVT-R2T-LIMIT-{value + 1}", kills=("r2t-over-limit", "r2t-over-limit-of-large")
            ),
        )
        for value in (0, 1, 3)
    ],
)
def test_outstanding_r2ts_do_not_exceed_maxr2t(bench: Harness, scratch: Scratch, maxr2t: int) -> None:
    """Of a write that is a little larger than a capsule, and of larger ones, as far as MDTS allows them."""
    sizes: set[int] = set()
    for beyond in BEYOND:
        queue = bench.session(icreq=ICReq(maxr2t=maxr2t)).io_queue()
        size = bulk(queue, scratch, beyond=beyond)
        if size in sizes:
            continue
        sizes.add(size)
        cid, _ = asked_for(queue, scratch, size)
        outstanding = 1
        with contextlib.suppress(ResponseTimeout):
            while True:  # nothing of it is answered, so what comes now is outstanding all at once
                received = queue.receive(deadline=0.15)
                outstanding += isinstance(received.pdu, R2T) and received.pdu.cccid == cid
        assert outstanding <= maxr2t + 1, (
            f"3.3.2.2: {outstanding} R2Ts for a write of {size} bytes; MAXR2T allows {maxr2t + 1}"
        )


@pytest.mark.case("NVT-R2T-02", section="NVMe/TCP 3.6.2.10", kills=("r2t-reserved",))
def test_reserved_fields_of_r2t_are_zero(queue: Queue, scratch: Scratch) -> None:
    size = bulk(queue, scratch)
    done = queue.run(
        io.write(scratch.nsid, scratch.lba, size // scratch.block_size), data=block_data(size), inside=False
    )
    for one in done.pdus_of(R2T):
        assert one.raw[20:24] == bytes(4), "Base 1.4.1.6: reserved fields are 0h"
        assert (one.raw[1] & 0xFE, one.raw[3]) == (0, 0), "Base 1.4.1.6: reserved flags and PDO are 0h"


@pytest.mark.case("NVT-R2T-03", section="NVMe/TCP 3.3.2.2", kills=("write-lost",))
def test_an_r2t_may_be_answered_in_many_small_pdus(queue: Queue, scratch: Scratch) -> None:
    size = bulk(queue, scratch)
    cid, r2t = asked_for(queue, scratch, size)
    while True:
        whole = block_data(size)[r2t.offset : r2t.offset + r2t.length]
        for at in range(0, r2t.length, 1024):
            piece = whole[at : at + 1024]
            last = at + len(piece) == r2t.length
            queue.send(H2CData(cid, r2t.ttag, r2t.offset + at, piece, last))
        received = queue.receive()
        if isinstance(received.pdu, CapsuleResp):
            break
        assert isinstance(received.pdu, R2T)
        r2t = received.pdu
    assert Cqe.decode(received.pdu.cqe).ok
    queue.forget(cid)
    done = queue.run(io.read(scratch.nsid, scratch.lba, size // scratch.block_size), reads=size)
    assert done.data == block_data(size)


@pytest.mark.case("NVT-R2T-04", section="NVMe/TCP 3.3.2", kills=("r2t-small-never",))
def test_a_small_write_by_transport_sgl_is_asked_for(queue: Queue, scratch: Scratch) -> None:
    size = scratch.block_size
    done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=block_data(size, 5), inside=False)
    assert done.ok
    assert done.pdus_of(R2T), "3.3.2: data of a Transport SGL is asked for by R2T, however little it is"


@pytest.mark.case("NVT-R2T-05", section="NVMe/TCP 3.3.2.2", kills=("r2t-wrong-cid",))
def test_two_writes_are_asked_for_apart(queue: Queue, scratch: Scratch) -> None:
    needs_outstanding(scratch, 2)
    size = bulk(queue, scratch)
    blocks = min(size // scratch.block_size, scratch.blocks // 2)
    size = blocks * scratch.block_size
    first = queue.submit(io.write(scratch.nsid, scratch.lba, blocks), data=block_data(size, 1), inside=False)
    second = queue.submit(
        io.write(scratch.nsid, scratch.lba + blocks, blocks), data=block_data(size, 2), inside=False
    )
    assert queue.wait(second).ok
    assert queue.wait(first).ok
    for at, seed in ((0, 1), (blocks, 2)):
        done = queue.run(io.read(scratch.nsid, scratch.lba + at, blocks), reads=size)
        assert done.data == block_data(size, seed), "3.3.2.2: each R2T's data belongs to its command"


@pytest.mark.case("NVT-R2T-06", section="NVMe/TCP 3.3.2.2", kills=("maxh2cdata-not-checked",))
def test_data_over_maxh2cdata_is_not_taken(queue: Queue, scratch: Scratch) -> None:
    """The header alone is sent first: DATAL is over MAXH2CDATA, and a controller may refuse it there.

    One that reads the whole PDU first gets the data. If the R2T asks for no more than MAXH2CDATA, the PDU is
    beyond the R2T as well, which is a fatal error, too.
    """
    most = queue.icresp.maxh2cdata
    cid, r2t = asked_for(queue, scratch, bulk(queue, scratch, beyond=most))
    length = r2t.length if r2t.length > most else most + 4
    raw = queue.encode(H2CData(cid, r2t.ttag, r2t.offset, bytes(length)))
    queue.send_raw(raw[:24])
    ending = queue.wait_for_close(deadline=0.3)
    if not ending.ended:
        with contextlib.suppress(RemoteProtocolError):  # it may close while data are on their way
            queue.send_raw(raw[24:])
        ending = queue.wait_for_close()
    assert ending.ended, (
        f"H2CData of {length} bytes did not end the connection ({ending}); MAXH2CDATA is {most}, and the R2T "
        f"asks for {r2t.length}; 3.3.2.2: H2CData over MAXH2CDATA or beyond its R2T is a fatal error"
    )


@pytest.mark.case("NVT-R2T-07", section="NVMe/TCP 3.3.2.2", kills=("data-after-last-ignored",))
def test_data_after_the_last_is_fatal(queue: Queue, scratch: Scratch) -> None:
    size = bulk(queue, scratch)
    cid, r2t = asked_for(queue, scratch, size)
    for pdu in queue.split_data(r2t, block_data(size)[: r2t.length]):
        queue.send(pdu)
    queue.send(H2CData(cid, r2t.ttag, 0, bytes(512)))
    assert queue.wait_for_close().ended, "3.3.2.2: H2CData that no R2T asks for"


# In-capsule data and SGLs (3.3.1, 3.3.2)


@pytest.mark.case("NVT-SGL-01", section="NVMe/TCP 3.3.1", kills=("write-lost",))
def test_in_capsule_data_up_to_the_limit_is_taken(queue: Queue, scratch: Scratch) -> None:
    if queue.in_capsule_limit < scratch.block_size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    blocks = scratch.fit(queue.in_capsule_limit // scratch.block_size)
    size = blocks * scratch.block_size
    done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=block_data(size, 3), inside=True)
    assert done.ok
    assert not done.pdus_of(R2T), "3.3.1: what is in the capsule is not asked for"
    assert queue.run(io.read(scratch.nsid, scratch.lba, blocks), reads=size).data == block_data(size, 3)


@pytest.mark.case("NVT-SGL-02", section="NVMe/TCP 3.3.1", level="SHOULD", kills=("capsule-over-taken",))
def test_in_capsule_data_over_the_limit_is_refused(queue: Queue, scratch: Scratch, observe: Observe) -> None:
    size = queue.in_capsule_limit + scratch.block_size
    command = replace(
        io.write(scratch.nsid, scratch.lba, size // scratch.block_size), cid=77, dptr=in_capsule(size)
    )
    queue.send(CapsuleCmd(command.encode(), bytes(size)))
    ending = queue.wait_for_close()
    statuses = [Cqe.decode(one.pdu.cqe).status for one in ending.before if isinstance(one.pdu, CapsuleResp)]
    observe(f"refused by {status_name(statuses[0])}" if statuses else f"ended: {ending}")
    assert statuses or ending.ended, "3.3.1: in-capsule data over IOCCSZ"
    assert StatusCode.SUCCESS not in statuses, "3.3.1: in-capsule data over IOCCSZ was taken"


@pytest.mark.case("NVT-SGL-03", section="NVMe/TCP 3.3.1", kills=("admin-capsule-small",))
def test_the_admin_queue_takes_8192_bytes_in_a_capsule(bench: Harness) -> None:
    session = bench.session()
    command = replace(fabrics.property_get(Property.VS), cid=5, dptr=in_capsule(8192))
    session.admin.send(CapsuleCmd(command.encode(), bytes(8192)))
    received = session.admin.receive()
    assert isinstance(received.pdu, CapsuleResp), f"3.3.1: 8,192 bytes on the admin queue, not {received.pdu}"
    assert Cqe.decode(received.pdu.cqe).cid == 5


BAD_SGLS = {
    "KEYED": sgl(0x4, 0x0, length=512),
    "KEYED-F": sgl(0x4, 0xF, length=512),
    "BIT-BUCKET": sgl(0x1, 0x0, length=512),
    "SEGMENT": sgl(0x2, 0x0, length=512),
    "LAST-SEGMENT": sgl(0x3, 0x0, length=512),
    "VENDOR": sgl(0xF, 0x0, length=512),
    "ADDRESS": sgl(0x0, 0x0, address=0x1000, length=512),
    "SUBTYPE": sgl(0x5, 0x0, length=512),
}


@pytest.mark.case(section="NVMe/TCP 3.3.2")
@pytest.mark.parametrize(
    "descriptor",
    [
        pytest.param(
            raw,
            id=name,
            marks=pytest.mark.case(
                f"NVT-SGL-{name}",
                kills=("sgl-not-checked",),
                builds_on=() if name == "KEYED" else ("NVT-SGL-KEYED",),
            ),
        )
        for name, raw in BAD_SGLS.items()
    ],
)
def test_an_unsupported_sgl_is_a_failed_command(queue: Queue, scratch: Scratch, descriptor: bytes) -> None:
    cid = queue.submit(io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size, dptr=descriptor)
    done = queue.wait(cid)
    assert done.status in (StatusCode.SGL_TYPE_INVALID, StatusCode.INVALID_FIELD), (
        f"3.3.2: an SGL that NVMe/TCP has not is refused, not {status_name(done.status)}"
    )
    assert queue.run(io.flush(scratch.nsid)).ok, "3.3.2: and the connection lives on"


@pytest.mark.case("NVT-SGL-04", section="Base 4.3.2", kills=("sgl-length-ignored",))
def test_a_transport_sgl_that_is_too_short_is_refused(queue: Queue, scratch: Scratch) -> None:
    blocks = scratch.fit(4)
    size = blocks * scratch.block_size
    cid = queue.submit(io.read(scratch.nsid, scratch.lba, blocks), reads=size, dptr=transport_sgl(size // 2))
    done = queue.wait(cid)
    assert done.status == StatusCode.DATA_SGL_LENGTH_INVALID, f"Base 4.3.2: not {status_name(done.status)}"


@pytest.mark.case("NVT-SGL-05", section="Base 3.3.2.1.3", kills=("sgl-length-ignored",))
def test_an_offset_beyond_the_capsule_is_refused(queue: Queue, scratch: Scratch) -> None:
    size = scratch.block_size
    if queue.in_capsule_limit < size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    cid = queue.submit(
        io.write(scratch.nsid, scratch.lba, 1),
        data=bytes(size),
        inside=True,
        dptr=in_capsule(size, offset=65536),
    )
    done = queue.wait(cid)
    assert done.status == StatusCode.SGL_OFFSET_INVALID, f"Base 3.3.2.1.3: not {status_name(done.status)}"


@pytest.mark.case("NVT-PSDT-PRP", section="Base 4.1.1", level="SHOULD", kills=("psdt-ignored",))
def test_a_command_by_prps_is_refused(queue: Queue, scratch: Scratch) -> None:
    done = _read_with_flags(queue, scratch, 0x00)
    assert done.status == StatusCode.INVALID_FIELD, f"4.2.3.1: not {status_name(done.status)}"


@pytest.mark.case("NVT-PSDT-RESERVED", section="Base 1.4.1.6", kills=("psdt-ignored",))
def test_a_reserved_psdt_is_an_error(queue: Queue, scratch: Scratch) -> None:
    assert not _read_with_flags(queue, scratch, 0xC0).ok, "1.4.1.6: a reserved value is reported as an error"


def _read_with_flags(queue: Queue, scratch: Scratch, flags: int) -> CommandResult:
    command: Command = replace(io.read(scratch.nsid, scratch.lba, 1), flags=flags)
    return queue.run(command, reads=scratch.block_size)


# Capsules (3.6.2.6, 3.6.2.7)


@pytest.mark.case("NVT-CAPSULE-01", section="NVMe/TCP 3.6.2.7", kills=("resp-flags", "resp-pdo"))
def test_reserved_fields_of_capsuleresp_are_zero(session: ControllerSession) -> None:
    response = session.admin.run(fabrics.property_get(Property.VS)).pdus_of(CapsuleResp)[0]
    assert response.raw[1:4] == b"\0\x18\0", "Base 1.4.1.6: FLAGS and PDO are 0h; 3.6.2.7: HLEN is 24"


@pytest.mark.case("NVT-CAPSULE-02", section="Base 4.2.2", kills=("resp-phase",))
def test_there_is_no_phase_tag_over_fabrics(session: ControllerSession) -> None:
    assert not session.admin.run(fabrics.property_get(Property.VS)).cqe.phase, "Base 4.2.2: bit 0 is reserved"


@pytest.mark.case("NVT-CAPSULE-03", section="Base 4.2.1", kills=("sqhd-stuck",))
def test_sqhd_moves_with_the_commands(session: ControllerSession) -> None:
    heads = [session.admin.run(fabrics.property_get(Property.VS)).cqe.sqhd for _ in range(3)]
    assert len(set(heads)) == 3, f"Base 4.2.1: SQHD is the queue's head, but was {heads}"


@pytest.mark.case("NVT-CAPSULE-04", section="NVMe/TCP 3.6.2.7", kills=("resp-wrong-cid", "resp-twice"))
def test_every_command_is_answered_once(session: ControllerSession) -> None:
    for _ in range(2):
        assert session.admin.run(fabrics.property_get(Property.VS)).ok
    with pytest.raises(RemoteProtocolError, match="neither responded nor closed"):
        session.admin.receive(deadline=0.1)


@pytest.mark.case("NVT-CAPSULE-05", section="NVMe/TCP 2", kills=("answer-lost",))
def test_many_capsules_may_come_in_one_segment(session: ControllerSession) -> None:
    queue = session.admin
    raw = b""
    for cid in range(100, 116):
        raw += queue.encode(CapsuleCmd(replace(fabrics.property_get(Property.VS), cid=cid).encode()))
    queue.send_raw(raw)
    answered = []
    for _ in range(16):
        pdu = queue.receive().pdu
        assert isinstance(pdu, CapsuleResp)
        answered.append(Cqe.decode(pdu.cqe).cid)
    assert sorted(answered) == list(range(100, 116)), "each of them is answered"


@pytest.mark.case(
    "NVT-CAPSULE-06",
    section="NVMe/TCP 2",
    no_mutant_reason="the proxy cuts the stream into whole PDUs, so it never sees a split PDU",
)
def test_a_capsule_may_come_byte_by_byte(session: ControllerSession) -> None:
    queue = session.admin
    for byte in queue.encode(CapsuleCmd(replace(fabrics.property_get(Property.VS), cid=9).encode())):
        queue.send_raw(bytes([byte]))
    pdu = queue.receive().pdu
    assert isinstance(pdu, CapsuleResp)
    assert Cqe.decode(pdu.cqe).cid == 9


@pytest.mark.case("NVT-CAPSULE-07", section="Base 4.2.2", kills=("resp-sqid",))
def test_sqid_is_reserved_over_fabrics(session: ControllerSession) -> None:
    assert session.admin.run(fabrics.property_get(Property.VS)).cqe.sqid == 0, "Base 4.2.2: SQID is reserved"
