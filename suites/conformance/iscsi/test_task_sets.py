"""Task management with several tasks outstanding: a function ends the tasks that it names, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.scsi.cdb import READ_10, VERIFY_10, WRITE_16, cdb
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.data import decode_luns
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_task import UNSUPPORTED, abort, is_r2t, result, send_asked, waiting_write
from .windows import skip_if_busy, with_room

if TYPE_CHECKING:
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.iscsi.pdu import ScsiCommand

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.5.1", level="MUST", builds_on=("ISC-TMF-02",)),
]

NO_TASK_SET = "the mutants' target does not do ABORT TASK SET: it is skipped there"
SOLICITED = {"ImmediateData": "No", "InitialR2T": "Yes"}


def statuses(
    session: Initiator, writes: dict[int, tuple[ScsiCommand, bytes]], request: TaskRequest, spared: set[int]
) -> tuple[str, dict[int, int]]:
    """Send ``request`` and the data of all ``writes`` as they are asked for.

    Return the result of the function, and the status of each write that ended, when the function and the
    ``spared`` writes have ended. A target may serve one write at a time, and the function after it.
    """
    sent, function, found = session.send(request), "", {}
    for pdu in session.responses("the response of the function and of each task that it does not name"):
        assert pdu is not None, "closed without the responses of a function and of the tasks that it spares"
        if isinstance(pdu, ReadyToTransfer) and (pdu.itt in spared or not function):
            command, data = writes[pdu.itt]
            end = pdu.buffer_offset + pdu.desired_length
            session.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
        elif isinstance(pdu, TaskResponse) and pdu.itt == sent.itt:
            function = result(pdu)
        elif isinstance(pdu, ScsiResponse):
            found[pdu.itt] = pdu.status
        if function and spared <= set(found):
            break
    return function, found


@pytest.mark.case("ISC-TMF-AMONG", kills=("abort-takes-neighbour",))
def test_abort_task_ends_one_of_several_writes(connections, scratch):
    """Three writes wait for their data. The second is aborted; the others end with GOOD and are written."""
    session = connections.login(offer=SOLICITED)
    with_room(session, 3)
    size, writes = scratch.block_size, {}
    places = [scratch.lba + 8 * at for at in range(3)]
    for at, lba in enumerate(places):
        data = scratch.pattern(4, seed=170 + at)
        command = session.start(cdb(WRITE_16, lba=lba, blocks=4), write=4 * size)
        writes[command.itt] = command, data
    first, aborted, third = writes
    function, found = statuses(session, writes, abort(writes[aborted][0]), {first, third})
    skip_if_busy(found[first], found[third])
    assert (found[first], found[third]) == (0, 0), (
        f"ABORT TASK of another write ended as {function}; the writes that it does not name ended with "
        f"status {found[first]:#x} and {found[third]:#x}"
    )
    session.probe_alive()
    session.validator.forget(aborted)
    unit = LogicalUnit(session, block_size=size)
    for lba, itt in ((places[0], first), (places[2], third)):
        assert unit.read(lba, 4).data == writes[itt][1], "a write that was not aborted was not written"


@pytest.mark.case("ISC-TMF-SET-ISID", no_mutant_reason=NO_TASK_SET, builds_on=("ISC-TMF-24",))
def test_abort_task_set_leaves_the_tasks_of_another_session_of_the_initiator(connections, scratch):
    """Two sessions of one name have different ISIDs: they are two I_T nexuses (RFC 7143 4.4.3.1)."""
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("a")
    if other.task(TaskFunction.ABORT_TASK_SET).response in UNSUPPORTED:
        pytest.skip("ABORT TASK SET is not supported")
    data = scratch.pattern(4, seed=173)
    send_asked(session, command, data, r2t)
    status = session.finish(command, data).status
    assert status == 0, f"status {status:#x} of a write, after ABORT TASK SET in another session"


@pytest.mark.case("ISC-TMF-AGAIN", kills=("second-function-refused",), builds_on=("ISC-TMF-04",))
def test_a_function_can_be_sent_again(session):
    for turn in (1, 2, 3):
        answer = session.task(TaskFunction.LOGICAL_UNIT_RESET)
        assert answer.response == TaskResult.COMPLETE, f"reset {turn} of the session: {result(answer)}"
        LogicalUnit(session).clear_attentions()


@pytest.mark.case(
    "ISC-TMF-QUEUED",
    section="RFC 7143 11.5, 11.6.1",
    kills=("function-queued-refused",),
    builds_on=("ISC-TMF-04",),
)
def test_a_function_that_is_not_immediate_is_done(session):
    """A target that resets the unit at once does so in the order of the commands, too."""
    answer = session.task(TaskFunction.LOGICAL_UNIT_RESET)
    if answer.response != TaskResult.COMPLETE:
        pytest.skip(f"an immediate reset is not done: {result(answer)} (ISC-TMF-04)")
    LogicalUnit(session).clear_attentions()
    answer = session.task(TaskFunction.LOGICAL_UNIT_RESET, immediate=False)
    assert answer.response == TaskResult.COMPLETE, (
        f"a reset that is not immediate: {result(answer)}; an immediate one was done"
    )
    LogicalUnit(session).clear_attentions()


@pytest.mark.case(
    "ISC-TMF-CLEAR-SET", section="SAM-5 5.14, RFC 7143 11.5.1", no_mutant_reason=NO_TASK_SET, builds_on=()
)
def test_a_task_that_another_initiator_clears_is_reported(connections, scratch, observe):
    """Either the task ends in a status (TAS), or the next command in a unit attention; or the task is done.

    It may be done if each nexus has a task set of its own (TST).
    """
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("b")
    sent = other.send(TaskRequest(function=TaskFunction.CLEAR_TASK_SET, lun=other.lun))
    other.probe_alive()  # the function is done, unless it waits for the data
    data = scratch.pattern(4, seed=174)
    asked = [r2t]
    while asked:
        send_asked(session, command, data, asked[0])
        after = session.probe_alive()
        asked = [pdu for pdu in after.pdus if is_r2t(pdu, command)]
    session.validator.forget(command.itt)
    other.validator.forget(sent.itt)
    ended = [pdu.status for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    if ended:
        observe(f"the task ended with status {ended[0]:#x}")
        return
    answer = LogicalUnit(session).test_unit_ready()
    observe(str(answer))
    assert answer.check(SenseKey.UNIT_ATTENTION), (
        f"{answer}: CLEAR TASK SET of another initiator has ended a write, which has no response"
    )


@pytest.mark.parametrize("function", [
    pytest.param(TaskFunction.LOGICAL_UNIT_RESET, id="unit", marks=pytest.mark.case(
        "ISC-TMF-RESET-OTHER", kills=("reset-spares-others",), builds_on=("ISC-TMF-04",))),
    pytest.param(TaskFunction.TARGET_WARM_RESET, id="target", marks=pytest.mark.case(
        "ISC-WARM-TASKS", kills=("warm-reset-not-done",), builds_on=("ISC-TMF-16",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.5.1, 4.2.3.3")
def test_a_reset_ends_a_write_of_another_initiator(connections, scratch, observe, function):
    """A write whose data come after the response to the reset has no GOOD, and writes nothing.

    A target may wait for data of third parties before it responds (4.2.3.3); then nothing is judged.
    """
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("b")
    unit = LogicalUnit(other, block_size=scratch.block_size)
    before = unit.read(scratch.lba, 4).good_data()
    sent = other.send(TaskRequest(function=function, lun=other.lun))
    answers = [pdu for pdu in other.probe_alive().pdus if isinstance(pdu, TaskResponse)]
    other.validator.forget(sent.itt)
    session.validator.forget(command.itt)
    send_asked(session, command, scratch.pattern(4, seed=311), r2t)
    after = session.probe_alive()
    if not answers or answers[0].response != TaskResult.COMPLETE:
        pytest.skip(f"no reset was done before the data came: {[result(one) for one in answers]}")
    observe(str(after))
    ended = [pdu.status for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    assert 0 not in ended, f"the write of another initiator ended with GOOD after the reset: {after}"
    unit.clear_attentions()
    now = unit.read(scratch.lba, 4).good_data()
    assert now == before, "data that came after a reset were written"


@pytest.fixture
def resets(connections, facts, scratch) -> tuple[LogicalUnit, LogicalUnit]:
    """Return the unit through two sessions of one initiator name, if a reset is reported at all.

    Skip if another initiator gets no unit attention for it.
    """
    size = facts.capacity.block_size
    first, second, third = (LogicalUnit(connections.login(name), block_size=size) for name in "aab")
    assert scratch.count
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if third.test_unit_ready().good:
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    for unit in (first, second, third):
        unit.clear_attentions()
    return first, second


@pytest.mark.case(
    "ISC-TMF-UA-ISID",
    section="SAM-5 5.14, RFC 7143 4.4.3.1",
    kills=("attention-by-name",),
    builds_on=("SCS-UA-AGAIN",),
)
def test_a_reset_is_reported_to_another_session_of_the_initiator(resets):
    """Two sessions of one name have different ISIDs: they are two I_T nexuses (RFC 7143 4.4.3.1)."""
    first, second = resets
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    answer = second.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION), f"{answer}: a reset came before, in another session"


@pytest.mark.case(
    "SCS-UA-WRITE",
    section="SAM-5 5.14",
    no_mutant_reason="a proxy has no CmdSN to send a command again",
    builds_on=("ISC-TMF-UA-ISID",),
)
def test_a_unit_attention_ends_a_write_and_a_read(resets, scratch):
    """The command is not executed: a block that is written keeps its data."""
    first, second = resets
    old, new = scratch.pattern(1, seed=175), scratch.pattern(1, seed=176)
    assert first.write(scratch.lba, old).good
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    written = second.write(scratch.lba, new)
    assert written.check(SenseKey.UNIT_ATTENTION), f"{written}: a reset came before"
    first.clear_attentions()
    assert first.read(scratch.lba).data == old, f"{written}, and the block was written"
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    read = second.read(scratch.lba)
    assert read.check(SenseKey.UNIT_ATTENTION), f"{read}: a reset came before"


@pytest.fixture
def verify_of_another_unit(connections, portal, facts) -> tuple[Initiator, ScsiCommand, bytes]:
    """Start a VERIFY of another logical unit of the target, which waits for the data that the unit has.

    Nothing is written there. Skip if there is no other unit, or if it does not wait.
    """
    session = connections.login(offer=SOLICITED)
    listed = LogicalUnit(session).luns()
    found = decode_luns(listed.data) if listed.good else ()
    luns = [lun for lun in found if lun not in (flat_lun(portal.lun), 0)]
    if not luns:
        pytest.skip(f"{listed}: no logical unit but that of the cases and LUN 0")
    looker = connections.login("o")
    looker.lun = luns[0]
    other = LogicalUnit(looker, block_size=facts.capacity.block_size)
    other.clear_attentions()
    held = other.run(READ_10, read=other.block_size, lba=0, blocks=1)
    same = other.run(VERIFY_10, data=held.data, lba=0, blocks=1, bytchk=1)
    if not held.good or not same.good or len(held.data) != other.block_size:
        pytest.skip(f"another logical unit does not verify data: {held}, {same}")
    mine = LogicalUnit(session, block_size=other.block_size)
    session.lun, own = luns[0], session.lun
    mine.clear_attentions()
    block = cdb(VERIFY_10, lba=0, blocks=1, bytchk=1)
    command = session.start(block, write=len(held.data))
    session.lun = own
    return session, command, held.data


@pytest.mark.parametrize("function", [
    pytest.param(TaskFunction.ABORT_TASK_SET, marks=pytest.mark.case(
        "ISC-TMF-SET-UNIT", no_mutant_reason=NO_TASK_SET)),
    pytest.param(TaskFunction.LOGICAL_UNIT_RESET, marks=pytest.mark.case(
        "ISC-TMF-RESET-UNIT", kills=("reset-ends-every-task",))),
])  # fmt: skip
def test_a_function_leaves_the_tasks_of_another_logical_unit(verify_of_another_unit, scratch, function):
    """A VERIFY of another unit waits for its data; the function names the unit of the cases."""
    session, command, data = verify_of_another_unit
    assert scratch.count  # a reset needs a unit that may be erased
    request = TaskRequest(function=function, lun=session.lun)
    answer, found = statuses(session, {command.itt: (command, data)}, request, {command.itt})
    if answer != "COMPLETE":
        pytest.skip(f"{function.name}: {answer}")
    assert found[command.itt] == 0, (
        f"status {found[command.itt]:#x} of a command to another logical unit, after {function.name}"
    )
