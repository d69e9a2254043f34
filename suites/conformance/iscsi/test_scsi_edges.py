"""Edges of SCSI commands: allocation lengths, addresses of 32 bits, ranges at the end, MODE SELECT."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrType, SenseKey
from storagetest.wire.scsi.data import decode_luns
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")]

SIGN = 1 << 31
"""The bit of an LBA of 32 bits that is the sign of a signed number."""

WELL_KNOWN = 0xC1
"""First byte of the LUN of a well-known logical unit: extended addressing, method 1h (SAM-5)."""


def out_of_range(answer: ScsiResult) -> bool:
    """Return whether a command ended with LOGICAL BLOCK ADDRESS OUT OF RANGE."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)


def invalid(answer: ScsiResult) -> bool:
    """Return whether a command ended with INVALID FIELD IN CDB."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


# READ CAPACITY(16)


@pytest.mark.case(
    "SCS-CAP-05",
    section="SBC-3 READ CAPACITY(16), SPC-4 allocation length",
    kills=("capacity-allocation-ignored", "capacity-zero-refused"),
)
def test_any_allocation_length_cuts_the_capacity_data(unit):
    whole = unit.capacity16()
    assert whole.good, whole
    for allocation in (0, 1, 8, 12, 13, 31, 32):
        reads = 64 if allocation else 0
        answer = unit.run(c.READ_CAPACITY_16, read=reads, allocation=allocation)
        assert answer.good, f"{answer}; an allocation length is never an error"
        assert answer.data == whole.data[:allocation], (
            f"{answer}: {len(answer.data)} bytes, {answer.data.hex()}; the whole is {whole.data.hex()}"
        )


# REPORT LUNS


def _listed(answer: ScsiResult) -> set[int]:
    assert answer.good, answer
    return set(decode_luns(answer.data))


@pytest.mark.case(
    "SCS-LUN-06", section="SPC-4 REPORT LUNS", kills=("luns-select-empty",), builds_on=("SCS-LUN-01",)
)
def test_all_logical_units_are_at_least_those_without_the_well_known_ones(unit):
    every = unit.luns(select=2)
    if invalid(every):
        pytest.skip("SELECT REPORT 02h is not supported")
    missing = _listed(unit.luns()) - _listed(every)
    assert not missing, f"SELECT REPORT 02h lists all logical units, but not {sorted(map(hex, missing))}"


@pytest.mark.case(
    "SCS-LUN-07",
    section="SPC-4 REPORT LUNS",
    no_mutant_reason="LIO breaks this rule itself",
    builds_on=("SCS-LUN-05",),
)
def test_the_well_known_logical_units_are_no_others(unit):
    answer = unit.luns(select=1)
    if invalid(answer):
        pytest.skip("SELECT REPORT 01h is not supported")
    assert answer.good, answer
    entries = [answer.data[at : at + 8] for at in range(8, len(answer.data) - 7, 8)]
    others = [entry.hex() for entry in entries if entry[0] != WELL_KNOWN]
    assert not others, f"SELECT REPORT 01h lists LUN {others[0]}, which is no well-known logical unit"


@pytest.mark.case(
    "SCS-LUN-SAME", section="SPC-4 REPORT LUNS", kills=("luns-of-one",), builds_on=("SCS-LUN-01",)
)
def test_every_logical_unit_reports_the_same_list(unit):
    """The list is that of the logical units of the I_T nexus, whichever of them reports it."""
    listed = _listed(unit.luns())
    for lun in sorted({0, *listed})[:8]:
        session = unit.runner
        done = session.command(c.cdb(c.REPORT_LUNS, allocation=4096), read=4096, lun=lun)
        if done.status:
            continue  # it is LUN 0 that has to answer (SCS-LUN-03)
        found = set(decode_luns(done.data))
        assert found == listed, (
            f"LUN {lun:016x} reports {sorted(map(hex, found))}, and another unit {sorted(map(hex, listed))}"
        )


# Sense data


@pytest.mark.parametrize("name", [
    pytest.param("first", marks=pytest.mark.case("SCS-SENSE-LBA-FIRST", kills=("information-zero",))),
    pytest.param("high", marks=pytest.mark.case("SCS-SENSE-LBA-HIGH", kills=("information-of-32-bits",))),
])  # fmt: skip
@pytest.mark.case(section="SBC-3 error reporting, SPC-4 sense data", level="MUST", builds_on=("SCS-RW-05",))
def test_the_information_of_a_read_past_the_end_is_its_first_invalid_lba(unit, facts, name):
    """If INFORMATION is valid: fixed format has 32 bits of it, so VALID is 0 for an LBA of more."""
    lba = facts.capacity.blocks if name == "first" else (1 << 40) + facts.capacity.blocks
    answer = unit.read(lba)
    assert out_of_range(answer), answer
    information = answer.sense.information
    if information is None:
        pytest.skip("INFORMATION is not valid")
    assert information == lba, f"{answer}: INFORMATION is {information:#x}, and LBA {lba:#x} was read"


# Addresses of 32 bits


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c.READ_10, marks=pytest.mark.case("SCS-DATA-10", kills=("lba-signed",), builds_on=("SCS-RW-05",))
        ),
        pytest.param(
            c.WRITE_10, marks=pytest.mark.case("SCS-DATA-11", kills=("lba-signed",), builds_on=("SCS-RW-05",))
        ),
        pytest.param(
            c.READ_12, marks=pytest.mark.case("SCS-DATA-12", kills=("lba-signed",), builds_on=("SCS-RW-05",))
        ),
        pytest.param(
            c.VERIFY_10,
            marks=pytest.mark.case(
                "SCS-DATA-13", kills=("lba-signed",), builds_on=("SCS-RW-05", "SCS-RW-09")
            ),
        ),
        pytest.param(
            c.WRITE_SAME_10,
            marks=pytest.mark.case("SCS-DATA-14", kills=("lba-signed",), builds_on=("SCS-RW-05",)),
        ),
    ],
)
def test_bit_31_of_an_address_counts(unit, facts, scratch, command):
    data = scratch.pattern(1, seed=90)
    assert unit.write(scratch.lba, data).good
    for lba in (SIGN + scratch.lba, SIGN, 0xFFFFFFFF):
        reads = scratch.block_size if command.name.startswith("READ") else 0
        writes = command.name.startswith("WRITE")
        if lba < facts.capacity.blocks:
            if reads:  # a large unit: the block is there, and is the same by an address of 64 bits
                found, wanted = unit.read(lba, command=command), unit.read(lba)
                assert found.good, found
                assert found.data == wanted.data, f"{found}: other data than by READ(16)"
            continue
        sent = scratch.pattern(1, seed=91) if writes else b""
        answer = unit.run(command, read=reads, data=sent, lba=lba, blocks=1)
        if answer.unsupported:
            pytest.skip(f"{command.name} is not supported")
        assert out_of_range(answer), f"{answer}; the last block is {facts.capacity.last_lba}"
    assert unit.read(scratch.lba).data == data, f"{command.name} of another address changed the block"


# UNMAP


@pytest.mark.case(
    "SCS-UNMAP-09",
    section="SBC-3 UNMAP",
    kills=("unmap-across-end-begins",),
    builds_on=("SCS-UNMAP-03",),
)
def test_unmap_across_the_end_unmaps_nothing(unit, facts, scratch):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    last = facts.capacity.last_lba
    data = scratch.pattern(1, seed=92)
    assert unit.write(last, data).good
    answer = unit.unmap((last, 2))
    assert out_of_range(answer), answer
    assert unit.read(last).data == data, f"{answer}, but the last block was unmapped"


@pytest.mark.case(
    "SCS-UNMAP-10", section="SBC-3 UNMAP", kills=("unmap-far-good",), builds_on=("SCS-UNMAP-03",)
)
def test_unmap_far_past_the_end_is_out_of_range(unit, facts, scratch):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    data = scratch.pattern(1, seed=93)
    assert unit.write(scratch.lba, data).good
    for lba in (facts.capacity.blocks, (1 << 32) + scratch.lba, (1 << 63) + scratch.lba, (1 << 64) - 1):
        if lba >= facts.capacity.blocks:
            answer = unit.unmap((lba, 1))
            assert out_of_range(answer), f"{answer}, LBA {lba:#x}; the last is {facts.capacity.last_lba:#x}"
    assert unit.read(scratch.lba).data == data, "UNMAP of another address changed a block"


# WRITE SAME, VERIFY, COMPARE AND WRITE


@pytest.mark.case("SCS-SAME-06", section="SBC-3 WRITE SAME, WSNZ", kills=("write-same-zero",))
def test_write_same_of_no_blocks_is_refused_with_wsnz(unit, facts, scratch):
    page = unit.inquiry(0xB0)
    if not page.good or len(page.data) < 5 or not page.data[4] & 1:
        pytest.skip("WSNZ is 0: no blocks means all up to the end")
    last, data = facts.capacity.last_lba, scratch.pattern(1, seed=94)
    assert unit.write(last, data).good
    answer = unit.run(c.WRITE_SAME_16, data=scratch.pattern(1, seed=95), lba=last, blocks=0)
    if answer.unsupported:
        pytest.skip("WRITE SAME(16) is not supported")
    assert invalid(answer), answer
    assert unit.read(last).data == data, f"{answer}, but the last block was written"


@pytest.mark.case("SCS-SAME-07", section="SBC-3 WRITE SAME", kills=("write-same-one-less",))
def test_write_same_reaches_the_last_block(unit, facts, scratch):
    blocks = min(40, facts.largest)
    if facts.limits and facts.limits.max_write_same and facts.limits.max_write_same < blocks:
        pytest.skip(f"MAXIMUM WRITE SAME LENGTH is {facts.limits.max_write_same}")
    first, old, new = facts.capacity.blocks - blocks, scratch.pattern(blocks), scratch.pattern(1, seed=96)
    assert unit.write(first, old).good
    answer = unit.run(c.WRITE_SAME_16, data=new, lba=first, blocks=blocks)
    if answer.unsupported or invalid(answer):
        pytest.skip(f"WRITE SAME(16): {answer}")
    assert answer.good, answer
    assert unit.read(first, blocks).data == new * blocks, f"{answer}: the last {blocks} blocks of the unit"


@pytest.mark.case(
    "SCS-VERIFY-03",
    section="SBC-3 VERIFY, BYTCHK",
    no_mutant_reason="LIO breaks this rule itself",
    builds_on=("SCS-VERIFY-02",),
)
def test_verify_with_bytchk_compares_every_block_to_its_last_byte(unit, scratch):
    data = scratch.pattern(3, seed=97)
    assert unit.write(scratch.lba, data).good
    for at in (0, scratch.block_size - 1, scratch.block_size, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1
        answer = unit.run(c.VERIFY_10, data=bytes(wrong), lba=scratch.lba, blocks=3, bytchk=1)
        if answer.unsupported or invalid(answer):
            pytest.skip(f"BYTCHK is not supported: {answer}")
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}; byte {at} of {len(data)} differs"


@pytest.mark.case(
    "SCS-CAW-07",
    section="SBC-3 COMPARE AND WRITE",
    kills=("caw-offset-byte",),
    builds_on=("SCS-CAW-02",),
)
def test_a_miscompare_names_its_offset_anywhere_in_the_block(unit, scratch):
    old, new = scratch.pattern(1, seed=98), scratch.pattern(1, seed=99)
    assert unit.write(scratch.lba, old).good
    for at in (0, 1, 255, 256, 257, scratch.block_size - 1):
        wrong = bytearray(old)
        wrong[at] ^= 0x80
        answer = unit.compare_and_write(scratch.lba, bytes(wrong), new)
        if answer.unsupported:
            pytest.skip("COMPARE AND WRITE is not supported")
        assert answer.check(SenseKey.MISCOMPARE), answer
        assert answer.sense.information == at, f"{answer}; the first difference is at byte {at}"


# MODE SELECT


def current_page(unit: LogicalUnit, page: int, *, control: int = 0) -> bytes:
    """Return the header and the page as MODE SELECT(6) takes them; skip if the page is not there.

    ``control`` is PC: the current values, or a mask of the changeable ones (1).
    """
    answer = unit.run(c.MODE_SENSE_6, read=255, page=page, page_control=control, dbd=1, allocation=255)
    if not answer.good or len(answer.data) < 6:
        pytest.skip(f"no mode page {page:02x}h: {answer}")
    size = 2 + answer.data[5]
    # MODE DATA LENGTH and the device-specific parameter are reserved in MODE SELECT; PS is, too.
    return bytes(4) + bytes((answer.data[4] & 0x7F,)) + answer.data[5 : 4 + size]


def mode_select(unit: LogicalUnit, data: bytes) -> ScsiResult:
    answer = unit.run(c.MODE_SELECT_6, data=data, pf=1, allocation=len(data))
    if answer.unsupported:
        pytest.skip("MODE SELECT(6) is not supported")
    return answer


CACHING, CONTROL = 0x08, 0x0A

# Bits that are a field of their own, by page and byte: IC to RCD, FSW, LBCSS, DRA (SBC-3, Caching mode page);
# D_SENSE, GLTSD, RLEC, TAS (SPC-4, Control mode page). A change of them hides or protects no data.
BITS = {
    CACHING: ((2, (0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01)), (12, (0x80, 0x40, 0x20))),
    CONTROL: ((2, (0x04, 0x02, 0x01)), (5, (0x40,))),
}


@pytest.mark.case("SCS-MSEL-01", section="SPC-4 MODE SELECT(6)", kills=("mode-select-refused",))
@pytest.mark.usefixtures("scratch")
def test_mode_select_of_the_current_values_changes_nothing(unit):
    before = current_page(unit, CACHING)
    answer = mode_select(unit, before)
    assert answer.good, f"{answer}: {before.hex()} are the current values"
    assert current_page(unit, CACHING) == before, f"{answer}: the page has changed"


@pytest.mark.case("SCS-MSEL-02", section="SPC-4 MODE SELECT(6)", kills=("mode-select-zero",))
@pytest.mark.usefixtures("scratch")
def test_mode_select_without_a_parameter_list_is_no_error(unit):
    answer = mode_select(unit, b"")
    assert answer.good, answer


@pytest.mark.case(
    "SCS-MSEL-03",
    section="SPC-4 MODE SELECT(6), changeable values",
    kills=("mode-select-any", "sense-list-short"),
)
@pytest.mark.usefixtures("scratch")
def test_mode_select_of_a_value_that_is_not_changeable_is_refused(unit):
    before = current_page(unit, CACHING)
    mask = unit.run(c.MODE_SENSE_6, read=255, page=CACHING, page_control=1, dbd=1, allocation=255)
    if not mask.good or len(mask.data) < 8 or mask.data[7] or mask.data[6] & 0x01:
        pytest.skip(f"no mask of changeable values, or these are changeable: {mask}")
    wrong = bytearray(before)
    wrong[6] ^= 0x01  # RCD
    answer = mode_select(unit, bytes(wrong))
    refusals = (Asc.INVALID_FIELD_IN_PARAMETER_LIST, Asc.INVALID_FIELD_IN_CDB)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, *refusals), f"{answer}; RCD is not changeable"
    assert current_page(unit, CACHING) == before, f"{answer}, but the page has changed"


def selectable_page(unit: LogicalUnit, page: int) -> bytes:
    """Return the current values of a page; skip if MODE SELECT without SP takes none (SPC-4, SP)."""
    before = current_page(unit, page)
    answer = mode_select(unit, before)
    if not answer.good:
        pytest.skip(f"MODE SELECT of the current values is refused: {answer}")
    return before


@pytest.fixture
def selected(unit, scratch) -> tuple[int, bytes]:  # noqa: ARG001  # mode pages are the target's state
    """Return the code and the current values of the Caching mode page, or of the Control mode page."""
    there = unit.run(c.MODE_SENSE_6, read=255, page=CACHING, dbd=1, allocation=255)
    page = CACHING if there.good else CONTROL
    return page, selectable_page(unit, page)


@pytest.mark.case(
    "SCS-MSEL-04",
    section="SPC-4 MODE SELECT(6), PARAMETER LIST LENGTH",
    kills=("mode-select-cut",),
    builds_on=("SCS-MSEL-01",),
)
def test_mode_select_of_a_list_that_is_cut_is_refused(unit, selected):
    """A list that ends within the header or within a page is of a wrong length, and changes nothing."""
    page, before = selected
    for size in (2, 5, len(before) - 1):
        answer = mode_select(unit, before[:size])
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR), (
            f"{answer}: the list has {size} of {len(before)} bytes"
        )
        assert current_page(unit, page) == before, f"{answer}, but the page has changed"


@pytest.mark.case(
    "SCS-MSEL-05",
    section="SPC-4 MODE SELECT(6), page length",
    kills=("mode-select-any",),
    builds_on=("SCS-MSEL-01",),
)
def test_mode_select_of_a_page_of_another_length_is_refused(unit, selected):
    """The length is that of MODE SENSE for the same page; a longer page changes nothing."""
    page, before = selected
    longer = before[:5] + bytes((before[5] + 2,)) + before[6:] + bytes(2)
    answer = mode_select(unit, longer)
    refusals = (Asc.INVALID_FIELD_IN_PARAMETER_LIST, Asc.PARAMETER_LIST_LENGTH_ERROR)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, *refusals), (
        f"{answer}: PAGE LENGTH is {longer[5]}; that of MODE SENSE is {before[5]}"
    )
    assert current_page(unit, page) == before, f"{answer}, but the page has changed"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(CACHING, id="caching", marks=pytest.mark.case("SCS-MSEL-06")),
        pytest.param(CONTROL, id="control", marks=pytest.mark.case("SCS-MSEL-07")),
    ],
)
@pytest.mark.case(
    section="SPC-4 MODE SELECT(6), changeable values",
    kills=("mode-select-second",),
    builds_on=("SCS-MSEL-01", "SCS-MSEL-03"),
)
@pytest.mark.usefixtures("scratch")
def test_each_bit_that_is_not_changeable_stays(unit, page):
    """What the mask of MODE SENSE has as 0 is refused if its value is another than the current one."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=1)
    if len(mask) != len(before):
        pytest.skip(f"the mask of changeable values has {len(mask)} bytes, the page {len(before)}")
    fixed = [
        (4 + byte, bit)
        for byte, bits in BITS[page]
        for bit in bits
        if 4 + byte < len(mask) and not mask[4 + byte] & bit
    ]
    try:
        for at, bit in fixed:
            wrong = bytearray(before)
            wrong[at] ^= bit
            answer = mode_select(unit, bytes(wrong))
            where = f"bit {bit:02x}h of byte {at - 4} of page {page:02x}h is not changeable"
            refusals = (Asc.INVALID_FIELD_IN_PARAMETER_LIST, Asc.INVALID_FIELD_IN_CDB)
            assert answer.check(SenseKey.ILLEGAL_REQUEST, *refusals), f"{answer}; {where}"
            assert current_page(unit, page) == before, f"{answer}, but the page has changed; {where}"
    finally:
        if current_page(unit, page) != before:
            mode_select(unit, before)


# What a reservation allows to all


@pytest.mark.case(
    "SCS-PR-78",
    section="SPC-4 reservations, allowed commands",
    kills=("reservation-tur", "reservation-luns", "reservation-sense", "reservation-in"),
    builds_on=RESERVING,
)
def test_commands_that_no_reservation_excludes(unreserved):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    for answer in (
        b.test_unit_ready(),
        b.luns(),
        b.run(c.REQUEST_SENSE, read=252, allocation=252),
        b.reserve_in(PrIn.READ_KEYS),
        b.reserve_in(PrIn.READ_RESERVATION),
    ):
        claim(answer, allowed=True)
