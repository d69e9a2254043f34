"""What holds for one command holds for each of its family: addresses, no blocks, blocks that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrType, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3", level="MUST")]

Facts = Any
"""The fixture of that name."""
HIGH = (1 << 32, 1 << 62, (1 << 64) - (1 << 32))
"""Added to an LBA of the unit: what is left of it if its upper half is not read."""
WRITES = (c.WRITE_AND_VERIFY_16, c.WRITE_SAME_16, c.ORWRITE_16)
NOT_OFFERED = "the mutants' target does not offer the command: it is skipped there"


def invalid(answer: ScsiResult) -> bool:
    """Return whether a command ended with INVALID FIELD IN CDB."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


def run(unit: LogicalUnit, command: c.CommandFormat, lba: int, data: bytes) -> ScsiResult:
    """Run ``command`` on one block; ``data`` is what it compares with, and what it writes."""
    if command is c.COMPARE_AND_WRITE:
        return unit.compare_and_write(lba, data, bytes(len(data)))
    return unit.run(command, data=data if command in WRITES else b"", lba=lba, blocks=1)


# Addresses of 64 bits


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c.VERIFY_16,
            marks=pytest.mark.case(
                "SCS-HIGH-01", kills=("upper-lba-of-verify",), builds_on=("SCS-RW-05", "SCS-RW-25")
            ),
        ),
        pytest.param(
            c.SYNCHRONIZE_CACHE_16,
            marks=pytest.mark.case(
                "SCS-HIGH-02", kills=("upper-lba-of-sync",), builds_on=("SCS-RW-05", "SCS-RW-26")
            ),
        ),
        pytest.param(
            c.WRITE_SAME_16,
            marks=pytest.mark.case(
                "SCS-HIGH-03", kills=("upper-lba-of-same",), builds_on=("SCS-RW-05", "SCS-SAME-02")
            ),
        ),
        pytest.param(
            c.COMPARE_AND_WRITE,
            marks=pytest.mark.case(
                "SCS-HIGH-04", kills=("upper-lba-of-caw",), builds_on=("SCS-RW-05", "SCS-CAW-06")
            ),
        ),
        pytest.param(
            c.WRITE_AND_VERIFY_16,
            marks=pytest.mark.case(
                "SCS-HIGH-05", kills=("upper-lba-of-wver",), builds_on=("SCS-RW-05", "SCS-RW-24")
            ),
        ),
        pytest.param(
            c.ORWRITE_16,
            marks=pytest.mark.case("SCS-HIGH-06", no_mutant_reason=NOT_OFFERED, builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.PRE_FETCH_16,
            marks=pytest.mark.case("SCS-HIGH-07", no_mutant_reason=NOT_OFFERED, builds_on=("SCS-RW-05",)),
        ),
    ],
)
@pytest.mark.case(section="SBC-3, LOGICAL BLOCK ADDRESS of 64 bits")
def test_all_64_bits_of_an_address_count_for_every_command(unit, facts, scratch, command):
    """The block whose address is the lower half is there; with the upper half, the range is past the end."""
    data = scratch.pattern(1, seed=61)
    assert unit.write(scratch.lba, data).good
    for high in HIGH:
        lba = high + scratch.lba
        if lba < facts.capacity.blocks:
            continue
        answer = run(unit, command, lba, data)
        if answer.unsupported:
            pytest.skip(f"{command.name} is not supported")
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}, LBA {lba:#x}; the last is {facts.capacity.last_lba:#x}"
        )
    assert unit.read(scratch.lba).data == data, f"{command.name} of another address changed the block"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c.PRE_FETCH_10, marks=pytest.mark.case("SCS-PREFETCH-01")),
        pytest.param(c.PRE_FETCH_16, marks=pytest.mark.case("SCS-PREFETCH-02")),
    ],
)
@pytest.mark.case(section="SBC-3 PRE-FETCH", no_mutant_reason=NOT_OFFERED, builds_on=("SCS-RW-05",))
def test_blocks_are_fetched_up_to_the_end_and_no_further(unit, facts, command):
    """GOOD, or CONDITION MET if they fit into the cache."""
    last = facts.capacity.last_lba
    if last > 0xFFFFFFFF and command is c.PRE_FETCH_10:
        pytest.skip("the last block has no address of 32 bits")
    there = unit.run(command, lba=last, blocks=1)
    if there.unsupported:
        pytest.skip(f"{command.name} is not supported")
    assert there.good or there.status == ScsiStatus.CONDITION_MET, there
    for lba, blocks in ((last + 1, 1), (last, 2)):
        if lba <= 0xFFFFFFFF or command is c.PRE_FETCH_16:
            answer = unit.run(command, lba=lba, blocks=blocks)
            assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), answer


