"""Task tags of requests of each kind: all 32 bits are the initiator's, and come back (RFC 7143 11.2.1.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.iscsi.windows import skip_if_serial
from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import format_text
from storagetest.wire.iscsi.pdu import (
    LoginRequest,
    LogoutRequest,
    NopOut,
    ScsiCommand,
    TaskRequest,
    TextRequest,
)
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import ScsiStatus

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.2.1.8", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
TAGS = (0, 1 << 31, 0xFFFFFFFE, 0x01020304, 0xFFFF)
"""Tags that are legal; FFFFFFFFh alone is reserved."""
REQUESTS: dict[str, Pdu] = {
    "SCSI": ScsiCommand(cdb=READY),
    "NOP": NopOut(immediate=True),
    "TASK": TaskRequest(function=TaskFunction.ABORT_TASK, referenced_itt=0x5555),
    "LOGOUT": LogoutRequest(),
}
"""Requests that each target answers in a normal session."""


def returns_tag(session: Initiator, pdu: Pdu) -> None:
    """Send a request; claim that its answer has the task tag of the request."""
    what = f"a {type(pdu).__name__} with the task tag {pdu.itt:#010x}"
    session.send(pdu)
    answer = session.receive(expected=f"the answer to {what}")
    assert answer is not None, f"{what} ended the connection"
    assert answer.itt == pdu.itt, f"{what} is answered {answer.summary()}, of another tag"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"ISC-TAG-{kind}", kills=(f"tag-cut-of-{kind.lower()}",)))
    for kind in REQUESTS
])  # fmt: skip
def test_the_answer_to_a_request_has_its_whole_task_tag(connections, kind):
    pdu = REQUESTS[kind]
    session = None
    for tag in TAGS:
        if session is None or kind == "LOGOUT":
            session = connections.login()
        session.logged_in = kind != "LOGOUT"
        at = {"lun": session.lun} if hasattr(pdu, "lun") else {}
        returns_tag(session, replace(pdu, itt=tag, **at))


@pytest.mark.case("ISC-TAG-TEXT", kills=("tag-cut-of-text",), builds_on=("ISC-DISC-01",))
def test_the_answer_to_a_text_request_has_its_whole_task_tag(connections):
    for tag in TAGS:
        returns_tag(connections.discovery(), TextRequest(itt=tag, data=b"SendTargets=All\0"))


@pytest.mark.case("ISC-TAG-LOGIN", kills=("tag-cut-of-login",))
def test_the_answer_to_a_login_request_has_its_whole_task_tag(connections):
    """The first request of a discovery session, which a target may answer with any status."""
    for tag in TAGS:
        made = connections.open()
        keys = format_text([("InitiatorName", made.name), ("SessionType", "Discovery")])
        returns_tag(made, LoginRequest(itt=tag, isid=b"\x80stora", data=keys))
        made.link.close()  # a target may take one login at a time


@pytest.mark.case(
    "ISC-TAG-ABORT",
    section="RFC 7143 11.2.1.8, 11.5.5",
    kills=("abort-by-low-bits",),
    builds_on=("ISC-TMF-02", "ISC-R2T-01"),
)
def test_abort_task_ends_no_task_whose_tag_has_some_of_its_bits(connections, scratch):
    """A write waits for its data; each tag that is aborted differs from its own by one bit."""
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    data = scratch.pattern(1, seed=1311)
    write, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=1), len(data))
    skip_if_serial(session)
    for bit in (0, 7, 8, 15, 16, 24, 31):
        tag = write.itt ^ 1 << bit
        session.task(TaskFunction.ABORT_TASK, immediate=True, referenced_itt=tag, ref_cmd_sn=write.cmd_sn)
    session.send_data(write, data, start=r2t.buffer_offset, end=len(data), ttt=r2t.ttt)
    done = session.finish(write, data)
    assert done.status == ScsiStatus.GOOD, (
        f"a write ends in status {done.status:#04x} after ABORT TASK of tags that differ in one bit"
    )
    assert scratch.read_back(session, 1) == data, (
        "the data of a write are lost after ABORT TASK of tags that differ from its own in one bit"
    )
