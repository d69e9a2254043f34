"""Optional parts of SPC and SBC: the format of sense data chosen by MODE SELECT, GET LBA STATUS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import LbaStatus, decode_lba_status
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.sense import Sense, decode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4, SBC-3", level="MUST")]

CONTROL, D_SENSE = 0x0A, 0x04
"""The Control mode page (SPC-4), and the bit D_SENSE in its byte 2."""
ALLOCATION = 4096
"""Allocation length of GET LBA STATUS (chosen)."""
DEALLOCATED, ANCHORED = 1, 2
MAPPED = (0, 3, 4)
"""PROVISIONING STATUS (LBA status descriptor): 0 is mapped or unknown (SBC-3); 3 mapped, 4 unknown (SBC-4)"""


# D_SENSE


def control_page(unit: LogicalUnit, *, control: int = 0) -> bytes:
    """Return the Control mode page; skip if the unit has none."""
    answer = unit.run(c.MODE_SENSE_6, read=255, page=CONTROL, page_control=control, dbd=1, allocation=255)
    if not answer.good or len(answer.data) < 7:
        pytest.skip(f"no Control mode page: {answer}")
    return answer.data[4 : 6 + answer.data[5]]


def set_d_sense(unit: LogicalUnit, page: bytes, *, descriptor: bool) -> ScsiResult:
    """Send MODE SELECT(6) of the page with D_SENSE set or not."""
    flags = page[2] | D_SENSE if descriptor else page[2] & ~D_SENSE
    data = bytes(4) + bytes((page[0] & 0x7F, page[1], flags)) + page[3:]  # PS is reserved here
    return unit.run(c.MODE_SELECT_6, data=data, pf=1, allocation=len(data))


def sense_of_failure(unit: LogicalUnit) -> Sense:
    """Return the sense data of a command that does not exist."""
    done = unit.runner.command(c.NO_COMMAND)
    assert done.sense, "operation code 6Bh: no sense data"
    return decode_sense(done.sense)


def shown(*, descriptor: bool) -> str:
    """Return the name of a format."""
    return "descriptor format (72h)" if descriptor else "fixed format (70h)"


@pytest.fixture
def changeable(two, scratch) -> Iterator[tuple[LogicalUnit, LogicalUnit, bytes]]:  # noqa: ARG001  # mode pages are the target's state
    """Yield two nexuses and the Control mode page, whose D_SENSE can be changed; leave it as it was."""
    first, second = two
    page = control_page(first)
    if not control_page(first, control=1)[2] & D_SENSE:
        pytest.skip("D_SENSE is not changeable (MODE SENSE of the changeable values)")
    try:
        yield first, second, page
    finally:
        for nexus in two:
            nexus.clear_attentions()
        answer = set_d_sense(first, page, descriptor=bool(page[2] & D_SENSE))
        second.clear_attentions()
        assert answer.good, f"the mode page cannot be set back: {answer}"


@pytest.mark.case(
    "SCS-DSENSE-01",
    section="SPC-4 Control mode page, D_SENSE",
    kills=("d-sense-ignored", "d-sense-not-kept"),
    builds_on=("SCS-SENSE-06",),
)
def test_sense_data_have_the_format_that_mode_select_chose(changeable):
    """The format follows D_SENSE each time that it is changed, and MODE SENSE returns what was selected."""
    unit, _, page = changeable
    before = bool(page[2] & D_SENSE)
    for descriptor in (not before, before, not before):
        answer = set_d_sense(unit, page, descriptor=descriptor)
        assert answer.good, f"{answer}: D_SENSE is changeable"
        kept = bool(control_page(unit)[2] & D_SENSE)
        assert kept == descriptor, f"D_SENSE was set to {descriptor:d}, and MODE SENSE returns {kept:d}"
        sense = sense_of_failure(unit)
        assert sense.descriptor == descriptor, (
            f"D_SENSE is {descriptor:d}, and the sense data are in {shown(descriptor=sense.descriptor)}"
        )
        assert (sense.key, sense.asc) == (SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE), (
            f"{sense} in {shown(descriptor=descriptor)}; the operation code does not exist"
        )


@pytest.mark.case(
    "SCS-DSENSE-02",
    section="SPC-4 MODE SELECT(6), unit attention",
    kills=("mode-change-unreported", "d-sense-one-nexus"),
    builds_on=("SCS-DSENSE-01",),
)
def test_a_mode_page_that_changed_is_reported_to_other_nexuses(changeable):
    """A nexus that has the new value had a unit attention; a nexus with pages of its own keeps its value."""
    unit, other, page = changeable
    before = bool(page[2] & D_SENSE)
    answer = set_d_sense(unit, page, descriptor=not before)
    assert answer.good, answer
    attentions = other.clear_attentions()
    there = bool(control_page(other)[2] & D_SENSE)
    sense = sense_of_failure(other)
    assert sense.descriptor == there, (
        f"on the other nexus D_SENSE is {there:d}, and the sense data are in "
        f"{shown(descriptor=sense.descriptor)}"
    )
    reported = any(one.asc == Asc.MODE_PARAMETERS_CHANGED for one in attentions)
    assert reported or there == before, (
        f"the other nexus has the new D_SENSE, {there:d}, and no unit attention MODE PARAMETERS CHANGED "
        f"(its unit attentions: {', '.join(map(str, attentions)) or 'none'})"
    )


@pytest.mark.case(
    "SCS-DSENSE-03",
    section="SPC-4 descriptor format sense data",
    kills=("d-sense-length",),
    builds_on=("SCS-DSENSE-01",),
)
def test_descriptor_sense_data_have_their_stated_length(changeable):
    """ADDITIONAL SENSE LENGTH is the length of the descriptors, and each descriptor is whole."""
    unit, _, page = changeable
    answer = set_d_sense(unit, page, descriptor=True)
    assert answer.good, answer
    raw = unit.runner.command(c.NO_COMMAND).sense
    assert raw[:1] == b"\x72", f"the sense data begin with {raw[:1].hex()}h, not with 72h: {raw.hex()}"
    assert len(raw) == 8 + raw[7], f"ADDITIONAL SENSE LENGTH is {raw[7]}, and {len(raw) - 8} bytes follow it"
    rest = raw[8:]
    while rest:
        length = 2 + (rest[1] if len(rest) > 1 else 0)
        assert len(rest) >= length, (
            f"a sense data descriptor reaches past the end: {rest.hex()} of {raw.hex()}"
        )
        rest = rest[length:]


@pytest.mark.case(
    "SCS-DSENSE-EACH",
    section="SPC-4 Control mode page, D_SENSE",
    kills=("d-sense-range-fixed", "d-sense-information-short"),
    builds_on=("SCS-DSENSE-01",),
)
def test_each_failure_has_the_format_that_d_sense_selects(changeable, scratch, facts):
    """Errors of the CDB, of its range, of the parameter list and of a comparison, in both formats."""
    unit, _, page = changeable
    data = scratch.pattern(1, seed=235)
    assert unit.write(scratch.lba, data).good
    other = scratch.pattern(1, seed=236)
    for descriptor in (True, False):
        answer = set_d_sense(unit, page, descriptor=descriptor)
        assert answer.good, answer
        for failed in (
            unit.inquiry(0xAB),
            unit.read(facts.capacity.blocks),
            unit.write(facts.capacity.blocks, data),
            unit.run(c.VERIFY_16, lba=facts.capacity.last_lba, blocks=2),
            unit.run(c.MODE_SELECT_6, data=bytes(2), pf=1, allocation=2),
            unit.run(c.VERIFY_10, data=other, lba=scratch.lba, blocks=1, bytchk=1),
            unit.compare_and_write(scratch.lba, other, other),
        ):
            if failed.sense is not None:
                assert failed.sense.descriptor == descriptor, (
                    f"{failed}: in {shown(descriptor=failed.sense.descriptor)}; D_SENSE is {descriptor:d}"
                )
    assert unit.read(scratch.lba).data == data, "a command that failed has changed the block"


@pytest.mark.case(
    "SCS-DSENSE-THIRD",
    section="SPC-4 MODE SELECT(6), unit attention",
    kills=("mode-change-third-unreported", "mode-change-same-name-unreported"),
    builds_on=("SCS-DSENSE-02",),
)
def test_a_mode_page_that_changed_is_reported_to_each_other_nexus(changeable, connections):
    """Not to one of them only, if they share the page: each that has the new value had a unit attention.

    "a" is a second session of the initiator that changes it, with another ISID.
    """
    unit, _, page = changeable
    others = [LogicalUnit(connections.login(name)) for name in "cdea"]
    before = bool(page[2] & D_SENSE)
    answer = set_d_sense(unit, page, descriptor=not before)
    assert answer.good, answer
    for name, other in zip("cdea", others, strict=True):
        attentions = other.clear_attentions()
        reported = any(one.asc == Asc.MODE_PARAMETERS_CHANGED for one in attentions)
        assert reported or bool(control_page(other)[2] & D_SENSE) == before, (
            f"nexus {name} has the new D_SENSE, and no unit attention MODE PARAMETERS CHANGED"
        )


@pytest.mark.case(
    "SCS-DSENSE-ATTENTION",
    section="SPC-4 Control mode page, D_SENSE",
    kills=("d-sense-attention-fixed",),
    builds_on=("SCS-DSENSE-01", "SCS-DSENSE-02"),
)
def test_a_unit_attention_has_the_format_of_d_sense(changeable):
    """That of a reset by another nexus, with D_SENSE of 1 and of 0 for the nexus that gets it."""
    unit, other, page = changeable
    for descriptor in (True, False):
        answer = set_d_sense(unit, page, descriptor=descriptor)
        assert answer.good, answer
        for nexus in (unit, other):
            nexus.clear_attentions()
        if other.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
            pytest.skip("LOGICAL UNIT RESET is not complete (ISC-TMF-04)")
        answer = unit.test_unit_ready()
        if not answer.check(SenseKey.UNIT_ATTENTION):
            pytest.skip(f"{answer}: the target reports no unit attention for a reset (ISC-TMF-06)")
        unit.clear_attentions()
        wanted = bool(control_page(unit)[2] & D_SENSE)  # a reset may restore the default value
        assert answer.sense.descriptor == wanted, (
            f"{answer}: D_SENSE is {wanted:d}, and its sense data are in "
            f"{shown(descriptor=answer.sense.descriptor)}"
        )


@pytest.mark.case(
    "SCS-DSENSE-04",
    section="SPC-4 MODE SELECT(6), SP; MODE SENSE, PC",
    kills=("mode-default-changed",),
    builds_on=("SCS-DSENSE-01",),
)
def test_mode_select_without_sp_changes_the_current_values_alone(changeable):
    """Changeable, default and saved values are as before, and so is every other field of the page."""
    unit, _, page = changeable

    def values(control: int) -> bytes:
        answer = unit.run(c.MODE_SENSE_6, read=255, page=CONTROL, page_control=control, dbd=1, allocation=255)
        return answer.data[4:] if answer.good else b""

    before = {name: values(control) for control, name in ((1, "changeable"), (2, "default"), (3, "saved"))}
    answer = set_d_sense(unit, page, descriptor=not page[2] & D_SENSE)
    assert answer.good, answer
    now, wanted = control_page(unit), page[:2] + bytes((page[2] ^ D_SENSE,)) + page[3:]
    assert now == wanted, f"the page is {now.hex()}; only D_SENSE of {page.hex()} was changed"
    for control, name in ((1, "changeable"), (2, "default"), (3, "saved")):
        found = values(control)
        assert found == before[name], (
            f"the {name} values are {found.hex()}; before MODE SELECT they were {before[name].hex()}"
        )


# GET LBA STATUS


def statuses(unit: LogicalUnit, lba: int, *, allocation: int = ALLOCATION) -> tuple[LbaStatus, ...]:
    """Return the descriptors from ``lba`` on; skip if the command is not supported."""
    answer = unit.run(c.GET_LBA_STATUS, read=allocation, lba=lba, allocation=allocation)
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"GET LBA STATUS is not supported: {answer}")
    assert answer.good, answer
    length, found = decode_lba_status(answer.data)
    assert length in range(20, 1 << 32, 16), (
        f"{answer}: PARAMETER DATA LENGTH is {length}; it is 4 and 16 for each descriptor, one at least"
    )
    assert found, f"{answer}: {len(answer.data)} bytes without a descriptor"
    return found


@pytest.fixture
def thin(unit, facts, scratch) -> LogicalUnit:  # noqa: ARG001  # the cases write
    """Return the unit; skip if it has no UNMAP, so that nothing can be deallocated."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    return unit


