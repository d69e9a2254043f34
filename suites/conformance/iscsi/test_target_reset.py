"""TARGET WARM RESET, if the target does it: what it ends and what it keeps (RFC 7143 11.5.1).

It is optional for a target to do it, and for an initiator to be allowed to. If it is reported as complete, it
is a reset of each logical unit.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.scsi.codes import PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING

from .optional_commands import reserve_6
from .test_task import result

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="RFC 7143 11.5.1",
        level="MUST",
        kills=("warm-reset-not-done",),
        builds_on=("ISC-TMF-16",),
    ),
]


def reset(session: Initiator) -> None:
    """Reset the target; skip if it is not done."""
    answer = session.task(TaskFunction.TARGET_WARM_RESET)
    if answer.response != TaskResult.COMPLETE:
        pytest.skip(f"TARGET WARM RESET: {result(answer)}")


@pytest.mark.case("ISC-WARM-ATTENTION", section="SAM-5 5.14, RFC 7143 11.5.1")
def test_a_warm_reset_is_reported_to_each_other_initiator(connections, scratch):
    first, *others = (LogicalUnit(connections.login(name)) for name in "abc")
    assert scratch.count
    for turn in (1, 2):
        reset(first.runner)
        for number, unit in enumerate(others):
            answer = unit.test_unit_ready()
            assert answer.check(SenseKey.UNIT_ATTENTION), (
                f"{answer}: TARGET WARM RESET {turn} came before, of another nexus; initiator {number + 2}"
            )
            unit.clear_attentions()
        first.clear_attentions()


@pytest.mark.case("ISC-WARM-RESERVE-6", section="SPC-2 RESERVE(6), RFC 7143 11.5.1", builds_on=("SCS-R6-03",))
def test_a_warm_reset_ends_reserve_6(not_reserved):
    first, second = not_reserved
    reserve_6(first)
    assert second.test_unit_ready().conflict, "RESERVE(6) of another nexus excludes no command"
    reset(second.runner)
    second.clear_attentions()
    answer = second.test_unit_ready()
    assert answer.good, f"{answer}: a reset ends RESERVE(6)"


@pytest.mark.case(
    "ISC-WARM-KEYS",
    section="SPC-4 persistent reservations, RFC 7143 11.5.1",
    kills=("warm-reset-clears-keys",),
    builds_on=(*RESERVING, "SCS-PR-76"),
)
def test_registrations_and_the_reservation_outlive_a_warm_reset(unreserved):
    first, second = unreserved
    assert first.register(KEY_A).good
    assert first.reserve(PrType.WRITE_EXCLUSIVE, KEY_A).good
    reset(second.runner)
    for unit in (first, second):
        unit.clear_attentions()
    keys, held = first.keys().keys, first.reservation()
    assert keys == (KEY_A,), f"the keys are {[f'{key:x}' for key in keys]} after a reset; one was {KEY_A:x}"
    assert held.type == PrType.WRITE_EXCLUSIVE, f"the reservation is {held} after a reset"
