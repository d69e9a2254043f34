"""RESERVE(10) and RELEASE(10) (SPC-2): a reservation of the whole unit, as those of 6 bytes make.

Both commands are optional, and obsolete since SPC-3. Third-party reservations are not tested.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrType
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import RESERVING, claim, reserved
from storagetest.wire.scsi.seldom_cdb import RELEASE_10, RESERVE_10

from .test_reservation_limits import READERS, WRITERS, excluded

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-2 RESERVE(10)", level="MUST", builds_on=()),
]


@pytest.fixture
def ten(not_reserved) -> Iterator[tuple[LogicalUnit, LogicalUnit]]:
    """Reserve the unit for the first of two nexuses with RESERVE(10); release it at the end."""
    a, b = not_reserved
    answer = offered(a.run(RESERVE_10))
    assert answer.good, answer
    try:
        yield a, b
    finally:
        a.clear_attentions()
        a.run(RELEASE_10)


@pytest.mark.case("SCS-R10-01", kills=("reserve10-ignored",))
def test_a_unit_reserved_with_reserve_10_is_the_reservers_alone(ten, scratch):
    """Each command that reads or writes of another nexus is a conflict, and so is TEST UNIT READY."""
    a, b = ten
    assert a.write(scratch.lba, scratch.pattern(1)).good
    excluded(b, scratch, (*WRITERS, *READERS))
    claim(b.test_unit_ready(), allowed=False)
    assert a.read(scratch.lba).good_data() == scratch.pattern(1), "written against the reservation"


@pytest.mark.case("SCS-R10-RESERVE", kills=("reserve10-taken",), builds_on=("SCS-R10-01",))
def test_a_reservation_is_not_taken_by_another_nexus(ten, scratch):
    """By RESERVE(10), and by RESERVE(6) if the unit has it; the first nexus keeps it."""
    a, b = ten
    claim(b.run(RESERVE_10), allowed=False)
    answer = b.run(c.RESERVE_6)
    if not answer.unsupported:
        claim(answer, allowed=False)
    claim(a.run(RESERVE_10), allowed=True)
    claim(a.write(scratch.lba, scratch.pattern(1)), allowed=True)


@pytest.mark.case("SCS-R10-LOOK", kills=("reserve10-look",))
def test_inquiry_is_allowed_under_reserve_10(ten):
    """SCS-R6-LOOK has the other commands that are allowed."""
    answer = ten[1].inquiry()
    assert answer.good, answer


@pytest.mark.case(
    "SCS-R10-RELEASE", section="SPC-2 RELEASE(10)", kills=("release10-ignored",), builds_on=("SCS-R10-01",)
)
def test_release_10_of_the_reserver_frees_the_unit(ten, scratch):
    a, b = ten
    claim(a.run(RELEASE_10), allowed=True)
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)
    claim(b.run(RELEASE_10), allowed=True)  # of a unit that is not reserved


@pytest.mark.case(
    "SCS-R10-OTHERS-RELEASE",
    section="SPC-2 RELEASE(10)",
    kills=("release10-of-another",),
    builds_on=("SCS-R10-01",),
)
def test_release_10_of_another_nexus_releases_nothing(ten, scratch):
    """It ends in GOOD or in a conflict."""
    a, b = ten
    answer = b.run(RELEASE_10)
    assert answer.good or answer.conflict, answer
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
    claim(a.write(scratch.lba, scratch.pattern(1)), allowed=True)


@pytest.mark.case("SCS-R10-RESET", kills=("reserve10-outlives-reset",), builds_on=("SCS-R10-01",))
def test_a_logical_unit_reset_ends_the_reservation(ten, scratch):
    a, b = ten
    if b.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
        pytest.skip("LOGICAL UNIT RESET is not done (ISC-TMF-04)")
    for unit in (a, b):
        unit.clear_attentions()
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)


@pytest.mark.case(
    "SCS-R10-PERSISTENT",
    section="SPC-4 exceptions to RESERVE(10)",
    kills=("reserve10-taken",),
    builds_on=RESERVING,
)
def test_reserve_10_under_a_persistent_reservation_is_a_conflict(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    claim(offered(b.run(RESERVE_10)), allowed=False)
