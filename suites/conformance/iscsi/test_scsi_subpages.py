"""Mode subpages, and forms of FORMAT UNIT that a device server without protection refuses (SPC-4, SBC-3).

No form here formats a unit that follows the standard: after each one the unit is ready, with its data.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 MODE SENSE", level="MUST", builds_on=("SCS-MODE-03",)),
]

FORMS = {"6": (c.MODE_SENSE_6, 255), "10": (c.MODE_SENSE_10, 4095)}
"""The forms of MODE SENSE, with an allocation length for all pages."""
ALL_PAGES, ALL_SUBPAGES, ABSENT, VENDORS = 0x3F, 0xFF, 0x3E, 0x20
"""Page code, subpage codes, the first page code of vendors; no standard has subpage 3Eh of these pages."""


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-MODE-SUBPAGE-{form}", kills=("mode-subpage-ignored",)))
    for form in FORMS
])  # fmt: skip
def test_a_mode_subpage_that_is_not_there_is_an_invalid_field(unit, form):
    """Of each page that is there, and of the code for all pages, with each PC."""
    command, most = FORMS[form]
    answer = mode_sense(unit, command)
    if not answer.good:
        pytest.skip(f"not offered: {answer}")
    pages = [code for code, _ in mode_pages(answer.data, ten=command is c.MODE_SENSE_10)]
    for page in sorted({page for page in pages if 0 < page < VENDORS} | {ALL_PAGES}):
        for control in (0, 1, 2):
            answer = unit.run(
                command, read=most, page=page, subpage=ABSENT, page_control=control, dbd=1, allocation=most
            )
            assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
                f"{answer}: page {page:02X}h has no subpage {ABSENT:02X}h"
            )


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-MODE-SUBPAGES-{form}", kills=("mode-subpages-short",)))
    for form in FORMS
])  # fmt: skip
def test_all_subpages_have_each_page_that_all_pages_have(unit, form):
    """Subpage FFh of page 3Fh returns pages and subpages; each page of 3Fh is among them."""
    command, most = FORMS[form]
    answer = mode_sense(unit, command)
    whole = unit.run(command, read=most, page=ALL_PAGES, subpage=ALL_SUBPAGES, allocation=most)
    if not answer.good or not whole.good:
        pytest.skip(f"not offered: {answer}, {whole}")
    ten = command is c.MODE_SENSE_10
    if len(whole.data) == most:
        pytest.skip(f"the data fill the allocation length of {most} bytes")
    found = {code for code, _ in mode_pages(whole.data, ten=ten)}
    missing = {code for code, _ in mode_pages(answer.data, ten=ten)} - found
    assert not missing, (
        f"{whole}: it lacks pages {[f'{code:02X}h' for code in sorted(missing)]}, which page 3Fh has"
    )


def still_there(unit: LogicalUnit, lba: int, data: bytes, after: str) -> None:
    """Claim that the unit is ready, and that its block has its data."""
    ready = unit.test_unit_ready()
    assert ready.good, f"{ready}, after {after}"
    found = unit.read(lba)
    assert found.data == data, f"the block has other data, after {after}"


FORMATS = {
    "PROTECTION": (0x80, "FMTPINFO 10b, of a unit whose PROTECT is 0"),
    "PROTECTION-2": (0xC0, "FMTPINFO 11b, of a unit whose PROTECT is 0"),
}
"""Byte 1 of a FORMAT UNIT (SBC-3): nothing is formatted with protection information that a unit lacks."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-FORMAT-{name}", kills=("format-any-protection",)))
    for name in FORMATS
])  # fmt: skip
@pytest.mark.case(section="SBC-3 FORMAT UNIT", builds_on=("SCS-RW-01", "SCS-AGREE-PROTECT"))
def test_a_unit_without_protection_is_not_formatted_with_it(unit, scratch, name):
    """It ends in INVALID FIELD IN CDB, and the data stay. FORMAT UNIT is optional."""
    flags, why = FORMATS[name]
    inquiry = unit.inquiry(allocation=96)
    if inquiry.good_data()[5] & 1:
        pytest.skip("PROTECT of INQUIRY is 1")
    data = scratch.pattern(1, seed=1401)
    assert unit.write(scratch.lba, data).good
    block = bytes((0x04, flags, 0, 0, 0, 0))
    answer = offered(LogicalUnit.result(unit.runner.command(block), f"FORMAT UNIT {block.hex()}"))
    still_there(unit, scratch.lba, data, f"{answer}: {why}")
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: {why}"
