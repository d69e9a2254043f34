"""REQUEST SENSE in the format that DESC selects (SPC-4, REQUEST SENSE and sense data)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.sense import Sense, decode_sense, layout_faults

from .test_scsi_edges import current_page, mode_select, selectable_page

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 REQUEST SENSE", level="MUST")]

LONGEST = 252
"""Allocation length that has space for all sense data (SPC-4 REQUEST SENSE)."""
RESET = 0x2900
"""Additional sense codes of a reset are 29h, with any qualifier (SPC-4)."""
CONTROL, D_SENSE = 0x0A, 0x04
"""The Control mode page (SPC-4), and the bit D_SENSE in its byte 2."""


def request_sense(unit: LogicalUnit, *, desc: int, allocation: int = LONGEST) -> ScsiResult:
    """Send REQUEST SENSE."""
    return unit.run(c.REQUEST_SENSE, read=allocation, desc=desc, allocation=allocation)


def _has_descriptors(unit: LogicalUnit) -> bool:
    """Whether the unit supports descriptor format: its D_SENSE is set, or can be."""
    for control in (0, 1):
        answer = unit.run(c.MODE_SENSE_6, read=255, page=CONTROL, page_control=control, dbd=1, allocation=255)
        if answer.good and len(answer.data) >= 7 and answer.data[6] & D_SENSE:
            return True
    return False


def _sense(unit: LogicalUnit, desc: int) -> ScsiResult:
    """Return the sense data in the format of ``desc``; skip if the unit has no descriptor format."""
    answer = request_sense(unit, desc=desc)
    asked = "descriptor format (72h)" if desc else "fixed format (70h)"
    if not answer.good or desc != decode_sense(answer.data).descriptor:
        if desc and not _has_descriptors(unit):
            pytest.skip(f"descriptor format is not supported (D_SENSE is 0, and not changeable): {answer}")
        assert answer.good, f"{answer}; it ends so for its own errors only, and {asked} is supported"
        raise AssertionError(f"{answer}: DESC {desc} is {asked}, but the data are {answer.data.hex()}")
    return answer


@pytest.mark.parametrize("desc", [
    pytest.param(0, marks=pytest.mark.case(
        "SCS-RSENSE-FIXED", kills=("request-sense-other-format", "request-sense-long"))),
    pytest.param(1, marks=pytest.mark.case(
        "SCS-RSENSE-DESC",
        kills=("request-sense-desc-ignored", "request-sense-desc-refused", "request-sense-desc-layout"))),
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-SENSE-03",))
def test_request_sense_returns_the_format_that_desc_selects(unit, desc):
    """NO SENSE may come with a code: of a power condition (5Eh), of an informational exception (0Bh, 5Dh)."""
    answer = _sense(unit, desc)
    faults = layout_faults(answer.data)
    assert not faults, f"{answer}: {'; '.join(faults)}: {answer.data.hex()}"
    sense = decode_sense(answer.data)
    assert sense.key == SenseKey.NO_SENSE, f"{answer}: {sense}; nothing is pending"


@pytest.mark.parametrize("desc", [
    pytest.param(0, marks=pytest.mark.case("SCS-RSENSE-CUT-FIXED", kills=("request-sense-not-cut",))),
    pytest.param(1, marks=pytest.mark.case("SCS-RSENSE-CUT-DESC", kills=("request-sense-desc-not-cut",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 REQUEST SENSE, allocation length", builds_on=("SCS-SENSE-03",))
def test_request_sense_is_cut_to_its_allocation_length(unit, desc):
    whole = _sense(unit, desc).data
    for allocation in (0, 1, 7, 8, 13, 17, 18):
        answer = request_sense(unit, desc=desc, allocation=allocation)
        assert answer.good, f"{answer}, and with {LONGEST} bytes it was GOOD"
        assert answer.data == whole[:allocation], f"{answer}: {answer.data.hex()}; the whole is {whole.hex()}"


@pytest.mark.parametrize("desc", [
    pytest.param(0, marks=pytest.mark.case("SCS-RSENSE-UA-FIXED", kills=("request-sense-attention-lost",))),
    pytest.param(1, marks=pytest.mark.case("SCS-RSENSE-UA-DESC", kills=("request-sense-desc-key",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 REQUEST SENSE, SAM-5 5.14", builds_on=("SCS-SENSE-03",))
def test_a_pending_unit_attention_is_returned_once_in_the_format_that_desc_selects(two, connections, desc):
    """That of a reset, which another nexus requests: in the data of REQUEST SENSE, and not again after it."""
    unit, other = two
    _sense(unit, desc)
    done = connections.login("reset").task(TaskFunction.LOGICAL_UNIT_RESET)
    if done.response != TaskResult.COMPLETE:
        pytest.skip(f"LOGICAL UNIT RESET: response {done.response}")
    answer = _sense(unit, desc)
    sense = decode_sense(answer.data)
    if sense.key == SenseKey.NO_SENSE and other.test_unit_ready().good:
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    assert (sense.key, sense.asc >> 8) == (SenseKey.UNIT_ATTENTION, RESET >> 8), (
        f"{answer}: {sense}; the unit attention of a reset is pending: {answer.data.hex()}"
    )
    faults = layout_faults(answer.data)
    assert not faults, f"{answer}: {'; '.join(faults)}: {answer.data.hex()}"
    assert _after(unit, desc) != sense, f"{sense} was returned by REQUEST SENSE, and is pending still"
    other.clear_attentions()


def _after(unit: LogicalUnit, desc: int) -> Sense:
    """Return the sense data that are pending now."""
    return decode_sense(_sense(unit, desc).data)


@pytest.mark.parametrize("desc", [
    pytest.param(0, marks=pytest.mark.case("SCS-RSENSE-CONTROL-FIXED", builds_on=("SCS-RSENSE-FIXED",))),
    pytest.param(1, marks=pytest.mark.case("SCS-RSENSE-CONTROL-DESC", builds_on=("SCS-RSENSE-DESC",))),
])  # fmt: skip
@pytest.mark.exclusive  # D_SENSE is that of every initiator
@pytest.mark.case(section="SPC-4 REQUEST SENSE, DESC", kills=("request-sense-by-d-sense",))
@pytest.mark.usefixtures("scratch")
def test_desc_alone_selects_the_format_whatever_d_sense_is(unit, desc):
    """D_SENSE is the format of the sense data that come with a status; REQUEST SENSE has DESC."""
    before, at = selectable_page(unit, CONTROL), 4 + 2
    if not current_page(unit, CONTROL, control=1)[at] & D_SENSE:
        pytest.skip("D_SENSE is not changeable")
    _sense(unit, desc)
    changed = before[:at] + bytes((before[at] ^ D_SENSE,)) + before[at + 1 :]
    try:
        answer = mode_select(unit, changed)
        assert answer.good, f"{answer}: D_SENSE is changeable"
        answer = request_sense(unit, desc=desc)
        assert answer.good, answer
        faults = layout_faults(answer.data)
        assert not faults, f"{answer}: {'; '.join(faults)}: {answer.data.hex()}"
        assert decode_sense(answer.data).descriptor == desc, (
            f"{answer}: DESC is {desc}, D_SENSE is {changed[at] >> 2 & 1}; the data are {answer.data.hex()}"
        )
    finally:
        mode_select(unit, before)
