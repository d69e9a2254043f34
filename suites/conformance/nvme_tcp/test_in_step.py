"""Refused commands with data, and transfers that were left: the commands behind them are served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Io, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import H2CData
from storagetest.wire.nvme_tcp.reservation_harness import require_type

from .test_families import supported
from .test_pending_writes import asked_for

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVMe/TCP 3.3.1", builds_on=("NVB-RW-01",)),
]

MANY = 300
"""Refused commands of a case: more than a queue or a small pool of buffers has (chosen)."""
LEFT = 24
"""Associations that a case leaves while writes wait for their data (chosen)."""
WAITING = 8
"""Writes that wait in each of them (chosen)."""
RESERVED_WRITE = 0x31
"""An opcode of no command set, with data to the controller (bits 1:0 are 01b)."""
INACTIVE = 0xFFFF_FFFE


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that is refused, and its data."""

    command: Command
    data: bytes


def _many(scratch: Scratch, queue: Queue, *, inside: bool) -> int:
    """Return one block, or as many as no capsule holds, so that they would be asked for."""
    return 1 if inside else scratch.blocks_of(queue.in_capsule_limit + 1)


def _at_end(make: Callable[[int, int, int], Command]) -> Callable[[ControllerSession, Scratch, int], Refused]:
    """Return what makes a command of some blocks past the end."""
    return lambda _, scratch, blocks: Refused(
        make(scratch.nsid, scratch.end, blocks), block_data(blocks * scratch.block_size, 1801)
    )


def _ranges(session: ControllerSession, scratch: Scratch, _: int) -> Refused:
    if not supported(session, Io.DATASET_MANAGEMENT):
        pytest.skip("ONCS: DATASET_MANAGEMENT is not supported")
    return Refused(io.dataset_management(INACTIVE, 2), io.dsm_ranges([(scratch.lba, 1)] * 2))


def _compared(session: ControllerSession, scratch: Scratch, blocks: int) -> Refused:
    if not supported(session, Io.COMPARE):
        pytest.skip("ONCS: COMPARE is not supported")
    return _at_end(io.compare)(session, scratch, blocks)


def _key(session: ControllerSession, scratch: Scratch, _: int) -> Refused:
    if not session.controller["oncs"] >> 5 & 1 or not scratch.rescap:
        pytest.skip("ONCS or RESCAP: reservations are not supported")
    require_type(scratch, Rtype.WRITE_EXCLUSIVE)
    return Refused(io.acquire(scratch.nsid, 0, Rtype.WRITE_EXCLUSIVE), io.keys(0xDEAD_0001))


def _again(session: ControllerSession, *_: object) -> Refused:
    identity, subnqn = session.identity, session.endpoint.subnqn
    data = ConnectData(identity.hostid, session.cntlid, subnqn, identity.nqn).encode()
    return Refused(fabrics.connect(qid=1, sqsize=1), data)


KINDS: dict[str, Callable[[ControllerSession, Scratch, int], Refused]] = {
    "WRITE": _at_end(io.write),
    "COMPARE": _compared,
    "NSID": lambda _, scratch, blocks: Refused(
        io.write(INACTIVE, 0, blocks), block_data(blocks * scratch.block_size, 1802)
    ),
    "RANGES": _ranges,
    "KEY": _key,
    "OPCODE": lambda _, scratch, blocks: Refused(
        Command(RESERVED_WRITE, nsid=scratch.nsid), block_data(blocks * scratch.block_size, 1803)
    ),
    "CONNECT": _again,
}
"""Commands of an I/O queue with data, which no controller carries out."""


def _claim_in_step(queue: Queue, scratch: Scratch, what: str) -> None:
    """Write and read a block, and then as many as no capsule holds."""
    for seed in (1810, 1811):
        for blocks in (1, _many(scratch, queue, inside=False)):
            data = block_data(blocks * scratch.block_size, seed)
            try:
                done = queue.run(io.write(scratch.nsid, scratch.lba, blocks), data=data)
                found = read_blocks(queue, scratch, blocks)
            except RemoteProtocolError as error:
                raise AssertionError(f"3.3.1: {what}, and a command behind is not served: {error}") from error
            assert done.ok, f"3.3.1: {what}, and a write behind that ended with {status_name(done.status)}"
            assert found == data, f"3.3.1: {what}, and a write behind that is damaged"


def _each_form() -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "inside"), [
        pytest.param(kind, inside, marks=pytest.mark.case(
            f"NVT-STEP-{kind}-{'CAPSULE' if inside else 'ASKED'}", kills=("refused-data-left",)))
        for kind in KINDS for inside in (True, False) if inside or kind != "CONNECT"
    ])  # fmt: skip


