"""Data of commands other than Read and Write: asked for by R2T, damaged, and longer than their SGL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Io, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe, in_capsule, transport_sgl
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp, ICReq
from storagetest.wire.nvme_tcp.reservation_harness import (
    REGISTER,
    RELEASE,
    ReservingHost,
    allowed,
    require_type,
)

from .test_digests import needs_digests
from .test_families import supported

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.2")]

BLOCKS = 8
COPIED_TO = 4
"""Blocks that are written (chosen), and the one that a Copy of the first one writes."""

TYPE = Rtype.WRITE_EXCLUSIVE
BAD_DIGEST = 0xDEADBEEF

Hosts = tuple[ReservingHost, ReservingHost]


def _copy(session: ControllerSession, scratch: Scratch) -> tuple[Command, bytes]:
    """Return a Copy of the first block; skip if there is none."""
    if not supported(session, Io.COPY):
        pytest.skip("ONCS: COPY is not supported")
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    return io.copy(scratch.nsid, scratch.lba + COPIED_TO, 1), io.copy_ranges([(scratch.lba, 1)])


def _deallocation(session: ControllerSession, scratch: Scratch) -> tuple[Command, bytes]:
    """Return a deallocation of one block; skip if there is none."""
    if not supported(session, Io.DATASET_MANAGEMENT):
        pytest.skip("ONCS: DATASET_MANAGEMENT is not supported")
    return io.dataset_management(scratch.nsid, 1), io.dsm_ranges([(scratch.lba + COPIED_TO, 1)])


# Asked for by R2T (NVMe/TCP 3.3.2.2)


def _claim_done(done: CommandResult, what: str) -> None:
    assert done.pdus_of(R2T), f"3.3.2: no R2T asks for the data of {what}, which are in no capsule"
    assert done.ok, f"3.3.2: {what} whose data are asked for by R2T ended with {status_name(done.status)}"


@pytest.mark.case("NVT-ASKED-COPY", kills=("asked-others-refused", "asked-others-zero"))
def test_a_copy_whose_ranges_are_asked_for_is_done(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    command, ranges = _copy(session, scratch)
    size, data = scratch.block_size, write_blocks(queue, scratch, BLOCKS, 1400)
    _claim_done(queue.run(command, data=ranges, inside=False), "a Copy")
    wanted = data[: COPIED_TO * size] + data[:size] + data[(COPIED_TO + 1) * size :]
    assert read_blocks(queue, scratch, BLOCKS) == wanted, (
        f"NVM 3.3.2: block {COPIED_TO} is the first one since a Copy, and no other is changed"
    )


@pytest.mark.case("NVT-ASKED-DSM", kills=("asked-others-refused",))
def test_a_deallocation_whose_ranges_are_asked_for_is_done(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    command, ranges = _deallocation(session, scratch)
    size, data = scratch.block_size, write_blocks(queue, scratch, BLOCKS, 1401)
    _claim_done(queue.run(command, data=ranges, inside=False), "Dataset Management")
    found = read_blocks(queue, scratch, BLOCKS)
    for at in range(BLOCKS):
        kept = found[at * size : (at + 1) * size] == data[at * size : (at + 1) * size]
        assert kept or at == COPIED_TO, f"NVM 3.3.3: block {COPIED_TO} was deallocated, and so was {at}"


@pytest.mark.case(
    "NVT-ASKED-RESERVE", kills=("asked-others-refused", "asked-others-zero"), builds_on=("NVR-REG-01",)
)
def test_keys_that_are_asked_for_are_taken(hosts: Hosts) -> None:
    """Register, Acquire and Release, whose keys are asked for by R2T."""
    host, _ = hosts
    require_type(host.scratch, TYPE)
    nsid, key = host.nsid, host.key
    done = host.queue.run(io.register(nsid, REGISTER), data=io.keys(0, key), inside=False)
    _claim_done(done, "Reservation Register")
    found = [one.key for one in host.report().registrants]
    assert found == [key], f"Base 7.6: key {key:#x} was registered; the report has {found}"
    done = host.queue.run(io.acquire(nsid, 0, TYPE), data=io.keys(key), inside=False)
    _claim_done(done, "Reservation Acquire")
    assert host.report().rtype == TYPE, "Base 7.5: a reservation was acquired; the report has another type"
    done = host.queue.run(io.release(nsid, RELEASE, TYPE), data=io.keys(key)[:8], inside=False)
    _claim_done(done, "Reservation Release")
    assert not host.report().rtype, "Base 7.7: the reservation was released; the report has a type"


# Damaged (NVMe/TCP 3.5)


def _damaged(queue: Queue, command: Command, data: bytes, *, inside: bool) -> Cqe:
    """Run a command whose data have a wrong DDGST, and return its completion."""
    if inside:
        return queue.wait(
            queue.submit(
                command,
                data=data,
                inside=True,
                override=lambda raw: override_field(raw, "DDGST", BAD_DIGEST),
            )
        ).cqe
    queue.submit(command, data=data, inside=False)
    while True:
        pdu = queue.receive().pdu
        if isinstance(pdu, CapsuleResp):
            return Cqe.decode(pdu.cqe)
        assert isinstance(pdu, R2T), f"3.3.2.2: not {pdu}"
        for part in queue.split_data(pdu, data[pdu.offset : pdu.offset + pdu.length]):
            queue.send(part, override=lambda raw: override_field(raw, "DDGST", BAD_DIGEST))


def _claim_detected(queue: Queue, command: Command, data: bytes, what: str) -> None:
    """Claim that damage of the data is detected in the capsule and in H2CData."""
    for inside in (True, False):
        if inside and queue.in_capsule_limit < len(data):
            continue
        cqe = _damaged(queue, command, data, inside=inside)
        queue.forget(cqe.cid)
        assert cqe.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
            f"3.5: {what} ended with {status_name(cqe.status)}; the DDGST of its "
            f"{'in-capsule data' if inside else 'H2CData'} was wrong: Transient Transport Error"
        )


def _digesting(bench: Harness, host: ReservingHost | None = None) -> tuple[ControllerSession, Queue]:
    session = bench.session(
        identity=host.session.identity if host else None,
        icreq=ICReq(data_digest=True),
        name="admin queue with data digests",
    )
    queue = session.io_queue()
    needs_digests(queue)
    return session, queue


@pytest.mark.case("NVT-DGST-OTHERS-COPY", section="NVMe/TCP 3.5", kills=("ddgst-of-blocks-alone",))
def test_damaged_ranges_of_a_copy_are_detected(bench: Harness, scratch: Scratch) -> None:
    session, queue = _digesting(bench)
    command, ranges = _copy(session, scratch)
    _claim_detected(queue, command, ranges, "a Copy")


@pytest.mark.case("NVT-DGST-OTHERS-DSM", section="NVMe/TCP 3.5", kills=("ddgst-of-blocks-alone",))
def test_damaged_ranges_of_a_deallocation_are_detected(bench: Harness, scratch: Scratch) -> None:
    session, queue = _digesting(bench)
    command, ranges = _deallocation(session, scratch)
    _claim_detected(queue, command, ranges, "Dataset Management")


@pytest.mark.case("NVT-DGST-OTHERS-REGISTER", section="NVMe/TCP 3.5", kills=("ddgst-of-blocks-alone",))
def test_damaged_keys_of_a_register_are_detected(bench: Harness, hosts: Hosts) -> None:
    host, _ = hosts
    _, queue = _digesting(bench, host)
    command = io.register(host.nsid, REGISTER)
    _claim_detected(queue, command, io.keys(0, host.key), "Reservation Register")


# Longer than their SGL (Base 4.3.2)


@dataclass(frozen=True, slots=True)
class Short:
    """A command, and how much it transfers; its SGL has half of that. ``sent`` is what the host sends."""

    command: Command
    size: int
    sent: bytes = b""
    inside: bool = False


def _run_short(queue: Queue, short: Short, what: str) -> None:
    half = short.size // 2
    dptr = in_capsule(half) if short.inside else transport_sgl(half)
    cid = queue.submit(
        short.command,
        data=short.sent[:half] if short.inside else short.sent,
        reads=0 if short.sent else short.size,
        inside=short.inside,
        dptr=dptr,
    )
    done = queue.wait(cid)
    assert not done.ok, (
        f"4.3.2: {what} of {short.size} bytes succeeds; its SGL has {half}: Data SGL Length Invalid"
    )


READS: dict[str, tuple[Callable[[], Command], int]] = {
    "IDENTIFY": (lambda: admin.identify(Cns.CONTROLLER), 4096),
    "LIST": (lambda: admin.identify(Cns.ACTIVE_NAMESPACES), 4096),
    "LOG": (lambda: admin.get_log_page(LogPage.FIRMWARE_SLOT, 512, nsid=0xFFFFFFFF), 512),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-SGL-SHORT-{name}", kills=("sgl-short-taken",)))
    for name in READS
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_an_admin_command_whose_sgl_is_too_short_fails(session: ControllerSession, name: str) -> None:
    make, size = READS[name]
    _run_short(session.admin, Short(make(), size), name)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-SGL-SHORT-{name}", kills=("sgl-short-taken",)))
    for name in ("WRITE", "CAPSULE", "COMPARE")
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_a_transfer_whose_sgl_is_too_short_fails(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """A write whose SGL has half of its blocks leaves the block behind it as it was, too."""
    if name == "COMPARE" and not supported(session, Io.COMPARE):
        pytest.skip("ONCS: COMPARE is not supported")
    inside, limit = name == "CAPSULE", queue.in_capsule_limit
    if inside and limit < scratch.block_size // 2:
        pytest.skip(f"IOCCSZ allows {limit} bytes of in-capsule data")
    blocks = 1 if inside else scratch.blocks_of(2 * limit + 2)  # half of them are asked for by R2T
    size = blocks * scratch.block_size
    before = write_blocks(queue, scratch, blocks + 1, 1410)
    make = io.compare if name == "COMPARE" else io.write
    sent = before[:size] if name == "COMPARE" else block_data(size, 1411)
    _run_short(queue, Short(make(scratch.nsid, scratch.lba, blocks), size, sent, inside), name)
    assert read_blocks(queue, scratch, blocks + 1)[size:] == before[size:], (
        "NVM 3.3.6: another block is changed"
    )


@pytest.mark.case(
    "NVT-SGL-SHORT-REPORT", section="Base 4.3.2", kills=("sgl-short-taken",), builds_on=("NVT-SGL-04",)
)
def test_a_report_whose_sgl_is_too_short_fails(hosts: Hosts) -> None:
    host, _ = hosts
    allowed(host.register())
    _run_short(host.queue, Short(io.report(host.nsid, 128), 128), "Reservation Report")


@pytest.mark.case(
    "NVT-SGL-SHORT-REGISTER", section="Base 4.3.2", kills=("sgl-short-taken",), builds_on=("NVT-SGL-04",)
)
def test_a_register_whose_sgl_is_too_short_fails(hosts: Hosts) -> None:
    """Its first eight bytes are the current key: the new one is missing."""
    host, _ = hosts
    short = Short(io.register(host.nsid, REGISTER), 16, io.keys(0, host.key))
    _run_short(host.queue, short, "Reservation Register")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-SGL-SHORT-{name}", kills=("sgl-short-taken",)))
    for name in ("DSM", "COPY")
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_a_command_whose_sgl_has_half_of_a_range_fails(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """The half that is sent has no LBA, or no number of blocks; nothing is written."""
    before = write_blocks(queue, scratch, BLOCKS, 1412)
    command, sent = (_deallocation if name == "DSM" else _copy)(session, scratch)
    _run_short(queue, Short(command, len(sent), sent), name)
    if name == "COPY":
        assert read_blocks(queue, scratch, BLOCKS) == before, "NVM 3.3.2: a Copy that fails has written"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVT-SGL-SHORT-{name}", kills=("sgl-short-taken",)))
    for name in ("ACQUIRE", "RELEASE")
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_a_reservation_command_whose_sgl_is_too_short_fails(hosts: Hosts, name: str) -> None:
    """What is missing is PRKEY of an Acquire, or a half of the key; the reservation stays as it was."""
    host, _ = hosts
    require_type(host.scratch, TYPE)
    allowed(host.register())
    if name == "RELEASE":
        allowed(host.acquire(TYPE))
    command = io.acquire(host.nsid, 0, TYPE) if name == "ACQUIRE" else io.release(host.nsid, RELEASE, TYPE)
    sent = io.keys(host.key) if name == "ACQUIRE" else io.keys(host.key)[:8]
    before = host.report().rtype
    _run_short(host.queue, Short(command, len(sent), sent), f"Reservation {name.capitalize()}")
    found = host.report().rtype
    assert found == before, (
        f"8.1.24: a command that failed has changed the type of the reservation from {before} to {found}"
    )
