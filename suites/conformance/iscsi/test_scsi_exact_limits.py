"""Limits of the Block Limits page: what is at the limit is done (SBC-3). Reserved power conditions.

What is over a limit is refused by other cases.
"""

from __future__ import annotations

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey

from .test_scsi_start_stop import ready

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 Block Limits", level="MUST"),
]

MOST_DESCRIPTORS = 4095
"""Descriptors of the longest list of UNMAP (SBC-3): its length has 16 bits."""


def _limits(facts):
    """Return the Block Limits page; skip without UNMAP, or without the page."""
    if facts.provisioning is None or not facts.provisioning.unmap or facts.limits is None:
        pytest.skip("UNMAP is not supported (LBPU is 0), or there is no Block Limits page")
    return facts.limits


@pytest.mark.case("SCS-EXACT-DESCRIPTORS", kills=("unmap-one-descriptor-less",), builds_on=("SCS-UNMAP-02",))
@pytest.mark.usefixtures("scratch")
def test_as_many_descriptors_as_the_unit_takes_are_taken(unit, facts):
    """MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT descriptors, each of no blocks."""
    most = _limits(facts).max_unmap_descriptors
    if not 0 < most <= MOST_DESCRIPTORS:
        pytest.skip(f"MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT is {most}")
    answer = unit.unmap(*[(0, 0)] * most)
    assert answer.good, f"{answer}: {most} descriptors, as MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT allows"


@pytest.mark.case("SCS-EXACT-UNMAP", kills=("unmap-one-block-less",), builds_on=("SCS-UNMAP-01",))
def test_as_many_blocks_as_one_unmap_may_have_are_taken(unit, facts, scratch):
    """MAXIMUM UNMAP LBA COUNT blocks in one descriptor, if the cases overwrite so many."""
    most = _limits(facts).max_unmap_blocks
    if not 0 < most <= scratch.count:
        pytest.skip(f"MAXIMUM UNMAP LBA COUNT is {most}; the cases overwrite {scratch.count} blocks")
    answer = unit.unmap((scratch.lba, most))
    assert answer.good, f"{answer}: {most} blocks, as MAXIMUM UNMAP LBA COUNT allows"


@pytest.mark.parametrize("command", [
    pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-EXACT-SAME-10")),
    pytest.param(c.WRITE_SAME_16, marks=pytest.mark.case("SCS-EXACT-SAME-16")),
])  # fmt: skip
@pytest.mark.case(kills=("same-one-block-less",))
def test_as_many_blocks_as_one_write_same_may_have_are_written(unit, facts, scratch, command):
    """MAXIMUM WRITE SAME LENGTH blocks, if the cases overwrite so many; the last of them is read."""
    most = facts.limits.max_write_same if facts.limits else 0
    if not 0 < most < scratch.count or (command is c.WRITE_SAME_10 and most > 0xFFFF):
        pytest.skip(f"MAXIMUM WRITE SAME LENGTH is {most}; the cases overwrite {scratch.count} blocks")
    block, after = scratch.pattern(1, seed=1701), scratch.lba + most
    behind = unit.read(after).good_data()
    answer = offered(unit.run(command, data=block, lba=scratch.lba, blocks=most))
    assert answer.good, f"{answer}: {most} blocks, as MAXIMUM WRITE SAME LENGTH allows"
    assert unit.read(after - 1).good_data() == block, f"{answer}, but the last of {most} blocks is another"
    assert unit.read(after).good_data() == behind, f"{answer}: the block behind {most} blocks has changed"


RESERVED = (0xC, 0xD, 0xE, 0xF)
"""Values of POWER CONDITION that no version of the standard defines."""


@pytest.mark.exclusive  # a broken unit stops
@pytest.mark.case(
    "SCS-POWER-RESERVED", section="SBC-3 START STOP UNIT, POWER CONDITION", kills=("power-any-condition",)
)
def test_a_reserved_power_condition_is_refused(session, unit, scratch, pytestconfig):
    """A reserved value of a field that is defined is an error (SPC-4 3.3); the unit stays ready."""
    assert scratch.count
    try:
        for value in RESERVED:
            answer = offered(unit.run(c.START_STOP_UNIT, power_condition=value, start=1, immed=1))
            assert answer.check(SenseKey.ILLEGAL_REQUEST), (
                f"{answer}: {value:X}h is a reserved value of POWER CONDITION"
            )
        assert unit.test_unit_ready().good, "the unit is not ready after a command that was refused"
    finally:
        unit.run(c.START_STOP_UNIT, start=1, immed=1)
        unit.clear_attentions()
        last = ready(unit, session.deadline)
        if not last.good:
            stop_run(pytestconfig, f"SCS-POWER: {last}. Start the unit at the target, then run again")
