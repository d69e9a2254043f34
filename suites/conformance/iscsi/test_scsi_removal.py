"""PREVENT ALLOW MEDIUM REMOVAL (SPC-4), and an eject by START STOP UNIT with LOEJ (SBC-3).

Both are optional. A unit without a removable medium (RMB is 0) may have the first, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PREVENT ALLOW MEDIUM REMOVAL", level="MUST"),
]

RMB = 0x80
"""Of byte 1 of standard INQUIRY data."""
PREVENT, ALLOW = 1, 0
ATTEMPTS = 200
"""TEST UNIT READY commands after which a unit that was loaded is taken not to become ready (chosen)."""


def prevent(unit: LogicalUnit, value: int = PREVENT) -> None:
    """Prevent or allow the removal; skip if the device server has no such command, or not this value."""
    answer = offered(unit.run(c.PREVENT_ALLOW_MEDIUM_REMOVAL, prevent=value))
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    assert answer.good, answer


def eject(unit: LogicalUnit) -> ScsiResult:
    """Eject the medium; skip if the device server has no such command, or not with LOEJ."""
    answer = offered(unit.run(c.START_STOP_UNIT, loej=1, start=0))
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    return answer


def load(unit: LogicalUnit) -> ScsiResult:
    """Load the medium, and wait until the unit is ready or not going to be; return the last result."""
    unit.run(c.START_STOP_UNIT, loej=1, start=1)
    for _ in range(ATTEMPTS):
        ready = unit.test_unit_ready()
        if not ready.check(SenseKey.UNIT_ATTENTION) and not ready.check(SenseKey.NOT_READY):
            break
    return ready


def prevented(answer: ScsiResult) -> bool:
    """Whether an eject was refused because of a prevention."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.MEDIUM_REMOVAL_PREVENTED)


def stays(unit: LogicalUnit, why: str) -> None:
    """Assert that an eject is refused, and that the unit is ready."""
    answer = eject(unit)
    assert prevented(answer), f"{answer}: an eject; {why}"
    ready = unit.test_unit_ready()
    assert ready.good, f"{ready}, after an eject that was refused"


@pytest.fixture
def removable(two, facts, scratch, pytestconfig) -> Iterator[tuple[LogicalUnit, LogicalUnit]]:
    """Yield the unit through two nexuses; skip if its medium is not removable. Load the medium at the end."""
    own, other = two
    if not own.inquiry().good_data()[1] & RMB:
        pytest.skip("RMB is 0: the unit has no removable medium")
    assert facts.capacity.blocks >= scratch.count
    try:
        yield own, other
    finally:
        for unit in two:
            unit.run(c.PREVENT_ALLOW_MEDIUM_REMOVAL, prevent=ALLOW)
        ready = load(own)
        other.clear_attentions()
        if not ready.good:
            stop_run(
                pytestconfig,
                f"SCS-PREVENT: the unit is not ready after an eject and a load ({ready}). Load its medium at "
                "the target, then run again",
            )


@pytest.mark.case("SCS-PREVENT-READY", kills=("prevent-not-ready",))
def test_a_unit_whose_removal_is_prevented_works_as_before(unit, scratch):
    """Prevent, prevent again, allow, and allow again: each is good, and blocks are written and read."""
    for seed, value in enumerate((PREVENT, PREVENT, ALLOW, ALLOW)):
        prevent(unit, value)
        ready = unit.test_unit_ready()
        assert ready.good, f"{ready}, after PREVENT ALLOW MEDIUM REMOVAL with PREVENT {value}"
        data = scratch.pattern(1, seed=310 + seed)
        written = unit.write(scratch.lba, data)
        assert written.good, f"{written}, after PREVENT {value}"
        assert unit.read(scratch.lba).data == data, f"other data after PREVENT {value}"


@pytest.mark.exclusive  # a broken unit ejects its medium
@pytest.mark.case("SCS-PREVENT-EJECT", kills=("prevent-ignored", "prevent-own-eject"))
def test_no_nexus_ejects_a_medium_whose_removal_one_prevents(removable):
    """Neither another nexus nor the one that prevents it."""
    own, other = removable
    prevent(own)
    stays(other, "another nexus prevents the removal")
    stays(own, "this nexus prevents the removal")