@_each_form()
def test_the_commands_behind_a_refused_one_with_data_are_served(
    session: ControllerSession, queue: Queue, scratch: Scratch, kind: str, inside: bool
) -> None:
    """Its data come in the capsule, or would be asked for: each time three in a row are refused."""
    one = KINDS[kind](session, scratch, _many(scratch, queue, inside=inside))
    if inside and len(one.data) > queue.in_capsule_limit:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data")
    for _ in range(3):
        done = queue.run(one.command, data=one.data, inside=inside)
        assert not done.ok, f"3.3.1: {kind} succeeds, although it is to be refused"
    _claim_in_step(queue, scratch, f"{kind} with {len(one.data)} bytes was refused")


@pytest.mark.case("NVT-STEP-ADMIN", kills=("refused-data-left",))
def test_the_admin_commands_behind_a_refused_one_with_data_are_served(session: ControllerSession) -> None:
    """Set Features of a feature that does not exist, with 512 bytes in the capsule."""
    before = session.identify(Cns.CONTROLLER)
    for _ in range(3):
        done = session.admin.run(admin.set_features(0x70, 0), data=block_data(512, 1820), inside=True)
        assert done.status in (StatusCode.INVALID_FIELD, StatusCode.DATA_SGL_LENGTH_INVALID), (
            f"5.2.26: Set Features of the reserved feature 70h ended with {status_name(done.status)}"
        )
        try:
            found = session.identify(Cns.CONTROLLER)
        except RemoteProtocolError as error:
            raise AssertionError(f"3.3.1: an Identify behind a refused command with data: {error}") from error
        assert found[4:64] == before[4:64], "3.3.1: Identify behind a refused command with data"


@pytest.mark.parametrize("how", [
    pytest.param(how, marks=pytest.mark.case(f"NVT-STEP-MANY-{how}", kills=("refused-leaks",)))
    for how in ("CAPSULE", "ASKED", "READ")
])  # fmt: skip
def test_many_refused_commands_leave_the_queue_as_it_was(queue: Queue, scratch: Scratch, how: str) -> None:
    """As many at a time as the queue takes; each is past the end of the namespace."""
    size = scratch.block_size
    if how == "CAPSULE" and size > queue.in_capsule_limit:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data")
    blocks = _many(scratch, queue, inside=how != "ASKED")
    data = b"" if how == "READ" else block_data(blocks * size, 1830)
    make = io.read if how == "READ" else io.write
    command = make(scratch.nsid, scratch.end, blocks)
    together = min(queue.sqsize or 1, scratch.limits.outstanding)
    sent = 0
    while sent < MANY:
        cids = [
            queue.submit(command, data=data, reads=0 if data else size, inside=how == "CAPSULE")
            for _ in range(min(together, MANY - sent))
        ]
        for cid in cids:
            sent += 1
            try:
                done = queue.wait(cid)
            except RemoteProtocolError as error:
                raise AssertionError(
                    f"3.3.1: refused command {sent} of {MANY} is not completed: {error}"
                ) from error
            assert not done.ok, f"NVM 3.1: command {sent} past the end succeeds"
    _claim_in_step(queue, scratch, f"{MANY} commands were refused")


@pytest.mark.case("NVT-STEP-LEFT", section="Base 3.3.2", kills=("left-writes-leak",))
def test_writes_whose_connection_was_left_hold_nothing(bench: Harness, scratch: Scratch) -> None:
    """Some of the data of one of the writes has come; the connection is closed, and a new host comes."""
    blocks, data = 1, b""
    for number in range(LEFT):
        session = bench.session(name=f"association {number}")
        queue = session.io_queue()
        if not data:
            blocks = _many(scratch, queue, inside=False)
            data = block_data(blocks * scratch.block_size, 1841)
        for at in range(min(WAITING, scratch.limits.outstanding)):
            try:
                r2t = asked_for(queue, io.write(scratch.nsid, scratch.lba, blocks), data)
            except RemoteProtocolError as error:
                raise AssertionError(
                    f"3.3.2: write {at + 1} of association {number + 1} is not asked for its data; those "
                    f"before it have left writes that waited: {error}"
                ) from error
            if not at:
                half = min(r2t.length, queue.icresp.maxh2cdata) // 8 * 4
                queue.send(H2CData(r2t.cccid, r2t.ttag, 0, data[:half], last=False))
        if number % 2:
            queue.close()
        session.admin.close()
        queue.close()
    again = bench.session(name="a new association").io_queue()
    fresh = write_blocks(again, scratch, 2, 1842)
    assert read_blocks(again, scratch, 2) == fresh, "3.3.2: a write after associations that were left"