# The largest transfer


@pytest.mark.case(
    "SCS-DATA-LARGEST",
    section="SBC-3 READ, WRITE, Block Limits",
    kills=("tail-of-large-read", "tail-of-large-write"),
)
def test_the_largest_transfer_is_whole(unit, facts, scratch):
    """As many blocks as one command may transfer, up to those that the cases overwrite."""
    blocks = facts.largest
    data = scratch.pattern(blocks, seed=74)
    answer = unit.write(scratch.lba, data)
    assert answer.good, answer
    for first, count in ((0, blocks), (blocks - 1, 1)):
        read = unit.read(scratch.lba + first, count)
        assert read.good, read
        wanted = data[first * scratch.block_size :]
        assert read.data == wanted, (
            f"{read}: block {first + differing(read.data, wanted, scratch)} is another"
        )


def differing(found: bytes, wanted: bytes, scratch) -> int:
    """Return the number of the first block that differs."""
    size = scratch.block_size
    at = next(
        (at for at in range(0, len(wanted), size) if found[at : at + size] != wanted[at : at + size]), 0
    )
    return at // size


# No blocks


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-SAME-08")),
        pytest.param(c.WRITE_SAME_16, marks=pytest.mark.case("SCS-SAME-09")),
    ],
)
@pytest.mark.case(
    section="SBC-3 WRITE SAME, NUMBER OF LOGICAL BLOCKS",
    no_mutant_reason="the mutants' target sets WSNZ: it is skipped there",
)
def test_write_same_of_no_blocks_reaches_to_the_end_without_wsnz(unit, facts, scratch, command):
    """All blocks to the end are written, or the command is refused and writes none."""
    page = unit.inquiry(0xB0)
    if page.good and len(page.data) > 4 and page.data[4] & 1:
        pytest.skip("WSNZ is set: SCS-SAME-06")
    if facts.capacity.last_lba > 0xFFFFFFFF and command is c.WRITE_SAME_10:
        pytest.skip("the last block has no address of 32 bits")
    blocks = 4
    first, old = facts.capacity.blocks - blocks, scratch.pattern(blocks, seed=62)
    new = scratch.pattern(1, seed=63)
    assert unit.write(first, old).good
    answer = unit.run(command, data=new, lba=first, blocks=0)
    if answer.unsupported:
        pytest.skip(f"{command.name} is not supported")
    found = unit.read(first, blocks).data
    if answer.good:
        assert found == new * blocks, f"{answer}: not each of the last {blocks} blocks was written"
    else:
        assert answer.check(SenseKey.ILLEGAL_REQUEST), answer
        assert found == old, f"{answer}, but blocks were written"


# Blocks that a command only reads


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c.VERIFY_10, marks=pytest.mark.case("SCS-VERIFY-04")),
        pytest.param(c.VERIFY_16, marks=pytest.mark.case("SCS-VERIFY-05")),
    ],
)
@pytest.mark.case(section="SBC-3 VERIFY, BYTCHK", kills=("verify-writes",))
def test_verify_with_other_data_changes_no_block(unit, scratch, command):
    """Whatever the status of the comparison: the data of VERIFY are written nowhere."""
    data = scratch.pattern(3, seed=64)
    assert unit.write(scratch.lba, data).good
    for bytchk, blocks in ((1, 3), (3, 1)):
        sent = scratch.pattern(blocks, seed=65)
        answer = unit.run(command, data=sent, lba=scratch.lba, blocks=3, bytchk=bytchk)
        if answer.unsupported:
            pytest.skip(f"{command.name} is not supported")
        assert unit.read(scratch.lba, 3).data == data, f"{answer}: the blocks were changed"


# After a command that failed


