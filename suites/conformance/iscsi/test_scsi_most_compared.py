"""Blocks after the first few of COMPARE AND WRITE; what each command that writes has mapped (SBC-3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import ScsiResult

from .test_reservation_limits import WRITERS, access
from .test_scsi_optional import MAPPED, statuses, unmapped
from .test_scsi_seldom import INITIALIZATION_PATTERN, run
from .test_scsi_write_protect import NAMES

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 COMPARE AND WRITE", level="MUST"),
]

FEW = 8
"""Blocks of which SCS-CAW-05 is."""
LONGEST = 255
"""Blocks of the longest COMPARE AND WRITE (SBC-3): its NUMBER OF LOGICAL BLOCKS has 8 bits."""


@pytest.fixture
def most(unit, facts, scratch) -> int:
    """Write the pattern of seed 1830, and return the blocks that one COMPARE AND WRITE may have."""
    limit = min(facts.limits.max_compare_and_write if facts.limits else 0, LONGEST)
    found = min(limit, scratch.most)
    if found <= FEW:
        pytest.skip(f"a COMPARE AND WRITE has {found} blocks at most")
    answer = unit.write(scratch.lba, scratch.pattern(found, seed=1830))
    assert answer.good, answer
    return found


@pytest.mark.case("SCS-CAW-MOST-COMPARED", kills=("caw-compares-eight",), builds_on=("SCS-CAW-05",))
def test_each_block_of_a_long_compare_and_write_is_compared(unit, scratch, most):
    """As many as MAXIMUM COMPARE AND WRITE LENGTH: one that differs is a miscompare, and none is written."""
    old, new, size = scratch.pattern(most, seed=1830), scratch.pattern(most, seed=1831), scratch.block_size
    places = (FEW, 15, 16, 31, 32, 127, most // 2, most - 2, most - 1)
    for block in sorted({at for at in places if FEW <= at < most}):
        wrong = bytearray(old)
        wrong[(block + 1) * size - 1] ^= 0x01
        answer = offered(unit.compare_and_write(scratch.lba, bytes(wrong), new))
        assert answer.check(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY), (
            f"{answer}; the last byte of block {block} of {most} differs"
        )
        assert unit.read(scratch.lba, most).good_data() == old, f"{answer}, but a block has changed"


@pytest.mark.case("SCS-CAW-MOST-WRITTEN", kills=("caw-writes-eight",), builds_on=("SCS-CAW-05",))
def test_each_block_of_a_long_compare_and_write_is_written(unit, scratch, most):
    """As many blocks as MAXIMUM COMPARE AND WRITE LENGTH; the block behind them stays."""
    behind = unit.read(scratch.lba + most).good_data()
    new = scratch.pattern(most, seed=1832)
    answer = offered(unit.compare_and_write(scratch.lba, scratch.pattern(most, seed=1830), new))
    assert answer.good, answer
    assert unit.read(scratch.lba, most).good_data() == new, (
        f"{answer}: of {most} blocks one is not the new one"
    )
    assert unit.read(scratch.lba + most).good_data() == behind, (
        f"{answer}: the block behind {most} has changed"
    )


RANGE = 4
"""Blocks of a VERIFY with one block of data (chosen)."""


@pytest.mark.parametrize("command", [
    pytest.param(c.VERIFY_10, marks=pytest.mark.case("SCS-VERIFY-ONE-10")),
    pytest.param(c.VERIFY_12, marks=pytest.mark.case("SCS-VERIFY-ONE-12")),
])  # fmt: skip
@pytest.mark.case(
    section="SBC-3 VERIFY, BYTCHK", kills=("verify-one-block-short",), builds_on=("SCS-VERIFY-02",)
)
def test_one_block_is_compared_with_each_of_a_range_by_the_shorter_forms(unit, scratch, command):
    """BYTCHK of 11b: equal blocks are GOOD, and a byte of any block that differs is a miscompare."""
    scratch.require(RANGE)
    block = scratch.pattern(1, seed=1834)

    def verified(data: bytes) -> ScsiResult:
        assert unit.write(scratch.lba, data).good
        return offered(unit.run(command, data=block, lba=scratch.lba, blocks=RANGE, bytchk=3))

    equal = verified(RANGE * block)
    if equal.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"{equal}: BYTCHK of 11b is not supported")
    assert equal.good, equal
    for at in range(RANGE):
        data = bytearray(RANGE * block)
        data[(at + 1) * unit.block_size - 1] ^= 1
        answer = verified(bytes(data))
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}: the last byte of block {at} of {RANGE} differs"


# Blocks that are mapped


@pytest.mark.parametrize("command", [
    pytest.param(command, id=NAMES[command].lower(), marks=pytest.mark.case(f"SCS-LBAS-BY-{NAMES[command]}"))
    for command in WRITERS if command not in (c.UNMAP, c.WRITE_16)
])  # fmt: skip
@pytest.mark.case(
    section="SBC-3 GET LBA STATUS, provisioning status",
    kills=("lba-status-of-write-16-alone",),
    builds_on=("SCS-LBAS-02",),
)
def test_a_block_is_mapped_by_each_command_that_writes_it(unit, facts, scratch, command):
    """The block was unmapped before, and is not zero then. SCS-LBAS-02 is about WRITE(16)."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    statuses(unit, scratch.lba)
    unmapped(unit, facts, scratch.lba, 64)
    if command is c.COMPARE_AND_WRITE:
        held = unit.read(scratch.lba).good_data()
        answer = offered(unit.compare_and_write(scratch.lba, held, scratch.pattern(1, seed=9)))
    else:
        answer = offered(access(unit, scratch, command))
    assert answer.good, answer
    found = unit.read(scratch.lba).good_data()
    assert any(found), f"{answer}, and then the block is zero"
    status = statuses(unit, scratch.lba)[0].status
    assert status in MAPPED, (
        f"{answer}, and then the provisioning status of the block is {status} (1: deallocated, 2: anchored)"
    )


