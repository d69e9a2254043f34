"""RECEIVE DIAGNOSTIC RESULTS (SPC-4), which is optional: the list of diagnostic pages, and each of them."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.seldom_cdb import RECEIVE_DIAGNOSTIC_RESULTS

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 RECEIVE DIAGNOSTIC RESULTS", level="MUST"),
]

ALLOCATION = 4096
STANDARD = range(0x01, 0x40)
"""Codes of pages that standards define; those from 80h on are the vendor's."""


def page(unit: LogicalUnit, code: int, allocation: int = ALLOCATION) -> ScsiResult:
    """Ask for a diagnostic page; skip if the unit does not have the command, or no pages by their code."""
    answer = offered(
        unit.run(RECEIVE_DIAGNOSTIC_RESULTS, read=allocation, pcv=1, page=code, allocation=allocation)
    )
    if not code and answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"no list of diagnostic pages: {answer}")
    return answer


def codes(unit: LogicalUnit) -> bytes:
    """Return the codes of the list of pages."""
    answer = page(unit, 0)
    assert answer.good, answer
    assert len(answer.data) >= 4, f"{answer}: {len(answer.data)} bytes are no page"
    length = int.from_bytes(answer.data[2:4], "big")
    return answer.data[4 : 4 + length]


@pytest.mark.case(
    "SCS-DIAG-PAGES-LIST", section="SPC-4 Supported Diagnostic Pages", kills=("diagnostic-list-order",)
)
def test_the_list_of_diagnostic_pages_is_ascending_and_begins_with_itself(unit):
    found = list(codes(unit))
    assert found[:1] == [0], f"the list of diagnostic pages is {found}: page 00h is the first"
    assert found == sorted(set(found)), f"the list of diagnostic pages is not ascending: {found}"


@pytest.mark.case(
    "SCS-DIAG-PAGES-EACH", kills=("diagnostic-other-code", "diagnostic-page-length"),
    builds_on=("SCS-DIAG-PAGES-LIST",),
)  # fmt: skip
def test_each_listed_diagnostic_page_is_returned_with_its_code_and_its_length(unit):
    """Pages that only SEND DIAGNOSTIC takes are listed too: one that is refused is not judged."""
    for code in codes(unit):
        answer = page(unit, code)
        if not answer.good:
            continue
        data = answer.data
        assert data[:1] == bytes((code,)), f"{answer}: page {code:02X}h was asked for: {data[:4].hex()}"
        length = int.from_bytes(data[2:4], "big")
        assert len(data) in (4 + length, ALLOCATION), (
            f"{answer}: PAGE LENGTH of page {code:02X}h is {length}, and {len(data)} bytes came"
        )


@pytest.mark.case(
    "SCS-DIAG-PAGES-CUT", section="SPC-4 allocation length", kills=("diagnostic-cut-length",)
)  # fmt: skip
def test_the_list_of_diagnostic_pages_is_cut_and_keeps_its_length(unit):
    codes(unit)
    whole = page(unit, 0).data
    for allocation in (0, 1, 4, len(whole) - 1):
        answer = page(unit, 0, allocation)
        assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
        assert answer.data == whole[:allocation], f"{answer}: {answer.data.hex()}, of {whole.hex()}"


@pytest.mark.case("SCS-DIAG-PAGES-ABSENT", kills=("diagnostic-absent",))
def test_a_diagnostic_page_that_is_not_listed_is_refused(unit):
    listed = set(codes(unit))
    absent = [code for code in STANDARD if code not in listed]
    for code in (absent[0], absent[len(absent) // 2], absent[-1]):
        answer = page(unit, code)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; the list of pages lacks {code:02X}h"