@pytest.mark.exclusive
@pytest.mark.case(
    "SCS-PREVENT-TWO", kills=("allow-for-all", "prevent-ignored"), builds_on=("SCS-PREVENT-EJECT",)
)
def test_a_medium_is_kept_until_each_nexus_that_prevents_its_removal_allows_it(removable):
    own, other = removable
    prevent(own)
    prevent(other)
    prevent(own, ALLOW)
    stays(own, "the other nexus has not allowed the removal")
    prevent(other, ALLOW)
    answer = eject(own)
    assert answer.good, f"{answer}: an eject, after each nexus has allowed the removal"


@pytest.mark.exclusive
@pytest.mark.case(
    "SCS-PREVENT-ALLOW",
    section="SPC-4 PREVENT ALLOW MEDIUM REMOVAL, SBC-3 START STOP UNIT, LOEJ",
    kills=("allow-ignored", "ejected-ready", "load-other-data"),
    builds_on=("SCS-PREVENT-EJECT",),
)
def test_a_medium_is_ejected_after_it_was_allowed_and_has_its_data_when_it_is_loaded(removable, scratch):
    """An ejected unit is not ready, for any nexus: MEDIUM NOT PRESENT, or what else NOT READY has."""
    own, other = removable
    data = scratch.pattern(2, seed=320)
    written = own.write(scratch.lba, data)
    assert written.good, written
    prevent(own)
    prevent(own, ALLOW)
    answer = eject(own)
    assert answer.good, f"{answer}: an eject, after its nexus has allowed the removal"
    for unit in (own, other):
        unit.clear_attentions()
        read = unit.read(scratch.lba, 2)
        assert read.check(SenseKey.NOT_READY), f"{read}: a READ of a medium that was ejected"
        ready = unit.test_unit_ready()
        assert ready.check(SenseKey.NOT_READY), f"{ready}, after an eject"
    ready = load(own)
    assert ready.good, f"{ready}, after a load"
    other.clear_attentions()
    for unit in (own, other):
        read = unit.read(scratch.lba, 2)
        assert read.good, f"{read}, after a load"
        assert read.data == data, "other data after an eject and a load"


@pytest.mark.exclusive
@pytest.mark.parametrize("end", [
    pytest.param("logout", marks=pytest.mark.case("SCS-PREVENT-LOGOUT", kills=("prevent-outlives-logout",))),
    pytest.param("reset", marks=pytest.mark.case("SCS-PREVENT-RESET", kills=("prevent-outlives-reset",))),
])  # fmt: skip
@pytest.mark.case(level="SHOULD", builds_on=("SCS-PREVENT-EJECT", "SCS-PREVENT-ALLOW"))
def test_a_prevention_ends_with_its_nexus_and_with_a_reset(removable, connections, end):
    own, other = removable
    third = connections.login("third")
    prevent(LogicalUnit(third))
    stays(other, "a third nexus prevents the removal")
    if end == "logout":
        third.logout()
        third.close()
    elif own.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:  # type: ignore[attr-defined]
        pytest.skip("LOGICAL UNIT RESET is not complete (ISC-TMF-04)")
    for unit in (own, other):
        unit.clear_attentions()
    answer = eject(other)
    assert answer.good, f"{answer}: an eject, after the {end} that ends the prevention"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-PREVENT-{kind:d}", kills=("reservation-prevent",)))
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 reservations, allowed commands", builds_on=RESERVING)
def test_a_prevention_of_another_nexus_is_a_conflict_and_an_end_of_one_is_not(unreserved, kind):
    a, b = unreserved
    prevent(b, ALLOW)
    reserved(a, kind)
    try:
        claim(b.run(c.PREVENT_ALLOW_MEDIUM_REMOVAL, prevent=PREVENT), allowed=False)
        claim(b.run(c.PREVENT_ALLOW_MEDIUM_REMOVAL, prevent=ALLOW), allowed=True)
    finally:
        b.run(c.PREVENT_ALLOW_MEDIUM_REMOVAL, prevent=ALLOW)
