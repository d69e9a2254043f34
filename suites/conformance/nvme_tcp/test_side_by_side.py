"""Commands that are outstanding together end each by its own data; writes of an atomic unit that cross.

Also flags and values of commands that have no other place: FUA and LR of Copy, hints of Dataset Management.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T, CapsuleResp
from storagetest.wire.tcp import ResponseTimeout

from .test_crossed_data import Half
from .test_families import supported
from .test_pending_writes import SERVED, pending

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="NVM 3.3", builds_on=("NVB-RW-01",)),
]

TOGETHER = 4
"""Commands that are outstanding together (chosen)."""

ROUNDS = 4
"""Times that two writes cross (chosen)."""

LIMITED_RETRY, FORCE_UNIT_ACCESS = 1 << 31, 1 << 30
"""LR and FUA of command dword 12 (NVM 3.3.2)."""

FEATURES_ATOMIC = 1 << 1
"""NSFEAT: NAWUN, NAWUPF and NACWU are defined for the namespace (NVM 4.1.5.1)."""


COPY_TO = 16
"""The block of a scratch where destinations begin (chosen)."""


def _need(session: ControllerSession, opcode: Io) -> None:
    if not supported(session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")


def _submit_all(queue: Queue, commands: list[tuple[Command, bytes]]) -> list[R2T]:
    """Submit commands without their data; return the R2T of each, in the order of the commands."""
    cids = [queue.submit(command, data=data, inside=False) for command, data in commands]
    asked: dict[int, R2T] = {}
    for _ in cids:
        try:
            received = queue.receive(deadline=min(SERVED, queue.deadline)).pdu
        except ResponseTimeout:
            if not asked:
                raise
            pytest.skip(f"the controller asks for the data of {len(asked)} commands at a time")
        assert isinstance(received, R2T), f"NVMe/TCP 3.3.2.2: not {received}"
        asked[received.cccid] = received
    for cid in cids:
        queue.forget(cid)
    return [asked[cid] for cid in cids]


def _send(queue: Queue, r2t: R2T, data: bytes) -> None:
    """Send the data of a command whose one R2T asks for all of them."""
    for piece in queue.split_data(r2t, data[r2t.offset : r2t.offset + r2t.length]):
        queue.send(piece)


def _completions(queue: Queue, count: int) -> dict[int, Cqe]:
    """Receive ``count`` completions; return them by CID."""
    found: dict[int, Cqe] = {}
    for _ in range(count):
        received = queue.receive().pdu
        assert isinstance(received, CapsuleResp), f"NVMe/TCP 3.3.2.2: not {received}"
        cqe = Cqe.decode(received.cqe)
        found[cqe.cid] = cqe
    return found


def _most(scratch: Scratch) -> int:
    most = min(TOGETHER, scratch.limits.outstanding)
    if most < 2:
        pytest.skip("the queue takes one command")
    return most


@pytest.mark.case(
    "NVB-TOGETHER-COMPARE",
    section="NVM 3.3.1",
    kills=("compares-share-data",),
    builds_on=("NVB-COMPARE-01", "NVB-COMPARE-02", "NVT-R2T-04"),
)
def test_compares_that_are_outstanding_together_have_each_its_own_data(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Every second one has other data than its block; the data come in the reverse order."""
    _need(session, Io.COMPARE)
    count, size = _most(scratch), scratch.block_size
    blocks = write_blocks(queue, scratch, count, 1810)
    for turn in (0, 1):
        sent = [
            blocks[at * size :][:size] if at % 2 == turn else block_data(size, 1811 + at)
            for at in range(count)
        ]
        commands = [(io.compare(scratch.nsid, scratch.lba + at, 1), data) for at, data in enumerate(sent)]
        asked = _submit_all(queue, commands)
        for r2t, data in reversed(list(zip(asked, sent, strict=True))):
            _send(queue, r2t, data)
        found = _completions(queue, count)
        for at, r2t in enumerate(asked):
            wanted = StatusCode.SUCCESS if at % 2 == turn else StatusCode.COMPARE_FAILURE
            status = found[r2t.cccid].status
            assert status == wanted, (
                f"3.3.1: of {count} Compares that were outstanding together, number {at + 1} ended with "
                f"{status_name(status)}; required: {status_name(wanted)}"
            )


