"""What MODE SENSE states of mode pages by PC, and MODE SELECT keeps (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey

from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, mode_select, selectable_page
from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 MODE SENSE, PC", level="MUST")]

CHANGEABLE, DEFAULT, SAVED = 1, 2, 3
"""PC of MODE SENSE."""

WORDS = {CACHING: (4, 6, 8, 10), CONTROL: (8, 10)}
"""Fields of two bytes, by page: those of the prefetch (SBC-3); BUSY TIMEOUT PERIOD and EXTENDED SELF-TEST
COMPLETION TIME (SPC-4)."""

REFUSALS = (Asc.INVALID_FIELD_IN_PARAMETER_LIST, Asc.INVALID_FIELD_IN_CDB)


def either(name: str, *kills: str) -> pytest.MarkDecorator:
    """Return the parameters of a claim on the Caching and on the Control mode page."""
    return pytest.mark.parametrize(
        "page",
        [
            pytest.param(page, id=which.lower(), marks=pytest.mark.case(f"{name}-{which}", **more))
            for page, which, more in (
                (
                    CACHING,
                    "CACHING",
                    {"no_mutant_reason": "no target of the mutants changes it"},
                ),
                (CONTROL, "CONTROL", {"kills": kills}),
            )
        ],
    )


@either("SCS-MASK-BITS", "mode-mask-refused", "d-sense-not-kept")
@pytest.mark.case(section="SPC-4 MODE SENSE, changeable values", builds_on=("SCS-MSEL-01",))
@pytest.mark.usefixtures("scratch")
def test_each_bit_that_is_changeable_is_changed(unit, page):
    """MODE SELECT sets each bit of the mask, MODE SENSE returns it, and the other bits stay."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=CHANGEABLE)
    bits = [
        (4 + byte, bit)
        for byte, some in BITS[page]
        for bit in some
        if 4 + byte < min(len(mask), len(before)) and mask[4 + byte] & bit
    ]
    if not bits:
        pytest.skip(f"no bit of page {page:02x}h that is tested is changeable: {mask.hex()}")
    try:
        for at, bit in bits:
            wanted = bytearray(before)
            wanted[at] ^= bit
            answer = mode_select(unit, bytes(wanted))
            where = f"bit {bit:02x}h of byte {at - 4} of page {page:02x}h is changeable"
            assert answer.good, f"{answer}; {where}"
            found = current_page(unit, page)
            assert found == wanted, f"{where}: MODE SELECT of {wanted.hex()} was GOOD; it is {found.hex()}"
            assert mode_select(unit, before).good, f"the page cannot be set back; {where}"
    finally:
        if current_page(unit, page) != before:
            mode_select(unit, before)


@either("SCS-MSEL-TWO", "mode-select-half")
@pytest.mark.case(section="SPC-4 MODE SELECT(6)", level="SHOULD", builds_on=("SCS-MSEL-01",))
@pytest.mark.usefixtures("scratch")
def test_a_list_whose_second_page_is_refused_changes_no_page(unit, page):
    """The first page changes a bit that is changeable; the second one has a code that is not there."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=CHANGEABLE)
    every = mode_sense(unit, c.MODE_SENSE_6, page=0x3F, dbd=1)
    if not every.good or c.NO_MODE_PAGE in dict(mode_pages(every.data, ten=False)):
        pytest.skip(f"no list of the pages, or page {c.NO_MODE_PAGE:02x}h is there: {every}")
    wanted = bytearray(before)
    for at, bit in ((4 + byte, bit) for byte, some in BITS[page] for bit in some):
        if at < min(len(mask), len(before)) and mask[at] & bit:
            wanted[at] ^= bit
            break
    else:
        pytest.skip(f"no bit of page {page:02x}h that is tested is changeable: {mask.hex()}")
    answer = mode_select(unit, bytes(wanted) + bytes((c.NO_MODE_PAGE, 2, 0, 0)))
    found = current_page(unit, page)
    if found != before:
        mode_select(unit, before)
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: page {c.NO_MODE_PAGE:02x}h is not there"
    assert found == before, f"{answer}, but page {page:02x}h, the first of the list, has changed"


@pytest.mark.parametrize("page", [
    pytest.param(CACHING, marks=pytest.mark.case("SCS-MASK-WORDS-CACHING")),
    pytest.param(CONTROL, marks=pytest.mark.case("SCS-MASK-WORDS-CONTROL")),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 MODE SELECT(6), changeable values",
    kills=("mode-select-second", "mode-select-any"),
    builds_on=("SCS-MSEL-01", "SCS-MSEL-03"),
)
@pytest.mark.usefixtures("scratch")
def test_each_field_that_is_not_changeable_stays(unit, page):
    """A field of two bytes whose mask is 0 is refused if its value is another than the current one."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=CHANGEABLE)
    fixed = [4 + at for at in WORDS[page] if 6 + at <= len(before) and mask[4 + at : 6 + at] == bytes(2)]
    if not fixed:
        pytest.skip(f"page {page:02x}h has no field of two bytes that is not changeable: {mask.hex()}")
    try:
        for at in fixed:
            answer = mode_select(unit, before[: at + 1] + bytes((before[at + 1] ^ 1,)) + before[at + 2 :])
            where = f"the field at byte {at - 4} of page {page:02x}h is not changeable"
            assert answer.check(SenseKey.ILLEGAL_REQUEST, *REFUSALS), f"{answer}; {where}"
            assert current_page(unit, page) == before, f"{answer}, but the page has changed; {where}"
    finally:
        if current_page(unit, page) != before:
            mode_select(unit, before)


