"""Writes with less or more data than they state, and immediate writes; an abort while the data are awaited.

RFC 7143 4.2.2.1 (immediate commands), 7.9 and 11.7 (sequences of Data-Out), 11.3.4, 11.6.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storagetest.wire.iscsi.codes import TaskResult
from storagetest.wire.iscsi.pdu import DataOut, ReadyToTransfer, Reject, ScsiResponse, TaskResponse
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus

from .test_task import abort, is_r2t, result, send_zeroes, waiting_write
from .windows import skip_if_busy

if TYPE_CHECKING:
    from storagetest.wire.iscsi.pdu import ScsiCommand

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.7", level="MUST", builds_on=("ISC-R2T-01",)),
]

BLOCKS = 4
"""Blocks of a write (chosen)."""
SOLICITED = {"ImmediateData": "No", "InitialR2T": "Yes"}


def claims_all(response: ScsiResponse, missing: int) -> bool:
    """Whether a response states that every byte was transferred, and not that ``missing`` bytes were not."""
    return not response.status and not (response.underflow and response.residual >= missing)


@pytest.mark.case("ISC-DATAOUT-EARLY", section="RFC 7143 7.9, 11.7.1, 11.4.5.1", kills=("early-final-good",))
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