@pytest.mark.case(
    "NVB-TOGETHER-COPY",
    section="NVM 3.3.2",
    kills=("copies-share-ranges",),
    builds_on=("NVB-COPY-01", "NVT-ASKED-COPY"),
)
def test_copies_that_are_outstanding_together_have_each_its_own_ranges(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Each copies one block; the ranges come in the reverse order."""
    _need(session, Io.COPY)
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    count, size = _most(scratch), scratch.block_size
    blocks = write_blocks(queue, scratch, count, 1820)
    write_blocks(queue, scratch, count, 1821, at=COPY_TO)
    commands = [
        (io.copy(scratch.nsid, scratch.lba + COPY_TO + at, 1), io.copy_ranges([(scratch.lba + at, 1)]))
        for at in range(count)
    ]
    asked = _submit_all(queue, commands)
    for r2t, (_, ranges) in reversed(list(zip(asked, commands, strict=True))):
        _send(queue, r2t, ranges)
    for cqe in _completions(queue, count).values():
        assert cqe.ok, f"3.3.2: a Copy ended with {status_name(cqe.status)}"
    for at in range(count):
        found = read_blocks(queue, scratch, 1, at=COPY_TO + at)
        assert found == blocks[at * size :][:size], (
            f"3.3.2: of {count} Copies that were outstanding together, number {at + 1} copied another block"
        )


# Atomic units (NVM 2.1.4)


def _atomic(session: ControllerSession, scratch: Scratch) -> Scratch:
    """Return blocks of ``scratch`` that one write stores atomically; skip if that is one block.

    AWUN, and NAWUN if NSFEAT states that it is defined, are zero's based; a write across an atomic boundary
    is not atomic (NVM 2.1.4).
    """
    data, lba = session.namespace(scratch.nsid), scratch.lba
    unit = session.controller["awun"] + 1
    if data["nsfeat"] & FEATURES_ATOMIC:
        unit = max(unit, data["nawun"] + 1)
    if data["nabsn"]:
        boundary = data["nabsn"] + 1
        unit = min(unit, boundary)
        lba += (data["nabo"] - lba) % boundary
    blocks = min(scratch.fit(unit), scratch.blocks - (lba - scratch.lba))
    if blocks < 2:
        pytest.skip("AWUN, and NAWUN if it is defined, are 0: a write of one block is atomic (NVB-CROSSED-*)")
    return replace(scratch, lba=lba, blocks=blocks)


@pytest.mark.parametrize("where", [
    pytest.param("queue", marks=pytest.mark.case("NVB-CROSSED-UNIT-QUEUE")),
    pytest.param("controller", marks=pytest.mark.case("NVB-CROSSED-UNIT-CONTROLLER")),
])  # fmt: skip
@pytest.mark.case(section="NVM 2.1.4.2", kills=("crossed-units-torn",))
def test_two_writes_of_an_atomic_unit_that_cross_leave_the_data_of_one(
    session: ControllerSession, bench: Harness, scratch: Scratch, where: str
) -> None:
    """The data of both come in halves, by turns; the blocks are those of the one or of the other."""
    unit = _atomic(session, scratch)
    first = session.io_queue()
    if where == "queue" and session.io_queues_granted < 2:
        pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
    second = session.io_queue() if where == "queue" else bench.session(name="another host").io_queue()
    size = unit.blocks * unit.block_size
    for turn in range(ROUNDS):
        writes = [
            Half(queue, pending(queue, unit, data), data)
            for number, queue in enumerate((first, second))
            for data in (block_data(size, 1830 + 2 * turn + number),)
        ]
        for write in writes:
            write.begin()
        for write in writes if turn % 2 else writes[::-1]:
            write.end()
        for number, queue in enumerate((first, second), 1):
            found = read_blocks(queue, unit, unit.blocks)
            assert found in [one.data for one in writes], (
                f"2.1.4.2: two writes of {unit.blocks} blocks, an atomic unit, crossed in turn {turn + 1}; "
                f"queue {number} reads neither the data of the one nor of the other"
            )


# Flags and hints


@pytest.mark.case(
    "NVB-FLAGS-COPY", section="NVM 3.3.2", kills=("copy-flags-refused",), builds_on=("NVB-COPY-01",)
)
def test_flags_change_nothing_of_what_a_copy_does(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """FUA is of the medium, and LR of retries: the Copy ends as it does without them."""
    _need(session, Io.COPY)
    if not scratch.limits.copied([(scratch.lba, 1)]):
        pytest.skip("MSSRL or MCL is 0: no block may be copied")
    for flags in (0, LIMITED_RETRY, FORCE_UNIT_ACCESS, LIMITED_RETRY | FORCE_UNIT_ACCESS):
        data = write_blocks(queue, scratch, 1, 1840)
        write_blocks(queue, scratch, 1, 1841, at=COPY_TO)
        command = io.copy(scratch.nsid, scratch.lba + COPY_TO, 1)
        command = replace(command, cdw12=command.cdw12 | flags)
        done = queue.run(command, data=io.copy_ranges([(scratch.lba, 1)]))
        what = f"Copy with LR {flags >> 31} and FUA {flags >> 30 & 1}"
        assert done.ok, f"3.3.2: {what} ended with {status_name(done.status)}"
        assert read_blocks(queue, scratch, 1, at=COPY_TO) == data, f"3.3.2: {what} has not copied the block"


HINTS: dict[str, Callable[[int, int], bytes]] = {
    "READ": lambda lba, blocks: _hinted(lba, blocks, 0x05 | 3 << 4 | 1 << 8),
    "WRITE": lambda lba, blocks: _hinted(lba, blocks, 0x04 | 2 << 4 | 1 << 9),
    "PREPARE": lambda lba, blocks: _hinted(lba, blocks, 1 << 10 | blocks << 24),
}
"""By name: a range with context attributes: frequency, latency, sequential, write prepare, access size."""

IDR, IDW = 1 << 0, 1 << 1
"""Integral Dataset for Read, and for Write: dword 11 of Dataset Management (NVM 3.3.3)."""


def _hinted(lba: int, blocks: int, attributes: int) -> bytes:
    return attributes.to_bytes(4, "little") + io.dsm_ranges([(lba, blocks)])[4:]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-DSM-HINT-{name}", kills=("dsm-hints-refused",)))
    for name in HINTS
])  # fmt: skip
@pytest.mark.case(section="NVM 3.3.3", builds_on=("NVB-DSM-04",))
def test_hints_of_a_range_change_no_block(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Context attributes, and IDR and IDW, are hints: the command succeeds, and each block is as before."""
    _need(session, Io.DATASET_MANAGEMENT)
    blocks = min(4, scratch.limits.discard)
    before = write_blocks(queue, scratch, blocks, 1850)
    for attributes in (0, IDR, IDW, IDR | IDW):
        command = replace(io.dataset_management(scratch.nsid, 1, deallocate=False), cdw11=attributes)
        done = queue.run(command, data=HINTS[name](scratch.lba, blocks))
        assert done.ok, (
            f"3.3.3: Dataset Management with hints, IDR {attributes & 1}, IDW {attributes >> 1}, ended with "
            f"{status_name(done.status)}"
        )
        assert read_blocks(queue, scratch, blocks) == before, "3.3.3: hints have changed a block"