def unmapped(unit: LogicalUnit, facts, lba: int, blocks: int) -> None:
    """Unmap blocks by as many commands as MAXIMUM UNMAP LBA COUNT needs."""
    most = (facts.limits.max_unmap_blocks if facts.limits else 0) or blocks
    for at in range(0, blocks, most):
        answer = unit.unmap((lba + at, min(most, blocks - at)))
        assert answer.good, answer


@pytest.mark.case(
    "SCS-LBAS-01",
    section="SBC-3 GET LBA STATUS",
    kills=("lba-status-start", "lba-status-gap", "lba-status-length", "lba-status-reserved"),
)
def test_descriptors_begin_at_the_address_and_follow_each_other(unit, facts, scratch):
    """The first descriptor begins at the LBA of the CDB, each other where the one before it ends."""
    blocks = facts.capacity.blocks
    for at in (1, 5):  # so that a thin-provisioned unit has several extents
        answer = unit.write(scratch.lba + at, scratch.pattern(1, seed=129))
        assert answer.good, answer
    for lba in (0, 1, scratch.lba, blocks // 2 + 1, blocks - 1):
        at = lba
        for one in statuses(unit, lba):
            assert one.lba == at, (
                f"GET LBA STATUS of LBA {lba}: a descriptor begins at {one.lba}, not at {at}"
            )
            assert one.count, f"GET LBA STATUS of LBA {lba}: the descriptor of LBA {at} has no blocks"
            assert one.status in (*MAPPED, DEALLOCATED, ANCHORED), (
                f"LBA {at} has the reserved provisioning status {one.status}"
            )
            at += one.count
        assert at <= blocks, (
            f"GET LBA STATUS of LBA {lba}: the last descriptor ends at {at}, of {blocks} blocks"
        )


@pytest.mark.case(
    "SCS-LBAS-02",
    section="SBC-3 GET LBA STATUS, provisioning status",
    kills=("lba-status-written", "lba-status-one-early"),
    builds_on=("SCS-LBAS-01",),
)
def test_blocks_that_were_written_are_mapped(thin, facts, scratch):
    """Blocks are mapped from their write on; also if they and their neighbours were unmapped before it."""
    statuses(thin, scratch.lba)
    for first, count in ((scratch.lba + 9, 1), (scratch.lba + 16, 8), (scratch.lba + 9, 1)):
        unmapped(thin, facts, scratch.lba, 64)
        answer = thin.write(first, scratch.pattern(count, seed=130))
        assert answer.good, answer
        at = first
        while at < first + count:
            one = statuses(thin, at)[0]
            assert one.status in MAPPED, (
                f"LBA {at} was written, and its provisioning status is {one.status} "
                "(1: deallocated, 2: anchored)"
            )
            at += one.count


@pytest.mark.case(
    "SCS-LBAS-LATER",
    section="SBC-3 GET LBA STATUS, provisioning status",
    kills=("lba-status-later-deallocated",),
    builds_on=("SCS-LBAS-02",),
)
def test_blocks_that_were_written_are_mapped_in_each_descriptor(thin, facts, scratch):
    """Three ranges are written among others that were unmapped; a list may end before the last of them."""
    statuses(thin, scratch.lba)
    unmapped(thin, facts, scratch.lba, 64)
    written = [range(scratch.lba + first, scratch.lba + first + 4) for first in (8, 24, 40)]
    for blocks in written:
        answer = thin.write(blocks[0], scratch.pattern(len(blocks), seed=132))
        assert answer.good, answer
    for number, one in enumerate(statuses(thin, scratch.lba), 1):
        inside = [lba for blocks in written for lba in blocks if one.lba <= lba < one.lba + one.count]
        assert not inside or one.status in MAPPED, (
            f"LBA {inside[0]} was written, and descriptor {number}, from LBA {one.lba} on, "
            f"has provisioning status {one.status}"
        )


@pytest.mark.case(
    "SCS-LBAS-03",
    section="SBC-3 GET LBA STATUS, LBPRZ",
    kills=("lba-status-all-deallocated",),
    builds_on=("SCS-LBAS-01",),
)
def test_blocks_that_are_deallocated_read_as_zeroes_if_lbprz_is_set(thin, facts, scratch):
    """Whatever UNMAP has done of what was asked: what is reported as deallocated reads as zeroes."""
    if not facts.provisioning.reads_zero and not facts.capacity.reads_zero:
        pytest.skip("LBPRZ is 0: deallocated blocks read as anything")
    data = scratch.pattern(64, seed=131)
    for at in range(0, 64, min(64, facts.largest)):
        step = min(64, facts.largest)
        piece = data[at * scratch.block_size : (at + step) * scratch.block_size]
        answer = thin.write(scratch.lba + at, piece)
        assert answer.good, answer
    unmapped(thin, facts, scratch.lba + 16, 16)
    at = scratch.lba
    while at < scratch.lba + 64:
        one = statuses(thin, at)[0]
        count = min(one.count, scratch.lba + 64 - at, facts.largest)
        if one.status == DEALLOCATED:
            found = thin.read(at, count)
            assert found.good, found
            assert not any(found.data), (
                f"{count} blocks from LBA {at} are deallocated and LBPRZ is set, and they hold data"
            )
        at += count


@pytest.mark.case("SCS-LBAS-04", section="SBC-3 GET LBA STATUS", kills=("lba-status-past-end",))
def test_lba_status_past_the_end_is_out_of_range(unit, facts):
    """A starting LBA past the last block is LOGICAL BLOCK ADDRESS OUT OF RANGE."""
    statuses(unit, 0)
    for lba in (facts.capacity.blocks, facts.capacity.blocks + 1, 1 << 63):
        answer = unit.run(c.GET_LBA_STATUS, read=ALLOCATION, lba=lba, allocation=ALLOCATION)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}; the unit has {facts.capacity.blocks} blocks"
        )


@pytest.mark.case(
    "SCS-LBAS-05",
    section="SBC-3 GET LBA STATUS, SPC-4 allocation length",
    kills=("lba-status-not-cut",),
    builds_on=("SCS-LBAS-01",),
)
def test_lba_status_is_cut_to_its_allocation_length(unit):
    """The allocation length cuts the data, within a descriptor, too, and is no error."""
    statuses(unit, 0)
    for allocation in (0, 4, 8, 20, 24, 25, 40):
        answer = unit.run(c.GET_LBA_STATUS, read=64, lba=0, allocation=allocation)
        assert answer.good, answer
        assert len(answer.data) <= allocation, (
            f"{answer}: {len(answer.data)} bytes came, and the allocation length is {allocation}"
        )
