"""Task management while as many writes wait for their data as the command window has (RFC 7143 11.5.1).

A target asks for the data of some of them, and has the others queued: all of them are tasks of the unit.
"""

from __future__ import annotations

import time

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_depth import BLOCKS, DEPTH, Outstanding, blocks_of, prepare
from .test_task import result, send_asked
from .test_task_sets import NO_TASK_SET, SOLICITED

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="RFC 7143 11.5.1")]
PINGS = 40
"""Pings, over two seconds, after which a command window that is closed stays so (chosen)."""

WINDOW = 512
"""Writes of a case that closes the command window, at most (chosen)."""

LOOKS = 10
"""Looks for the response of a function, over half a second, before the data are sent (chosen)."""


class Waiting:
    """Writes of one session that wait for their data, each of blocks of its own (those of test_depth)."""

    def __init__(self, session: Initiator, scratch, seed: int, *, spare: int = 0) -> None:
        """Start as many as the window and :data:`DEPTH` allow, without ``spare`` of them."""
        session.ping()  # its response has the command window
        self.session, self.scratch, self.seed = session, scratch, seed
        count = min(DEPTH, session.window)
        if count < 4:
            pytest.skip(f"the target takes {count} commands")
        self.commands: dict[int, tuple[int, ScsiCommand]] = {}
        self.asked: list[ReadyToTransfer] = []
        self.ended: dict[int, int] = {}
        for _ in range(count - spare):
            self.start()

    def start(self) -> None:
        """Start one more."""
        number = len(self.commands) % DEPTH
        block = cdb(WRITE_10, lba=self.scratch.lba + number * BLOCKS, blocks=BLOCKS)
        command = self.session.start(block, write=BLOCKS * self.scratch.block_size)
        self.commands[command.itt] = number, command

    def take(self, pdus: tuple[Pdu, ...]) -> None:
        """Note what has come: the data that are asked for, and the commands that have ended."""
        for pdu in pdus:
            if isinstance(pdu, ReadyToTransfer) and pdu.itt in self.commands:
                self.asked.append(pdu)
            elif isinstance(pdu, ScsiResponse) and pdu.itt in self.commands:
                self.ended[pdu.itt] = pdu.status

    def look(self) -> tuple[Pdu, ...]:
        """Return what has come; skip if the target serves nothing else while a write waits for its data."""
        found = self.session.probe_alive()
        if found.unresponsive:
            self.forget()
            pytest.skip("the target responds to no ping while a write waits for its data")
        return found.pdus

    def answer(self) -> set[int]:
        """Send the data that are asked for; return the tags of their commands."""
        asked, self.asked = self.asked, []
        for r2t in asked:
            number, command = self.commands[r2t.itt]
            send_asked(self.session, command, blocks_of(self.scratch, number, self.seed), r2t)
        return {r2t.itt for r2t in asked}

    def forget(self) -> None:
        """Expect no response any more."""
        for itt in self.commands:
            self.session.validator.forget(itt)