@pytest.mark.parametrize("command", [
    pytest.param(c.MODE_SENSE_6, id="6", marks=pytest.mark.case(
        "SCS-MASK-SHAPE-6", kills=("mode-mask-shape",))),
    pytest.param(c.MODE_SENSE_10, id="10", marks=pytest.mark.case(
        "SCS-MASK-SHAPE-10", no_mutant_reason="the thin target has no MODE SENSE(10)")),
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-MODE-01",))
def test_a_page_has_one_length_whatever_pc_is(unit, command):
    """Each page is asked for alone; if saved values are not implemented, there are none to compare."""
    ten, every = command is c.MODE_SENSE_10, mode_sense(unit, command)
    if every.unsupported:
        pytest.skip(f"{every}")
    assert every.good, every
    for code, page in mode_pages(every.data, ten=ten):
        for control in (CHANGEABLE, DEFAULT, SAVED) if code < 0x40 else ():
            answer = mode_sense(unit, command, code, control=control)
            if answer.check(SenseKey.ILLEGAL_REQUEST) or answer.check(SenseKey.NOT_READY):
                continue
            assert answer.good, answer
            found = [(one, len(body)) for one, body in mode_pages(answer.data, ten=ten)]
            assert found == [(code, len(page))], (
                f"{answer}: codes and lengths are {found}; page {code:02x}h of the current values has "
                f"{len(page)} bytes"
            )


@pytest.mark.case("SCS-MASK-SAVED", section="SPC-4 MODE SENSE, saved values", kills=("mode-saved-sense",))
def test_saved_values_that_are_not_implemented_are_refused_as_such(unit):
    answer = mode_sense(unit, c.MODE_SENSE_6, control=SAVED)
    if answer.good or answer.check(SenseKey.NOT_READY):
        pytest.skip(f"saved values are implemented: {answer}")
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.SAVING_PARAMETERS_NOT_SUPPORTED), (
        f"{answer}; if saved values are not implemented, SAVING PARAMETERS NOT SUPPORTED is required"
    )


@pytest.mark.case(
    "SCS-MASK-SP",
    section="SPC-4 MODE SELECT(6), SP",
    kills=("mode-sp-accepted",),
    builds_on=("SCS-MASK-SAVED",),
)
@pytest.mark.usefixtures("scratch")
def test_values_are_not_saved_if_saved_values_are_not_implemented(unit):
    """The parameter list has the current values of the Control mode page."""
    if not mode_sense(unit, c.MODE_SENSE_6, control=SAVED).check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip("saved values are implemented")
    data = selectable_page(unit, CONTROL)
    answer = unit.run(c.MODE_SELECT_6, data=data, pf=1, sp=1, allocation=len(data))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
        f"{answer}; SP is 1, and saved mode pages are not implemented"
    )
