"""Several forms of a command do the same (SPC-4, SBC-3); what only some forms reach; data of one value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, mode_select, selectable_page
from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")]

NOT_OFFERED = "the mutants' target does not offer the command: it is skipped there"
EDGE = 1 << 16
"""The first LBA of more than 16 bits."""
LARGE = 4 << 20
"""Bytes of a large transfer that clients send in one command."""


@contextmanager
def restored(unit: LogicalUnit, facts, lba: int, blocks: int) -> Iterator[None]:
    """Write back at the end what the blocks hold now; skip if the unit has no such blocks."""
    if lba + blocks > facts.capacity.blocks:
        pytest.skip(f"the unit has {facts.capacity.blocks} blocks; {lba + blocks} are needed")
    before = unit.read(lba, blocks).good_data()
    try:
        yield
    finally:
        unit.write(lba, before)


def supported(answer: ScsiResult) -> ScsiResult:
    """Return the result; skip if the unit has no such command."""
    if answer.unsupported:
        pytest.skip(f"not offered: {answer}")
    return answer


# MODE SENSE


@pytest.mark.parametrize("control", [
    pytest.param(0, marks=pytest.mark.case("SCS-FORM-MODE-CURRENT")),
    pytest.param(1, marks=pytest.mark.case("SCS-FORM-MODE-CHANGEABLE")),
    pytest.param(2, marks=pytest.mark.case("SCS-FORM-MODE-DEFAULT")),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 MODE SENSE(10)", kills=("mode10-other-page",), builds_on=("SCS-MODE-05", "SCS-MODE-06")
)
def test_mode_sense_10_returns_the_pages_of_mode_sense_6(unit, control):
    """What follows header and block descriptor is the same, as far as the 255 bytes of MODE SENSE(6)."""
    six = supported(mode_sense(unit, c.MODE_SENSE_6, control=control))
    ten = supported(mode_sense(unit, c.MODE_SENSE_10, control=control))
    if six.check(SenseKey.ILLEGAL_REQUEST) and ten.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"these values are not supported: {six}")
    assert six.good, six
    assert ten.good, ten
    wanted = six.data[4 + six.data[3] : 1 + six.data[0]]  # to the end by MODE DATA LENGTH
    found = ten.data[8 + int.from_bytes(ten.data[6:8], "big") : 2 + int.from_bytes(ten.data[:2], "big")]
    if six.data[0] + 1 > len(six.data):  # the allocation length has cut them
        found = found[: len(wanted)]
    assert found == wanted, f"{ten}: the pages are {found.hex()}; MODE SENSE(6) returns {wanted.hex()}"


@pytest.mark.case(
    "SCS-FORM-MODE-HEADER",
    section="SPC-4 mode parameter header",
    kills=("mode10-other-header", "mode10-other-block-length"),
    builds_on=("SCS-MODE-01", "SCS-MODE-04"),
)
def test_both_mode_parameter_headers_state_the_same(unit):
    """MEDIUM TYPE, the device-specific parameter (WP, DPOFUA), and a block descriptor of eight bytes."""
    six = supported(mode_sense(unit, c.MODE_SENSE_6, dbd=0))
    ten = supported(mode_sense(unit, c.MODE_SENSE_10, dbd=0))
    assert six.good, six
    assert ten.good, ten
    assert ten.data[2:4] == six.data[1:3], (
        f"{ten}: MEDIUM TYPE and the device-specific parameter are {ten.data[2:4].hex()}; "
        f"MODE SENSE(6) returns {six.data[1:3].hex()}"
    )
    if six.data[3] == 8 and ten.data[4:8] == bytes((0, 0, 0, 8)):  # LONGLBA 0
        assert ten.data[8:16] == six.data[4:12], (
            f"{ten}: the block descriptor is {ten.data[8:16].hex()}; "
            f"MODE SENSE(6) returns {six.data[4:12].hex()}"
        )


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"SCS-FORM-SELECT-{name}"))
    for page, name in ((CACHING, "CACHING"), (CONTROL, "CONTROL"))
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 MODE SELECT(10)",
    level="MUST",
    no_mutant_reason="no target of the mutants changes a page with it",
    builds_on=("SCS-MSEL-01",),
)
@pytest.mark.usefixtures("scratch")
def test_mode_select_10_sets_the_page_that_both_forms_of_mode_sense_return(unit, page):
    """One bit that is changeable is set and set back. The list has a header of eight bytes, and one page."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=1)
    bits = ((4 + byte, bit) for byte, some in BITS[page] for bit in some)
    found = next((one for one in bits if one[0] < len(mask) and mask[one[0]] & one[1]), None)
    if found is None:
        pytest.skip(f"no bit of page {page:02x}h that is tested is changeable: {mask.hex()}")
    wanted = bytearray(before)
    wanted[found[0]] ^= found[1]
    try:
        for value in (bytes(wanted), before):
            data = bytes(4) + value  # the header of MODE SELECT(6) is four bytes, all of them zero
            answer = supported(unit.run(c.MODE_SELECT_10, data=data, pf=1, allocation=len(data)))
            assert answer.good, f"{answer}; bit {found[1]:02x}h of byte {found[0] - 4} is changeable"
            six = current_page(unit, page)
            assert six == value, (
                f"{answer}: MODE SENSE(6) returns {six[4:].hex()}, and {value[4:].hex()} was set"
            )
            ten = mode_sense(unit, c.MODE_SENSE_10, page)
            shown = dict(mode_pages(ten.data, ten=True)).get(page, b"")
            assert shown[1:] == value[5:], (
                f"{answer}: MODE SENSE(10) returns {shown.hex()}, and {value[4:].hex()} was set"
            )
    finally:
        if current_page(unit, page) != before:
            mode_select(unit, before)


