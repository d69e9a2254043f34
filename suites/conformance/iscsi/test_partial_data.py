"""Writes with less or more data than they state, and immediate writes; an abort while the data are awaited.

RFC 7143 4.2.2.1 (immediate commands), 7.9 and 11.7 (sequences of Data-Out), 11.3.4, 11.6.1.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.pdu import (
    DataOut,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
)
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_task import abort, end, is_r2t, result, send_zeroes, waiting_write
from .windows import skip_if_busy

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.7", level="MUST", builds_on=("ISC-R2T-01",)),
]

LATE = 0x7778
"""The task tag of a command that comes late (chosen)."""
BLOCKS = 4
"""Blocks of a write (chosen)."""
SOLICITED = {"ImmediateData": "No", "InitialR2T": "Yes"}


def claims_all(response: ScsiResponse, missing: int) -> bool:
    """Whether a response states that every byte was transferred, and not that ``missing`` bytes were not."""
    return not response.status and not (response.underflow and response.residual >= missing)


@pytest.mark.case(
    "ISC-DATAOUT-EARLY",
    section="RFC 7143 7.9, 11.7.1, 11.4.5.1",
    kills=("early-final-good", "waiting-write-unknown"),
)
def test_a_sequence_that_ends_too_early_is_no_whole_write(connections, scratch, observe):
    """F comes with the first half of what the R2T asks for. A target may reject it, or ask for the rest."""
    session = connections.prepared(scratch, **SOLICITED)
    scratch.require(BLOCKS)
    size = BLOCKS * scratch.block_size
    command, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=BLOCKS), size)
    half = r2t.desired_length // 2
    data = scratch.pattern(BLOCKS, seed=1411)[:half]
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data=data))
    session.validator.sent_invalid()
    after = session.probe_alive()
    observe(str(after))
    whole = [
        pdu
        for pdu in after.pdus
        if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt and claims_all(pdu, size - half)
    ]
    assert not whole, f"GOOD for a write of {size} bytes, of which {half} have come: {whole[0].summary()}"
    session.validator.forget(command.itt)


@pytest.mark.case(
    "ISC-LOST-WRITE", section="RFC 7143 7.5, 7.14", kills=("lost-write-executed",), builds_on=("ISC-PDU-27",)
)
def test_a_write_whose_connection_is_lost_writes_no_data_that_did_not_come(connections, scratch):
    """The first of four blocks was sent. The others keep their data."""
    session = connections.prepared(scratch, **SOLICITED)
    scratch.require(BLOCKS)
    size = scratch.block_size
    command, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=BLOCKS), BLOCKS * size)
    if r2t.buffer_offset or r2t.desired_length <= size or session.parameters.max_send < size:
        pytest.skip("the first R2T asks for one block at most")
    first = scratch.pattern(1, seed=1416)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, final=False, data=first))
    session.probe_alive()
    session.validator.forget(command.itt)
    session.logged_in = False
    session.link.close()
    found, old = scratch.read_back(connections.login("b"), BLOCKS), scratch.pattern(BLOCKS)
    assert found[size:] == old[size:], (
        "a block whose data never came has changed with the loss of a connection"
    )


@pytest.mark.parametrize("immediate", [
    pytest.param("Yes", marks=pytest.mark.case(
        "ISC-IMMEDIATE-WRITE", kills=("immediate-write-lost",), builds_on=("ISC-IMMEDIATE-SCSI",))),
    pytest.param("No", marks=pytest.mark.case(
        "ISC-IMMEDIATE-WRITE-R2T", kills=("immediate-write-counts",), builds_on=("ISC-IMMEDIATE-SCSI",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.2.1")
def test_an_immediate_write_is_done_and_uses_no_cmd_sn(connections, scratch, immediate):
    """One at a time, with immediate data or by R2T; a target that rejects it is ISC-CMDSN-13's."""
    session = connections.prepared(scratch, ImmediateData=immediate, InitialR2T="Yes")
    data, expected = scratch.pattern(1, seed=1412), session.numbers.cmd_sn
    first = data if session.parameters.immediate_data else b""
    if len(first) > min(session.parameters.max_send, session.parameters.first_burst):
        pytest.skip(f"a block of {len(data)} bytes is longer than one PDU or the first burst")
    block = cdb(WRITE_10, lba=scratch.lba, blocks=1)
    command = session.start(block, write=len(data), data=first, immediate=True)
    status = finished(session, command, data)
    skip_if_busy(status)
    assert status == ScsiStatus.GOOD, f"an immediate write ends in status {status:#04x}"
    found = session.ping().exp_cmd_sn
    assert found == expected, f"ExpCmdSN is {found} after an immediate write; the next CmdSN is {expected}"
    assert scratch.read_back(session, 1) == data, "an immediate write ended in GOOD, and was not written"


