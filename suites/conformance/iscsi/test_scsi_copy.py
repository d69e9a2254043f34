"""EXTENDED COPY(LID1) within one logical unit, and RECEIVE COPY OPERATING PARAMETERS (SPC-4).

Both are optional. A copy manager need not copy within one unit: the cases of a copy are skipped then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.suites.conformance.iscsi.third_party_copy import (
    BLOCK_TO_BLOCK,
    HEADER,
    IDENTIFICATION,
    CopyLimits,
    copy_limits,
    copy_list,
    cscd,
    own_name,
    parameters,
    run_copy,
    segment,
)
from storagetest.wire.scsi.codes import PrType, ScsiStatus
from storagetest.wire.scsi.data import Designator
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved
from storagetest.wire.scsi.seldom_cdb import EXTENDED_COPY

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 EXTENDED COPY(LID1)", level="MUST"),
]

THIRD_PARTY_COPY = 0x08
"""3PC, of byte 5 of standard INQUIRY data."""
SOURCE, TARGET = 0, 70
"""Blocks of the scratch area that are copied, and where they are copied to."""
MOST = 32
"""Descriptors of a list that has one too many, at most (chosen)."""


@dataclass(frozen=True)
class Copies:
    """What a case of a copy needs."""

    unit: LogicalUnit
    scratch: Scratch
    limits: CopyLimits
    name: Designator

    def segment(self, source: int, target: int, blocks: int, **fields: int) -> bytes:
        """Return a segment from one block of the scratch area to another."""
        return segment(self.scratch.lba + source, self.scratch.lba + target, blocks, **fields)

    def run(self, *segments: bytes, cscds: bytes | None = None) -> ScsiResult:
        """Copy by these segments, within the unit."""
        named = cscd(self.name, self.scratch.block_size) if cscds is None else cscds
        return run_copy(self.unit, copy_list(self.limits, named, b"".join(segments)))

    def write(self, at: int, blocks: int, seed: int) -> bytes:
        """Write a pattern at a block of the scratch area, and return it."""
        data = self.scratch.pattern(blocks, seed=seed)
        written = self.unit.write(self.scratch.lba + at, data)
        assert written.good, written
        return data

    def found(self, at: int, blocks: int) -> bytes:
        """Read blocks of the scratch area."""
        read = self.unit.read(self.scratch.lba + at, blocks)
        assert read.good, read
        return read.data

    def refused(self, send: Callable[[], ScsiResult], what: str) -> None:
        """Claim that a list is refused, and that the target of the copy has its data."""
        self.write(SOURCE, 4, 1301)
        before = self.write(TARGET, 4, 1302)
        answer = send()
        assert answer.status == ScsiStatus.CHECK_CONDITION, f"{answer}: {what}"
        assert self.found(TARGET, 4) == before, f"{answer}, but blocks were copied: {what}"


@pytest.fixture
def copies(unit, scratch) -> Copies:
    """Return what a copy needs; skip if the unit does not copy one of its blocks."""
    limits = copy_limits(unit)
    if limits.segment and limits.segment < 4 * scratch.block_size:
        pytest.skip(f"MAXIMUM SEGMENT LENGTH is {limits.segment} bytes")
    found = Copies(unit, scratch, limits, own_name(unit))
    answer = found.run(found.segment(SOURCE, TARGET, 1))
    if not answer.good:
        pytest.skip(f"no copy within one logical unit: {answer}")
    return found


@pytest.mark.case("SCS-COPY-3PC", section="SPC-4 INQUIRY, 3PC", kills=("copy-3pc",))
def test_3pc_is_set_if_third_party_copies_are_supported(unit):
    copy_limits(unit)
    standard = unit.inquiry().good_data()
    assert standard[5] & THIRD_PARTY_COPY, (
        f"3PC of INQUIRY is 0, and RECEIVE COPY OPERATING PARAMETERS is supported: {standard[:8].hex(' ')}"
    )


@pytest.mark.case(
    "SCS-COPY-LENGTH",
    section="SPC-4 RECEIVE COPY OPERATING PARAMETERS",
    kills=("copy-available-less", "copy-available-more"),
)
def test_available_data_is_the_length_of_the_operating_parameters(unit):
    """AVAILABLE DATA counts what follows it, up to the end of the list of descriptor type codes."""
    limits = copy_limits(unit)
    whole = 4 + limits.available
    assert whole >= HEADER + limits.listed, (
        f"AVAILABLE DATA is {limits.available}; {limits.listed} descriptor type codes end at byte "
        f"{HEADER + limits.listed}"
    )
    came = len(parameters(unit).good_data())
    assert came >= whole, f"AVAILABLE DATA is {limits.available}, and {came} bytes came"


@pytest.mark.case(
    "SCS-COPY-CODES", section="SPC-4 RECEIVE COPY OPERATING PARAMETERS", kills=("copy-codes-order",)
)
def test_the_descriptor_type_codes_are_in_ascending_order(unit):
    codes = copy_limits(unit).codes
    shown = [f"{code:02X}h" for code in codes]
    assert list(codes) == sorted(set(codes)), f"the implemented descriptor type codes are {shown}"


@pytest.mark.case("SCS-COPY-CUT", section="SPC-4 allocation length", kills=("copy-parameters-refused",))
def test_operating_parameters_are_cut_to_any_allocation_length(unit):
    copy_limits(unit)
    whole = parameters(unit).good_data()
    for allocation in (0, 1, 4, 8, HEADER, HEADER + 1):
        answer = parameters(unit, allocation)
        assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
        assert answer.data == whole[:allocation], (
            f"{answer}: {answer.data.hex(' ')}; the whole is {whole[:64].hex(' ')}"
        )


@pytest.mark.case(
    "SCS-COPY-NONE", section="SPC-4 EXTENDED COPY(LID1), PARAMETER LIST LENGTH", kills=("copy-none-refused",)
)
def test_a_parameter_list_length_of_zero_is_no_error(unit, scratch):
    assert scratch.count
    copy_limits(unit)
    answer = unit.run(EXTENDED_COPY)
    assert answer.good, f"{answer}; no parameter list is no error"


@pytest.mark.parametrize("blocks", [
    pytest.param(1, marks=pytest.mark.case("SCS-COPY-BLOCKS-1", kills=("copy-next-block",))),
    pytest.param(8, marks=pytest.mark.case("SCS-COPY-BLOCKS-8", kills=("copy-one-block",))),
    pytest.param(64, marks=pytest.mark.case("SCS-COPY-BLOCKS-64", kills=("copy-one-block",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 segment descriptors, block device to block device")
def test_blocks_are_copied_and_no_other_block_changes(copies, connections, facts, blocks):
    """Twice, with other data the second time; another nexus reads the blocks, and those before and behind."""
    size = copies.scratch.block_size
    if copies.limits.segment and copies.limits.segment < blocks * size:
        pytest.skip(f"MAXIMUM SEGMENT LENGTH is {copies.limits.segment} bytes")
    other = LogicalUnit(connections.login("r"), block_size=size, largest=facts.largest)
    before = copies.write(TARGET - 1, blocks + 2, 1310)
    for seed in (1311, 1312):
        data = copies.write(SOURCE, blocks, seed)
        assert other.read(copies.scratch.lba + TARGET, blocks).good
        answer = copies.run(copies.segment(SOURCE, TARGET, blocks))
        assert answer.good, answer
        read = other.read(copies.scratch.lba + TARGET - 1, blocks + 2)
        assert read.good, read
        assert read.data[size:-size] == data, f"{answer}: the target of the copy has other data"
        assert (read.data[:size], read.data[-size:]) == (before[:size], before[-size:]), (
            f"{answer}: a block before or behind the {blocks} of the copy has changed"
        )
        assert copies.found(SOURCE, blocks) == data, f"{answer}: the source of the copy has changed"


@pytest.mark.case(
    "SCS-COPY-SEGMENTS",
    section="SPC-4 EXTENDED COPY(LID1), segment descriptors",
    kills=("copy-first-segment", "copy-segments-backwards"),
)
def test_segments_are_processed_in_the_order_of_the_list(copies):
    """The second copies what the first has written."""
    if copies.limits.segments < 2:
        pytest.skip(f"MAXIMUM SEGMENT DESCRIPTOR COUNT is {copies.limits.segments}")
    data = copies.write(SOURCE, 2, 1320)
    copies.write(TARGET, 6, 1321)
    answer = copies.run(copies.segment(SOURCE, TARGET, 2), copies.segment(TARGET, TARGET + 4, 2))
    assert answer.good, answer
    for at, which in ((TARGET, "first"), (TARGET + 4, "second")):
        assert copies.found(at, 2) == data, f"{answer}: other data at the target of the {which} segment"


@pytest.mark.case(
    "SCS-COPY-NO-BLOCKS",
    section="SPC-4 segment descriptors, BLOCK DEVICE NUMBER OF BLOCKS",
    kills=("copy-zero-is-one",),
)
def test_no_blocks_are_no_error(copies):
    copies.write(SOURCE, 1, 1330)
    before = copies.write(TARGET, 2, 1331)
    answer = copies.run(copies.segment(SOURCE, TARGET, 0))
    assert answer.good, f"{answer}; a number of blocks of zero is no error"
    assert copies.found(TARGET, 2) == before, f"{answer}: no blocks were to be copied, and some were"


@pytest.mark.parametrize("end", [
    pytest.param("source", marks=pytest.mark.case("SCS-COPY-PAST-SOURCE", kills=("copy-source-32-bits",))),
    pytest.param("target", marks=pytest.mark.case("SCS-COPY-PAST-TARGET", kills=("copy-past-good",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 segment descriptors, block device to block device; SBC-3 LBA out of range")
def test_a_copy_past_the_end_is_no_success(copies, facts, end):
    """Of the blocks behind the last one, and of an address with each of the upper bytes set."""
    blocks, lba = facts.capacity.blocks, copies.scratch.lba
    for past in (blocks, *(lba + (1 << bit) for bit in (32, 40, 48, 56, 63) if lba + (1 << bit) >= blocks)):
        one = segment(past, lba + TARGET, 1) if end == "source" else segment(lba, past, 1)
        copies.refused(
            lambda one=one: copies.run(one),
            f"the {end} of the copy is block {past}, and the unit has {blocks}",
        )


def other_name(name: Designator) -> Designator:
    """Return a designator of the same form that names no logical unit: each bit but the first is inverted."""
    data = name.data[:1] + bytes(byte ^ 0xFF for byte in name.data[1:])
    return Designator(name.code_set, name.association, name.kind, data)


@pytest.mark.case(
    "SCS-COPY-NAME", section="SPC-4 CSCD descriptors, identification descriptor", kills=("copy-any-name",)
)
def test_a_designator_that_names_no_unit_is_not_the_unit_of_the_command(copies):
    """As the source, and as the target of a segment, together with a descriptor of the unit itself."""
    if copies.name.kind != 3:
        pytest.skip(f"the name of the unit is no NAA designator: {copies.name}")
    size = copies.scratch.block_size
    both = cscd(copies.name, size) + cscd(other_name(copies.name), size)
    if copies.limits.cscds < 2:
        pytest.skip(f"MAXIMUM CSCD DESCRIPTOR COUNT is {copies.limits.cscds}")
    for fields in ({"source_at": 1}, {"target_at": 1}):
        copies.refused(
            lambda fields=fields: copies.run(copies.segment(SOURCE, TARGET, 2, **fields), cscds=both),
            f"descriptor 1 names no unit, and the segment has {fields}",
        )


@pytest.mark.case(
    "SCS-COPY-INDEX", section="SPC-4 segment descriptors, CSCD descriptor ID", kills=("copy-index-ignored",)
)
def test_a_cscd_descriptor_that_is_not_there_is_an_error(copies):
    for fields in ({"source_at": 1}, {"target_at": 1}, {"source_at": 0x0100}, {"target_at": 0x07FF}):
        copies.refused(
            lambda fields=fields: copies.run(copies.segment(SOURCE, TARGET, 2, **fields)),
            f"the list has the CSCD descriptor 0 alone, and the segment has {fields}",
        )


@pytest.mark.case(
    "SCS-COPY-SEGMENT-CODE", section="SPC-4 segment descriptors, type codes", kills=("copy-any-segment",)
)
def test_a_segment_descriptor_type_that_is_not_implemented_is_an_error(copies):
    """The first codes below C0h that the list of implemented ones lacks, from each of two ends."""
    able = [code for code in range(0xC0) if code not in copies.limits.codes]
    for code in {able[0], able[-1], BLOCK_TO_BLOCK | 0x80} - set(copies.limits.codes):
        copies.refused(
            lambda code=code: copies.run(copies.segment(SOURCE, TARGET, 2, code=code)),
            f"the segment descriptor type {code:02X}h is not implemented",
        )


@pytest.mark.case(
    "SCS-COPY-CSCD-CODE", section="SPC-4 CSCD descriptors, type codes", kills=("copy-any-cscd",)
)
def test_a_cscd_descriptor_type_that_is_not_implemented_is_an_error(copies):
    absent = [code for code in range(0xE0, 0xFF) if code not in copies.limits.codes]
    if IDENTIFICATION not in copies.limits.codes or not absent:
        pytest.skip(f"the list of descriptor type codes is {copies.limits.codes}")
    for code in {absent[0], absent[-1]}:
        named = cscd(copies.name, copies.scratch.block_size, code=code)
        copies.refused(
            lambda named=named: copies.run(copies.segment(SOURCE, TARGET, 2), cscds=named),
            f"the CSCD descriptor type {code:02X}h is not implemented",
        )


@pytest.mark.parametrize("what", [
    pytest.param(
        name,
        marks=pytest.mark.case(f"SCS-COPY-MOST-{name}S", kills=(f"copy-{name.lower()}s-unlimited",)),
    )
    for name in ("CSCD", "SEGMENT")
])  # fmt: skip
@pytest.mark.case(section="SPC-4 EXTENDED COPY(LID1), descriptor counts")
def test_one_descriptor_more_than_the_maximum_is_an_error(copies, what):
    limits = copies.limits
    most = limits.cscds if what == "CSCD" else limits.segments
    if not most or most > MOST:
        pytest.skip(f"MAXIMUM {what} DESCRIPTOR COUNT is {most}")
    named, one = cscd(copies.name, copies.scratch.block_size), copies.segment(SOURCE, TARGET, 2)
    more = most + 1
    cscds, segments = (named * more, [one]) if what == "CSCD" else (named, [one] * more)
    if limits.list_length < len(cscds) + 28 * len(segments):
        pytest.skip(f"MAXIMUM DESCRIPTOR LIST LENGTH is {limits.list_length}")
    copies.refused(
        lambda: copies.run(*segments, cscds=cscds),
        f"{more} descriptors; MAXIMUM {what} DESCRIPTOR COUNT is {most}",
    )


@pytest.mark.case(
    "SCS-COPY-SHORT",
    section="SPC-4 EXTENDED COPY(LID1), PARAMETER LIST LENGTH",
    kills=("copy-short-list",),
)
def test_a_parameter_list_that_ends_within_a_descriptor_is_an_error(copies):
    """Within the header, within the CSCD descriptor, and within the segment descriptor."""
    named = cscd(copies.name, copies.scratch.block_size)
    whole = copy_list(copies.limits, named, copies.segment(SOURCE, TARGET, 2))
    for length in (1, 15, 16 + 16, 16 + 32, len(whole) - 1):
        copies.refused(
            lambda length=length: run_copy(copies.unit, whole[:length]),
            f"the list has {length} bytes, and its lengths are those of {len(whole)}",
        )


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-COPY-{kind:d}", kills=("reservation-copy",)))
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS, PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 reservations, allowed commands", builds_on=RESERVING)
def test_a_copy_of_another_nexus_is_a_conflict(unreserved, scratch, kind):
    """It changes nothing. Whether the copy manager, another nexus, copies for the holder is not judged."""
    a, b = unreserved
    limits, name = copy_limits(a), own_name(a)
    own = Copies(a, scratch, limits, name)
    if not own.run(own.segment(SOURCE, TARGET, 1)).good:
        pytest.skip("no copy within one logical unit")
    own.write(SOURCE, 2, 1340)
    before = own.write(TARGET, 2, 1341)
    reserved(a, kind)
    other = Copies(b, scratch, limits, name)
    claim(other.run(other.segment(SOURCE, TARGET, 2)), allowed=False)
    assert own.found(TARGET, 2) == before, "a copy that ended in RESERVATION CONFLICT was made"
