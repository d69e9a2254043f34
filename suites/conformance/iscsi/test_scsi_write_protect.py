"""SWP of the Control mode page (SPC-4): each command that writes is refused, whichever nexus sends it.

A unit whose SWP is not changeable is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_reservation_limits import WRITERS, access
from .test_scsi_edges import CONTROL, current_page, mode_select, selectable_page
from .test_scsi_inquiry import mode_sense
from .test_scsi_mode_masks import CHANGEABLE

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.exclusive,  # no initiator may write meanwhile
    pytest.mark.case(
        section="SPC-4 Control mode page, SWP",
        level="MUST",
        builds_on=("SCS-MSEL-01", "SCS-MASK-BITS-CONTROL"),
    ),
]

SWP, AT = 0x08, 4 + 4
"""A bit of byte 4 of the page; the parameter list has a header of four bytes before the page."""
WP = 0x80
"""Of the DEVICE-SPECIFIC PARAMETER of the mode parameter header (SBC-3)."""


@pytest.fixture
def protected(two, scratch, pytestconfig) -> Iterator[tuple[LogicalUnit, LogicalUnit]]:
    """Write the pattern of seed 0, set SWP, and yield the unit through two nexuses; clear SWP at the end."""
    own, other = two
    before, mask = selectable_page(own, CONTROL), current_page(own, CONTROL, control=CHANGEABLE)
    if len(mask) <= AT or not mask[AT] & SWP or before[AT] & SWP:
        pytest.skip(f"SWP is not changeable, or is set: {mask.hex()}")
    written = own.write(scratch.lba, scratch.pattern(1))
    assert written.good, written
    answer = mode_select(own, before[:AT] + bytes((before[AT] | SWP,)) + before[AT + 1 :])
    try:
        assert answer.good, f"{answer}: SWP is changeable"
        other.clear_attentions()
        yield own, other
    finally:
        own.clear_attentions()
        mode_select(own, before)
        other.clear_attentions()
        if current_page(own, CONTROL) != before:
            stop_run(pytestconfig, "SCS-SWP: SWP of the Control mode page stays set: clear it at the target")


NAMES = {
    command: command.name.replace("WRITE AND VERIFY", "WVER").replace("COMPARE AND WRITE", "CAW")
    .replace("WRITE SAME", "SAME").replace("(", "-").replace(")", "")
    for command in WRITERS
}  # fmt: skip


@pytest.mark.parametrize("command", [
    pytest.param(command, id=name.lower(), marks=pytest.mark.case(f"SCS-SWP-{name}", kills=kills))
    for command, name, kills in (
        (one, NAMES[one], ("swp-ignored",) if one.name.startswith("WRITE(") else ("swp-of-writes-alone",))
        for one in WRITERS
    )
])  # fmt: skip
def test_each_command_that_writes_is_refused_with_swp(protected, scratch, command):
    """DATA PROTECT, through the nexus that set SWP and through another, and the block stays."""
    for nexus in protected:
        answer = offered(access(nexus, scratch, command))
        assert answer.check(SenseKey.DATA_PROTECT), f"{answer}: SWP of the Control mode page is 1"
        read = nexus.read(scratch.lba)
        assert read.good, f"{read}: SWP is no reason to refuse a READ"
        assert read.data == scratch.pattern(1), f"{answer}, but the block has changed: SWP is 1"


@pytest.mark.parametrize("command", [
    pytest.param(c.MODE_SENSE_6, id="6", marks=pytest.mark.case("SCS-SWP-WP-6")),
    pytest.param(c.MODE_SENSE_10, id="10", marks=pytest.mark.case("SCS-SWP-WP-10")),
])  # fmt: skip
@pytest.mark.case(kills=("swp-without-wp",))
def test_wp_of_the_header_is_set_with_swp(protected, command):
    for nexus in protected:
        answer = offered(mode_sense(nexus, command, CONTROL))
        assert answer.good, answer
        flags = answer.data[2 if command is c.MODE_SENSE_6 else 3]
        assert flags & WP, f"{answer}: SWP is 1, and the DEVICE-SPECIFIC PARAMETER is {flags:02x}h"


@pytest.mark.case("SCS-SWP-CLEAR", kills=("swp-stays",), builds_on=("SCS-SWP-WRITE-16",))
def test_blocks_are_written_again_after_swp_was_cleared(protected, scratch):
    own, other = protected
    page = selectable_page(own, CONTROL)
    answer = mode_select(own, page[:AT] + bytes((page[AT] & ~SWP,)) + page[AT + 1 :])
    assert answer.good, answer
    other.clear_attentions()
    for seed, nexus in enumerate((own, other), 1570):
        data = scratch.pattern(1, seed=seed)
        written = nexus.write(scratch.lba, data)
        assert written.good, f"{written}: SWP was cleared"
        assert nexus.read(scratch.lba).data == data
