"""Reserved bits of each request, all of them set: a receiver ignores them (RFC 7143 11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, TaskFunction
from storagetest.wire.iscsi.encoding import EncodedPdu, Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
    set_reserved_bits,
)
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
NO_TASK = 0x5555
"""A task tag that is not in use."""

REQUESTS: dict[str, tuple[Pdu, type[Pdu]]] = {
    "COMMAND": (ScsiCommand(cdb=READY), ScsiResponse),
    "NOP": (NopOut(itt=0x51), NopIn),
    "TASK": (TaskRequest(function=TaskFunction.ABORT_TASK, referenced_itt=NO_TASK), TaskResponse),
    "LOGOUT": (LogoutRequest(), LogoutResponse),
}
"""Requests that each target answers in a normal session, and their responses."""


def with_reserved_bits(parts: EncodedPdu) -> EncodedPdu:
    """Return a copy with every bit set that RFC 7143 11 defines for no field of this header."""
    most = bytes((parts.bhs[0] | 0x80,)) + b"\xff" * (len(parts.bhs) - 1)
    bits = set_reserved_bits(most)
    return parts.override_bytes(0, bytes(own | more for own, more in zip(parts.bhs, bits, strict=True)))


def answered(session: Initiator, pdu: Pdu) -> Pdu:
    """Send a request with its reserved bits set; return what it is answered with, or fail at a close."""
    numbered = session.assign_numbers(pdu)
    session.validator.sent(numbered)
    parts = with_reserved_bits(numbered.parts())
    session.send_parts(parts)
    answer = session.receive(expected=f"the answer to a {type(pdu).__name__} with reserved bits set")
    if answer is None or isinstance(pdu, LogoutRequest):
        session.logged_in = False
    header = f"{type(pdu).__name__} {parts.bhs.hex()}"
    assert answer is not None, f"{header} ended the connection. Its reserved bits are to be ignored"
    return answer


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"ISC-RESERVED-{kind}", kills=(f"reserved-bits-of-{kind.lower()}",)))
    for kind in REQUESTS
])  # fmt: skip
def test_reserved_bits_of_a_request_are_ignored(session, kind):
    pdu, response = REQUESTS[kind]
    answer = answered(session, replace(pdu, lun=session.lun) if hasattr(pdu, "lun") else pdu)
    assert isinstance(answer, response), (
        f"a {type(pdu).__name__} whose reserved bits are set is answered {answer.summary()}. "
        "They are to be ignored"
    )
    if session.logged_in:
        session.ping()


@pytest.mark.case("ISC-RESERVED-TEXT", kills=("reserved-bits-of-text",), builds_on=("ISC-DISC-01",))
def test_reserved_bits_of_a_text_request_are_ignored(discovery):
    answer = answered(discovery, TextRequest(data=b"SendTargets=All\0"))
    assert isinstance(answer, TextResponse), (
        f"a Text Request whose reserved bits are set is answered {answer.summary()}. They are to be ignored"
    )


@pytest.mark.parametrize("way", [
    pytest.param("solicited", marks=pytest.mark.case(
        "ISC-RESERVED-DATA-OUT", kills=("reserved-bits-of-data-out",), builds_on=("ISC-R2T-01",))),
    pytest.param("unsolicited", marks=pytest.mark.case(
        "ISC-RESERVED-UNSOLICITED", kills=("reserved-bits-of-unsolicited",), builds_on=("ISC-UNSOL-01",))),
])  # fmt: skip
def test_reserved_bits_of_data_out_are_ignored(connections, scratch, way):
    offered = {"ImmediateData": "No", "InitialR2T": "Yes" if way == "solicited" else "No"}
    session = connections.login(offer=offered)
    data = scratch.pattern(1, seed=1301)
    if len(data) > min(session.parameters.max_send, session.parameters.first_burst):
        pytest.skip(f"a block of {len(data)} bytes is longer than one Data-Out or the first burst")
    block = cdb(WRITE_10, lba=scratch.lba, blocks=1)
    if way == "solicited":
        write, r2t = session.start_write(block, len(data))
        out = DataOut(itt=write.itt, ttt=r2t.ttt, lun=write.lun, data=data)
    else:
        if session.parameters.initial_r2t:
            pytest.skip("InitialR2T=Yes: no data are unsolicited")
        write = session.start(block, write=len(data), final=False)
        out = DataOut(itt=write.itt, ttt=NO_TAG, data=data)
    numbered = session.assign_numbers(out)
    session.validator.sent(numbered)
    session.send_parts(with_reserved_bits(numbered.parts()))
    done = session.finish(write, data)
    assert done.status == ScsiStatus.GOOD, (
        f"a write whose Data-Out has its reserved bits set ends in status {done.status:#04x}. "
        "They are to be ignored"
    )
    assert scratch.read_back(session, 1) == data, "not what was written"