# Ranges of WRITE SAME


@pytest.mark.parametrize("command", [
    pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-SAME-NONE-PAST-10")),
    pytest.param(c.WRITE_SAME_16, marks=pytest.mark.case("SCS-SAME-NONE-PAST-16")),
])  # fmt: skip
@pytest.mark.case(
    section="SBC-3, LOGICAL BLOCK ADDRESS", kills=("same-none-past-good",), builds_on=("SCS-RW-01",)
)
def test_no_number_of_blocks_from_past_the_end_on_is_refused(unit, facts, scratch, command):
    """Zero is each block up to the last one, or it is refused (WSNZ): an address past the end is an error."""
    blocks, top = facts.capacity.blocks, 1 << (64 if command.length == 16 else 32)
    first, data = unit.read(scratch.lba).good_data(), scratch.pattern(1, seed=1833)
    for lba in (blocks + 1, top - 1):
        if not blocks < lba < top:
            continue
        answer = offered(unit.run(command, data=data, lba=lba, blocks=0))
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE, Asc.INVALID_FIELD_IN_CDB), (
            f"{answer}; the last block is {facts.capacity.last_lba}"
        )
        assert unit.read(scratch.lba).good_data() == first, f"{answer}, but a block has changed"


WSNZ = 0x01
"""Of byte 4 of the Block Limits page (SBC-3)."""
LAST = 4
"""Blocks at the end of the unit (chosen)."""


@pytest.mark.case(
    "SCS-SAME-NDOB-NONE",
    section="SBC-3 WRITE SAME(16), NDOB",
    kills=("ndob-none-one",),
    builds_on=("SCS-SAME-NDOB",),
)
def test_write_same_without_data_and_number_of_blocks_reaches_to_the_end(unit, facts, scratch):
    """Without WSNZ, zero is all blocks up to the last one; if the command is refused, none is written."""
    page = unit.inquiry(0xB0)
    if page.good and len(page.data) > 4 and page.data[4] & WSNZ:
        pytest.skip("WSNZ is set: SCS-SAME-06")
    if 0xB2 in facts.pages and vpd_page(unit, 0xB2).body[1] >> 2 & 7 == INITIALIZATION_PATTERN:
        pytest.skip("LBPRZ is 010b: NDOB writes the provisioning initialization pattern")
    first, old = facts.capacity.blocks - LAST, scratch.pattern(LAST, seed=1860)
    assert unit.write(first, old).good
    answer = run(unit, c.WRITE_SAME_16, b"", lba=first, blocks=0, ndob=1)
    found = unit.read(first, LAST).good_data()
    wanted = bytes(len(old)) if answer.good else old
    assert found == wanted, f"{answer}: of the last {LAST} blocks {found[:16].hex()}... is read"


# DPO and FUA

FLAGGED: dict[str, c.CommandFormat] = {
    "WRITE-10": c.WRITE_10, "WRITE-12": c.WRITE_12, "WRITE-16": c.WRITE_16, "ORWRITE": c.ORWRITE_16,
    "WVER-10": c.WRITE_AND_VERIFY_10, "WVER-12": c.WRITE_AND_VERIFY_12, "WVER-16": c.WRITE_AND_VERIFY_16,
    "CAW": c.COMPARE_AND_WRITE, "READ-10": c.READ_10, "READ-12": c.READ_12, "READ-16": c.READ_16,
}  # fmt: skip
"""Commands that have DPO, and most of them FUA."""


def flags(command: c.CommandFormat) -> list[dict[str, int]]:
    """Return what DPO and FUA may be in a command: each alone, and both if it has both."""
    there = [place.name for place in command.fields if place.name in ("dpo", "fua")]
    return [{name: 1} for name in there] + ([dict.fromkeys(there, 1)] if len(there) > 1 else [])


@pytest.mark.parametrize("name", [
    pytest.param(name, id=name.lower(), marks=pytest.mark.case(
        f"SCS-FLAGGED-{name}", kills=("flagged-read-zero" if "READ" in name else "flagged-write-elsewhere",)))
    for name in FLAGGED
])  # fmt: skip
@pytest.mark.case(section="SBC-3 READ, WRITE, DPO and FUA", builds_on=("SCS-RW-01",))
def test_dpo_and_fua_change_nothing_of_what_is_read_or_written(two, scratch, name):
    """A command with DPO or FUA that is not refused does what it does without; its neighbour stays."""
    own, other = two
    scratch.require(2)
    command, size = FLAGGED[name], scratch.block_size
    for seed, bits in enumerate(flags(command), 1850):
        old, new = scratch.pattern(2), scratch.pattern(1, seed=seed)
        assert own.write(scratch.lba, old).good
        if "READ" in name:
            answer, wanted = own.read(scratch.lba, command=command, **bits), old
        elif command is c.COMPARE_AND_WRITE:
            data = old[:size] + new
            answer = own.run(command, data=data, lba=scratch.lba, blocks=1, **bits)
            wanted = new + old[size:]
        else:
            answer = own.write(scratch.lba, new, command=command, **bits)
            ored = bytes(a | b for a, b in zip(old[:size], new, strict=True))
            wanted = (ored if command is c.ORWRITE_16 else new) + old[size:]
        if offered(answer).check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
            continue  # SCS-RW-29, SCS-DPO-* and SCS-FUA-* test whether it has to be accepted
        assert answer.good, answer
        assert "READ" not in name or answer.data == old[:size], f"{answer}: other data than without {bits}"
        assert other.read(scratch.lba, 2).good_data() == wanted, f"{answer}: other blocks, with {bits}"
