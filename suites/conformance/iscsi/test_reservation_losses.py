"""What ends registrations, reservations and commands, and what does not (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.cdb import PERSISTENT_RESERVE_OUT, WRITE_10, cdb
from storagetest.wire.scsi.codes import Asc, PrOut, PrType, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import out_list
from storagetest.wire.tcp import ResponseTimeout

from .test_task import send_asked

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PREEMPT AND ABORT", level="MUST", builds_on=RESERVING),
]

REPLACE_LOST_RESERVATION = 0x08


@pytest.mark.case(
    "SCS-PR-LOGOUT",
    section="SPC-4 persistent reservations, I_T nexus loss",
    kills=("registration-ends-with-logout",),
    builds_on=("SCS-PR-36",),
)
def test_a_registration_without_a_reservation_outlives_the_session_of_its_nexus(
    unreserved, connections, facts
):
    a, b = unreserved
    assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    isid = b.runner.isid
    b.runner.logout()
    keys = a.keys().keys
    assert sorted(keys) == [KEY_A, KEY_B], f"after a logout the keys are {[hex(key) for key in keys]}"
    again = LogicalUnit(connections.login("b", isid=isid), block_size=facts.capacity.block_size)
    claim(again.reserve(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=True)
    assert again.reservation().key == KEY_B


@pytest.mark.parametrize("holds", [
    pytest.param(True, marks=pytest.mark.case("SCS-PR-ABORT-HOLDER")),
    pytest.param(False, marks=pytest.mark.case("SCS-PR-ABORT-REGISTRANT")),
], ids=["holder", "registrant"])  # fmt: skip
@pytest.mark.case(kills=("preempt-aborts-nothing",), builds_on=(*RESERVING, "SCS-PR-19"))
def test_preempt_and_abort_ends_the_commands_of_the_preempted_nexus(
    unreserved, connections, facts, scratch, observe, holds
):
    """A write whose data come after the response has no GOOD, and writes nothing.

    A target may wait for the data before it responds; then nothing is judged.
    """
    a, _ = unreserved
    size = facts.capacity.block_size
    victim = LogicalUnit(
        connections.login("c", offer={"ImmediateData": "No", "InitialR2T": "Yes"}), block_size=size
    )
    kind = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    assert a.write(scratch.lba, scratch.pattern(4)).good
    assert victim.register(KEY_B).good
    assert a.register(KEY_A).good
    assert (victim if holds else a).reserve(kind, KEY_B if holds else KEY_A).good
    command = victim.runner.start(cdb(WRITE_10, lba=scratch.lba, blocks=4), write=4 * size)
    asked = victim.runner.expect(ReadyToTransfer)
    preemption = Preemption(a, kind)
    send_asked(victim.runner, command, scratch.pattern(4, seed=240), asked)
    victim.runner.validator.forget(command.itt)
    after = victim.runner.probe_alive()
    preemption.good_or_skip()
    observe(str(after))
    ended = [pdu.status for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]
    assert ScsiStatus.GOOD not in ended, f"the write of the preempted nexus ended with GOOD: {after}"
    a.clear_attentions()
    now = a.read(scratch.lba, 4).good_data()
    assert now == scratch.pattern(4), "data that came after PREEMPT AND ABORT of their nexus were written"


class Preemption:
    """PREEMPT AND ABORT of the nexus with KEY_B, while a write waits for its data.

    ``response`` is what came before these, or None. A unit may serve one nexus after the other: it asks for
    the parameter list, or responds, when the data have come.
    """

    def __init__(self, unit: LogicalUnit, kind: PrType) -> None:
        self._session, self._data = unit.runner, out_list(KEY_A, KEY_B)
        block = cdb(
            PERSISTENT_RESERVE_OUT,
            service_action=int(PrOut.PREEMPT_AND_ABORT),
            type=int(kind),
            allocation=len(self._data),
        )
        self._command: ScsiCommand = self._session.start(block, write=len(self._data))
        self._asked = True
        self.response: ScsiResponse | None = None
        try:
            self._send_list()
        except ResponseTimeout:
            self._asked = False
        else:
            self.response = answered(unit, self._command)

    def _send_list(self) -> None:
        send_asked(self._session, self._command, self._data, self._session.expect(ReadyToTransfer))

    def finish(self) -> None:
        """Send the list if it was not asked for before: now that the data of the write were sent, it is."""
        if not self._asked:
            self._send_list()
            self._session.validator.forget(self._command.itt)
            self._asked = True

    def good_or_skip(self) -> ScsiResponse:
        """Finish, and return the response, which is GOOD; skip if it came later or is a refusal."""
        self.finish()
        if self.response is None:
            pytest.skip("the target responds to PREEMPT AND ABORT when the data have come")
        if self.response.status == ScsiStatus.CHECK_CONDITION:
            pytest.skip(f"PREEMPT AND ABORT is not supported: {self.response.summary()}")
        assert self.response.status == ScsiStatus.GOOD, self.response.summary()
        return self.response


def answered(unit: LogicalUnit, command: ScsiCommand) -> ScsiResponse | None:
    """Return the response to ``command`` if it comes by itself, and forget the command if not."""
    for pdu in unit.runner.probe_alive().pdus:
        if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt:
            return pdu
    unit.runner.validator.forget(command.itt)
    return None


@pytest.mark.case(
    "SCS-PR-LOST", section="SPC-4 REPLACE LOST RESERVATION", kills=("lost-reservation-replaced",)
)
def test_a_reservation_that_is_not_lost_is_not_replaced(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before = a.keys()
    data, kind = out_list(0, KEY_B), int(PrType.EXCLUSIVE_ACCESS)
    answer = b.run(
        PERSISTENT_RESERVE_OUT, data=data, service_action=REPLACE_LOST_RESERVATION, type=kind, allocation=24
    )
    assert not answer.good, f"{answer}; no reservation is lost"
    assert a.keys() == before, f"{answer}: the registrations or PRGENERATION have changed"
    assert a.reservation().key == KEY_A


@pytest.mark.case(
    "SCS-PR-ATTENTION-KEPT",
    section="SAM-5 5.14, SPC-4 CLEAR, unit attention",
    kills=("luns-clear-attention", "evpd-clears-attention"),
    builds_on=("SCS-PR-CLEAR-FREE",),
)
def test_report_luns_and_inquiry_keep_a_unit_attention(unreserved):
    a, b = unreserved
    assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    a.clear_attentions()
    assert b.reserve_out(PrOut.CLEAR, key=KEY_B).good
    for answer in (a.luns(), a.inquiry(), a.inquiry(0x00), a.inquiry(0x83, allocation=4), a.inquiry(0x83)):
        assert answer.good, answer
    answer = a.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_PREEMPTED), (
        f"{answer}; only REPORT LUNS and INQUIRY were sent since CLEAR of another nexus"
    )
