"""MODE SELECT of a list with a block descriptor, which is the one that MODE SENSE returned (SPC-4, SBC-3).

A descriptor of the current number and length of blocks changes nothing. A device server may refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_edges import CACHING, CONTROL

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 MODE SELECT, block descriptors", level="MUST"),
]

DESCRIPTOR = 8
"""Bytes of a short block descriptor (SBC-3)."""
BITS = {CACHING: (2, 0x04), CONTROL: (2, 0x04)}
"""Byte of the page and bit of it: WCE, D_SENSE."""
FORMS = {6: (c.MODE_SENSE_6, c.MODE_SELECT_6, 4), 10: (c.MODE_SENSE_10, c.MODE_SELECT_10, 8)}
"""Commands and the length of the mode parameter header, by the length of the CDB."""


@dataclass
class Modes:
    """One mode page of a unit by one form of the commands: header, block descriptor, page."""

    unit: LogicalUnit
    form: int
    page: int

    def sense(self, control: int = 0) -> bytes:
        """Return MODE SENSE data; skip if they have no block descriptor of 8 bytes."""
        sense, _, head = FORMS[self.form]
        answer = self.unit.run(sense, read=255, page=self.page, page_control=control, allocation=255)
        if answer.check(SenseKey.ILLEGAL_REQUEST):
            pytest.skip(f"not supported: {answer}")
        data = answer.good_data()
        if data[head - 1] != DESCRIPTOR or len(data) < head + DESCRIPTOR + 2:
            pytest.skip(f"no block descriptor of {DESCRIPTOR} bytes: {data.hex(' ')}")
        return data

    def listed(self) -> bytes:
        """Return the current values as MODE SELECT takes them: what is reserved there is zero."""
        _, _, head = FORMS[self.form]
        data = bytearray(self.sense())
        data[: head - 1] = bytes(head - 1)
        data[head + DESCRIPTOR] &= 0x7F  # PS
        return bytes(data)

    def select(self, data: bytes) -> ScsiResult:
        """Send MODE SELECT with SP 0; skip if the device server has no such command."""
        answer = self.unit.run(FORMS[self.form][1], data=data, pf=1, allocation=len(data))
        if answer.unsupported:
            pytest.skip(f"not supported: {answer}")
        return answer


@pytest.fixture
def modes(unit, scratch, request) -> Modes:
    """Return the Caching mode page, or the Control mode page."""
    assert scratch.count
    caching = unit.run(c.MODE_SENSE_6, read=255, page=CACHING, dbd=1, allocation=255)
    return Modes(unit, request.param, CACHING if caching.good else CONTROL)


@contextmanager
def unchanged(modes: Modes) -> Iterator[None]:
    """Claim that block descriptor and capacity stay; select the first values again at the end."""
    before, capacity, whole = modes.sense(), modes.unit.capacity16().good_data(), modes.listed()
    try:
        yield
        after = modes.sense()
    finally:
        modes.select(whole)
    head = FORMS[modes.form][2]
    found, wanted = (data[head : head + DESCRIPTOR].hex(" ") for data in (after, before))
    assert found == wanted, f"the block descriptor of MODE SENSE is {found}; it was {wanted}"
    assert modes.unit.capacity16().good_data() == capacity, "READ CAPACITY(16) returns other data than before"


def forms(case: str) -> pytest.MarkDecorator:
    """Parametrize ``modes`` by both forms."""
    return pytest.mark.parametrize(
        "modes",
        [pytest.param(form, marks=pytest.mark.case(f"{case}-{form}")) for form in FORMS],
        indirect=True,
    )


@forms("SCS-MSEL-BLOCK")
@pytest.mark.case(
    level="SHOULD", kills=("select-block-refused", "select-block-changes"), builds_on=("SCS-MSEL-01",)
)
def test_mode_select_takes_what_mode_sense_returned_with_its_block_descriptor(modes):
    """The whole list, and the descriptor alone."""
    whole = modes.listed()
    for data in (whole, whole[: FORMS[modes.form][2] + DESCRIPTOR]):
        with unchanged(modes):
            answer = modes.select(data)
            assert answer.good, f"{answer}: {data.hex(' ')} are the current values"
            assert modes.listed() == whole, f"{answer}, and other values: {modes.listed().hex(' ')}"


@forms("SCS-MSEL-BLOCK-PAGE")
@pytest.mark.case(kills=("select-block-page-ignored",), builds_on=("SCS-MSEL-01",))
def test_a_page_behind_a_block_descriptor_is_set(modes):
    """A bit that is changeable: after GOOD MODE SENSE returns its new value."""
    at = FORMS[modes.form][2] + DESCRIPTOR + BITS[modes.page][0]
    bit = BITS[modes.page][1]
    mask, whole = modes.sense(control=1), modes.listed()
    if not mask[at] & bit:
        pytest.skip(f"bit {bit:02x}h of byte 2 of page {modes.page:02x}h is not changeable")
    new = whole[:at] + bytes((whole[at] ^ bit,)) + whole[at + 1 :]
    with unchanged(modes):
        answer = modes.select(new)
        if not answer.good:
            pytest.skip(f"{answer}: refused, which SCS-MSEL-BLOCK is about")
        found = modes.listed()
    assert found == new, f"{answer}, and MODE SENSE returns {found.hex(' ')}; {new.hex(' ')} were sent"


@forms("SCS-MSEL-BLOCK-CUT")
@pytest.mark.case(
    section="SPC-4 MODE SELECT, PARAMETER LIST LENGTH",
    kills=("select-block-cut-good",),
    builds_on=("SCS-MSEL-04",),
)
def test_a_list_that_ends_within_its_block_descriptor_is_refused(modes):
    """It changes nothing, as any list that is cut."""
    head, whole = FORMS[modes.form][2], modes.listed()
    if not modes.select(whole).good:
        pytest.skip("a list with a block descriptor is refused (SCS-MSEL-BLOCK)")
    for size in (head, head + 1, head + DESCRIPTOR - 1):
        with unchanged(modes):
            answer = modes.select(whole[:size])
            assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR), (
                f"{answer}: the list has {size} bytes; the header and the block descriptor have "
                f"{head + DESCRIPTOR}"
            )