@pytest.mark.parametrize("function", [
    pytest.param(TaskFunction.LOGICAL_UNIT_RESET, id="reset", marks=pytest.mark.case(
        "ISC-TMF-DEPTH-RESET", kills=("reset-spares-queued",), builds_on=("ISC-TMF-05",))),
    pytest.param(TaskFunction.ABORT_TASK_SET, id="set", marks=pytest.mark.case(
        "ISC-TMF-DEPTH-SET", no_mutant_reason=NO_TASK_SET, builds_on=("ISC-TMF-24",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.5.1, 4.2.3.3")
def test_a_function_ends_each_write_that_waits(connections, scratch, observe, function):
    """None has a response after that of the function, also if the target asks for its data then.

    A write whose data came before that is not judged: a target may wait for data that it has asked for.
    """
    session = connections.login(offer=SOLICITED)
    unit = LogicalUnit(session, block_size=scratch.block_size)
    prepare(session, scratch, range(min(DEPTH, session.window)), 1700)
    writes = Waiting(session, scratch, 1701)
    writes.take(writes.look())
    request = session.send(TaskRequest(function=function, lun=session.lun))
    done, early = None, set(writes.ended)
    for attempt in range(LOOKS + len(writes.commands) + 1):
        came = writes.look()
        done = next((pdu for pdu in came if isinstance(pdu, TaskResponse) and pdu.itt == request.itt), None)
        before = came[: came.index(done)] if done else came
        writes.take(before)
        early |= set(writes.ended)
        if done is not None:
            writes.take(came[len(before) :])
            break
        if attempt < LOOKS:
            time.sleep(0.05)
        elif given := writes.answer():
            early |= given
        else:
            break
    if done is None or done.response != TaskResult.COMPLETE:
        writes.forget()
        pytest.skip(f"{function.name}: {result(done) if done else 'no response before the data came'}")
    observe(f"{len(writes.commands)} writes, of which {len(early)} had their data or their end before")
    for _ in range(len(writes.commands)):
        if not writes.answer():
            break
        writes.take(writes.look())
    writes.forget()
    unit.clear_attentions()
    for itt, (number, _) in writes.commands.items():
        if itt in early:
            continue
        where = f"write {number + 1} of {len(writes.commands)} that waited for their data"
        assert writes.ended.get(itt) != ScsiStatus.GOOD, f"{where} ended with GOOD after {function.name}"
        found = unit.read(scratch.lba + number * BLOCKS, BLOCKS).good_data()
        assert found == blocks_of(scratch, number, 1700), f"{where}: written after {function.name}"


@pytest.mark.case(
    "ISC-IMMEDIATE-CLOSED",
    section="RFC 7143 4.2.2.1",
    kills=("immediate-needs-window",),
    builds_on=("ISC-CMDSN-02", "ISC-DEPTH-WRITE"),
)
def test_an_immediate_request_is_answered_while_the_command_window_is_closed(connections, scratch):
    """The window is of requests that are not immediate: if a ping was answered before, it is then.

    Writes close it, which wait for their data. A target may let it stay open.
    """
    session = connections.login(offer=SOLICITED)
    writes = Waiting(session, scratch, 1740, spare=1)
    writes.take(writes.look())
    for _ in range(WINDOW):
        if not session.window:
            break
        writes.start()
        if session.window == 1:
            writes.take(writes.look())
    else:
        writes.forget()
        pytest.skip(f"the command window stays open with {len(writes.commands)} writes")
    answered = session.probe_alive()
    writes.take(answered.pdus)
    assert not answered.unresponsive, (
        f"an immediate NOP-Out has no response: {len(writes.commands)} writes wait for their data, and the "
        f"window is closed (MaxCmdSN {session.numbers.max_cmd_sn}, CmdSN {session.numbers.cmd_sn}); it had "
        "one when the window had a place left"
    )
    for _ in range(len(writes.commands) + 1):
        if not writes.answer() and len(writes.ended) == len(writes.commands):
            break
        writes.take(writes.look())
    lost = len(writes.commands) - len(writes.ended)
    assert not lost, f"{lost} of {len(writes.commands)} writes have no response after their data"


def reopened(session: Initiator) -> bool:
    """Return whether the target takes a command, at the latest after :data:`PINGS` pings."""
    for _ in range(PINGS):
        session.probe_alive()  # what else comes is not judged here
        if session.window:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.case(
    "ISC-TMF-DEPTH-AFTER",
    level="SHOULD",
    section="RFC 7143 4.2.2.1, 11.5.1",
    kills=("places-lost-by-reset",),
    builds_on=("ISC-TMF-04", "ISC-DEPTH-WRITE"),
)
def test_as_many_writes_can_wait_after_a_reset_of_those_that_waited(connections, scratch):
    """Three times: the places of the writes that a reset has ended are free again.

    SHOULD: no text requires a target to open its window again. One that does not takes no command any more.
    """
    session = connections.login(offer=SOLICITED)
    unit = LogicalUnit(session, block_size=scratch.block_size)
    for turn in range(3):
        writes = Waiting(session, scratch, 1710 + turn)
        writes.take(writes.look())
        request = session.send(TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET, lun=session.lun))
        answered = False
        for _ in range(len(writes.commands) + 1):
            came = writes.look()
            answered = answered or any(
                isinstance(pdu, TaskResponse) and pdu.itt == request.itt for pdu in came
            )
            writes.take(came)
            if not writes.answer() and answered:
                break
        session.validator.forget(request.itt)
        writes.forget()
        if not answered:
            pytest.skip("the reset has no response while writes wait")
        assert reopened(session), (
            f"after reset {turn + 1} of {len(writes.commands)} writes the command window is closed, with "
            f"nothing outstanding: MaxCmdSN {session.numbers.max_cmd_sn}, next CmdSN {session.numbers.cmd_sn}"
        )
        unit.clear_attentions()
        many = Outstanding(session, scratch)
        tags = {many.write(at, blocks_of(scratch, at, 1720 + turn)): at for at in range(many.depth)}
        for itt, one in many.finish().items():  # without those that were BUSY
            where = f"write {tags[itt] + 1} of {many.depth} after reset {turn + 1}"
            assert one.status == ScsiStatus.GOOD, f"{where}: status {one.status:#04x}"
            found = unit.read(scratch.lba + tags[itt] * BLOCKS, BLOCKS).good_data()
            assert found == blocks_of(scratch, tags[itt], 1720 + turn), f"{where}: its blocks have other data"
