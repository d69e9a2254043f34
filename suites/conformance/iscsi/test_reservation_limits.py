"""What a reservation excludes, and requests that change none (SPC-4, SBC-3); RESERVE(6)."""

from __future__ import annotations

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.iscsi.optional_commands import reserve_6
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import out_list

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PERSISTENT RESERVE OUT", level="MUST", builds_on=("SCS-PR-36",)),
]

WRITERS = (
    *(c.WRITE_6, c.WRITE_10, c.WRITE_12, c.WRITE_16, c.ORWRITE_16),
    *(c.WRITE_AND_VERIFY_10, c.WRITE_AND_VERIFY_12, c.WRITE_AND_VERIFY_16),
    *(c.WRITE_SAME_10, c.WRITE_SAME_16, c.UNMAP, c.COMPARE_AND_WRITE),
)
READERS = (c.READ_6, c.READ_10, c.READ_12, c.READ_16, c.VERIFY_10, c.VERIFY_12, c.VERIFY_16)


def access(unit: LogicalUnit, scratch, command) -> ScsiResult:
    """Run ``command`` on the first block; what it writes is the pattern of seed 9."""
    data = scratch.pattern(1, seed=9)
    if command is c.UNMAP:
        return unit.unmap((scratch.lba, 1))
    if command is c.COMPARE_AND_WRITE:
        return unit.compare_and_write(scratch.lba, scratch.pattern(1), data)
    if command in WRITERS:
        return unit.run(command, data=data, lba=scratch.lba, blocks=1)
    return unit.run(
        command, read=scratch.block_size if "READ" in command.name else 0, lba=scratch.lba, blocks=1
    )


def excluded(unit: LogicalUnit, scratch, commands) -> None:
    """Claim that ``unit`` is refused those of ``commands`` that the target supports, one at least."""
    answers = [access(unit, scratch, command) for command in commands]
    supported = [answer for answer in answers if not answer.unsupported]
    assert supported, f"none of the commands is supported: {answers[0]}"
    for answer in supported:
        claim(answer, allowed=False)


@pytest.mark.case(
    "SCS-PR-61",
    section="SBC-3 reservations",
    builds_on=RESERVING,
    kills=("reservation-other-writes", "reservation-verify"),
)
def test_no_command_that_writes_passes_a_write_exclusive_reservation(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert a.write(scratch.lba, scratch.pattern(1)).good
    excluded(b, scratch, WRITERS)
    assert a.read(scratch.lba).data == scratch.pattern(1), "written against the reservation"


@pytest.mark.case(
    "SCS-PR-62",
    section="SBC-3 reservations",
    builds_on=RESERVING,
    kills=("reservation-verify", "reservation-read"),
)
def test_no_command_that_reads_passes_an_exclusive_access_reservation(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    excluded(b, scratch, READERS)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(2, marks=pytest.mark.case("SCS-PR-63", kills=("pr-type-undefined",))),
        pytest.param(9, marks=pytest.mark.case("SCS-PR-64", kills=("pr-type-undefined",))),
        pytest.param(15, marks=pytest.mark.case("SCS-PR-65", kills=("pr-type-undefined",))),
    ],
)
@pytest.mark.case(section="SPC-4 RESERVE, persistent reservation types", level="MUST")
def test_a_type_that_is_not_defined_is_not_reserved(unreserved, kind):
    a, _ = unreserved
    assert a.register(KEY_A).good
    answer = a.reserve_out(PrOut.RESERVE, key=KEY_A, type=kind)
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; the type {kind} is reserved or obsolete"
    assert not a.reservation().held, f"the type {kind} was reserved"


@pytest.mark.case("SCS-PR-66", section="SPC-4 PERSISTENT RESERVE IN", kills=("pr-in-any-action",))
def test_a_service_action_of_reserve_in_that_is_not_defined_is_an_invalid_field(unreserved):
    a, _ = unreserved
    for action in (0x04, 0x0F, 0x1F):
        answer = a.run(c.PERSISTENT_RESERVE_IN, read=64, service_action=action, allocation=64)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-PR-67", section="SPC-4 PERSISTENT RESERVE OUT", kills=("pr-out-any-action",))
