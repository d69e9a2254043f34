"""Commands and fields that few initiators use: NDOB, UNMAP of WRITE SAME, BYTCHK 11b, LOG SENSE, port groups.

A device server that does not offer one of them refuses it, and the case is skipped. One that was written for
an older standard may ignore NDOB, or the upper bit of BYTCHK: it then expects more data than the case states,
which its residual shows, and the case is skipped, too.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import decode_designators, decode_inquiry, decode_target_port_groups
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3", level="MUST")]

ALLOCATION = 4096
"""Allocation length of the lists (chosen)."""
BLOCKS = 5
"""Blocks of a range that is filled or compared (chosen)."""
INITIALIZATION_PATTERN = 2
"""LBPRZ of page B2h: unmapped blocks have the provisioning initialization pattern (SBC-4)."""
TARGET_PORT, RELATIVE_PORT, PORT_GROUP = 1, 4, 5
"""ASSOCIATION, and two designator types (SPC-4, Device Identification VPD page)."""


def offered(answer: ScsiResult) -> ScsiResult:
    """Return the result; skip if the command, or the field that the case is about, is not offered."""
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    return answer


def run(
    unit: LogicalUnit, command: c.CommandFormat, data: bytes, *, stated: bool = False, **fields: int
) -> ScsiResult:
    """Run a command; skip if it expects more data than ``data``: it ignores a field of a later standard.

    ``stated``: the unit states that it offers the field, so no refusal is a reason to skip.
    """
    assert isinstance(unit.runner, Initiator)
    block = c.cdb(command, **fields)
    done = unit.runner.command(block, data=data)
    if done.overflow:
        pytest.skip(f"{c.describe(block)}: the device server expects {done.residual} more bytes of data")
    answer = unit.result(done, c.describe(block))
    return answer if stated else offered(answer)


# Blocks that are filled


@pytest.mark.case(
    "SCS-SAME-NDOB", section="SBC-3 WRITE SAME(16), NDOB", kills=("ndob-ignored",), builds_on=("SCS-SAME-01",)
)
def test_write_same_without_a_data_out_buffer_writes_zeroes(unit, facts, scratch):
    """The blocks of the range read as zeroes, and no other block changes."""
    if 0xB2 in facts.pages and vpd_page(unit, 0xB2).body[1] >> 2 & 7 == INITIALIZATION_PATTERN:
        pytest.skip("LBPRZ is 010b: NDOB writes the provisioning initialization pattern")
    old, size = scratch.pattern(BLOCKS + 2, seed=301), unit.block_size
    assert unit.write(scratch.lba, old).good
    answer = run(unit, c.WRITE_SAME_16, b"", lba=scratch.lba + 1, blocks=BLOCKS, ndob=1)
    if not answer.good:
        pytest.skip(f"NDOB is not supported: {answer}")
    wanted = old[:size] + bytes(BLOCKS * size) + old[-size:]
    assert unit.read(scratch.lba, BLOCKS + 2).data == wanted, f"{answer}: not zeroes, or other blocks"


@pytest.mark.parametrize(
    "zeroes",
    [
        pytest.param(True, marks=pytest.mark.case("SCS-SAME-UNMAP-ZEROES", kills=("same-unmap-kept",))),
        pytest.param(False, marks=pytest.mark.case("SCS-SAME-UNMAP-DATA", kills=("same-unmap-zeroes",))),
    ],
)
@pytest.mark.case(section="SBC-3 WRITE SAME(16), UNMAP", builds_on=("SCS-SAME-01",))
def test_write_same_with_unmap_is_read_as_what_it_wrote(unit, facts, scratch, zeroes):
    """If unmapped blocks read as zeroes, the range reads as the block that was sent, unmapped or not.

    "Subsequent read operations behave as if" the block was written to each, with UNMAP as well; otherwise the
    data of the initiator are lost.
    """
    if not facts.provisioning or not facts.provisioning.reads_zero:
        pytest.skip("unmapped blocks do not read as zeroes (LBPRZ of page B2h)")
    old, size = scratch.pattern(BLOCKS + 2, seed=302), unit.block_size
    assert unit.write(scratch.lba, old).good
    block = bytes(size) if zeroes else scratch.pattern(1, seed=303)
    stated = facts.provisioning.write_same_unmap
    answer = run(unit, c.WRITE_SAME_16, block, stated=stated, lba=scratch.lba + 1, blocks=BLOCKS, unmap=1)
    assert answer.good, answer
    wanted = old[:size] + BLOCKS * block + old[-size:]
    assert unit.read(scratch.lba, BLOCKS + 2).data == wanted, f"{answer}: not the block, or other blocks"


# Blocks that are compared


@pytest.mark.case(
    "SCS-VERIFY-ONE-GOOD",
    section="SBC-3 VERIFY, BYTCHK",
    kills=("verify-one-refused",),
    builds_on=("SCS-VERIFY-02",),
)
def test_one_block_is_compared_with_each_of_a_range(unit, scratch):
    """BYTCHK of 11b: one block is sent, and all of the range are equal to it."""
    scratch.require(BLOCKS)
    block = scratch.pattern(1, seed=304)
    assert unit.write(scratch.lba, BLOCKS * block).good
    answer = run(unit, c.VERIFY_16, block, lba=scratch.lba, blocks=BLOCKS, bytchk=3)
    assert answer.good, answer


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(0, marks=pytest.mark.case("SCS-VERIFY-ONE-FIRST", kills=("verify-one-good",))),
        pytest.param(2, marks=pytest.mark.case("SCS-VERIFY-ONE-LATER", kills=("verify-one-block",))),
        pytest.param(BLOCKS - 1, marks=pytest.mark.case("SCS-VERIFY-ONE-LAST", kills=("verify-one-block",))),
    ],
)
@pytest.mark.case(section="SBC-3 VERIFY, BYTCHK", builds_on=("SCS-VERIFY-ONE-GOOD",))
def test_a_block_of_a_range_that_differs_from_the_one_sent_is_a_miscompare(unit, scratch, at):
    scratch.require(BLOCKS)
    block = scratch.pattern(1, seed=305)
    data = bytearray(BLOCKS * block)
    data[(at + 1) * unit.block_size - 1] ^= 1
    assert unit.write(scratch.lba, bytes(data)).good
    answer = run(unit, c.VERIFY_16, block, lba=scratch.lba, blocks=BLOCKS, bytchk=3)
    assert answer.check(SenseKey.MISCOMPARE), f"{answer}: the last byte of block {at} differs"


# LOG SENSE


def log_page(unit: LogicalUnit, page: int, *, allocation: int = ALLOCATION) -> ScsiResult:
    """LOG SENSE of the cumulative values of a page."""
    return unit.run(c.LOG_SENSE, read=allocation, page=page, page_control=1, allocation=allocation)


def log_pages(unit: LogicalUnit) -> bytes:
    """Return the list of log pages; skip if there is no LOG SENSE."""
    answer = offered(log_page(unit, 0))
    assert answer.good, answer
    assert len(answer.data) >= 4, f"{answer}: {len(answer.data)} bytes, less than a header"
    return answer.data[4 : 4 + int.from_bytes(answer.data[2:4], "big")]


@pytest.mark.case("SCS-LOG-LIST", section="SPC-4 LOG SENSE", kills=("log-list-order",))
def test_the_list_of_log_pages_is_ascending_and_begins_with_itself(unit):
    pages = log_pages(unit)
    assert pages[:1] == b"\0", f"the list of log pages is {pages.hex(' ')}"
    assert list(pages) == sorted(set(pages)), f"the list of log pages is {pages.hex(' ')}"


@pytest.mark.case("SCS-LOG-PAGES", section="SPC-4 LOG SENSE", kills=("log-page-other", "log-page-refused"))
def test_each_listed_log_page_is_returned_with_its_code_and_length(unit):
    for page in log_pages(unit):
        answer = log_page(unit, page)
        assert answer.good, f"{answer}; the list of log pages has {page:02x}h"
        assert answer.data[:1], f"{answer}: no data"
        assert answer.data[0] & 0x3F == page, f"{answer}: it is page {answer.data[0] & 0x3F:02x}h"
        stated = 4 + int.from_bytes(answer.data[2:4], "big")
        assert len(answer.data) == min(stated, ALLOCATION), f"{answer}: {len(answer.data)} of {stated} bytes"


@pytest.mark.case("SCS-LOG-CUT", section="SPC-4 LOG SENSE", kills=("log-length-cut",))
def test_a_log_page_that_is_cut_has_the_length_of_the_whole(unit):
    log_pages(unit)
    whole, cut = log_page(unit, 0), log_page(unit, 0, allocation=4)
    assert cut.good, cut
    assert cut.data == whole.data[:4], f"{cut}: {cut.data.hex(' ')}, of {whole.data.hex(' ')}"


@pytest.mark.case("SCS-LOG-ABSENT", section="SPC-4 LOG SENSE", kills=("log-absent-good",))
def test_a_log_page_that_is_not_listed_is_an_invalid_field(unit):
    absent = max(set(range(0x3F)) - set(log_pages(unit)))
    answer = log_page(unit, absent)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), f"{answer}; it is not listed"


# Target port groups


def port_designators(unit: LogicalUnit, kind: int) -> list[int]:
    """Return the numbers that page 83h has of the port of this session, of one designator type."""
    found = decode_designators(vpd_page(unit, 0x83))
    return [
        int.from_bytes(one.data[2:4], "big")
        for one in found
        if one.association == TARGET_PORT and one.kind == kind
    ]


@pytest.mark.case("SCS-GROUPS-TPGS", section="SPC-4 TPGS", kills=("groups-refused", "port-groups-short"))
def test_a_unit_with_tpgs_reports_its_target_port_groups(unit):
    standard = unit.inquiry()
    assert standard.good, standard
    decode_inquiry(standard.data)
    if not standard.data[5] & 0x30:
        pytest.skip("TPGS of INQUIRY is 00b")
    answer = unit.run(c.REPORT_TARGET_PORT_GROUPS, read=ALLOCATION, allocation=ALLOCATION)
    assert answer.good, f"{answer}; TPGS of INQUIRY is {standard.data[5] >> 4 & 3:02b}b"
    assert decode_target_port_groups(answer.data), f"{answer}: no group"


@pytest.mark.case(
    "SCS-GROUPS-PORT",
    section="SPC-4 REPORT TARGET PORT GROUPS",
    kills=("groups-other-number", "groups-other-port"),
    builds_on=("SCS-GROUPS-TPGS",),
)
def test_the_port_and_the_group_of_the_session_are_among_the_target_port_groups(unit):
    """What page 83h states of the target port is what the list of groups states."""
    answer = offered(unit.run(c.REPORT_TARGET_PORT_GROUPS, read=ALLOCATION, allocation=ALLOCATION))
    assert answer.good, answer
    groups = {group.number: group.ports for group in decode_target_port_groups(answer.data)}
    numbers, ports = port_designators(unit, PORT_GROUP), port_designators(unit, RELATIVE_PORT)
    if not numbers:
        pytest.skip("page 83h has no target port group")
    for number in numbers:
        assert number in groups, f"page 83h has the target port group {number}, the list has {groups}"
        for port in ports:
            assert port in groups[number], f"port {port} of page 83h is not in group {number}: {groups}"


# Task management that is reported

FUNCTIONS = {
    TaskFunction.ABORT_TASK: 0x80,
    TaskFunction.ABORT_TASK_SET: 0x40,
    TaskFunction.CLEAR_TASK_SET: 0x10,
    TaskFunction.LOGICAL_UNIT_RESET: 0x08,
}
"""Bits of byte 0 of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ATS, ATSS, CTSS and LURS (SPC-4)."""


@pytest.mark.case(
    "SCS-TASKS-REPORTED",
    section="SPC-4 REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
    kills=("tasks-reported-more",),
    builds_on=("ISC-TMF-04",),
)
def test_a_reported_task_management_function_is_supported(session, unit, scratch, observe):  # noqa: ARG001  # a reset is a change
    answer = offered(unit.run(c.REPORT_TASK_MANAGEMENT, read=16, allocation=16))
    assert answer.good, answer
    assert len(answer.data) >= 4, f"{answer}: {len(answer.data)} bytes"
    observe(f"byte 0 is {answer.data[0]:02x}h")
    for function, bit in FUNCTIONS.items():
        if answer.data[0] & bit:
            done = session.task(function)
            assert done.response != TaskResult.NOT_SUPPORTED, (
                f"{function.name}: {done.summary()}; it is reported"
            )
