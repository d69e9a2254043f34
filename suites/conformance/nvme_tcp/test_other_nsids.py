"""Commands of an NSID that is inactive or invalid, and of blocks past the end of a second namespace.

Whatever the command is: what Read and Write do is the claim of other cases (NVB-NSID-*, NVB-NS-*).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Io, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks

from .test_families import supported, uncorrectable
from .test_namespaces import need_invalid

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.2.1.5")]

INVALID = 0xFFFFFFFE
"""An NSID that is larger than NN of any controller which has not that many namespaces."""

LOOKED_AT = 4096
"""NSIDs up to this one are looked at for an inactive one (chosen)."""

KEY = 0xE8E8
"""A reservation key of no registrant (chosen)."""

Made = tuple[Command, bytes, int]
"""A command, the data that it sends, and the bytes that it reads."""

BLOCKS: dict[str, tuple[Io, Callable[[int, int, int], Made]]] = {
    "WRITE": (Io.WRITE, lambda nsid, lba, size: (io.write(nsid, lba, 1), block_data(size, 1801), 0)),
    "COMPARE": (Io.COMPARE, lambda nsid, lba, size: (io.compare(nsid, lba, 1), bytes(size), 0)),
    "ZEROES": (Io.WRITE_ZEROES, lambda nsid, lba, _: (io.write_zeroes(nsid, lba, 1), b"", 0)),
    "VERIFY": (Io.VERIFY, lambda nsid, lba, _: (io.verify(nsid, lba, 1), b"", 0)),
    "UNC": (Io.WRITE_UNCORRECTABLE, lambda nsid, lba, _: (uncorrectable(nsid, lba, 1), b"", 0)),
    "COPY": (Io.COPY, lambda nsid, lba, _: (io.copy(nsid, lba, 1), io.copy_ranges([(0, 1)]), 0)),
}
"""By name: a command of one block, and how it is made of NSID, LBA and the size of a block."""

OTHERS: dict[str, tuple[Io, Callable[[int, int, int], Made]]] = {
    **BLOCKS,
    "DSM": (
        Io.DATASET_MANAGEMENT,
        lambda nsid, lba, _: (io.dataset_management(nsid, 1), io.dsm_ranges([(lba, 1)]), 0),
    ),
}

RESERVATIONS: dict[str, Callable[[int], Made]] = {
    "REPORT": lambda nsid: (io.report(nsid, 64), b"", 64),
    "REGISTER": lambda nsid: (io.register(nsid, 0), io.keys(0, KEY), 0),
    "ACQUIRE": lambda nsid: (io.acquire(nsid, 0, Rtype.WRITE_EXCLUSIVE), io.keys(KEY), 0),
    "RELEASE": lambda nsid: (io.release(nsid, 0, Rtype.WRITE_EXCLUSIVE), io.keys(KEY)[:8], 0),
}


def inactive_nsid(session: ControllerSession) -> int:
    """Return an NSID that is valid and inactive; skip if every one is active."""
    active = session.namespaces()
    for nsid in range(1, min(session.controller["nn"], LOOKED_AT) + 1):
        if nsid not in active:
            return nsid
    pytest.skip("every NSID up to NN is active")


def _need(session: ControllerSession, opcode: Io) -> None:
    if not supported(session, opcode):
        pytest.skip(f"ONCS: {opcode.name} is not supported")


def _reserves(session: ControllerSession) -> None:
    if not session.controller["oncs"] >> 5 & 1:
        pytest.skip("ONCS: reservations are not supported")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-INACTIVE-{name}", kills=("inactive-others-used",)))
    for name in OTHERS
])  # fmt: skip
@pytest.mark.case(builds_on=("NVB-NS-INACTIVE",))
def test_a_command_of_an_inactive_namespace_is_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """Invalid Field, or Invalid Namespace or Format, which refuses the command as well."""
    opcode, make = OTHERS[name]
    _need(session, opcode)
    command, data, reads = make(inactive_nsid(session), scratch.lba, scratch.block_size)
    done = queue.run(command, data=data, reads=reads)
    refused(done, StatusCode.INVALID_FIELD, StatusCode.INVALID_NAMESPACE)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-INACTIVE-{name}", kills=("inactive-reserved",)))
    for name in RESERVATIONS
])  # fmt: skip
@pytest.mark.case(builds_on=("NVB-NS-INACTIVE",))
def test_a_reservation_command_of_an_inactive_namespace_is_refused(
    session: ControllerSession, queue: Queue, name: str
) -> None:
    _reserves(session)
    command, data, reads = RESERVATIONS[name](inactive_nsid(session))
    done = queue.run(command, data=data, reads=reads)
    refused(done, StatusCode.INVALID_FIELD, StatusCode.INVALID_NAMESPACE)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-NSID-{name}", kills=("nsid-of-copy-unchecked",)))
    for name in ("COPY", "UNC")
])  # fmt: skip
def test_a_further_command_of_an_invalid_nsid_is_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    opcode, make = OTHERS[name]
    _need(session, opcode)
    need_invalid(session, INVALID)
    for nsid in (0, INVALID):
        command, data, reads = make(nsid, scratch.lba, scratch.block_size)
        refused(queue.run(command, data=data, reads=reads), StatusCode.INVALID_NAMESPACE)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-NSID-0-{name}", kills=("nsid-0-is-first",)))
    for name in ("FLUSH", "WRITE", "COMPARE", "ZEROES", "VERIFY", "DSM")
])  # fmt: skip
def test_a_command_of_nsid_0_is_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, name: str
) -> None:
    """NSID 0 names no namespace; the block of that LBA is as before. Read and Copy: NVB-NSID-0, -COPY."""
    before = write_blocks(queue, scratch, 1, 1803)
    if name == "FLUSH":
        command, data, reads = io.flush(0), b"", 0
    else:
        opcode, make = OTHERS[name]
        _need(session, opcode)
        command, data, reads = make(0, scratch.lba, scratch.block_size)
    refused(queue.run(command, data=data, reads=reads), StatusCode.INVALID_NAMESPACE)
    assert read_blocks(queue, scratch, 1) == before, f"3.2.1.5: {name} of NSID 0 has changed a block"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-NSID-{name}", kills=("nsid-of-reservations-unchecked",)))
    for name in RESERVATIONS
])  # fmt: skip
def test_a_reservation_command_of_an_invalid_nsid_is_refused(
    session: ControllerSession, queue: Queue, name: str
) -> None:
    _reserves(session)
    need_invalid(session, INVALID)
    for nsid in (0, INVALID):
        command, data, reads = RESERVATIONS[name](nsid)
        refused(queue.run(command, data=data, reads=reads), StatusCode.INVALID_NAMESPACE)


PAST_THE_END = {Io.WRITE: (StatusCode.LBA_OUT_OF_RANGE, StatusCode.CAPACITY_EXCEEDED)}
"""Statuses of a command past the end, of those that have two (NVM 3.3.6)."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-TWO-END-{name}", kills=("end-of-others-unchecked",)))
    for name in BLOCKS
])  # fmt: skip
@pytest.mark.case(section="NVM 3.1", builds_on=("NVB-RW-01",))
def test_a_block_past_the_end_of_either_namespace_is_refused(
    session: ControllerSession, queue: Queue, pair: tuple[Scratch, Scratch], name: str
) -> None:
    """Of each namespace by its own size; the last block that it has is as before."""
    opcode, make = BLOCKS[name]
    _need(session, opcode)
    for there in pair:
        last = Scratch(there.nsid, there.end - 1, 1, there.end, there.limits, there.rescap)
        if opcode == Io.COPY and not there.limits.copied([(0, 1)]):
            pytest.skip(f"NSID {there.nsid} takes no Copy of one block")
        kept = read_blocks(queue, last, 1)
        try:
            before = write_blocks(queue, last, 1, 1802 + there.nsid % 100)
            command, data, reads = make(there.nsid, there.end, there.block_size)
            done = queue.run(command, data=data, reads=reads)
            assert done.status in PAST_THE_END.get(opcode, (StatusCode.LBA_OUT_OF_RANGE,)), (
                f"3.1: {opcode.name} of LBA {there.end:#x} of NSID {there.nsid}, which has {there.end} "
                f"blocks, ended with {status_name(done.status)}; required: LBA Out of Range"
            )
            assert read_blocks(queue, last, 1) == before, f"3.1: the last block of NSID {there.nsid}"
        finally:
            queue.run(io.write(last.nsid, last.lba, 1), data=kept)
