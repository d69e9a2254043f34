"""Task management (RFC 7143 11.5, 11.6, 4.2.3; RFC 7144 6.3)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import (
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
)
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .absent_unit import absent_lun

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.5, 11.6", level="MUST")]

LIO_DEVIATES = "LIO breaks this rule itself"

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
UNSUPPORTED = (TaskResult.NOT_SUPPORTED, TaskResult.REJECTED)


def waiting_write(connections, scratch, letter: str = "a") -> tuple[Initiator, ScsiCommand, ReadyToTransfer]:
    """Log in and start a write that waits for its data."""
    scratch.require(4)
    session = connections.login(letter, offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    block = cdb(WRITE_10, lba=scratch.lba, blocks=4)
    return session, *session.start_write(block, 4 * scratch.block_size)


def end(
    session: Initiator, command: ScsiCommand, r2t: ReadyToTransfer, request: TaskRequest
) -> tuple[str, list[Pdu]]:
    """Send a task management request, then the data asked for before; return the result and what else came.

    An initiator answers each R2T of the task until the function completes (RFC 7143 4.2.3.3). The data follow
    when the target has had the time to carry out the function, so that their order is always the same.
    """
    sent = session.send(request)
    early = session.probe_alive().pdus
    answered = [pdu for pdu in early if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt]
    others = [pdu for pdu in early if pdu not in answered]
    for asked in (r2t, *(pdu for pdu in others if is_r2t(pdu, command))):
        send_zeroes(session, command, asked)
    for pdu in session.responses("the Task Management Response") if not answered else ():
        assert pdu is not None, "closed without a Task Management Response"
        if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt:
            answered.append(pdu)
            break
        others.append(pdu)
        if is_r2t(pdu, command):
            send_zeroes(session, command, pdu)
    session.validator.forget(command.itt)
    return result(answered[0]), others


def is_r2t(pdu: Pdu, command: ScsiCommand) -> bool:
    """Return whether ``pdu`` asks for data of ``command``."""
    return isinstance(pdu, ReadyToTransfer) and pdu.itt == command.itt


def send_asked(session: Initiator, command: ScsiCommand, data: bytes, r2t: ReadyToTransfer) -> None:
    """Send the part of ``data`` that an R2T asks for."""
    end_at = r2t.buffer_offset + r2t.desired_length
    session.send_data(command, data, start=r2t.buffer_offset, end=end_at, ttt=r2t.ttt)


def send_zeroes(session: Initiator, command: ScsiCommand, r2t: ReadyToTransfer) -> None:
    """Send zeroes for an R2T."""
    send_asked(session, command, bytes(r2t.buffer_offset + r2t.desired_length), r2t)


def assert_response_comes(session: Initiator, command: ScsiCommand, came: list[Pdu]) -> None:
    """Check that ``command`` has its response among ``came``, or gets it: a ping may overtake it."""
    if any(isinstance(pdu, ScsiResponse) and pdu.itt == command.itt for pdu in came):
        return
    for pdu in session.responses("the response of a task that an abort found no more"):
        assert pdu is not None, "closed without the response of a task that an abort found no more"
        if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt:
            return


def abort(command: ScsiCommand) -> TaskRequest:
    """Return the request that aborts ``command``."""
    return TaskRequest(
        function=TaskFunction.ABORT_TASK,
        lun=command.lun,
        referenced_itt=command.itt,
        ref_cmd_sn=command.cmd_sn,
    )


def result(answer: TaskResponse) -> str:
    """Return the name of a task management response."""
    names = {int(known): known.name for known in TaskResult}
    return names.get(answer.response, f"{answer.response}")


def abort_absent(session: Initiator) -> str:
    """Abort a task that does not exist; return the response, or skip on a target without ABORT TASK.

    Whether it has to have the function is SCS-TASKS-REPORTED's: SPC-4 lets a unit report that it does not.
    """
    session.ping(immediate=False)
    old = plus(session.numbers.cmd_sn, -1)
    found = result(session.task(TaskFunction.ABORT_TASK, referenced_itt=0x7777, ref_cmd_sn=old))
    if found == TaskResult.NOT_SUPPORTED.name:
        pytest.skip("the target does not support ABORT TASK (RFC 7143 11.6.1, response 5)")
    return found


@pytest.mark.case("ISC-TMF-01", section="RFC 7143 11.6.1 c", no_mutant_reason=LIO_DEVIATES)
def test_abort_of_an_absent_task_reports_its_absence(session):
    found = abort_absent(session)
    assert found == TaskResult.TASK_DOES_NOT_EXIST.name, found


@pytest.mark.case(
    "ISC-TMF-02",
    section="RFC 7143 11.5.1, 11.6.1 a",
    kills=("abort-ignored", "abort-not-done", "abort-of-waiting-unsupported"),
)
def test_abort_task_ends_a_write_that_waits_for_data(connections, scratch):
    session, command, r2t = waiting_write(connections, scratch)
    result, others = end(session, command, r2t, abort(command))
    if result == TaskResult.NOT_SUPPORTED.name:
        session = connections.login("b")  # the write of the first one may be outstanding
        found = abort_absent(session)
        raise AssertionError(f"{result} for a task that waits for data, and {found} for one that is absent")
    if result == "TASK_DOES_NOT_EXIST":  # it ended before it could be aborted: then its response comes
        assert_response_comes(session, command, others)
        return
    assert result == "COMPLETE", result
    after = session.probe_alive()
    assert not any(pdu.itt == command.itt for pdu in after.pdus), f"the aborted task answers: {after}"


@pytest.mark.case("ISC-TMF-03", section="RFC 7143 11.6.1 b, 7.11", no_mutant_reason=LIO_DEVIATES)
def test_abort_of_a_command_that_has_not_come_yet_takes_its_cmd_sn_as_received(session):
    number = session.numbers.cmd_sn
    session.numbers.cmd_sn = plus(number, 1)  # the command itself got lost on its way
    answer = session.task(TaskFunction.ABORT_TASK, referenced_itt=0x7778, ref_cmd_sn=number)
    assert answer.response == TaskResult.COMPLETE, result(answer)
    assert session.ping().exp_cmd_sn == plus(number, 1)


@pytest.mark.case("ISC-TMF-04", section="RFC 7143 11.5.1, SAM-5 7.7", kills=("lu-reset-refused",))
def test_logical_unit_reset_completes(session):
    assert session.task(TaskFunction.LOGICAL_UNIT_RESET).response == TaskResult.COMPLETE


@pytest.mark.case(
    "ISC-TMF-05", section="RFC 7143 4.2.3.3, 11.5.1", no_mutant_reason="LIO breaks this rule itself, at times"
)
def test_logical_unit_reset_ends_a_write_that_waits_for_data(connections, scratch):
    session, command, r2t = waiting_write(connections, scratch)
    request = TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET, lun=session.lun)
    result, _ = end(session, command, r2t, request)
    assert result == "COMPLETE", result
    after = session.probe_alive()
    late = [pdu for pdu in after.pdus if pdu.itt == command.itt and isinstance(pdu, ScsiResponse)]
    assert all(pdu.status for pdu in late), (
        f"the write ended with GOOD after the response to its reset: {after}; 11.5.1: no response to a task "
        "that a function covers follows the function's response"
    )


@pytest.mark.case("ISC-TMF-06", section="SAM-5 5.14, 7.7", level="SHOULD", kills=("unit-attention-lost",))
def test_another_initiator_learns_of_a_logical_unit_reset_by_a_unit_attention(two, observe):
    first, second = two
    assert first.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response == TaskResult.COMPLETE
    answer = second.test_unit_ready()
    observe(str(answer))
    assert answer.check(SenseKey.UNIT_ATTENTION), answer
    assert answer.sense.asc >> 8 == 0x29, answer


@pytest.mark.case("ISC-TMF-07", section="SAM-5 5.14", kills=("unit-attention-twice",))
def test_a_unit_attention_is_reported_once(two):
    first, second = two
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    once = second.test_unit_ready()
    if not once.check(SenseKey.UNIT_ATTENTION):
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    again = second.test_unit_ready()
    assert again.sense != once.sense, f"the same unit attention was reported twice: {again}"


@pytest.mark.case("ISC-TMF-26", section="SAM-5 5.14", kills=("attention-for-one",))
def test_a_reset_is_reported_to_each_of_the_other_initiators(two, connections):
    first, second = two
    third = LogicalUnit(connections.login("c"))
    assert first.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response == TaskResult.COMPLETE
    answers = [unit.test_unit_ready() for unit in (second, third)]
    if all(answer.good for answer in answers):
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    for answer in answers:
        assert answer.check(SenseKey.UNIT_ATTENTION), f"{answer}; another initiator got a unit attention"


@pytest.mark.case(
    "ISC-TMF-08",
    section="SAM-5 5.14, SPC-4 INQUIRY",
    kills=("attention-cleared-by-inquiry", "attention-on-inquiry"),
    builds_on=("SCS-UA-AGAIN",),
)
def test_inquiry_and_report_luns_neither_report_nor_clear_a_unit_attention(two):
    """A first reset shows whether the target reports one; INQUIRY and REPORT LUNS follow the second."""
    first, second = two
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if second.test_unit_ready().good:
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    second.clear_attentions()
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    assert second.inquiry().good
    assert second.luns().good
    answer = second.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION), f"{answer}: a reset, INQUIRY and REPORT LUNS came before"


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(0, marks=pytest.mark.case("ISC-TMF-09", kills=("function-unknown-complete",))),
        pytest.param(13, marks=pytest.mark.case("ISC-TMF-10", kills=("function-unknown-complete",))),
        pytest.param(127, marks=pytest.mark.case("ISC-TMF-11", kills=("function-unknown-complete",))),
    ],
)
@pytest.mark.case(section="RFC 7143 11.5.1, 11.6.1", level="MUST")
def test_a_function_that_is_not_defined_is_not_supported(session, observe, function):
    session.send(TaskRequest(function=function, lun=session.lun))
    answer = session.receive()
    observe("closed" if answer is None else answer.summary())
    assert answer is None or isinstance(answer, (Reject, TaskResponse))
    if isinstance(answer, TaskResponse):
        assert answer.response in UNSUPPORTED, result(answer)


@pytest.mark.case("ISC-TMF-12", section="RFC 7143 11.6.1", level="SHOULD", no_mutant_reason=LIO_DEVIATES)
def test_a_function_for_an_absent_logical_unit_reports_its_absence(session):
    answer = session.task(TaskFunction.LOGICAL_UNIT_RESET, lun=absent_lun(session, harmless=False))
    assert answer.response in (TaskResult.LUN_DOES_NOT_EXIST, *UNSUPPORTED), result(answer)


@pytest.mark.case("ISC-TMF-13", section="RFC 7143 7.2.2, 11.6.1", kills=("reassign-complete",))
def test_task_reassign_at_error_recovery_level_zero_is_not_supported(session):
    answer = session.task(TaskFunction.TASK_REASSIGN, referenced_itt=0x7779)
    no = (TaskResult.REASSIGNMENT_NOT_SUPPORTED, TaskResult.TASK_DOES_NOT_EXIST, *UNSUPPORTED)
    assert answer.response in no, result(answer)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(
            TaskFunction.ABORT_TASK_SET,
            marks=pytest.mark.case("ISC-TMF-14", kills=("task-response-undefined",)),
        ),
        pytest.param(
            TaskFunction.CLEAR_TASK_SET,
            marks=pytest.mark.case("ISC-TMF-15", kills=("task-response-undefined",)),
        ),
        pytest.param(
            TaskFunction.TARGET_WARM_RESET,
            marks=pytest.mark.case("ISC-TMF-16", kills=("task-response-undefined",)),
        ),
        pytest.param(
            TaskFunction.CLEAR_ACA, marks=pytest.mark.case("ISC-TMF-17", kills=("task-response-undefined",))
        ),
    ],
)
@pytest.mark.case(section="RFC 7143 11.5.1", level="MUST")
def test_each_function_is_done_or_refused_and_the_session_goes_on(session, observe, function):
    answer = session.task(function)
    observe(result(answer))
    assert answer.response in (TaskResult.COMPLETE, TaskResult.AUTHORIZATION_FAILED, *UNSUPPORTED)
    LogicalUnit(session).clear_attentions()
    session.ping()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(
            TaskFunction.QUERY_TASK, marks=pytest.mark.case("ISC-TMF-18", kills=("query-without-level",))
        ),
        pytest.param(
            TaskFunction.QUERY_TASK_SET, marks=pytest.mark.case("ISC-TMF-19", kills=("query-without-level",))
        ),
        pytest.param(
            TaskFunction.QUERY_ASYNC_EVENT,
            marks=pytest.mark.case("ISC-TMF-20", kills=("query-without-level",)),
        ),
    ],
)
# At level 2 the target MUST NOT reject these (7144 4.1); below it the initiator MUST NOT send them, and what
# a target does then is its own affair (7143 7.10).
@pytest.mark.case(section="RFC 7144 4.1, 6.3", level="SHOULD")
def test_a_query_is_answered_only_at_protocol_level_two(connections, observe, function):
    session = connections.login(offer={"iSCSIProtocolLevel": "2"})
    level = session.parameters.protocol_level
    session.send(TaskRequest(function=int(function), lun=session.lun))
    answer = session.receive()
    text = "closed" if answer is None else answer.summary()
    observe(f"iSCSIProtocolLevel {level}: {text}")
    if level >= 2:
        assert isinstance(answer, TaskResponse), text
        allowed = (TaskResult.COMPLETE, TaskResult.SUCCEEDED, *UNSUPPORTED)
        assert answer.response in allowed, result(answer)
    elif isinstance(answer, TaskResponse):
        assert answer.response in UNSUPPORTED, f"done without protocol level 2: {result(answer)}"


@pytest.mark.case("ISC-TMF-21", section="RFC 7144 6.3", level="SHOULD", kills=("nexus-reset-without-level",))
def test_i_t_nexus_reset_without_protocol_level_two_is_not_done(session, observe):
    session.send(TaskRequest(function=TaskFunction.I_T_NEXUS_RESET, lun=session.lun))
    answer = session.receive()
    observe("closed" if answer is None else answer.summary())
    assert answer is None or isinstance(answer, (Reject, TaskResponse))
    if isinstance(answer, TaskResponse):
        assert answer.response in UNSUPPORTED, result(answer)


@pytest.mark.case(
    "ISC-TMF-27",
    section="RFC 7144 6.3, 7.1.1",
    no_mutant_reason="the mutants' target has protocol level 1: it is skipped there",
)
def test_i_t_nexus_reset_at_protocol_level_two_spares_the_tasks_of_others(connections, scratch, observe):
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("b", offer={"iSCSIProtocolLevel": "2"})
    if other.parameters.protocol_level < 2:
        pytest.skip(f"iSCSIProtocolLevel is {other.parameters.protocol_level}")
    other.send(TaskRequest(function=TaskFunction.I_T_NEXUS_RESET, lun=other.lun))
    answer = other.receive()
    observe("closed" if answer is None else answer.summary())
    if isinstance(answer, TaskResponse):
        allowed = (TaskResult.COMPLETE, TaskResult.AUTHORIZATION_FAILED, *UNSUPPORTED)
        assert answer.response in allowed, result(answer)
    data = scratch.pattern(4, seed=27)
    send_asked(session, command, data, r2t)
    assert session.finish(command, data).status == 0, "a write of another initiator was ended"


@pytest.mark.case("ISC-TMF-22", section="RFC 7143 11.6", kills=("task-itt",))
def test_the_response_has_the_task_tag_of_the_request(session):
    sent = session.send(TaskRequest(function=TaskFunction.ABORT_TASK, lun=session.lun, referenced_itt=0x7001))
    assert session.expect(TaskResponse).itt == sent.itt


@pytest.mark.case("ISC-TMF-23", section="RFC 7143 4.2.2.1", kills=("exp-cmd-sn-stuck",))
def test_a_function_that_is_not_immediate_uses_a_cmd_sn(session):
    number = session.numbers.cmd_sn
    answer = session.task(TaskFunction.ABORT_TASK, referenced_itt=0x7002, immediate=False)
    assert answer.exp_cmd_sn == plus(number, 1)


@pytest.mark.case(
    "ISC-TMF-24",
    section="RFC 7143 11.5.1",
    no_mutant_reason="the mutants' target does not do ABORT TASK SET: it is skipped there",
)
def test_abort_task_set_leaves_the_tasks_of_another_initiator(connections, scratch):
    session, command, r2t = waiting_write(connections, scratch)
    other = connections.login("b")
    answer = other.task(TaskFunction.ABORT_TASK_SET)
    if answer.response in UNSUPPORTED:
        pytest.skip("ABORT TASK SET is not supported")
    data = scratch.pattern(4, seed=21)
    send_asked(session, command, data, r2t)
    assert session.finish(command, data).status == 0


@pytest.mark.case(
    "ISC-TMF-25",
    section="RFC 7143 11.5.1",
    no_mutant_reason="an abort that is not done is seen by ISC-TMF-02; this case tests what follows an abort",
)
def test_a_session_works_after_its_task_was_aborted(connections, scratch):
    """On other blocks: whether and when the aborted write reaches its own is the target's choice."""
    session, command, r2t = waiting_write(connections, scratch)
    end(session, command, r2t, abort(command))
    session.probe_alive()
    unit = LogicalUnit(session, block_size=scratch.block_size)
    unit.clear_attentions()
    at, data = scratch.lba + 64, scratch.pattern(4, seed=22)
    written = unit.write(at, data)
    assert written.good, f"after ABORT TASK: {written}"
    assert unit.read(at, 4).data == data, "after ABORT TASK, another write's data are not read back"


@pytest.mark.case(
    "ISC-TMF-TAG",
    section="RFC 7143 11.2.1.8, 11.6.1",
    kills=("tag-of-aborted-kept",),
    builds_on=("ISC-TMF-02",),
)
def test_the_tag_of_an_aborted_task_can_be_used_again(connections, scratch):
    """After the response of the function or of the task, the tag is that of no task that is outstanding."""
    session, command, r2t = waiting_write(connections, scratch)
    result, others = end(session, command, r2t, abort(command))
    if result != "COMPLETE":  # its response is not to be taken for that of the next command
        assert_response_comes(session, command, others)
    again = session.send(ScsiCommand(itt=command.itt, lun=session.lun, cdb=READY))
    for pdu in session.responses("the response of a command with the tag of an aborted task"):
        assert pdu is not None, "closed without the response of a command with the tag of an aborted task"
        if isinstance(pdu, ScsiResponse) and pdu.itt == again.itt:
            break