def test_no_undefined_service_action_of_reserve_out_does_anything(unreserved):
    a, _ = unreserved
    for action in (0x09, 0x0A, 0x10, 0x1E):
        answer = a.run(
            c.PERSISTENT_RESERVE_OUT, data=out_list(0, KEY_A), service_action=action, type=1, allocation=24
        )
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer
        assert a.keys().keys == (), f"service action {action:02x}h registered a key"


@pytest.mark.parametrize(
    ("action", "key"),
    [
        pytest.param(PrOut.CLEAR, 0, marks=pytest.mark.case("SCS-PR-68", kills=("clear-unregistered",))),
        pytest.param(PrOut.CLEAR, 0x77, marks=pytest.mark.case("SCS-PR-69", kills=("clear-unregistered",))),
        pytest.param(PrOut.RELEASE, 0x77, marks=pytest.mark.case("SCS-PR-70", kills=("release-any-key",))),
        pytest.param(
            PrOut.PREEMPT, 0x77, marks=pytest.mark.case("SCS-PR-71", kills=("preempt-no-such-key",))
        ),
    ],
)
@pytest.mark.case(section="SPC-4 reservation key", level="MUST", builds_on=RESERVING)
def test_a_registrant_with_another_key_changes_nothing(unreserved, action, key):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    before = a.keys()
    claim(b.reserve_out(action, key=key, action_key=KEY_A, type=PrType.WRITE_EXCLUSIVE), allowed=False)
    assert a.keys() == before, "a refused service action changed the registrations or PRGENERATION"
    assert a.reservation().held


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(PrOut.CLEAR, marks=pytest.mark.case("SCS-PR-72", kills=("clear-unregistered",))),
        pytest.param(PrOut.RELEASE, marks=pytest.mark.case("SCS-PR-73", kills=("release-any-key",))),
        pytest.param(PrOut.PREEMPT, marks=pytest.mark.case("SCS-PR-74", kills=("preempt-no-such-key",))),
    ],
)
@pytest.mark.case(section="SPC-4 PERSISTENT RESERVE OUT, registration", level="MUST", builds_on=RESERVING)
def test_an_initiator_without_a_registration_changes_nothing(unreserved, action):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = b.reserve_out(action, key=KEY_A, action_key=KEY_A, type=PrType.WRITE_EXCLUSIVE)
    claim(answer, allowed=False)
    assert a.reservation().held, f"{answer}: it ended the reservation"
    assert a.keys().keys == (KEY_A,)


@pytest.mark.case(
    "SCS-PR-77", section="SPC-4 reservation key", kills=("release-any-key",), builds_on=RESERVING
)
def test_the_holder_does_not_release_with_another_key(unreserved):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    claim(a.release(PrType.WRITE_EXCLUSIVE, 0x77), allowed=False)
    assert a.reservation().held, "the reservation was released with another key"


@pytest.mark.case(
    "SCS-PR-75", section="SPC-4 PRGENERATION", builds_on=RESERVING, kills=("generation-failed",)
)
def test_a_refused_service_action_is_not_counted(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before = a.keys().generation
    claim(a.register(KEY_B, key=0x1234), allowed=False)
    claim(b.register(KEY_B, key=0x1234), allowed=False)
    assert a.keys().generation == before, (
        f"PRGENERATION {a.keys().generation}, and {before} before two refusals"
    )


@pytest.mark.case(
    "SCS-PR-76",
    section="SPC-4 persistent reservations, reset",
    builds_on=RESERVING,
    kills=("reset-clears-registrations",),
)
def test_registrations_and_the_reservation_outlive_a_logical_unit_reset(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    if b.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
        pytest.skip("LOGICAL UNIT RESET is not done (ISC-TMF-04)")
    for unit in (a, b):
        unit.clear_attentions()
    assert sorted(a.keys().keys) == sorted((KEY_A, KEY_B)), "a logical unit reset ended registrations"
    seen = a.reservation()
    assert (seen.held, seen.key) == (True, KEY_A), f"after a logical unit reset: {seen}"
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)


@pytest.mark.case("SCS-R6-01", section="SPC-2 RESERVE(6)", kills=("reserve6-ignored",), builds_on=())
def test_a_unit_reserved_with_reserve_6_is_the_reservers_alone_until_released(not_reserved, scratch):
    a, b = not_reserved
    reserve_6(a)
    try:
        claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
        claim(b.run(c.RESERVE_6), allowed=False)
        claim(a.write(scratch.lba, scratch.pattern(1)), allowed=True)
    finally:
        a.run(c.RELEASE_6)
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)