@pytest.mark.case(
    "SCS-FORM-SELECT-REPORTED",
    section="SPC-4 MODE SELECT(10), unit attention",
    level="MUST",
    kills=("select-10-unreported",),
    builds_on=("SCS-FORM-SELECT-CACHING",),
)
@pytest.mark.usefixtures("scratch")
def test_a_page_that_mode_select_10_changed_is_reported_to_the_other_nexus(two):
    """A nexus that has the new value had a unit attention; a nexus with pages of its own keeps its value."""
    unit, other = two
    before, mask = selectable_page(unit, CACHING), current_page(unit, CACHING, control=1)
    bits = ((4 + byte, bit) for byte, some in BITS[CACHING] for bit in some)
    found = next((one for one in bits if one[0] < len(mask) and mask[one[0]] & one[1]), None)
    if found is None:
        pytest.skip(f"no bit of page 08h that is tested is changeable: {mask.hex()}")
    wanted = bytearray(before)
    wanted[found[0]] ^= found[1]
    other.clear_attentions()
    data = bytes(4) + bytes(wanted)
    try:
        answer = supported(unit.run(c.MODE_SELECT_10, data=data, pf=1, allocation=len(data)))
        assert answer.good, answer
        attentions = other.clear_attentions()
        there = current_page(other, CACHING)
    finally:
        mode_select(unit, before)
    reported = any(one.asc == Asc.MODE_PARAMETERS_CHANGED for one in attentions)
    assert reported or there == before, (
        f"the other nexus has the new page, and no unit attention MODE PARAMETERS CHANGED "
        f"(its unit attentions: {', '.join(map(str, attentions)) or 'none'})"
    )


