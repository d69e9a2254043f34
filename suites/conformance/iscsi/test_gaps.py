"""Requests of each kind after a gap, task tags that are used again, and what is another session's.

RFC 7143 4.2.2.1: the target delivers every request that is not immediate in the order of CmdSN, text and task
management as well. 11.2.1.8: a task tag names a task of its session, as long as the task is outstanding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.errors import ResponseOverdue
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import format_text, numeric, parse_text
from storagetest.wire.iscsi.pdu import (
    DataOut,
    NopIn,
    NopOut,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import ResponseTimeout

from .absent_unit import absent_lun
from .test_apart import BLOCKS, OFFER, finish, waiting_write
from .test_task import result
from .windows import skip_if_serial, with_room

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

TAG = 0x0C0D0E0F
"""A task tag that no request has otherwise (chosen)."""
MISSING = 0x0C0D0E10
"""The task tag of the ping that is missing at first (chosen)."""
TIMES = 6
"""Requests with one task tag, each after the end of the one before it (chosen)."""
FAR = 1 << 16
"""How far RefCmdSN is beyond MaxCmdSN (chosen)."""
SMALL, LARGE = 512, 65536
"""Segment lengths of two sessions (chosen)."""

# Requests that are not immediate, after a gap


def after_gap(session: Initiator, pdu: Pdu) -> Pdu:
    """Send a request with a CmdSN after a gap, and then the ping that is missing; return its response.

    Claims that the request waits for the ping.
    """
    with_room(session, 2)
    number, kind = session.numbers.cmd_sn, type(pdu).__name__
    waits = session.send(pdu, overrides={"immediate": False, "cmd_sn": plus(number, 1)})
    waiting = session.probe_alive()
    assert not waiting.closed, f"a {kind} whose turn has not come ended the connection: {waiting}"
    assert not waiting.pdus, f"a {kind} with CmdSN {plus(number, 1)} was answered before {number}: {waiting}"
    session.numbers.cmd_sn = number
    session.send(NopOut(itt=MISSING, data=b"missing"))
    session.numbers.cmd_sn = plus(number, 2)
    came = {answer.itt: answer for answer in (session.expect(Pdu), session.expect(Pdu))}
    assert set(came) == {MISSING, waits.itt}, (
        f"responses to {sorted(came)}; {sorted((MISSING, waits.itt))} were sent"
    )
    found = session.ping().exp_cmd_sn
    assert found == plus(number, 2), f"ExpCmdSN is {found} after CmdSN {number} and {plus(number, 1)}"
    return came[waits.itt]


@pytest.mark.case(
    "ISC-GAP-TEXT",
    section="RFC 7143 4.2.2.1",
    kills=("cmd-sn-gap-text",),
    builds_on=("ISC-CMDSN-05", "ISC-TEXT-02"),
)
def test_a_numbered_text_request_after_a_gap_waits(session):
    """It asks for the target of its normal session, by SendTargets without a value."""
    answer = after_gap(session, TextRequest(immediate=True, itt=TAG, data=b"SendTargets=\0"))
    assert isinstance(answer, TextResponse), answer.summary()


@pytest.mark.case(
    "ISC-GAP-RESET",
    section="RFC 7143 4.2.2.1",
    kills=("cmd-sn-gap-reset",),
    builds_on=("ISC-CMDSN-05", "ISC-TMF-QUEUED"),
)
def test_a_numbered_reset_after_a_gap_waits(session):
    """LOGICAL UNIT RESET while no command is outstanding; a target that does not do it refuses it then."""
    reset = TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET, immediate=True, itt=TAG, lun=session.lun)
    after_gap(session, reset)
    LogicalUnit(session).clear_attentions()


READY = cdb(c.TEST_UNIT_READY)


@pytest.mark.case(
    "ISC-GAP-ABORTED",
    section="RFC 7143 4.2.2.1, 11.5.1",
    kills=("aborted-in-gap-executed",),
    builds_on=("ISC-CMDSN-05", "ISC-TMF-02"),
)
def test_a_command_that_was_aborted_before_its_turn_is_not_executed(session, observe):
    """It waits for the ping that is missing. If ABORT TASK is complete, the ping alone is answered."""
    with_room(session, 2)
    number = session.numbers.cmd_sn
    waits = ScsiCommand(itt=TAG, lun=session.lun, cdb=READY.ljust(16, b"\0"), immediate=True)
    session.send(waits, overrides={"immediate": False, "cmd_sn": plus(number, 1)})
    answer = session.task(TaskFunction.ABORT_TASK, referenced_itt=TAG, ref_cmd_sn=plus(number, 1))
    observe(result(answer))
    session.numbers.cmd_sn = number
    session.send(NopOut(itt=MISSING, data=b"missing"))
    session.numbers.cmd_sn = plus(number, 2)
    after = session.probe_alive()
    session.validator.forget(TAG)
    assert any(pdu.itt == MISSING for pdu in after.pdus), f"the ping that was missing has no answer: {after}"
    if answer.response != TaskResult.COMPLETE:
        pytest.skip(f"ABORT TASK of a command whose turn has not come: {result(answer)}")
    executed = [pdu.summary() for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == TAG]
    assert not executed, f"ABORT TASK is complete, and the command is executed in its turn: {executed[0]}"
    found = session.ping().exp_cmd_sn
    assert found == plus(number, 2), (
        f"ExpCmdSN is {found}; the command that was aborted had {plus(number, 1)}"
    )


@pytest.mark.case(
    "ISC-TMF-REF-BEYOND",
    section="RFC 7143 11.6.1 c",
    kills=("ref-beyond-complete",),
    builds_on=("ISC-TMF-22",),
)
def test_abort_of_a_cmd_sn_beyond_the_window_reports_no_task(session):
    """No task has the tag, and RefCmdSN is beyond MaxCmdSN: nothing counts as received by it."""
    number = session.ping().exp_cmd_sn
    beyond = plus(session.numbers.max_cmd_sn, FAR)
    answer = session.task(TaskFunction.ABORT_TASK, referenced_itt=TAG, ref_cmd_sn=beyond)
    found = session.ping().exp_cmd_sn
    assert found == number, f"ExpCmdSN goes from {number} to {found} by an ABORT TASK with RefCmdSN {beyond}"
    done = session.command(READY)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x} of the command after that ABORT TASK"
    if answer.response == TaskResult.NOT_SUPPORTED:
        pytest.skip("the target does not support ABORT TASK")
    assert answer.response == TaskResult.TASK_DOES_NOT_EXIST, (
        f"{result(answer)}, for an absent task and a RefCmdSN beyond MaxCmdSN"
    )


# Functions for a unit that is absent


@pytest.mark.parametrize("function", [
    pytest.param(TaskFunction.LOGICAL_UNIT_RESET, marks=pytest.mark.case(
        "ISC-ABSENT-RESET", builds_on=("ISC-TMF-04",))),
    pytest.param(TaskFunction.ABORT_TASK_SET, marks=pytest.mark.case(
        "ISC-ABSENT-ABORT-SET", builds_on=("ISC-TMF-14",))),
    pytest.param(TaskFunction.CLEAR_TASK_SET, marks=pytest.mark.case(
        "ISC-ABSENT-CLEAR-SET", builds_on=("ISC-TMF-15",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.5.1, SAM-5 4.7", kills=("lun-of-function-ignored",))
def test_a_function_for_an_absent_unit_ends_no_task(connections, scratch, observe, function):
    """A write of the unit waits for its data. They are written, whatever the response of the function is."""
    session = connections.prepared(scratch, BLOCKS, **OFFER)
    other = LogicalUnit(connections.login("b"))
    absent, data = absent_lun(session, harmless=False), scratch.pattern(BLOCKS, seed=1504)
    write, r2t = session.start_write(cdb(c.WRITE_10, lba=scratch.lba, blocks=BLOCKS), len(data))
    skip_if_serial(session)
    sent = session.send(TaskRequest(function=function, lun=absent))
    after = session.probe_alive()
    session.validator.forget(sent.itt)  # its response may come later
    observe(str(after))
    if after.closed:
        pytest.skip(f"{function.name} of an absent unit ends the connection")
    what = f"{function.name} of LUN {absent:016x}, which is absent"
    try:
        session.send_data(
            write, data, start=r2t.buffer_offset, end=r2t.buffer_offset + r2t.desired_length, ttt=r2t.ttt
        )
        done = session.finish(write, data)
    except (ResponseTimeout, ResponseOverdue) as error:
        raise AssertionError(f"a write has no response after {what}: {error}") from error
    assert done.status == ScsiStatus.GOOD, f"a write ends in status {done.status:#04x} after {what}"
    assert scratch.read_back(session, BLOCKS) == data, f"the data of a write are lost after {what}"
    ready = other.test_unit_ready()
    assert not ready.check(SenseKey.UNIT_ATTENTION), f"{ready}, after {what}"


# One task tag, again and again


@contextlib.contextmanager
def answered(what: str, at: int) -> Iterator[None]:
    """Fail if request ``at`` with one task tag has no answer."""
    try:
        yield
    except (ResponseTimeout, ResponseOverdue) as error:
        raise AssertionError(
            f"{what} {at + 1} has no answer; it has the task tag of the one before, which has ended: {error}"
        ) from error


@pytest.mark.case(
    "ISC-TAG-AGAIN-READ",
    section="RFC 7143 11.2.1.8",
    kills=("tag-used-again-lost",),
    builds_on=("ISC-DATAIN-01",),
)
def test_reads_may_have_the_task_tag_of_the_read_before(connections, scratch):
    """Each is sent after the response of the one before it, and acknowledges that response."""
    session, size = connections.prepared(scratch, TIMES), scratch.block_size
    data = scratch.pattern(TIMES)
    for at in range(TIMES):
        with answered("read", at):
            done = session.command(cdb(c.READ_10, lba=scratch.lba + at, blocks=1), read=size, itt=TAG)
        assert done.status == ScsiStatus.GOOD, f"read {at + 1} with one task tag: status {done.status:#04x}"
        assert done.data == data[at * size : (at + 1) * size], (
            f"read {at + 1} with one task tag has other data"
        )


@pytest.mark.case(
    "ISC-TAG-AGAIN-WRITE",
    section="RFC 7143 11.2.1.8",
    kills=("tag-used-again-lost",),
    builds_on=("ISC-R2T-01",),
)
def test_writes_may_have_the_task_tag_of_the_write_before(connections, scratch):
    """The data of each come after an R2T; each is of its own block."""
    session, size = connections.prepared(scratch, TIMES, **OFFER), scratch.block_size
    data = scratch.pattern(TIMES, seed=1501)
    for at in range(TIMES):
        part = data[at * size : (at + 1) * size]
        with answered("write", at):
            done = session.command(cdb(c.WRITE_10, lba=scratch.lba + at, blocks=1), data=part, itt=TAG)
        assert done.status == ScsiStatus.GOOD, f"write {at + 1} with one task tag: status {done.status:#04x}"
    assert scratch.read_back(session, TIMES) == data, (
        "writes with one task tag, one after the other, have other data"
    )


@pytest.mark.case(
    "ISC-TAG-AGAIN-NOP",
    section="RFC 7143 11.2.1.8",
    kills=("tag-used-again-lost",),
    builds_on=("ISC-NOP-01",),
)
def test_pings_may_have_the_task_tag_of_the_ping_before(session):
    """Immediate ones and others by turns, each with data of its own."""
    for at in range(TIMES):
        sent = session.send(NopOut(immediate=at % 2 == 0, itt=TAG, data=bytes((at, TIMES))))
        with answered("ping", at):
            answer = session.expect(NopIn)
        assert answer.data == sent.data, f"ping {at + 1} with one task tag: {answer.summary()}"


# Two sessions


@pytest.mark.parametrize("letters", [
    pytest.param("ab", marks=pytest.mark.case("ISC-APART-DATA")),
    pytest.param("aa", marks=pytest.mark.case("ISC-APART-DATA-ISID")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.2.1.8, 4.2.5.1", kills=("data-of-any-session",), builds_on=("ISC-APART-WRITES",)
)
def test_data_out_of_another_session_are_not_those_of_a_write(connections, scratch, letters, observe):
    """They have its task tag and its Target Transfer Tag. The write gets its own data after them."""
    first, second = (connections.login(letter, offer=OFFER) for letter in letters)
    data, wrong = scratch.pattern(BLOCKS, seed=1502), scratch.pattern(BLOCKS, seed=1503)
    if len(wrong) > second.parameters.max_send:
        pytest.skip(f"{len(wrong)} bytes are more than one Data-Out may have")
    write = waiting_write(first, scratch.lba, len(data))
    skip_if_serial(first)
    _, command, asked = write
    second.send(DataOut(itt=command.itt, ttt=asked.ttt, lun=second.lun, data=wrong))
    second.validator.sent_invalid()
    observe(str(second.probe_alive(reject_decides=True)))
    early = first.probe_alive()
    ended = [pdu for pdu in early.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    assert not ended, f"a write ends by data that came in another session: {ended[0].summary()}"
    finish(write, data)
    assert scratch.read_back(first, BLOCKS) == data, "a write has the data that came in another session"


@pytest.mark.case(
    "ISC-SEGMENT-LATER-APART",
    section="RFC 7143 13.12, 6.2",
    kills=("segment-later-of-all",),
    builds_on=("ISC-SEGMENT-READ", "ISC-SEGMENT-TWO"),
)
def test_a_segment_length_that_was_declared_later_is_that_of_its_session_alone(connections, scratch):
    """One session declares a larger one after its login. An earlier and a later one keep theirs."""
    first = connections.prepared(scratch, MaxRecvDataSegmentLength=str(SMALL))
    other = connections.login("b", offer={"MaxRecvDataSegmentLength": str(SMALL)})
    other.send(TextRequest(data=format_text([("MaxRecvDataSegmentLength", str(LARGE))])))
    after = other.probe_alive(reject_decides=True)
    replies = [pdu for pdu in after.pdus if isinstance(pdu, TextResponse)]
    if not replies or after.closed or after.reject:
        pytest.skip(f"the target negotiates nothing in full feature phase: {after}")
    if declared := numeric(dict(parse_text(replies[0].data)).get("MaxRecvDataSegmentLength", "")):
        other.parameters = replace(other.parameters, max_send=declared)
    other.parameters = other.validator.parameters = replace(other.parameters, max_recv=LARGE)
    third = connections.login("c", offer={"MaxRecvDataSegmentLength": str(SMALL)})
    for session in (first, third):
        done = session.command(cdb(c.READ_10, lba=scratch.lba, blocks=16), read=16 * scratch.block_size)
        longest = max(len(pdu.data) for pdu in done.data_ins)
        assert longest <= SMALL, (
            f"a Data-In of {longest} bytes in a session that declared {SMALL}; another one declared {LARGE} "
            "after its login"
        )
        assert done.data == scratch.pattern(16), "not what was written"