@pytest.mark.case(
    "SCS-R6-02", section="SPC-2 RESERVE(6)", level="SHOULD", kills=("release-ignored",), builds_on=()
)
def test_a_unit_reserved_with_reserve_6_is_free_when_the_session_ends(not_reserved, scratch):
    a, b = not_reserved
    reserve_6(a)
    a.runner.logout()
    b.clear_attentions()
    try:  # a target may respond before it has removed the session
        wait_until(lambda: b.write(scratch.lba, scratch.pattern(1)).good, 3.0, "the end of the reservation")
    except DeadlineExceeded:
        raise AssertionError("the unit is still reserved 3 s after the reserver's logout") from None


@pytest.mark.case(
    "SCS-R6-05",
    section="SPC-2 RELEASE(6)",
    kills=("release6-of-another",),
    builds_on=("SCS-R6-01",),
)
def test_release_6_of_another_nexus_releases_nothing(not_reserved, scratch):
    """It ends in GOOD or in a conflict. RELEASE(6) of a unit that is not reserved is GOOD."""
    a, b = not_reserved
    reserve_6(a)
    try:
        answer = b.run(c.RELEASE_6)
        assert answer.good or answer.conflict, answer
        claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
        claim(b.run(c.RESERVE_6), allowed=False)
        claim(a.write(scratch.lba, scratch.pattern(1)), allowed=True)
    finally:
        a.run(c.RELEASE_6)
    claim(b.run(c.RELEASE_6), allowed=True)


@pytest.mark.case(
    "SCS-R6-OTHERS-GOOD",
    section="SPC-2 RELEASE(6)",
    kills=("release6-conflict",),
    builds_on=("SCS-R6-01", "SCS-R6-05"),
)
def test_release_6_of_another_nexus_is_no_conflict(not_reserved):
    """A release of what another nexus has reserved is no error. SCS-R6-05 looks at what it releases."""
    a, b = not_reserved
    reserve_6(a)
    try:
        answer = b.run(c.RELEASE_6)
        assert answer.good, f"{answer}, of a nexus that has not reserved the unit"
    finally:
        a.run(c.RELEASE_6)


@pytest.mark.case(
    "SCS-PR-79",
    section="SPC-4 PREEMPT, unit attention",
    kills=("second-preempt-unreported",),
    builds_on=("SCS-PR-16",),
)
def test_each_preemption_is_reported_to_the_nexus_that_lost_its_registration(unreserved):
    """A nexus whose registration is preempted gets a unit attention, each time and on each nexus."""
    nexuses = dict(zip("ab", unreserved, strict=True))
    keys = {"a": KEY_A, "b": KEY_B}
    assert nexuses["a"].register(KEY_A).good
    for number, (victim, other) in enumerate(("ab", "ba", "ab"), start=1):
        answer = nexuses[other].register(keys[other])
        assert answer.good, answer
        nexuses[other].clear_attentions()
        answer = nexuses[other].preempt(PrType.WRITE_EXCLUSIVE, keys[other], keys[victim])
        assert answer.good, answer
        answer = nexuses[victim].test_unit_ready()
        assert answer.check(SenseKey.UNIT_ATTENTION, Asc.REGISTRATIONS_PREEMPTED), (
            f"{answer}: preemption {number}; the nexus has lost its registration"
        )
