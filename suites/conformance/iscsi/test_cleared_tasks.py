"""Functions that end a task or whole task sets, and a write that waits for its data (RFC 7143 11.5.1).

Each case judges a function that was complete before the data came. A target may refuse a function that it
does not support, or respond to it after the data that it has asked for (4.2.3.3): then nothing is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.pdu import ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.scsi.cdb import MODE_SENSE_6, WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.data import decode_mode6
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_task import abort, is_r2t, result, send_asked
from .test_task_sets import SOLICITED

if TYPE_CHECKING:
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.5.1", level="MUST")]

BLOCKS = 4
"""Blocks of the write that waits (chosen)."""
CONTROL = 0x0A
"""The Control mode page, whose byte 2 has TST in its upper three bits (SPC-4)."""
LONGEST = 255
"""The allocation length of MODE SENSE(6) (SPC-4)."""


class Waiting:
    """A write that waits for its data, to blocks that hold a pattern (seed 0)."""

    def __init__(self, connections, scratch) -> None:
        self.scratch = scratch
        self.session: Initiator = connections.prepared(scratch, BLOCKS, **SOLICITED)
        block = cdb(WRITE_10, lba=scratch.lba, blocks=BLOCKS)
        self.command: ScsiCommand
        self.asked: ReadyToTransfer
        self.command, self.asked = self.session.start_write(block, BLOCKS * scratch.block_size)

    def is_ended_by(self, by: Initiator, function: TaskFunction, observe) -> None:
        """Send a function, and the data of the write; claim that they are not written.

        Skip if the function was not complete before the data came.
        """
        ends_one = function == TaskFunction.ABORT_TASK
        sent = by.send(abort(self.command) if ends_one else TaskRequest(function=function, lun=by.lun))
        came = by.probe_alive().pdus
        by.validator.forget(sent.itt)
        answers = [pdu for pdu in came if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt]
        ended = self.send_data()
        if not answers or answers[0].response != TaskResult.COMPLETE:
            found = result(answers[0]) if answers else "no response before the data came"
            pytest.skip(f"{function.name}: {found}")
        observe(f"the write ended with {ended}")
        name = f"{function.name} is {TaskResult.COMPLETE.name}"
        assert ScsiStatus.GOOD not in ended, f"{name}, and a write whose data came after it ended with GOOD"
        unit = LogicalUnit(by, block_size=self.scratch.block_size)
        unit.clear_attentions()
        found = unit.read(self.scratch.lba, BLOCKS).good_data()
        assert found == self.scratch.pattern(BLOCKS), f"{name}, and data that came after it were written"

    def send_data(self) -> list[int]:
        """Send the data that are asked for, and return the status of the write, if it has one."""
        data, asked, ended = self.scratch.pattern(BLOCKS, seed=1301), [self.asked], []
        while asked:
            for r2t in asked:
                send_asked(self.session, self.command, data, r2t)
            came = self.session.probe_alive().pdus
            asked = [pdu for pdu in came if is_r2t(pdu, self.command)]
            ended += [
                pdu.status for pdu in came if isinstance(pdu, ScsiResponse) and pdu.itt == self.command.itt
            ]
        self.session.validator.forget(self.command.itt)
        return ended


@pytest.mark.parametrize("function", [
    pytest.param(TaskFunction.ABORT_TASK, id="task", marks=pytest.mark.case(
        "ISC-ABORT-OWN", kills=("aborted-write-written",), builds_on=("ISC-TMF-02",))),
    pytest.param(TaskFunction.LOGICAL_UNIT_RESET, id="reset", marks=pytest.mark.case(
        "ISC-RESET-OWN", kills=("reset-write-written",), builds_on=("ISC-TMF-04",))),
    pytest.param(TaskFunction.ABORT_TASK_SET, id="abort", marks=pytest.mark.case(
        "ISC-SET-OWN", kills=("abort-set-not-done",), builds_on=("ISC-TMF-14",))),
    pytest.param(TaskFunction.CLEAR_TASK_SET, id="clear", marks=pytest.mark.case(
        "ISC-CLEAR-OWN", kills=("clear-set-not-done",), builds_on=("ISC-TMF-15",))),
    pytest.param(TaskFunction.TARGET_WARM_RESET, id="warm", marks=pytest.mark.case(
        "ISC-WARM-OWN", kills=("warm-reset-not-done",), builds_on=("ISC-TMF-16",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.5.1, 4.2.3.3")
def test_a_function_ends_a_write_of_its_own_session(connections, scratch, observe, function):
    """Whatever TST states, a task set holds the tasks of the I_T nexus that sends the function (SAM-5)."""
    waiting = Waiting(connections, scratch)
    waiting.is_ended_by(waiting.session, function, observe)


@pytest.mark.case(
    "ISC-CLEAR-OTHER",
    section="RFC 7143 11.5.1, SPC-4 Control mode page",
    kills=("clear-set-not-done",),
    builds_on=("ISC-TMF-15",),
)
def test_clear_task_set_ends_a_write_of_another_initiator_in_the_same_task_set(connections, scratch, observe):
    """With a TST of 0 the unit has one task set for all I_T nexuses."""
    other = connections.login("b")
    fields = {"read": LONGEST, "page": CONTROL, "dbd": 1, "allocation": LONGEST}
    answer = LogicalUnit(other, block_size=scratch.block_size).run(MODE_SENSE_6, **fields)
    page = decode_mode6(answer.data).get(CONTROL, b"") if answer.good else b""
    if not page:
        pytest.skip(f"the unit has no Control mode page: {answer}")
    if page[0] >> 5:
        pytest.skip(f"TST is {page[0] >> 5}: each I_T nexus has a task set of its own")
    Waiting(connections, scratch).is_ended_by(other, TaskFunction.CLEAR_TASK_SET, observe)
