"""Sessions over many commands: the command window, unsolicited data, what a reset ends (RFC 7143 4.2, 13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import DeadlineExceeded, RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.iscsi.optional_commands import reserve_6
from storagetest.suites.conformance.iscsi.windows import skip_if_busy, with_room
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.iscsi.validator import before
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import claim

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 4.2.2.1", level="MUST")]

COMMANDS = 288
"""Commands of a session, if the window is large (chosen)."""


def stays_open(session: Initiator, run: Callable[[], object]) -> None:
    """Claim that the command window is open after ``run`` was called many times.

    A window may shrink for a while; a session whose window stays closed can send no command again.
    """
    session.ping()
    window = (session.numbers.max_cmd_sn - session.numbers.cmd_sn) % 2**32 + 1

    def is_open() -> bool:
        session.probe_alive()  # a response to a task that was aborted may come late (ISC-TMF-02)
        return not before(session.numbers.max_cmd_sn, session.numbers.cmd_sn)

    for _ in range(min(2 * window + 16, COMMANDS)):
        if not is_open():
            break
        run()
    try:
        wait_until(is_open, session.deadline, "an open window", interval=0.1, error=RemoteProtocolError)
    except (DeadlineExceeded, RemoteProtocolError):
        if not before(session.numbers.max_cmd_sn, session.numbers.cmd_sn):
            raise
        raise AssertionError(
            f"no command is outstanding, but MaxCmdSN {session.numbers.max_cmd_sn:#x} is below CmdSN "
            f"{session.numbers.cmd_sn:#x}; at the start of the session {window} commands were allowed"
        ) from None


@pytest.mark.case("ISC-CMDSN-18", kills=("max-cmd-sn-leaks",), builds_on=("ISC-NOP-01",))
def test_the_window_does_not_close_over_many_commands(session):
    stays_open(session, lambda: session.command(c.cdb(c.TEST_UNIT_READY)))


@pytest.mark.case("ISC-CMDSN-FAILED", kills=("max-cmd-sn-of-failed",), builds_on=("ISC-CMDSN-18",))
def test_the_window_does_not_close_over_many_commands_that_fail(session, facts):
    """Reads past the end, whose places in the window are free again when they have failed."""
    block = c.cdb(c.READ_16, lba=facts.capacity.blocks, blocks=1)
    stays_open(session, lambda: session.command(block, read=facts.capacity.block_size))


@pytest.mark.case(
    "ISC-CMDSN-ABORTED", kills=("max-cmd-sn-of-aborted",), builds_on=("ISC-CMDSN-18", "ISC-TMF-02")
)
def test_the_window_does_not_close_over_many_writes_that_are_aborted(connections, scratch):
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    block, size = c.cdb(c.WRITE_16, lba=scratch.lba, blocks=1), scratch.block_size

    def abort() -> None:
        command, r2t = session.start_write(block, size)
        session.send(TaskRequest(function=TaskFunction.ABORT_TASK, lun=session.lun,
                                 referenced_itt=command.itt, ref_cmd_sn=command.cmd_sn))  # fmt: skip
        session.send_data(command, bytes(size), start=0, end=size, ttt=r2t.ttt)
        for pdu in session.responses("the end of ABORT TASK"):
            assert pdu is not None, "closed before the Task Management Response"
            if isinstance(pdu, TaskResponse):
                break
        session.validator.forget(command.itt)
        session.probe_alive()  # a response to the task that comes late is the matter of ISC-TMF-02

    stays_open(session, abort)


@pytest.mark.case("ISC-CMDSN-PINGS", kills=("window-of-pings",), builds_on=("ISC-CMDSN-18", "ISC-CMDSN-12"))
def test_the_window_does_not_close_over_many_pings(session):
    """Pings that are not immediate, each of which takes its turn in the window."""
    stays_open(session, lambda: session.ping(immediate=False))


@pytest.mark.case("ISC-CMDSN-TASKS", kills=("window-of-tasks",), builds_on=("ISC-CMDSN-18", "ISC-TMF-23"))
def test_the_window_does_not_close_over_many_task_management_requests(session):
    """ABORT TASK of a task that is not there, and not immediate."""

    def abort() -> None:
        session.task(
            TaskFunction.ABORT_TASK, immediate=False, referenced_itt=0x7779, ref_cmd_sn=session.numbers.cmd_sn
        )

    stays_open(session, abort)


# Limits (13.12, 13.13)


@pytest.mark.case(
    "ISC-SEGMENT-TWO",
    section="RFC 7143 13.12, 13.13",
    kills=("segment-of-first-session",),
    builds_on=("ISC-DATAIN-02", "ISC-R2T-01"),
)
def test_two_sessions_of_one_initiator_have_limits_of_their_own(connections, scratch):
    """The second session declares less than the first one, which is still open; both are used in turn."""
    size, blocks = scratch.block_size, 8
    data = scratch.pattern(blocks, seed=310)
    wide = connections.login()
    narrow = connections.login(
        offer={
            "MaxRecvDataSegmentLength": "512",
            "MaxBurstLength": "1024",
            "FirstBurstLength": "512",
            "ImmediateData": "No",
            "InitialR2T": "Yes",
        }
    )
    for turn in range(3):
        written = narrow.command(c.cdb(c.WRITE_10, lba=scratch.lba, blocks=blocks), data=data)
        assert written.status == ScsiStatus.GOOD, f"turn {turn}: {written}"
        asked = [r2t.desired_length for r2t in written.r2ts]
        assert all(length <= 1024 for length in asked), (
            f"turn {turn}: R2Ts of {asked}, over MaxBurstLength 1024"
        )
        for session in (wide, narrow):
            read = session.command(c.cdb(c.READ_10, lba=scratch.lba, blocks=blocks), read=blocks * size)
            assert (read.status, read.data) == (ScsiStatus.GOOD, data), f"turn {turn}: not what was written"
        lengths = [len(pdu.data) for pdu in read.data_ins]
        assert max(lengths) <= 512, f"turn {turn}: Data-In of {lengths}, over MaxRecvDataSegmentLength 512"


# Unsolicited data (4.2.5.2, 13.10)


@pytest.mark.parametrize(
    "immediate",
    [
        pytest.param("Yes", marks=pytest.mark.case("ISC-UNSOL-09", kills=("unsolicited-later-lost",))),
        pytest.param("No", marks=pytest.mark.case("ISC-UNSOL-10", kills=("unsolicited-later-lost",))),
    ],
)
@pytest.mark.case(section="RFC 7143 13.10", level="MUST")
def test_every_unsolicited_data_out_is_written(connections, scratch, immediate):
    offer = {"InitialR2T": "No", "ImmediateData": immediate, "FirstBurstLength": "65536"}
    session = connections.prepared(scratch, **offer)
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    small = min(session.parameters.max_send, 4096)  # so that a burst has many PDUs
    session.parameters = replace(session.parameters, max_send=small)
    most = session.parameters.first_burst // scratch.block_size
    for blocks in (size for size in (1, 8, 9, 16, 33, 64, 128, 129) if size <= min(most + 16, scratch.count)):
        data = scratch.pattern(blocks, seed=400 + blocks)
        answer = unit.write(scratch.lba, data)
        assert answer.good, answer
        assert unit.read(scratch.lba, blocks).data == data, f"{answer}: other data than were sent unsolicited"


@pytest.mark.case("ISC-UNSOL-11", section="RFC 7143 4.2.5.2", kills=("unsolicited-second-lost",))
def test_unsolicited_data_of_two_writes_at_once_are_both_written(connections, scratch):
    session = connections.prepared(
        scratch, InitialR2T="No", ImmediateData="No", FirstBurstLength="65536", MaxBurstLength="65536"
    )
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes")
    with_room(session, 2)
    size, data = scratch.block_size, [scratch.pattern(8, seed=seed) for seed in (501, 502)]
    end = min(8 * size, session.parameters.first_burst)
    blocks = [c.cdb(c.WRITE_16, lba=scratch.lba + at, blocks=8) for at in (0, 8)]
    # Both commands precede the data of the first: a fast target would end a command that has its data.
    begun = [session.start(block, write=8 * size, final=False) for block in blocks]
    for command, one in zip(begun, data, strict=True):  # in the order of the commands (4.2.5.2)
        session.send_data(command, one, start=0, end=end)
    ended = statuses(session, begun, data)
    skip_if_busy(*ended)
    for status in ended:
        assert status == 0, f"a write with unsolicited data ended with status {status:#04x}"
    found = scratch.read_back(session, 16)
    assert found == b"".join(data), "unsolicited data of one of two outstanding writes are not on the unit"


def statuses(session: Initiator, begun: list[ScsiCommand], data: list[bytes]) -> list[int]:
    """Finish writes that are outstanding together, whichever the target asks for or ends first."""
    parts = {command.itt: (command, one) for command, one in zip(begun, data, strict=True)}
    ended: dict[int, int] = {}
    for pdu in session.responses("the end of the writes", times=4):
        assert pdu is not None, f"closed before the end of {len(begun)} writes"
        assert pdu.itt in parts, f"a response to no write: {pdu.summary()}"
        if isinstance(pdu, ReadyToTransfer):
            command, whole = parts[pdu.itt]
            at = pdu.buffer_offset
            session.send_data(command, whole, start=at, end=at + pdu.desired_length, ttt=pdu.ttt)
        elif isinstance(pdu, ScsiResponse):
            ended[pdu.itt] = pdu.status
        if len(ended) == len(parts):
            break
    return [ended[command.itt] for command in begun]


@pytest.mark.case(
    "ISC-UNSOL-FAILED",
    section="RFC 7143 4.2.5.2",
    kills=("lost-after-unsolicited",),
    builds_on=("ISC-UNSOL-10", "SCS-RW-06"),
)
def test_a_session_works_after_a_write_that_failed_while_its_data_came(connections, facts, scratch):
    """A write past the end fails before its unsolicited data or after them: they disturb no other command."""
    session = connections.prepared(scratch, InitialR2T="No", ImmediateData="No", FirstBurstLength="65536")
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes")
    data = scratch.pattern(8, seed=505)
    end = min(len(data), session.parameters.first_burst)
    block = c.cdb(c.WRITE_16, lba=facts.capacity.blocks, blocks=8)
    for _ in range(2):
        failed = session.start(block, write=len(data), final=False)
        session.send_data(failed, data, start=0, end=end)
        assert session.finish(failed, data).status == ScsiStatus.CHECK_CONDITION
        unit = LogicalUnit(session, block_size=scratch.block_size)
        assert unit.read(scratch.lba).data == scratch.pattern(1), "a failed write disturbs a read"
    assert unit.write(scratch.lba, data).good
    assert unit.read(scratch.lba, 8).data == data, "after failed writes, a write's data are not read back"


# RESERVE(6)


@pytest.mark.case("SCS-R6-03", section="SPC-2 RESERVE(6)", kills=("reserve6-outlives-reset",))
def test_a_logical_unit_reset_ends_reserve_6(not_reserved, scratch):
    a, b = not_reserved
    reserve_6(a)
    if b.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
        pytest.skip("LOGICAL UNIT RESET is not done (ISC-TMF-04)")
    b.clear_attentions()
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)


# RFC 7143 6.3.5.1 has the loss of the nexus; that it ends RESERVE(6) was not found in a text at hand.
@pytest.mark.case(
    "SCS-R6-04", section="SPC-2 RESERVE(6), RFC 7143 6.3.5", level="SHOULD", kills=("release-ignored",)
)
def test_a_session_that_takes_the_place_of_the_reservers_is_the_same_nexus_anew(
    not_reserved, connections, scratch
):
    """Session reinstatement ends the old session, and with its nexus the reservation."""
    a, b = not_reserved
    reserve_6(a)
    connections.login("a", isid=a.runner.isid)
    a.runner.logged_in = False
    b.clear_attentions()
    try:  # a target may respond before it has removed the old session
        wait_until(lambda: b.write(scratch.lba, scratch.pattern(1)).good, 3.0, "the end of the reservation")
    except DeadlineExceeded:
        raise AssertionError(
            "the unit is still reserved 3 s after the reserver's session was reinstated"
        ) from None
