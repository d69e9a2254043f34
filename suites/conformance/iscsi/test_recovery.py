"""SNACK where it was agreed on, commands after a digest error, and what a PDU seldom has.

RFC 7143 11.16: a target with an ErrorRecoveryLevel of 1 or more has every type of SNACK. 4.2.2.2: a status
that was not acknowledged is kept. 7.8: a command whose data were discarded goes on, or ends.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import SnackType
from storagetest.wire.iscsi.encoding import AHS_BIDIRECTIONAL, Ahs, Pdu
from storagetest.wire.iscsi.errors import ResponseOverdue
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import (
    DataOut,
    NopIn,
    NopOut,
    ReadyToTransfer,
    ScsiResponse,
    SnackRequest,
)
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.tcp import ResponseTimeout

from .test_digest import with_digests

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

READY = cdb(c.TEST_UNIT_READY)
BRIEF = 3.0
"""Seconds that an answer that must not come is waited for, at most (chosen)."""
HIGH = 1 << 31
"""Bytes that are expected and do not come: the sign of a number of 32 bits (chosen)."""


# SNACK


def shown(answer: Pdu | None) -> str:
    """Return the summary of an answer."""
    return "closed" if answer is None else answer.summary()


def recovering(connections) -> Initiator:
    """Log in with ErrorRecoveryLevel 1 or more; skip if the target has only level 0."""
    session = connections.login(offer={"ErrorRecoveryLevel": "2"})
    level = session.parameters.error_recovery_level
    if not level:
        pytest.skip("ErrorRecoveryLevel is 0")
    return session


@pytest.mark.case(
    "ISC-SNACK-STATUS",
    section="RFC 7143 11.16, 13.20",
    kills=("snack-of-no-level",),
    builds_on=("ISC-STATSN-01",),
)
def test_a_status_that_was_not_acknowledged_is_sent_again(connections):
    """At ErrorRecoveryLevel 1 and more: with the StatSN, the task tag and the status that it had."""
    session = recovering(connections)
    command = session.start(READY)
    first = session.expect(ScsiResponse)
    session.validator.forget(command.itt)
    snack = SnackRequest(kind=SnackType.STATUS, beg_run=first.stat_sn, run_length=1)
    session.send(snack, overrides={"exp_stat_sn": first.stat_sn})
    again = session.receive(expected=f"the SCSI Response with StatSN {first.stat_sn:#x}, for a SNACK")
    level = f"ErrorRecoveryLevel is {session.parameters.error_recovery_level}"
    assert isinstance(again, ScsiResponse), f"a SNACK of a status is answered {shown(again)}; {level}"
    found = (again.itt, again.stat_sn, again.status)
    assert found == (first.itt, first.stat_sn, first.status), (
        f"{again.summary()} for a SNACK of StatSN {first.stat_sn:#x}, which was {first.summary()}"
    )


# Digests


@pytest.mark.case(
    "ISC-DIGEST-ENDS",
    section="RFC 7143 7.8",
    kills=("digest-reject-then-nothing",),
    builds_on=("ISC-DIGEST-07",),
)
def test_a_write_whose_data_were_discarded_goes_on_or_ends(connections, scratch, observe):
    """The first of two Data-Out has a wrong digest: an R2T asks for data, or the write ends with no GOOD.

    A target may end the connection, and with it the command.
    """
    session = with_digests(connections, header="no", data="yes", ImmediateData="No", InitialR2T="Yes")
    data, size = scratch.pattern(2, seed=1505), scratch.block_size
    if size > session.parameters.max_send:
        pytest.skip(f"a block of {size} bytes is longer than one Data-Out")
    command, r2t = session.start_write(cdb(c.WRITE_10, lba=scratch.lba, blocks=2), len(data))
    if r2t.desired_length < len(data):
        pytest.skip(f"the R2T asks for {r2t.desired_length} bytes of two blocks")
    for number in (0, 1):
        at = number * size
        out = DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=at,
                      final=bool(number), data=data[at : at + size])  # fmt: skip
        session.send(out, data_digest_xor=1 - number)
    came = []
    try:
        for pdu in session.responses("the end of a write whose data had a wrong digest"):
            came.append(shown(pdu))
            if pdu is None or isinstance(pdu, (ReadyToTransfer, ScsiResponse)):
                break
    except (ResponseTimeout, ResponseOverdue) as error:
        raise AssertionError(
            f"a write whose data had a wrong digest neither goes on nor ends; received: {came}"
        ) from error
    session.validator.forget(command.itt)
    observe(" ".join(came))
    good = isinstance(pdu, ScsiResponse) and pdu.status == ScsiStatus.GOOD
    assert not good, f"GOOD for data with a wrong digest: {came}"


# What a PDU seldom has


@pytest.mark.case(
    "ISC-DISC-NOP", section="RFC 7143 4.3", kills=("nop-in-discovery",), builds_on=("ISC-DISC-01",)
)
def test_a_ping_in_a_discovery_session_is_not_answered(discovery, observe):
    """It accepts SendTargets and a logout; "all other requests MUST be rejected"."""
    sent = discovery.send(NopOut(immediate=True, itt=discovery.numbers.itt(), data=b"ping"))
    try:
        answer = discovery.receive(deadline=min(BRIEF, discovery.deadline))
    except ResponseTimeout:
        discovery.validator.forget(sent.itt)
        observe("no answer")
        return
    observe(shown(answer))
    if answer is None:
        discovery.logged_in = False
    served = isinstance(answer, NopIn) and answer.itt == sent.itt
    assert not served, f"a ping is served in a discovery session: {shown(answer)}"


@pytest.mark.case(
    "ISC-AHS-IMMEDIATE",
    section="RFC 7143 11.2.2, 11.2.3, 11.3",
    kills=("data-before-ahs-end",),
    builds_on=("ISC-UNSOL-01",),
)
def test_immediate_data_begin_behind_additional_headers(connections, scratch, observe):
    """A write that is GOOD has its own data. A target may refuse a write with an additional header."""
    session = connections.prepared(scratch, ImmediateData="Yes")
    data = scratch.pattern(1, seed=1506)
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    if len(data) > min(session.parameters.max_send, session.parameters.first_burst):
        pytest.skip(f"a block of {len(data)} bytes is longer than the immediate data that the target takes")
    ahs = (Ahs(AHS_BIDIRECTIONAL, b"\0" + bytes(4)),)
    command = session.start(cdb(c.WRITE_10, lba=scratch.lba, blocks=1), data=data, ahs=ahs)
    session.validator.sent_invalid()
    after = session.probe_alive()
    observe(str(after))
    ended = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    session.validator.forget(command.itt)
    if not ended or ended[0].status != ScsiStatus.GOOD:
        pytest.skip(f"a write with an additional header is not executed: {after}")
    assert scratch.read_back(connections.login("b"), 1) == data, (
        "a write with an additional header and immediate data is GOOD, and has other data"
    )


@pytest.mark.case(
    "ISC-RESIDUAL-HIGH",
    section="RFC 7143 11.4.5.1",
    kills=("residual-signed",),
    builds_on=("ISC-RESIDUAL-WIDE",),
)
def test_a_residual_may_have_its_highest_bit(connections, scratch):
    """One block is read, and 2 GiB more are expected. An error is a target's choice, too."""
    session, size = connections.login(), scratch.block_size
    block = cdb(c.READ_16, lba=scratch.lba, blocks=1)
    done = session.command(block, read=size + HIGH)
    if done.status == ScsiStatus.CHECK_CONDITION:
        return
    assert not done.status, f"READ(16) of a block, {size + HIGH} bytes expected: status {done.status:#x}"
    found = done.underflow, done.overflow, done.residual
    assert found == (True, False, HIGH), (
        f"READ(16) of a block, {size + HIGH} bytes expected: U, O and residual are {found}"
    )
