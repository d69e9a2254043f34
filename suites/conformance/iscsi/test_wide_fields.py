"""Fields of several bytes and transfers of several PDUs: all of them count (SPC-4, SBC-3, RFC 7143)."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import READ_16, cdb
from storagetest.wire.scsi.codes import Asc, PrIn, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_digest import with_digests

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(level="MUST", section="SPC-4 allocation length"),
]

TWO, FOUR = (0x100, 0x104, 0x1000, 0x8001, 0xFFFF), (0x100, 0x1004, 0x1_0000, 0x1_0008)
"""Allocation lengths of two and of four bytes, whose higher bytes matter (chosen)."""

REPORTS: dict[str, tuple[c.CommandFormat, tuple[int, ...], dict[str, Any]]] = {
    "INQUIRY": (c.INQUIRY, TWO, {}),
    "VPD": (c.INQUIRY, TWO, {"evpd": 1, "page": 0x83}),
    "MODE-SENSE": (c.MODE_SENSE_10, TWO, {"page": 0x3F, "dbd": 1}),
    "READ-KEYS": (c.PERSISTENT_RESERVE_IN, TWO, {"service_action": PrIn.READ_KEYS}),
    "REPORT-LUNS": (c.REPORT_LUNS, FOUR, {}),
    "CAPACITY": (c.READ_CAPACITY_16, FOUR, {}),
}
"""Commands by name: their format, allocation lengths, and other fields."""

NARROW = {
    "INQUIRY": "inquiry-allocation-byte",
    "VPD": "inquiry-allocation-byte",
    "MODE-SENSE": "allocation-one-byte",
    "READ-KEYS": "allocation-one-byte",
    "REPORT-LUNS": "allocation-two-bytes",
    "CAPACITY": "allocation-two-bytes",
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-ALLOC-{name}", kills=(NARROW[name],))) for name in REPORTS
])  # fmt: skip
@pytest.mark.case(section="SPC-4 allocation length", level="MUST")
def test_every_byte_of_an_allocation_length_counts(unit, name):
    command, allocations, fields = REPORTS[name]
    top = max(allocations)
    whole = unit.run(command, read=top, allocation=top, **fields)
    if whole.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"{whole}: not offered")
    assert whole.good, whole
    for allocation in allocations:
        answer = unit.run(command, read=allocation, allocation=allocation, **fields)
        assert answer.good, f"{answer}; with {top} it was GOOD"
        wanted = whole.data[:allocation]
        assert answer.data == wanted, f"{answer}: {len(answer.data)} bytes of {len(wanted)}, or other ones"


COUNTS = {
    "READ-10": (c.READ_10, 2),
    "READ-12": (c.READ_12, 4),
    "READ-16": (c.READ_16, 4),
    "WRITE-10": (c.WRITE_10, 2),
    "WRITE-12": (c.WRITE_12, 4),
    "WRITE-16": (c.WRITE_16, 4),
    "SAME-16": (c.WRITE_SAME_16, 4),
}
"""Commands with a number of blocks, and its bytes."""


def narrow(name: str) -> str:
    """Return the mutant that keeps the last bytes of the count only."""
    return "same-two-bytes" if "SAME" in name else "blocks-one-byte" if "-10" in name else "blocks-two-bytes"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-COUNT-{name}", kills=(narrow(name),))) for name in COUNTS
])  # fmt: skip
@pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")
def test_every_byte_of_a_number_of_blocks_counts(unit, facts, scratch, name):
    """From the last block on, one block is there, and 257 or more are not: nothing is read or written.

    The unit may refuse the number (as over its MAXIMUM TRANSFER LENGTH) or the range.
    """
    command, width = COUNTS[name]
    last, size = facts.capacity.blocks - 1, scratch.block_size
    if last >= 1 << 32 and command not in (c.READ_16, c.WRITE_16, c.WRITE_SAME_16):
        pytest.skip("the last block is out of reach of the command")
    before = unit.read(last)
    assert before.good, before
    reads = "READ" in name
    for bit in range(8, 8 * width):
        count = (1 << bit) + 1
        sent: dict[str, Any] = {"read": size} if reads else {"data": before.data}
        answer = unit.run(command, lba=last, blocks=count, **sent)
        if answer.unsupported:
            pytest.skip(f"{answer}: not offered")
        assert answer.check(SenseKey.ILLEGAL_REQUEST), (
            f"{answer}: {count} blocks from block {last}, which is the last one"
        )
    assert unit.read(last).data == before.data


PROTECTED = {
    "WRITE-10": c.WRITE_10,
    "WRITE-12": c.WRITE_12,
    "WRITE-16": c.WRITE_16,
    "WRITE-VERIFY-10": c.WRITE_AND_VERIFY_10,
    "WRITE-VERIFY-16": c.WRITE_AND_VERIFY_16,
    "SAME-16": c.WRITE_SAME_16,
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PROTECT-{name}", kills=("protect-of-write",)))
    for name in PROTECTED
])  # fmt: skip
@pytest.mark.case(section="SBC-3 protection information", level="SHOULD")
def test_protection_is_refused_by_a_unit_without_it(unit, facts, scratch, name):
    """A command that asks for the check of protection information is not executed without it."""
    if facts.capacity.protection:
        pytest.skip("the unit has protection information")
    old, new = scratch.pattern(1), scratch.pattern(1, seed=31)
    assert unit.write(scratch.lba, old).good
    for protect in (1, 3, 5):
        answer = unit.run(PROTECTED[name], data=new, lba=scratch.lba, blocks=1, protect=protect)
        if answer.unsupported:
            pytest.skip(f"{answer}: not offered")
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer
        assert unit.read(scratch.lba).data == old, f"{answer}: the block was written"


# Residuals (RFC 7143 11.4.5.1): the rules are those of a block, whatever the size


@pytest.mark.case(
    "ISC-DATAIN-16",
    section="RFC 7143 11.4.5.1",
    kills=("overflow-large", "underflow-large"),
    builds_on=("ISC-DATAIN-08",),
)
def test_a_residual_is_counted_at_every_size(connections, facts, scratch):
    """The expected length is less or more than what READ(16) of so many blocks returns."""
    session, size = connections.login(), scratch.block_size
    largest = min(facts.largest, 600)
    for blocks in (size for size in (1, 2, 16, 33, 128, 257, 512) if size <= largest):
        block = cdb(READ_16, lba=scratch.lba, blocks=blocks).ljust(16, b"\0")
        length = blocks * size
        for expected in (length - size, length + 1, length + 8192, length // 2, length):
            if not expected:
                continue  # ISC-DATAIN-12
            done = session.command(block, read=expected)
            if done.status == 2 and expected != length:
                continue  # it may end in an error; the residual is optional then
            assert not done.status, f"READ(16) of {blocks} blocks: status {done.status:#x}"
            over, under = max(0, length - expected), max(0, expected - length)
            found = (done.overflow, done.underflow, done.residual if done.overflow or done.underflow else 0)
            assert found == (over > 0, under > 0, over + under), (
                f"READ(16) of {blocks} blocks, {expected} bytes expected: O={found[0]}, U={found[1]}, "
                f"residual {done.residual}; it has to be {over + under}"
            )
            assert len(done.data) == min(length, expected), f"{len(done.data)} bytes of {expected}"


@pytest.mark.case(
    "ISC-RESIDUAL-WIDE",
    section="RFC 7143 11.4.5.1",
    kills=("residual-three-bytes", "residual-two-bytes"),
    builds_on=("ISC-DATAIN-08",),
)
def test_every_byte_of_a_residual_counts(connections, scratch):
    """One block is read; 64 KiB or 16 MiB more are expected. An error is a target's choice, too."""
    session, size = connections.login(), scratch.block_size
    block = cdb(READ_16, lba=scratch.lba, blocks=1).ljust(16, b"\0")
    for more in (0x1_0200, 0x100_0200):
        done = session.command(block, read=size + more)
        if done.status == ScsiStatus.CHECK_CONDITION:
            continue
        assert not done.status, f"READ(16) of a block, {size + more} bytes expected: status {done.status:#x}"
        found = done.underflow, done.overflow, done.residual
        assert found == (True, False, more), (
            f"READ(16) of a block, {size + more} bytes expected: U, O and residual are {found}; "
            f"the residual is {more}"
        )


# Digests of several PDUs (RFC 7143 11.2.3)


@pytest.mark.parametrize("segment", [
    pytest.param("512", marks=pytest.mark.case("ISC-DIGEST-16",
                 kills=("digest-of-fifth-data-in", "digest-of-last-data-in"))),
    pytest.param("1536", marks=pytest.mark.case("ISC-DIGEST-17", kills=("digest-of-fifth-data-in",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.2.3, 13.1", level="MUST", builds_on=("ISC-DIGEST-03",))
def test_every_data_in_of_a_long_read_has_its_digests(connections, scratch, segment):
    """Three reads of 24 blocks in small segments; the initiator checks both digests of every PDU."""
    session = with_digests(
        connections,
        header="yes",
        data="yes",
        MaxRecvDataSegmentLength=segment,
        MaxBurstLength="4096",
        FirstBurstLength="4096",
    )
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for turn in range(3):
        data = scratch.pattern(24, seed=40 + turn)
        assert unit.write(scratch.lba, data).good
        assert unit.read(scratch.lba, 24).data == data, f"read {turn + 1}: other data"