def finished(session, command: ScsiCommand, data: bytes) -> int:
    """Send the data that are asked for; return the status, or skip if the command is rejected."""
    for pdu in session.responses("the response of an immediate write"):
        assert pdu is not None, "closed without the response of an immediate write"
        if isinstance(pdu, Reject):
            session.validator.forget(command.itt)
            pytest.skip(f"an immediate write is rejected: {pdu.summary()}")
        if isinstance(pdu, ReadyToTransfer):
            end = pdu.buffer_offset + pdu.desired_length
            session.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
        elif isinstance(pdu, ScsiResponse):
            return pdu.status
    raise AssertionError  # responses() does not end


@pytest.mark.case(
    "ISC-TMF-FOUND",
    section="RFC 7143 11.6.1 a",
    kills=("abort-of-waiting-absent",),
    builds_on=("ISC-TMF-02",),
)
def test_abort_task_finds_a_write_whose_data_have_not_come(connections, scratch, observe):
    """What is answered before the data are sent is judged: until then the write cannot have ended."""
    session, command, r2t = waiting_write(connections, scratch)
    sent = session.send(abort(command))
    early = session.probe_alive()
    observe(str(early))
    answers = [pdu for pdu in early.pdus if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt]
    ended = [pdu for pdu in early.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    if not early.closed:
        for asked in (r2t, *(pdu for pdu in early.pdus if is_r2t(pdu, command))):
            send_zeroes(session, command, asked)
        session.probe_alive()
    session.validator.forget(command.itt)
    if not answers:
        pytest.skip("the function is not answered before the data have come, as it may be (4.2.3.3)")
    absent = answers[0].response == TaskResult.TASK_DOES_NOT_EXIST
    assert ended or not absent, (
        f"ABORT TASK of a write that waits for its data: {result(answers[0])}; the write has no response yet"
    )


@pytest.mark.case(
    "ISC-TMF-LATE",
    section="RFC 7143 7.11, 4.2.2.1",
    kills=("aborted-late-executed",),
    builds_on=("ISC-TMF-03", "ISC-CMDSN-04"),
)
def test_a_command_that_comes_after_its_abort_is_not_executed(session, observe):
    """Its CmdSN counts as received with the function, and is below ExpCmdSN then: the command is ignored."""
    number = session.numbers.cmd_sn
    session.numbers.cmd_sn = plus(number, 1)
    found = session.task(TaskFunction.ABORT_TASK, referenced_itt=LATE, ref_cmd_sn=number)
    if found.response != TaskResult.COMPLETE:
        pytest.skip(f"ABORT TASK of a command that has not come: {result(found)} (ISC-TMF-03)")
    late = ScsiCommand(itt=LATE, lun=session.lun, cmd_sn=number, cdb=cdb(TEST_UNIT_READY).ljust(16, b"\0"))
    session.send(late, number=False)
    after = session.probe_alive()
    observe(str(after))
    session.validator.forget(LATE)
    answered = [pdu.summary() for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == LATE]
    assert not answered, f"a command that was aborted before it came is executed: {answered[0]}"


# Resets


@pytest.mark.case(
    "ISC-TMF-RESET-THEN",
    section="RFC 7143 11.5.1",
    kills=("writes-fail-after-reset",),
    builds_on=("ISC-TMF-04", "ISC-TMF-25"),
)
def test_a_session_writes_after_a_reset_has_ended_its_write(connections, scratch):
    """The data of the new writes come by R2T, as those of the write that the reset has ended."""
    session, command, r2t = waiting_write(connections, scratch)
    function = TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET, lun=session.lun)
    found, _ = end(session, command, r2t, function)
    if found != TaskResult.COMPLETE.name:
        pytest.skip(f"LOGICAL UNIT RESET: {found}")
    session.probe_alive()
    unit = LogicalUnit(session, block_size=scratch.block_size)
    unit.clear_attentions()
    for turn in (1, 2, 3):
        data = scratch.pattern(BLOCKS, seed=1416 + turn)
        written = unit.write(scratch.lba, data)
        assert written.good, f"{written}: write {turn} after a reset that ended a write of the session"
        assert unit.read(scratch.lba, BLOCKS).data == data, f"write {turn} after a reset is not read back"


@pytest.mark.case(
    "ISC-TMF-RESET-REPORTED",
    section="SAM-5 5.14, 7.7",
    kills=("unit-attention-lost",),
    builds_on=("ISC-TMF-04",),
)
def test_a_reset_establishes_a_unit_attention_for_another_initiator(two, scratch, observe):
    """A logical unit reset condition establishes it, with any additional sense code (29h: ISC-TMF-06)."""
    first, second = two
    assert scratch.count  # a reset needs a unit that may be erased
    answer = first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if answer.response != TaskResult.COMPLETE:
        pytest.skip(f"LOGICAL UNIT RESET: {result(answer)}")
    ready = second.test_unit_ready()
    observe(str(ready))
    assert ready.check(SenseKey.UNIT_ATTENTION), (
        f"{ready}: a reset of the unit came before, of another initiator"
    )
