"""Log parameters (SPC-4): their order, a pointer to one of them, and LOG SELECT, which few units have."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.seldom_cdb import LOG_SELECT

from .test_scsi_flags import VENDOR_PAGES

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 log parameters", level="MUST", builds_on=("SCS-LOG-PAGES",)),
]

CUMULATIVE, HEADER, LONGEST = 1, 4, 0xFFFF
"""PC of LOG SENSE; bytes of the header of a page and of a parameter; an allocation length for each page."""
WRITE_ERRORS, PROCESSED = 0x02, 0x0005
"""The Write Error Counter log page, and its parameter of the bytes that were processed (SPC-4)."""


def log_page(unit: LogicalUnit, page: int, **fields: int) -> ScsiResult:
    """LOG SENSE of the cumulative values of a page."""
    return unit.run(
        c.LOG_SENSE, read=LONGEST, page=page, page_control=CUMULATIVE, allocation=LONGEST, **fields
    )


def parameters(answer: ScsiResult) -> list[tuple[int, bytes]]:
    """Return the codes of the parameters of a page, and their values; claim that they fill the page."""
    rest, found = answer.data[HEADER : HEADER + int.from_bytes(answer.data[2:4], "big")], []
    while rest:
        whole = len(rest) >= HEADER and len(rest) >= HEADER + rest[3]
        assert whole, f"{answer}: the last {len(rest)} bytes are no whole log parameter: {rest.hex()}"
        found.append((int.from_bytes(rest[:2], "big"), rest[HEADER : HEADER + rest[3]]))
        rest = rest[HEADER + rest[3] :]
    return found


@pytest.fixture
def pages(unit) -> dict[int, ScsiResult]:
    """Return the log pages of the standard that have parameters; skip if there is none."""
    listed = offered(log_page(unit, 0))
    codes = [code for code in listed.good_data()[HEADER:] if 0 < code < VENDOR_PAGES]
    found = {code: log_page(unit, code) for code in codes}
    found = {code: answer for code, answer in found.items() if len(answer.good_data()) > HEADER}
    if not found:
        pytest.skip("no log page has parameters")
    return found


@pytest.mark.case("SCS-LOG-PARAMETERS", kills=("log-parameters-order", "log-parameter-long"))
def test_the_parameters_of_a_log_page_are_whole_and_ascending(pages):
    """Each PARAMETER LENGTH is that of the value, each PARAMETER CODE more than the one before."""
    for page, answer in pages.items():
        codes = [code for code, _ in parameters(answer)]
        assert codes == sorted(set(codes)), (
            f"{answer}: the parameters of page {page:02x}h are {[f'{code:04x}h' for code in codes]}"
        )


@pytest.mark.case(
    "SCS-LOG-POINTER-FIRST",
    section="SPC-4 LOG SENSE, PARAMETER POINTER",
    kills=("log-pointer-none", "log-pointer-one-more"),
    builds_on=("SCS-LOG-PARAMETERS",),
)
def test_a_parameter_pointer_names_the_first_parameter_that_is_returned(unit, pages):
    """Each of the parameters of each page, and a code between two of them: no lower code is returned."""
    for page, answer in pages.items():
        codes = [code for code, _ in parameters(answer)]
        between = [code - 1 for code in codes if code and code - 1 not in codes]
        for pointer in sorted({*codes, *between}):
            found = log_page(unit, page, parameter_pointer=pointer)
            assert found.good, f"{found}; the last parameter of page {page:02x}h is {max(codes):04x}h"
            shown = [code for code, _ in parameters(found)]
            assert shown == [code for code in codes if code >= pointer], (
                f"{found}: parameters {[f'{code:04x}h' for code in shown]} of page {page:02x}h, which has "
                f"{[f'{code:04x}h' for code in codes]}"
            )


# LOG SELECT


def select(unit: LogicalUnit, data: bytes = b"", **fields: int) -> ScsiResult:
    """Send LOG SELECT; skip if the unit has no such command."""
    return offered(unit.run(LOG_SELECT, data=data, page_control=CUMULATIVE, allocation=len(data), **fields))


def processed(unit: LogicalUnit) -> int:
    """Return the bytes that the Write Error Counter page has as processed; skip if it does not count them."""
    answer = log_page(unit, WRITE_ERRORS)
    if not answer.good:
        pytest.skip(f"no Write Error Counter log page: {answer}")
    found = dict(parameters(answer))
    if PROCESSED not in found:
        pytest.skip("the Write Error Counter log page has no total of bytes processed")
    return int.from_bytes(found[PROCESSED], "big")


@pytest.mark.case("SCS-LOGSEL-NONE", section="SPC-4 LOG SELECT", kills=("log-select-none-refused",))
@pytest.mark.usefixtures("scratch")
def test_log_select_without_a_list_is_no_error(unit, pages):
    """With PCR and SP of 0 it changes no parameter."""
    answer = select(unit)
    assert answer.good, answer
    assert set(pages) == {code for code in pages if log_page(unit, code).good}, (
        f"{answer}: a page is not there"
    )


@pytest.mark.exclusive  # the counters are those of every initiator
@pytest.mark.case("SCS-LOGSEL-KEEPS", section="SPC-4 LOG SELECT", kills=("log-select-resets",))
def test_log_select_without_pcr_resets_no_counter(unit, scratch):
    assert unit.write(scratch.lba, scratch.pattern(4)).good
    before = processed(unit)
    answer = select(unit)
    assert answer.good, answer
    after = processed(unit)
    assert after >= before, f"{answer} with PCR 0: {after} bytes were processed, and {before} before it"


@pytest.mark.exclusive
@pytest.mark.case("SCS-LOGSEL-PCR", section="SPC-4 LOG SELECT, PCR", kills=("log-select-pcr-ignored",))
def test_log_select_with_pcr_resets_the_counters(unit, scratch):
    """Of the Write Error Counter page, which has a total of the bytes that were written."""
    assert unit.write(scratch.lba, scratch.pattern(4)).good
    before = processed(unit)
    if not before:
        pytest.skip("the total of bytes processed is not counted")
    answer = select(unit, pcr=1, page=WRITE_ERRORS)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        answer = select(unit, pcr=1)  # PAGE CODE was reserved in SPC-3
    if not answer.good:
        pytest.skip(f"the parameters cannot be reset: {answer}")
    after = processed(unit)
    assert after < before, f"{answer} with PCR 1: {after} bytes were processed, and {before} before it"


@pytest.mark.case("SCS-LOGSEL-PCR-LIST", section="SPC-4 LOG SELECT, PCR", kills=("log-select-pcr-list",))
@pytest.mark.usefixtures("scratch")
def test_pcr_with_a_parameter_list_is_an_invalid_field(unit):
    if not (usual := select(unit)).good:
        pytest.skip(f"LOG SELECT without a list: {usual}")
    answer = select(unit, bytes((WRITE_ERRORS, 0, 0, 0)), pcr=1)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
        f"{answer}: PCR is 1, and PARAMETER LIST LENGTH is not 0"
    )


@pytest.mark.case("SCS-LOGSEL-ABSENT", section="SPC-4 LOG SELECT", kills=("log-select-absent",))
@pytest.mark.usefixtures("scratch")
def test_log_select_of_a_page_that_is_not_there_is_refused(unit):
    """The first code below the vendor's pages that the list of log pages lacks; the list has no parameter."""
    listed = offered(log_page(unit, 0)).good_data()[HEADER:]
    absent = next(code for code in range(VENDOR_PAGES - 1, 0, -1) if code not in listed)
    answer = select(unit, bytes((absent, 0, 0, 4, 0, 0, 0, 0)))
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: page {absent:02x}h is not there"