@pytest.mark.case(
    "SCS-FORM-SELECT-SP",
    section="SPC-4 MODE SELECT(10), SP",
    level="MUST",
    kills=("mode-sp-ten-accepted",),
    builds_on=("SCS-MASK-SAVED",),
)
@pytest.mark.usefixtures("scratch")
def test_mode_select_10_saves_no_values_if_saved_values_are_not_implemented(unit):
    """The parameter list has the current values; saved values are asked for with PC 11b of MODE SENSE(6)."""
    saved = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, page_control=3, dbd=1, allocation=255)
    if not saved.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"saved values are implemented, or not readable: {saved}")
    data = bytes(4) + selectable_page(unit, CONTROL)
    plain = supported(unit.run(c.MODE_SELECT_10, data=data, pf=1, allocation=len(data)))
    if not plain.good:
        pytest.skip(f"MODE SELECT(10) of the current values is refused: {plain}")
    answer = unit.run(c.MODE_SELECT_10, data=data, pf=1, sp=1, allocation=len(data))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
        f"{answer}; SP is 1, and saved mode pages are not implemented"
    )


# Addresses of more than 16 bits, and ranges across one


HIGH_READS = {
    "10": (c.READ_10, ("read-high-lba",)),
    "12": (c.READ_12, ("read-high-lba",)),
}
HIGH_WRITES = {
    "6": (c.WRITE_6, ("write-6-high-lba",)),
    "10": (c.WRITE_10, ("write-high-lba",)),
    "12": (c.WRITE_12, ("write-high-lba",)),
}


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-FORM-READ-{form}", kills=kills))
    for form, (_, kills) in HIGH_READS.items()
])  # fmt: skip
@pytest.mark.case(section="SBC-3 READ, WRITE", builds_on=("SCS-RW-01",))
def test_each_read_reaches_the_block_of_an_address_over_16_bits(unit, facts, scratch, form):
    """The block whose address has the same lower 16 bits holds something else."""
    command, _ = HIGH_READS[form]
    lba = EDGE + scratch.lba
    with restored(unit, facts, lba, 1):
        for at, seed in ((scratch.lba, 170), (lba, 171)):
            assert unit.write(at, scratch.pattern(1, seed=seed)).good
        answer = supported(unit.read(lba, command=command))
        assert answer.good, answer
        assert answer.data == scratch.pattern(1, seed=171), f"{answer}: not what was written to LBA {lba}"


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-FORM-WRITE-{form}", kills=kills))
    for form, (_, kills) in HIGH_WRITES.items()
])  # fmt: skip
@pytest.mark.case(section="SBC-3 READ, WRITE", builds_on=("SCS-RW-01",))
def test_each_write_reaches_the_block_of_an_address_over_16_bits(unit, facts, scratch, form):
    """The block whose address has the same lower 16 bits keeps what it holds. WRITE(6) has 21 bits."""
    command, _ = HIGH_WRITES[form]
    lba, old, new = EDGE + scratch.lba, scratch.pattern(1, seed=172), scratch.pattern(1, seed=173)
    high = {"lba": lba & 0xFFFF, "lba_high": lba >> 16} if command is c.WRITE_6 else {"lba": lba}
    with restored(unit, facts, lba, 1):
        for at in (scratch.lba, lba):
            assert unit.write(at, old).good
        answer = supported(unit.run(command, data=new, blocks=1, **high))
        assert answer.good, answer
        assert unit.read(lba).data == new, f"{answer}: LBA {lba} was not written"
        assert unit.read(scratch.lba).data == old, f"{answer}: LBA {scratch.lba} was written, too"


