"""Saved mode pages: SP of MODE SELECT, saved values of MODE SENSE, and the PS bit of a page (SPC-4).

A unit need not implement them. The cases set a bit of the Control or of the Caching mode page whose change
hides and protects no data, and save what was saved before at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, mode_select
from .test_scsi_inquiry import mode_sense
from .test_scsi_mode_masks import CHANGEABLE, DEFAULT, SAVED
from .test_scsi_second_forms import FORMS, listed_as

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.exclusive,  # mode pages are those of every initiator
    pytest.mark.case(section="SPC-4 MODE SELECT, SP", level="MUST", builds_on=("SCS-MSEL-01",)),
]

PS = 0x80
"""The bit of byte 0 of a mode page that states that it can be saved."""


def save(unit: LogicalUnit, page: bytes, *, command: c.CommandFormat = c.MODE_SELECT_6) -> ScsiResult:
    """Send MODE SELECT with SP of a page, as :func:`current_page` returns it; skip without such a form."""
    data = listed_as(command, page)
    return offered(unit.run(command, data=data, pf=1, sp=1, allocation=len(data)))


@dataclass(frozen=True, slots=True)
class Savable:
    """A mode page: its code, its current values, and the same with one bit changed; both can be saved."""

    code: int
    old: bytes
    new: bytes


def savable(unit: LogicalUnit) -> Savable:
    """Find a page that can be saved and has a bit that is changeable; skip if there is none."""
    for code in (CONTROL, CACHING):
        answers = [mode_sense(unit, c.MODE_SENSE_6, code, control=control) for control in (0, 1, 3)]
        if not all(answer.good for answer in answers):
            continue
        old, mask = current_page(unit, code), current_page(unit, code, control=CHANGEABLE)
        bits = [(4 + byte, bit) for byte, some in BITS[code] for bit in some]
        for at, bit in bits:
            if at < min(len(mask), len(old)) and mask[at] & bit:
                return Savable(code, old, old[:at] + bytes((old[at] ^ bit,)) + old[at + 1 :])
    pytest.skip("no mode page has saved values, and a bit that is tested and changeable")


@pytest.fixture
def page(unit, scratch, pytestconfig) -> Iterator[Savable]:
    """Yield a page whose saved values are the current ones; leave both as they were."""
    assert scratch.count
    found = savable(unit)
    saved = current_page(unit, found.code, control=SAVED)
    if saved != found.old:
        pytest.skip(f"saved values differ from the current ones: {saved.hex()}, {found.old.hex()}")
    if not (answer := save(unit, found.old)).good:
        pytest.skip(f"the current values are not saved: {answer}")
    try:
        yield found
    finally:
        unit.clear_attentions()
        save(unit, found.old)
        left = [current_page(unit, found.code, control=control) for control in (0, SAVED)]
        if left != [found.old, found.old]:
            stop_run(
                pytestconfig,
                f"mode page {found.code:02x}h was {found.old[4:].hex()}, and so were its saved values: save "
                "it at the target",
            )


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-SAVED-SP-{form}", kills=(f"saved-by-none-{form}",)))
    for form in FORMS
])  # fmt: skip
def test_mode_select_with_sp_saves_the_page(unit, page, form):
    """The new values are the current ones and the saved ones."""
    answer = save(unit, page.new, command=FORMS[form])
    assert answer.good, f"{answer}: the values before were saved"
    for control, values in ((0, "current"), (SAVED, "saved")):
        found = current_page(unit, page.code, control=control)
        assert found == page.new, (
            f"{answer}: the {values} values of page {page.code:02x}h are {found[4:].hex()}; "
            f"{page.new[4:].hex()} were selected, with SP"
        )


@pytest.mark.case("SCS-SAVED-KEPT", kills=("saved-by-each", "saved-is-current"))
def test_mode_select_without_sp_saves_nothing(unit, page):
    answer = mode_select(unit, page.new)
    assert answer.good, answer
    found = current_page(unit, page.code, control=SAVED)
    assert found == page.old, (
        f"{answer} without SP: the saved values of page {page.code:02x}h are {found[4:].hex()}; they were "
        f"{page.old[4:].hex()}"
    )


@pytest.mark.case("SCS-SAVED-DEFAULT", section="SPC-4 MODE SENSE, PC", kills=("default-is-saved",))
def test_default_and_changeable_values_stay_when_a_page_is_saved(unit, page):
    before = {control: current_page(unit, page.code, control=control) for control in (CHANGEABLE, DEFAULT)}
    answer = save(unit, page.new)
    assert answer.good, answer
    for control, values in before.items():
        found = current_page(unit, page.code, control=control)
        assert found == values, (
            f"{answer} with SP: page {page.code:02x}h with PC {control} is {found[4:].hex()}; it was "
            f"{values[4:].hex()}"
        )


@pytest.mark.case("SCS-SAVED-CUT", section="SPC-4 MODE SELECT, PARAMETER LIST LENGTH", kills=("saved-cut",))
def test_a_list_that_is_cut_is_not_saved(unit, page):
    """It ends within its page: it is refused, and the saved values stay."""
    answer = save(unit, page.new[:-1])
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the list ends within its page"
    found = current_page(unit, page.code, control=SAVED)
    assert found == page.old, f"{answer}, but the saved values are {found[4:].hex()}"


@pytest.mark.case("SCS-SAVED-OTHER", section="SPC-4 MODE SENSE, saved values", kills=("saved-of-nexus",))
def test_saved_values_of_a_nexus_that_has_the_new_page_are_the_new_ones(two, page):
    """A nexus with pages of its own keeps its current values, and may keep its saved ones."""
    answer = save(two[0], page.new)
    assert answer.good, answer
    other = two[1]
    other.clear_attentions()
    if current_page(other, page.code) != page.new:
        pytest.skip("the other nexus has mode pages of its own")
    found = current_page(other, page.code, control=SAVED)
    assert found == page.new, (
        f"the saved values of page {page.code:02x}h are {found[4:].hex()} for another nexus, which has the "
        f"current values that were saved: {page.new[4:].hex()}"
    )


@pytest.mark.case(
    "SCS-SAVED-RESET", section="SPC-4 MODE SENSE, logical unit reset", kills=("saved-not-restored",)
)
def test_a_logical_unit_reset_restores_the_saved_values(unit, page):
    """The current values were selected without SP: after the reset they are the saved ones."""
    answer = mode_select(unit, page.new)
    assert answer.good, answer
    done = unit.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if done.response != TaskResult.COMPLETE:
        pytest.skip(f"LOGICAL UNIT RESET is not done: response {done.response} (ISC-TMF-04)")
    unit.clear_attentions()
    found = current_page(unit, page.code)
    assert found == page.old, (
        f"the current values of page {page.code:02x}h are {found[4:].hex()} after a logical unit reset; the "
        f"saved ones are {page.old[4:].hex()}"
    )


# PS


def _pages(answer: ScsiResult) -> dict[int, int]:
    """Return byte 0 of each page of MODE SENSE(6) data without block descriptors, by page code."""
    found, rest = {}, answer.data[4:]
    while len(rest) >= 2 and not rest[0] & 0x40:
        found[rest[0] & 0x3F] = rest[0]
        rest = rest[2 + rest[1] :]
    return found


@pytest.mark.case("SCS-SAVED-PS", section="SPC-4 mode page format, PS", kills=("ps-unsaved",), builds_on=())
def test_a_page_with_ps_has_saved_values(unit):
    """PS of 1 is a page that can be saved: the unit returns its saved values, or is not ready for them."""
    every = mode_sense(unit, c.MODE_SENSE_6, page=0x3F, dbd=1)
    if not every.good:
        pytest.skip(f"no list of the pages: {every}")
    marked = [code for code, first in _pages(every).items() if first & PS and code]
    if not marked:
        pytest.skip("PS of each page is 0")
    for code in marked:
        answer = mode_sense(unit, c.MODE_SENSE_6, code, control=SAVED)
        refused = answer.check(SenseKey.ILLEGAL_REQUEST, Asc.SAVING_PARAMETERS_NOT_SUPPORTED)
        assert not refused, f"{answer}; PS of page {code:02x}h is 1: it can be saved"


@pytest.mark.case("SCS-SAVED-MARKED", section="SPC-4 mode page format, PS", kills=("ps-missing",))
def test_a_page_that_is_saved_has_ps(unit, page):
    assert save(unit, page.new).good
    if current_page(unit, page.code, control=SAVED) != page.new:
        pytest.skip("the page was not saved, which other cases are about")
    answer = mode_sense(unit, c.MODE_SENSE_6, page.code, dbd=1)
    assert answer.good, answer
    assert answer.data[4] & PS, f"{answer}: PS of page {page.code:02x}h is 0, and it was saved"
