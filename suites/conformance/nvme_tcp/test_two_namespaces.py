"""Commands that write to one of two namespaces, at the same LBA of both (Base 3.2.1).

The targets file allows it: ``more_namespaces`` names a second namespace.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, write_blocks

from .test_block_options import mark

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.2.1", builds_on=("NVB-RW-01",)),
]

BLOCKS = 4
"""Blocks that are written in each namespace (chosen); each command is of the first of them."""

COPIED_TO = 2
"""The block that a Copy of the first one writes."""

IN_FLIGHT = 8
"""Writes that are sent at once (chosen)."""

Pair = tuple[Scratch, Scratch]


def _need(session: ControllerSession, opcode: Io) -> None:
    """Skip if an optional command is not supported."""
    if not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS: {opcode.name} is not supported")


def _fill(queue: Queue, pair: Pair) -> list[bytes]:
    """Write other data to each namespace, and return them."""
    return [write_blocks(queue, one, BLOCKS, 930 + number) for number, one in enumerate(pair)]


def _claim_kept(queue: Queue, other: Scratch, data: bytes, what: str) -> None:
    found = read_blocks(queue, other, BLOCKS)
    assert found == data, f"3.2.1: {what} has changed the blocks of the same LBA in NSID {other.nsid}"


def _write(there: Scratch) -> tuple[Command, bytes]:
    return io.write(there.nsid, there.lba, 1), block_data(there.block_size, 940 + there.nsid)


def _zeroes(there: Scratch) -> tuple[Command, bytes]:
    return io.write_zeroes(there.nsid, there.lba, 1), b""


def _deallocate(there: Scratch) -> tuple[Command, bytes]:
    return io.dataset_management(there.nsid, 1), io.dsm_ranges([(there.lba, 1)])


def _copy(there: Scratch) -> tuple[Command, bytes]:
    if not there.limits.copied([(there.lba, 1)]):
        pytest.skip(f"NSID {there.nsid} takes no Copy of one block")
    return io.copy(there.nsid, there.lba + COPIED_TO, 1), io.copy_ranges([(there.lba, 1)])


CHANGES: dict[str, tuple[Io | None, Callable[[Scratch], tuple[Command, bytes]], str, str]] = {
    "WRITE": (None, _write, "write-of-first-namespace", "NVB-RW-02"),
    "ZEROES": (Io.WRITE_ZEROES, _zeroes, "zeroes-of-first-namespace", "NVB-ZEROES-01"),
    "DSM": (Io.DATASET_MANAGEMENT, _deallocate, "dsm-of-first-namespace", "NVB-DSM-02"),
    "COPY": (Io.COPY, _copy, "copy-of-first-namespace", "NVB-COPY-01"),
}
"""By name: the optional command, the command and its data, the mutant, and the case of one namespace."""


def _expected(name: str, there: Scratch, before: bytes, sent: bytes) -> bytes | None:
    """Return what the namespace of the command has after it; None if that is the controller's choice."""
    size = there.block_size
    if name == "WRITE":
        return sent + before[size:]
    if name == "ZEROES":
        return bytes(size) + before[size:]
    if name == "COPY":
        return before[: COPIED_TO * size] + before[:size] + before[(COPIED_TO + 1) * size :]
    return None


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-TWO-NS-{name}", kills=(kill,), builds_on=(of_one,)))
    for name, (_, _, kill, of_one) in CHANGES.items()
])  # fmt: skip
def test_a_command_changes_its_own_namespace_alone(
    session: ControllerSession, queue: Queue, pair: Pair, name: str
) -> None:
    """First of the one, then of the other."""
    opcode, make, _, _ = CHANGES[name]
    if opcode is not None:
        _need(session, opcode)
    for number, there in enumerate(pair):
        data = _fill(queue, pair)
        command, sent = make(there)
        done = queue.run(command, data=sent)
        assert done.ok, f"{name} of NSID {there.nsid} ended with {status_name(done.status)}"
        _claim_kept(queue, pair[1 - number], data[1 - number], f"{name} of NSID {there.nsid}")
        wanted = _expected(name, there, data[number], sent)
        assert wanted is None or read_blocks(queue, there, BLOCKS) == wanted, (
            f"3.2.1: {name} of NSID {there.nsid} succeeds, and its blocks are not what the command leaves"
        )


@pytest.mark.case("NVB-TWO-NS-MARK", kills=("mark-of-first-namespace",), builds_on=("NVB-UNC-01",))
def test_a_mark_is_of_its_own_namespace_alone(session: ControllerSession, queue: Queue, pair: Pair) -> None:
    """Write Uncorrectable marks blocks of the namespace that it names, and of no other."""
    _need(session, Io.WRITE_UNCORRECTABLE)
    for number, there in enumerate(pair):
        other, data = pair[1 - number], _fill(queue, pair)
        try:
            mark(queue, there, 0, 1)
            done = queue.run(io.read(other.nsid, other.lba, 1), reads=other.block_size)
            assert done.ok, (
                f"3.2.1: after Write Uncorrectable of NSID {there.nsid} a read of the same LBA of NSID "
                f"{other.nsid} ends with {status_name(done.status)}"
            )
            _claim_kept(queue, other, data[1 - number], f"Write Uncorrectable of NSID {there.nsid}")
            done = queue.run(io.read(there.nsid, there.lba, 1), reads=there.block_size)
            assert not done.ok, (
                f"3.2.1: Write Uncorrectable of NSID {there.nsid} succeeds, and its block is read"
            )
        finally:
            _fill(queue, pair)


@pytest.mark.case("NVB-TWO-NS-TOGETHER", kills=("write-of-busy-queue",), builds_on=("NVB-NS-TOGETHER",))
def test_writes_of_two_namespaces_in_flight_have_each_its_own(queue: Queue, pair: Pair) -> None:
    """Writes of both by turns, sent together, each of one block."""
    _fill(queue, pair)
    count = min(IN_FLIGHT, pair[0].limits.outstanding) // 2
    if not count:
        pytest.skip("the queue takes one command")
    sent: list[list[bytes]] = [[], []]
    submitted = []
    for at in range(count):
        for number, one in enumerate(pair):
            data = block_data(one.block_size, 950 + 2 * at + number)
            sent[number].append(data)
            submitted.append((one, queue.submit(io.write(one.nsid, one.lba + at, 1), data=data)))
    for one, cid in submitted:
        done = queue.wait(cid)
        assert done.ok, f"a write of NSID {one.nsid} ended with {status_name(done.status)}"
    for number, one in enumerate(pair):
        found = read_blocks(queue, one, count)
        assert found == b"".join(sent[number]), (
            f"3.2.1: NSID {one.nsid} has not what was written there, by {2 * count} writes of NSID "
            f"{pair[0].nsid} and NSID {pair[1].nsid} that were sent at once"
        )
