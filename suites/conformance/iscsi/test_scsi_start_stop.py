"""START STOP UNIT (SBC-3): its IMMED bit, a power condition, and what a start leaves as it was.

The command is optional, and so are a start without IMMED and a stop: LIO has neither.
"""

from __future__ import annotations

import time

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 START STOP UNIT", level="MUST"),
]

ONLY_IMMED = "LIO takes a start with IMMED only"


def started(unit: LogicalUnit, **fields: int) -> None:
    """Send START STOP UNIT; skip if the device server does not have it, or not with these fields."""
    answer: ScsiResult = unit.run(c.START_STOP_UNIT, **fields)
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"{answer}: this form of the command is not supported")
    assert answer.good, answer


def ready(unit: LogicalUnit, deadline: float) -> ScsiResult:
    """Send TEST UNIT READY until it is not NOT READY, or ``deadline`` seconds are over; return the result."""
    end = time.monotonic() + deadline
    while (answer := unit.test_unit_ready()).check(SenseKey.NOT_READY) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize(
    "immed",
    [
        pytest.param(0, marks=pytest.mark.case("SCS-START-01", no_mutant_reason=ONLY_IMMED)),
        pytest.param(
            1,
            marks=pytest.mark.case(
                "SCS-START-02",
                kills=("start-immed-unanswered", "start-immed-not-ready", "start-immed-data-lost"),
            ),
        ),
    ],
)
def test_a_start_of_a_unit_that_is_started_changes_nothing(session, unit, scratch, immed):
    """With IMMED, status returns before the unit is ready; without it, with the unit ready."""
    data = scratch.pattern(2, seed=71)
    written = unit.write(scratch.lba, data)
    assert written.good, written
    started(unit, start=1, immed=immed)
    answer = ready(unit, session.deadline if immed else 0)
    assert answer.good, f"{answer}, after a start of a unit that was ready"
    assert scratch.read_back(session, 2) == data, "other data after a start"


@pytest.mark.exclusive  # the unit serves no other client while it is stopped
@pytest.mark.parametrize(
    "immed",
    [
        pytest.param(0, marks=pytest.mark.case("SCS-START-03", no_mutant_reason=ONLY_IMMED)),
        pytest.param(1, marks=pytest.mark.case("SCS-START-04", no_mutant_reason=ONLY_IMMED)),
    ],
)
def test_a_unit_that_was_stopped_is_ready_after_a_start(session, unit, scratch, pytestconfig, immed):
    """A stopped unit is not ready, or reads as before; after the start it has its data."""
    data = scratch.pattern(2, seed=72)
    written = unit.write(scratch.lba, data)
    assert written.good, written
    started(unit, start=0, immed=immed)
    try:
        read = unit.read(scratch.lba, 2)
        assert read.check(SenseKey.NOT_READY) or (read.good and read.data == data), f"{read}, after a stop"
    finally:
        again = unit.run(c.START_STOP_UNIT, start=1, immed=immed)
        answer = ready(unit, session.deadline)
        if not answer.good:
            stop_run(
                pytestconfig,
                f"SCS-START: the unit is not ready after a stop and a start ({again}, then {answer}). Start "
                "it at the target, then run again",
            )
    assert again.good, f"{again}, after a stop"
    assert scratch.read_back(session, 2) == data, "other data after a stop and a start"


ACTIVE = 1
"""POWER CONDITION: the active power condition, in which a unit processes commands (SBC-3)."""


@pytest.mark.exclusive  # a broken unit stops, or ejects its medium
@pytest.mark.parametrize("loej", [
    pytest.param(0, marks=pytest.mark.case("SCS-POWER-STOP", kills=("power-condition-stops",))),
    pytest.param(1, marks=pytest.mark.case("SCS-POWER-EJECT", kills=("power-condition-ejects",))),
])  # fmt: skip
@pytest.mark.case(section="SBC-3 START STOP UNIT, POWER CONDITION")
def test_start_and_loej_are_ignored_with_a_power_condition(session, unit, scratch, pytestconfig, loej):
    """POWER CONDITION is ACTIVE and START is 0: the unit is neither stopped nor ejected."""
    data = scratch.pattern(2, seed=73)
    written = unit.write(scratch.lba, data)
    assert written.good, written
    try:
        started(unit, power_condition=ACTIVE, start=0, loej=loej)
        answer = ready(unit, session.deadline)
        read = unit.read(scratch.lba, 2)
    finally:
        again = unit.run(c.START_STOP_UNIT, start=1, loej=loej, immed=1)
        unit.clear_attentions()
        last = ready(unit, session.deadline)
        if not last.good:
            stop_run(
                pytestconfig,
                f"SCS-POWER: the unit is not ready after a power condition and a start ({again}, then "
                f"{last}). Start it at the target, then run again",
            )
    where = f"after START STOP UNIT with POWER CONDITION {ACTIVE}h, START 0 and LOEJ {loej}"
    assert answer.good, f"{answer}, {where}: START and LOEJ are ignored"
    assert read.good, f"{read}, {where}"
    assert read.data == data, f"other data, {where}"
