"""Requests outside of the command window, of each kind, and after a Reject (RFC 7143 4.2.2.1).

The window is a rule for every request that is not immediate: text, pings, task management and logouts, not
only SCSI commands. A target that compares the CmdSN of commands alone executes an old or an early request.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import LogoutRequest, NopOut, ScsiCommand, TaskRequest, TextRequest
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 4.2.2.1", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
OLDER = 2
"""How far a CmdSN is below ExpCmdSN (chosen)."""
FAR = 1 << 20
"""How far a CmdSN is beyond MaxCmdSN (chosen): a target may open its window before the request comes."""
BEYOND, BELOW = "beyond MaxCmdSN", "below ExpCmdSN"


def sides(beyond: str, below: str, *kills: str, builds_on: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Return the parameters of a claim: the ids of a request beyond the window and below it."""
    return pytest.mark.parametrize(
        "side",
        [
            pytest.param(
                side,
                id=side.partition(" ")[0],
                marks=pytest.mark.case(case, kills=(kill,), builds_on=(*builds_on, command)),
            )
            for side, case, kill, command in zip(
                (BEYOND, BELOW), (beyond, below), kills, ("ISC-CMDSN-03", "ISC-CMDSN-04"), strict=True
            )
        ],
    )


def number_of(session: Initiator, side: str) -> int:
    """Return a CmdSN outside of the window, which the last response stated."""
    if side == BEYOND:
        return plus(session.numbers.max_cmd_sn, FAR)
    return plus(session.numbers.cmd_sn, -OLDER)


def ignores(session: Initiator, pdu: Pdu, side: str) -> None:
    """Send a request without its I bit, and outside of the window; claim that it is ignored."""
    parts = session.assign_numbers(pdu).parts()
    session.send_parts(parts.override_fields(immediate=False, cmd_sn=number_of(session, side)))
    after = session.probe_alive()
    kind = type(pdu).__name__
    assert not after.pdus, f"a {kind} with a CmdSN {side} was answered: {after}. It is to be ignored"
    assert not after.closed, f"a {kind} with a CmdSN {side} ended the connection. It is to be ignored"


@pytest.mark.case("ISC-BELOW-NOP", kills=("nop-below-window",), builds_on=("ISC-CMDSN-12", "ISC-CMDSN-04"))
def test_a_nop_out_below_exp_cmd_sn_is_ignored(session):
    for _ in range(OLDER + 1):
        session.ping(immediate=False)
    ignores(session, NopOut(immediate=True, itt=session.numbers.itt(), data=b"below"), BELOW)


@sides(
    "ISC-BEYOND-TEXT",
    "ISC-BELOW-TEXT",
    "text-beyond-window",
    "text-below-window",
    builds_on=("ISC-DISC-01", "ISC-CMDSN-TEXT"),
)
def test_a_text_request_outside_of_the_window_is_ignored(discovery, side):
    for _ in range(OLDER + 1):
        discovery.text(("SendTargets", "All"))
    ignores(discovery, TextRequest(immediate=True, data=b"SendTargets=All\0"), side)


@sides(
    "ISC-BEYOND-LOGOUT",
    "ISC-BELOW-LOGOUT",
    "logout-beyond-window",
    "logout-below-window",
    builds_on=("ISC-LOGOUT-07",),
)
def test_a_logout_outside_of_the_window_is_ignored(session, side):
    for _ in range(OLDER + 1):
        session.command(READY)
    ignores(session, LogoutRequest(), side)


@sides(
    "ISC-BEYOND-ABORT",
    "ISC-BELOW-ABORT",
    "task-beyond-window",
    "task-below-window",
    builds_on=("ISC-TMF-02", "ISC-TMF-23"),
)
def test_an_abort_task_outside_of_the_window_ends_no_task(connections, scratch, side):
    """The write that it names waits for its data. They are written, and it ends in GOOD."""
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for seed in range(OLDER):
        answer = unit.write(scratch.lba, scratch.pattern(1, seed=seed))
        assert answer.good, answer
    data = scratch.pattern(1, seed=1201)
    write, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=1), len(data))
    abort = TaskRequest(
        function=TaskFunction.ABORT_TASK,
        lun=session.lun,
        referenced_itt=write.itt,
        ref_cmd_sn=write.cmd_sn,
    )
    ignores(session, abort, side)
    session.send_data(write, data, start=r2t.buffer_offset, end=len(data), ttt=r2t.ttt)
    done = session.finish(write, data)
    assert done.status == ScsiStatus.GOOD, (
        f"after an ABORT TASK with a CmdSN {side}, which is to be ignored, "
        f"the write ended in status {done.status:#04x}"
    )
    assert scratch.read_back(session, 1) == data, (
        f"the data of a write are lost after an ABORT TASK with a CmdSN {side}, which is to be ignored"
    )


@pytest.mark.case(
    "ISC-BELOW-WRITE", kills=("write-below-window",), builds_on=("ISC-CMDSN-04", "ISC-UNSOL-01")
)
def test_a_write_below_exp_cmd_sn_is_not_executed(connections, scratch):
    """It has immediate data: nothing more is needed to execute it."""
    session = connections.login(offer={"ImmediateData": "Yes"})
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for seed in range(OLDER + 1):
        answer = unit.write(scratch.lba, scratch.pattern(1, seed=seed))
        assert answer.good, answer
    data = scratch.pattern(1, seed=1202)
    if len(data) > min(session.parameters.max_send, session.parameters.first_burst):
        pytest.skip(f"a block of {len(data)} bytes is longer than the immediate data that the target takes")
    write = ScsiCommand(
        lun=session.lun,
        cdb=cdb(WRITE_10, lba=scratch.lba, blocks=1).ljust(16, b"\0"),
        write=True,
        expected_length=len(data),
        data=data,
        immediate=True,
    )
    command = session.assign_numbers(write)
    session.send_parts(command.parts().override_fields(immediate=False, cmd_sn=number_of(session, BELOW)))
    after = session.probe_alive()
    other = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    found = other.read(scratch.lba).data
    assert found != data, f"a write with a CmdSN {BELOW} was executed. It is to be ignored"
    assert not after.pdus, f"a write with a CmdSN {BELOW} was answered: {after}. It is to be ignored"
    assert not after.closed, f"a write with a CmdSN {BELOW} ended the connection. It is to be ignored"


# No sentence states that the CmdSN of a rejected request is used up; an initiator goes on with the next one.
@pytest.mark.case(
    "ISC-REJECT-NUMBERED",
    section="RFC 7143 4.2.2.1, 11.17",
    level="SHOULD",
    kills=("reject-not-counted",),
    builds_on=("ISC-CMDSN-01",),
)
def test_a_command_after_a_rejected_request_is_executed(connections, observe):
    """Requests that are not immediate and that a target may reject. Each has a session of its own."""
    rejected = 0
    for letter, pdu in (
        ("a", TextRequest(ttt=0x1234, data=b"X-a=1\0")),
        ("b", ScsiCommand(cdb=READY, final=False)),
    ):
        session = connections.login(letter)
        session.send(pdu)
        after = session.probe_alive(reject_decides=True)
        observe(str(after))
        if after.reject is None or after.closed or after.unresponsive:
            continue
        rejected += 1
        number = session.numbers.cmd_sn
        ready = session.start(READY)
        done = session.probe_alive()
        assert any(answer.itt == ready.itt for answer in done.pdus), (
            f"after a Reject of CmdSN {plus(number, -1)}, that of CmdSN {number} has no response: {done}"
        )
    if not rejected:
        pytest.skip("the target rejects none of them")