FAILURES: dict[str, Callable[[LogicalUnit, Facts], ScsiResult]] = {
    "opcode": lambda unit, _: unit.result(unit.runner.command(c.NO_COMMAND), "operation code 6Bh"),
    "range": lambda unit, facts: unit.read(facts.capacity.blocks),
    "across": lambda unit, facts: unit.read(facts.capacity.last_lba, 2),
    "written": lambda unit, facts: unit.write(facts.capacity.blocks, b"\xa5" * facts.capacity.block_size),
    "field": lambda unit, _: unit.inquiry(0xAB),
    "action": lambda unit, _: unit.run(c.PERSISTENT_RESERVE_IN, read=64, service_action=0x1F, allocation=64),
}


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(name, marks=pytest.mark.case(f"SCS-AFTER-{name.upper()}", builds_on=("SCS-RW-01",)))
        for name in FAILURES
    ],
)
@pytest.mark.case(section="SAM-5 5.3, SBC-3 READ, WRITE", kills=("read-after-failure",))
def test_commands_after_one_that_failed_are_executed_as_before(unit, facts, scratch, failure):
    """Two blocks are read and one is written right after a command that ended in CHECK CONDITION."""
    data = scratch.pattern(2, seed=66)
    assert unit.write(scratch.lba, data).good
    for turn in range(2):
        failed = FAILURES[failure](unit, facts)
        if failed.good:
            pytest.skip(f"{failed}: the case of that rule reports it")
        read = unit.read(scratch.lba, 2)
        assert read.good, f"{read}, after {failed}"
        assert read.data == data, f"{read}: other data, after {failed}"
        failed = FAILURES[failure](unit, facts)
        data = scratch.pattern(1, seed=67 + turn) + data[scratch.block_size :]
        written = unit.write(scratch.lba, data[: scratch.block_size])
        assert written.good, f"{written}, after {failed}"
        assert unit.read(scratch.lba, 2).data == data, f"{written}: not written, after {failed}"


@pytest.mark.case("SCS-SENSE-08", section="SPC-4 sense data", kills=("sense-additional-length",))
def test_the_additional_sense_length_covers_the_additional_sense_code(unit, facts, session):
    """It counts the bytes from 8: 6 at least, and no more than the sense data have."""
    for failure, fails in FAILURES.items():
        if fails(unit, facts).good:
            continue
        sense = session.frames[-1].pdu.sense
        if sense[:1] not in (b"\x70", b"\x71") or len(sense) < 14 or not any(sense[12:14]):
            continue  # in descriptor format: SCS-DSENSE-03
        assert 6 <= sense[7] <= len(sense) - 8, (
            f"{failure}: ADDITIONAL SENSE LENGTH is {sense[7]}; sense data: {sense.hex()}"
        )


@pytest.mark.case(
    "SCS-SENSE-09",
    section="SPC-4 REQUEST SENSE",
    kills=("request-sense-length",),
    builds_on=("SCS-SENSE-03",),
)
def test_request_sense_returns_18_bytes_of_fixed_format_at_least(unit):
    answer = unit.run(c.REQUEST_SENSE, read=252, allocation=252)
    assert answer.good, answer
    data = answer.data
    if data[:1] not in (b"\x70", b"\x71"):
        pytest.skip(f"not in fixed format: {data.hex()}")
    assert len(data) >= 18, f"{len(data)} bytes, and the allocation length is 252: {data.hex()}"
    assert 10 <= data[7] <= len(data) - 8, f"ADDITIONAL SENSE LENGTH is {data[7]}: {data.hex()}"


# What is reported twice


@pytest.mark.case(
    "SCS-CAP-LBPRZ",
    section="SBC-3 READ CAPACITY(16), Logical Block Provisioning",
    kills=("lbprz-other",),
    builds_on=("SCS-CAP-01",),
)
def test_both_reports_of_lbprz_agree(unit):
    """LBPRZ of the page is of three bits since SBC-4; its lowest is that of READ CAPACITY(16)."""
    page, capacity = unit.inquiry(0xB2), unit.capacity16()
    assert capacity.good, capacity
    if not page.good or len(page.data) < 6 or len(capacity.data) < 15 or not capacity.data[14] & 0x80:
        pytest.skip("not thin provisioned")
    there, here = page.data[5] >> 2 & 1, capacity.data[14] >> 6 & 1
    assert there == here, f"LBPRZ is {there} in page B2h and {here} in READ CAPACITY(16)"


@pytest.mark.case(
    "SCS-VPD-UNMAP",
    section="SBC-3 Logical Block Provisioning, LBPU",
    kills=("lbpu-cleared",),
)
def test_a_unit_that_unmaps_states_it(unit, scratch):
    """LBPU is 1 if UNMAP is supported: here of no blocks."""
    page = unit.inquiry(0xB2)
    if not page.good or len(page.data) < 6:
        pytest.skip(f"no Logical Block Provisioning page: {page}")
    answer = unit.unmap((scratch.lba, 0))
    if not answer.good:
        pytest.skip(f"{answer}: the case of UNMAP reports it if LBPU is 1")
    assert page.data[5] & 0x80, f"{answer}, and LBPU is 0"


