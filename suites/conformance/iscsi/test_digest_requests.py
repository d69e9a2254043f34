"""Wrong data digests of what is no solicited write: a text, and unsolicited Data-Out (RFC 7143 7.8)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, RejectReason
from storagetest.wire.iscsi.pdu import DataOut, Reject, ScsiResponse, TextRequest
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .test_digest import with_digests

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 7.8, 11.17.1", level="MUST"),
]


@pytest.mark.case(
    "ISC-DIGEST-DATA-TEXT", kills=("data-digest-of-text-request",), builds_on=("ISC-DIGEST-15",)
)
def test_a_text_request_with_a_wrong_data_digest_is_not_answered(connections, observe):
    """It is rejected with the reason Data-Digest-Error, or the connection ends."""
    wanted = {"HeaderDigest": "None", "DataDigest": "CRC32C"}
    session = connections.discovery(offer=wanted)
    if session.negotiated["DataDigest"] != "CRC32C":
        pytest.skip("the target takes no data digest in a discovery session")
    session.send(TextRequest(data=b"SendTargets=All\0"), data_digest_xor=1)
    answer = session.receive(expected="a Reject, or a close")
    observe(answer.summary() if answer else "a close")
    if answer is None:
        session.logged_in = False
        return
    assert isinstance(answer, Reject), f"a Text Request with a wrong data digest: {answer.summary()}"
    assert answer.reason == RejectReason.DATA_DIGEST_ERROR, f"reason {answer.reason:#04x}"


@pytest.mark.case(
    "ISC-DIGEST-DATA-UNSOLICITED",
    kills=("data-digest-of-unsolicited",),
    builds_on=("ISC-DIGEST-07", "ISC-UNSOL-01"),
)
def test_unsolicited_data_out_with_a_wrong_digest_are_not_written(connections, scratch, observe):
    session = with_digests(connections, header="no", data="yes", ImmediateData="No", InitialR2T="No")
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes: no data are unsolicited")
    unit, data = LogicalUnit(session, block_size=scratch.block_size), scratch.pattern(1, seed=1414)
    if len(data) > min(session.parameters.max_send, session.parameters.first_burst):
        pytest.skip(f"a block of {len(data)} bytes is longer than one Data-Out or the first burst")
    assert unit.write(scratch.lba, scratch.pattern(1)).good
    command = session.start(cdb(WRITE_10, lba=scratch.lba, blocks=1), write=len(data), final=False)
    session.send(DataOut(itt=command.itt, ttt=NO_TAG, data=data), data_digest_xor=1)
    after = session.probe_alive()
    observe(str(after))
    good = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and not pdu.status]
    assert not good, f"a write whose data had a wrong digest ends in GOOD: {after}"
    fresh = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert fresh.read(scratch.lba).data == scratch.pattern(1), "data with a wrong digest were written"