@pytest.mark.case("SCS-DATA-EDGE", kills=("read-over-edge", "write-over-edge"), builds_on=("SCS-DATA-01",))
def test_a_transfer_across_an_address_of_16_bits_is_whole(unit, facts, scratch):
    """One command writes the blocks on both sides; they are read by one command, and one by one."""
    half = min(8, facts.largest // 2)
    if not half:
        pytest.skip("MAXIMUM TRANSFER LENGTH is 1")
    lba, blocks = EDGE - half, 2 * half
    data = scratch.pattern(blocks, seed=174)
    with restored(unit, facts, lba, blocks):
        answer = unit.write(lba, data)
        assert answer.good, answer
        whole = unit.read(lba, blocks)
        assert whole.data == data, f"{whole}: the blocks from LBA {EDGE} on are others, or those before it"
        for at in range(blocks):
            wanted = scratch.pattern(blocks, seed=174)[at * unit.block_size : (at + 1) * unit.block_size]
            assert unit.read(lba + at).data == wanted, f"{answer}: LBA {lba + at} was not written"


@pytest.mark.case(
    "SCS-DATA-4M",
    no_mutant_reason="the mutants' target takes 1 MiB by a command, as it states",
    builds_on=("SCS-DATA-LARGEST",),
)
def test_a_transfer_of_4_mib_is_whole(unit, facts, scratch):
    """Written and read by one command each, and the last block alone. What was there is written back."""
    blocks = LARGE // unit.block_size
    if facts.limits and 0 < facts.limits.max_transfer < blocks:
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {facts.limits.max_transfer}")
    last = scratch.lba + blocks - 1
    data = b"".join(scratch.pattern(256, seed=at) for at in range(-(-blocks // 256)))[:LARGE]
    is_stated = bool(facts.limits and facts.limits.max_transfer)

    def taken(answer: ScsiResult) -> None:
        if answer.check(SenseKey.ILLEGAL_REQUEST) and not is_stated:
            pytest.skip(f"{answer}: the target states no MAXIMUM TRANSFER LENGTH, and takes no 4 MiB")
        assert answer.good, answer

    taken(unit.read(scratch.lba, blocks))
    with restored(unit, facts, scratch.lba, blocks):
        answer = unit.write(scratch.lba, data)
        taken(answer)
        assert unit.read(last).data == data[-unit.block_size :], f"{answer}: the last block was not written"
        whole = unit.read(scratch.lba, blocks)
        assert whole.good, whole
        at = next((at for at in range(0, LARGE, 512) if whole.data[at : at + 512] != data[at : at + 512]), 0)
        assert whole.data == data, f"{whole}: other data from byte {at} on"


# Data of one value


@pytest.mark.case("SCS-DATA-UNIFORM", kills=("ff-block-zero", "zero-block-kept"), builds_on=("SCS-RW-01",))
def test_blocks_of_one_value_are_stored_as_any_other(unit, scratch):
    """Zeroes, ones, and bytes that an implementation may take for something else, over other data."""
    size = unit.block_size
    for value in (0x00, 0xFF, 0x01, 0x80, 0x55, 0x20):
        old, block = scratch.pattern(4, seed=value), bytes((value,)) * size
        assert unit.write(scratch.lba, old).good
        answer = unit.write(scratch.lba + 1, block * 2)
        assert answer.good, answer
        read = unit.read(scratch.lba, 4)
        wanted = old[:size] + block * 2 + old[3 * size :]
        assert read.data == wanted, f"{read}: blocks of bytes {value:02x}h were written between two others"


# Commands that few clients send


@pytest.mark.case("SCS-ORWRITE-01", section="SBC-3 ORWRITE", no_mutant_reason=NOT_OFFERED)
def test_orwrite_stores_the_or_of_the_old_and_the_new_data(unit, scratch):
    old, new = scratch.pattern(3, seed=175), scratch.pattern(3, seed=176)
    assert unit.write(scratch.lba, old).good
    answer = supported(unit.run(c.ORWRITE_16, data=new, lba=scratch.lba, blocks=3))
    assert answer.good, answer
    wanted = bytes(one | other for one, other in zip(old, new, strict=True))
    assert unit.read(scratch.lba, 3).data == wanted, f"{answer}: not the OR of the old and the new data"


@pytest.mark.case(
    "SCS-FORM-VERIFY-12", section="SBC-3 VERIFY", no_mutant_reason=NOT_OFFERED, builds_on=("SCS-VERIFY-02",)
)
def test_verify_12_compares_each_byte_of_each_block(unit, scratch):
    data = scratch.pattern(3, seed=177)
    assert unit.write(scratch.lba, data).good
    same = supported(unit.run(c.VERIFY_12, data=data, lba=scratch.lba, blocks=3, bytchk=1))
    if same.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"BYTCHK is not supported: {same}")
    assert same.good, same
    for at in (0, unit.block_size, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1
        answer = unit.run(c.VERIFY_12, data=bytes(wrong), lba=scratch.lba, blocks=3, bytchk=1)
        assert answer.check(SenseKey.MISCOMPARE), f"{answer}; byte {at} of {len(data)} differs"
    assert unit.read(scratch.lba, 3).data == data, "VERIFY(12) has changed the blocks"


@pytest.mark.case(
    "SCS-FORM-WVER-12",
    section="SBC-3 WRITE AND VERIFY",
    no_mutant_reason=NOT_OFFERED,
    builds_on=("SCS-RW-01",),
)
def test_write_and_verify_12_writes_its_blocks_alone(unit, scratch):
    old, new = scratch.pattern(4, seed=178), scratch.pattern(2, seed=179)
    size = unit.block_size
    assert unit.write(scratch.lba, old).good
    answer = supported(unit.run(c.WRITE_AND_VERIFY_12, data=new, lba=scratch.lba + 1, blocks=2))
    assert answer.good, answer
    assert unit.read(scratch.lba, 4).data == old[:size] + new + old[3 * size :], f"{answer}: other blocks"


# Sense data of commands that write


def writes_past_the_end(unit: LogicalUnit, last: int) -> Iterator[tuple[int, ScsiResult]]:
    """Run each command that writes on the first block past the end; yield its LBA and the result."""
    lba, block = last + 1, bytes(unit.block_size)
    for command in (c.WRITE_10, c.WRITE_12, c.WRITE_16, c.WRITE_AND_VERIFY_16, c.WRITE_SAME_16):
        if lba > 0xFFFFFFFF and command.length < 16:
            continue
        answer = unit.run(command, data=block, lba=lba, blocks=1)
        if not answer.unsupported:
            yield lba, answer
    answer = unit.compare_and_write(lba, block, block)
    if not answer.unsupported:
        yield lba, answer


@pytest.mark.case(
    "SCS-SENSE-WRITE-CURRENT",
    section="SPC-4 sense data",
    kills=("write-sense-deferred",),
    builds_on=("SCS-SENSE-05", "SCS-RW-06"),
)
def test_sense_data_of_a_write_that_was_not_executed_are_those_of_a_current_error(unit, facts, scratch):
    """A deferred error is that of an earlier command, whose status was GOOD."""
    assert scratch.count
    for _, answer in writes_past_the_end(unit, facts.capacity.last_lba):
        if answer.sense is not None:
            assert not answer.sense.deferred, f"{answer}: a deferred error; the command itself is wrong"


@pytest.mark.case(
    "SCS-SENSE-WRITE-LBA",
    section="SBC-3 error reporting, SPC-4 sense data",
    kills=("write-information-zero",),
    builds_on=("SCS-SENSE-LBA-FIRST", "SCS-RW-06"),
)
def test_the_information_of_a_write_past_the_end_is_its_first_invalid_lba(unit, facts, scratch):
    """If INFORMATION is valid. Each command writes one block, which is the invalid one."""
    assert scratch.count
    seen = 0
    for lba, answer in writes_past_the_end(unit, facts.capacity.last_lba):
        if not answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE) or answer.sense is None:
            continue
        if answer.sense.information is not None:
            seen += 1
            assert answer.sense.information == lba, (
                f"{answer}: INFORMATION is {answer.sense.information:#x}, and LBA {lba:#x} was written"
            )
    if not seen:
        pytest.skip("INFORMATION is valid in no sense data of these commands")
