"""MODE SENSE of changeable, default and saved values in each form (SPC-4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, mode_select, selectable_page
from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.exclusive,  # mode pages are of all nexuses
    pytest.mark.case(section="SPC-4 MODE SENSE, PC", level="MUST", builds_on=("SCS-MSEL-01",)),
]

ALL_PAGES = 0x3F
CURRENT, MASK, SAVED = 0, 1, 3
NAMES = {1: "changeable", 2: "default", 3: "saved"}
"""Values of PC."""
FORMS = {
    "6-ALL": (c.MODE_SENSE_6, True),
    "10-ONE": (c.MODE_SENSE_10, False),
    "10-ALL": (c.MODE_SENSE_10, True),
}
"""Commands, and whether the page is read among all pages. SCS-MSEL-DEFAULT-* is about the other form."""


def values(unit: LogicalUnit, form: str, page: int, control: int) -> bytes | None:
    """Return the page without PS, or None if it is not returned with this PC."""
    command, every = FORMS[form]
    answer = mode_sense(unit, command, ALL_PAGES if every else page, control=control)
    if not answer.good:
        return None
    found = dict(mode_pages(answer.data, ten=command is c.MODE_SENSE_10)).get(page)
    return None if found is None else bytes((found[0] & 0x7F,)) + found[1:]


@pytest.fixture
def flip(unit, scratch, pytestconfig) -> Iterator[tuple[int, bytes, bytes]]:  # noqa: ARG001  # the target's state
    """Yield the code of a page, its list of MODE SELECT(6), and that with another bit; set the page back."""
    for page in (CACHING, CONTROL):
        if not unit.run(c.MODE_SENSE_6, read=255, page=page, dbd=1, allocation=255).good:
            continue
        before, mask = selectable_page(unit, page), current_page(unit, page, control=MASK)
        places = [(4 + at, bit) for at, bits in BITS[page] for bit in bits if 4 + at < len(mask)]
        able = [(at, bit) for at, bit in places if mask[at] & bit]
        if able:
            break
    else:
        pytest.skip("no bit of the Caching or the Control mode page is changeable")
    at, bit = able[0]
    try:
        yield page, before, before[:at] + bytes((before[at] ^ bit,)) + before[at + 1 :]
    finally:
        unit.clear_attentions()
        mode_select(unit, before)
        if current_page(unit, page) != before:
            stop_run(pytestconfig, f"SCS-MODE-PC: page {page:02x}h stays changed: set it back at the target")


@pytest.mark.parametrize("form", [
    pytest.param("6-ALL", marks=pytest.mark.case("SCS-MODE-PC-6-ALL", kills=("mode-all-current",))),
    pytest.param("10-ONE", marks=pytest.mark.case("SCS-MODE-PC-10-ONE", kills=("mode-10-current",))),
    pytest.param("10-ALL", marks=pytest.mark.case(
        "SCS-MODE-PC-10-ALL", kills=("mode-all-current", "mode-10-current"))),
])  # fmt: skip
def test_only_current_values_change_with_mode_select(unit, flip, form):
    """MODE SELECT without SP. Saved values are compared if they are returned."""
    page, _, wanted = flip
    before = {control: values(unit, form, page, control) for control in NAMES}
    answer = mode_select(unit, wanted)
    if not answer.good:
        pytest.skip(f"{answer}: the bit is not changed alone")
    now = values(unit, form, page, CURRENT)
    if now is None:
        pytest.skip(f"page {page:02x}h is not returned in this form")
    assert now == wanted[4:], f"{answer}: page {page:02x}h is {now.hex()}; it was set to {wanted[4:].hex()}"
    for control, name in NAMES.items():
        found, was = values(unit, form, page, control), before[control]
        shown = [one.hex() if one else "not returned" for one in (found, was)]
        assert found == was, (
            f"the {name} values of page {page:02x}h are {shown[0]}; before a MODE SELECT of the current "
            f"values they were {shown[1]}"
        )


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-MODE-NO-SAVED-{form}", kills=("mode-saved-current",)))
    for form in ("10-ONE", "10-ALL")
])  # fmt: skip
@pytest.mark.case(section="SPC-4 MODE SENSE, saved values", builds_on=())
def test_saved_values_that_are_not_implemented_are_refused_by_mode_sense_10(unit, form):
    """If MODE SENSE(6) refuses those of a page, or of all pages, as not supported, so does MODE SENSE(10)."""
    for page in (ALL_PAGES,) if FORMS[form][1] else (CACHING, CONTROL):
        short = mode_sense(unit, c.MODE_SENSE_6, page, control=SAVED)
        if not short.check(SenseKey.ILLEGAL_REQUEST, Asc.SAVING_PARAMETERS_NOT_SUPPORTED):
            pytest.skip(f"{short}: whether saved values are implemented is not known")
        answer = mode_sense(unit, c.MODE_SENSE_10, page, control=SAVED)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.SAVING_PARAMETERS_NOT_SUPPORTED), (
            f"{answer}; {short}: SAVING PARAMETERS NOT SUPPORTED is required"
        )
