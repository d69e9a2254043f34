"""TARGET WARM RESET, if the target does it: what it ends and what it keeps (RFC 7143 11.5.1).

It is optional for a target to do it, and for an initiator to be allowed to. If it is reported as complete, it
is a reset of each logical unit.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.scsi.codes import PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING

from .optional_commands import reserve_6
from .test_task import result, send_asked, waiting_write

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


@pytest.mark.case("ISC-WARM-TASKS", section="RFC 7143 11.5.1, 4.2.3.3")
def test_a_warm_reset_ends_a_write_of_another_initiator(connections, scratch, observe):
    """A write whose data come after the response has no GOOD, and writes nothing.

    A target may wait for data of third parties before it responds (4.2.3.3); then nothing is judged.
    """
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("b")
    unit = LogicalUnit(other, block_size=scratch.block_size)
    before = unit.read(scratch.lba, 4).good_data()
    sent = other.send(TaskRequest(function=TaskFunction.TARGET_WARM_RESET, lun=other.lun))
    answers = [pdu for pdu in other.probe_alive().pdus if isinstance(pdu, TaskResponse)]
    other.validator.forget(sent.itt)
    session.validator.forget(command.itt)
    send_asked(session, command, scratch.pattern(4, seed=1201), r2t)
    after = session.probe_alive()
    if not answers or answers[0].response != TaskResult.COMPLETE:
        pytest.skip(f"no reset was done before the data came: {[result(one) for one in answers]}")
    observe(str(after))
    ended = [pdu.status for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    assert 0 not in ended, f"the write of another initiator ended with GOOD after the reset: {after}"
    unit.clear_attentions()
    assert unit.read(scratch.lba, 4).good_data() == before, "data that came after a reset were written"


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