@pytest.mark.case(
    "SCS-PR-82",
    section="SPC-4 PRGENERATION",
    kills=("generation-of-reservation", "generation-of-release"),
    builds_on=RESERVING,
)
def test_every_service_action_returns_the_same_generation(unreserved):
    """Under a reservation and after it: RESERVE and RELEASE count nothing."""
    a, b = unreserved

    def generations() -> set[int]:
        a.clear_attentions()
        answers = [a.reserve_in(action) for action in (PrIn.READ_KEYS, PrIn.READ_RESERVATION)]
        full = a.reserve_in(PrIn.READ_FULL_STATUS)
        answers += [full] if full.good else []
        return {int.from_bytes(answer.good_data()[:4], "big") for answer in answers}

    for unit, key in ((a, 0xA1), (b, 0xB2)):
        done = unit.register(key)
        assert done.good, done
    before = generations()
    assert len(before) == 1, f"PRGENERATION is {sorted(before)} by the service action"
    for done in (a.reserve(PrType.WRITE_EXCLUSIVE, 0xA1), a.release(PrType.WRITE_EXCLUSIVE, 0xA1)):
        assert done.good, done
        now = generations()
        assert now == before, f"PRGENERATION was {before}, and is {sorted(now)} after {done}"


# What changes the unit for others


@pytest.mark.case(
    "SCS-PR-81",
    section="SPC-4 allowed commands, MODE SELECT",
    kills=("reservation-mode-select",),
    builds_on=RESERVING,
)
def test_mode_select_of_others_is_a_conflict_under_a_reservation(unreserved):
    """Each mode page with its current values, so that nothing changes where it is done."""
    a, b = unreserved
    page = b.run(c.MODE_SENSE_6, read=255, page=0x0A, dbd=1, allocation=255)
    if not page.good or len(page.data) < 6:
        pytest.skip(f"no Control mode page: {page}")
    body = page.data[4 : 6 + page.data[5]]
    data = bytes(4) + bytes((body[0] & 0x7F,)) + body[1:]
    answer = b.run(c.MODE_SELECT_6, data=data, pf=1, allocation=len(data))
    if not answer.good:
        pytest.skip(f"MODE SELECT(6): {answer}")
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS):
        reserved(a, kind)
        claim(b.run(c.MODE_SELECT_6, data=data, pf=1, allocation=len(data)), allowed=False)
        for done in (a.release(kind, 0xA1A2A3A4A5A6A7A8), a.register(0, key=0xA1A2A3A4A5A6A7A8)):
            assert done.good, done
        b.clear_attentions()


# REPORT SUPPORTED OPERATION CODES


@pytest.mark.case(
    "SCS-OPS-03",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, all commands",
    no_mutant_reason=NOT_OFFERED,
)
def test_the_list_of_commands_has_its_length_also_if_it_is_cut(unit):
    whole = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=8192, allocation=8192)
    if not whole.good:
        pytest.skip(f"not offered: {whole}")
    length = int.from_bytes(whole.data[:4], "big")
    assert length == len(whole.data) - 4, f"COMMAND DATA LENGTH is {length}, with {len(whole.data)} bytes"
    cut = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=12, allocation=12)
    assert cut.good, cut
    assert cut.data == whole.data[:12], f"{cut.data.hex()}; the whole begins {whole.data[:12].hex()}"


@pytest.mark.case(
    "SCS-OPS-02",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, one command",
    no_mutant_reason=NOT_OFFERED,
)
def test_a_supported_command_is_reported_with_its_length_and_its_code(unit):
    """SUPPORT 011b: as the standard has it; CDB USAGE DATA begin with the operation code."""
    for opcode, length in ((0x00, 6), (0x12, 6), (0x28, 10), (0xA0, 12)):
        answer = unit.run(
            c.REPORT_SUPPORTED_OPERATION_CODES, read=64, options=1, requested_opcode=opcode, allocation=64
        )
        if not answer.good:
            pytest.skip(f"not offered: {answer}")
        support, size = answer.data[1] & 7, int.from_bytes(answer.data[2:4], "big")
        if support == 0:
            continue  # no information is available now
        assert support == 3, f"{answer}: SUPPORT is {support} for operation code {opcode:02x}h"
        assert size == length, f"{answer}: CDB SIZE is {size} for operation code {opcode:02x}h"
        assert answer.data[4:5] == bytes([opcode]), f"{answer}: usage data {answer.data[4:].hex()}"
