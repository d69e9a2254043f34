"""What comes between the pieces of a text, or between a write and its unsolicited data, disturbs neither.

RFC 7143 6.2: a text goes on until its end, under its task tag. 4.2.5.2: unsolicited data are those of the
command that has their task tag, whatever other requests come between.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, AsyncEvent
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, format_text, parse_text
from storagetest.wire.iscsi.pdu import TextRequest, TextResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import ScsiStatus

from .test_steps import rest_of_text
from .windows import skip_if_busy, skip_if_serial

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

READY = cdb(c.TEST_UNIT_READY)
PRIVATE = [(f"X-org.storagetest.between-{number:02}", "1") for number in range(32)]
"""Private keys, whose answers are more than 512 bytes."""


def skip_if_renegotiating(session: Initiator) -> None:
    """Skip if the target asks for a text of its own with its responses: one text is open at a time (6.4)."""
    session.ping()
    if any(message.event == AsyncEvent.RENEGOTIATE for message in session.async_messages):
        pytest.skip("the target asks for a Text Request at any time (11.9.1)")


def others(session: Initiator) -> None:
    """Send a ping and a command, and claim that both are served."""
    assert session.ping(b"between").data == b"between", "a ping between two pieces has other data"
    done = session.command(READY)
    skip_if_busy(done.status)
    assert done.status == ScsiStatus.GOOD, f"a command between two pieces: status {done.status:#04x}"


@pytest.mark.case(
    "ISC-BETWEEN-TEXT",
    section="RFC 7143 6.2, 11.10",
    kills=("text-between-forgotten",),
    builds_on=("ISC-TEXT-02", "ISC-TEXT-CUT"),
)
def test_a_text_goes_on_after_other_requests(session, observe):
    """A ping and a command come between two pieces of SendTargets, which has no value."""
    skip_if_renegotiating(session)
    whole = session.text(("SendTargets", ""))
    sent = session.send(TextRequest(final=False, continues=True, data=b"SendTar"))
    first = session.receive(expected="a Text Response")
    if not isinstance(first, TextResponse) or first.final or first.ttt == NO_TAG:
        observe(f"text that continues is met with {first.summary() if first else 'a close'}")
        session.logged_in = first is not None
        pytest.skip("text that continues is refused (ISC-TEXT-CUT)")
    others(session)
    found = rest_of_text(session, sent.itt, first.ttt, b"gets=\0")
    assert parse_text(found) == whole, "SendTargets in two requests, with others between, has other answers"


@pytest.mark.case(
    "ISC-BETWEEN-ANSWER",
    section="RFC 7143 6.2, 11.11",
    kills=("answer-between-forgotten",),
    builds_on=("ISC-TEXT-WHOLE",),
)
def test_an_answer_goes_on_after_other_requests(connections, observe):
    """The answer to many private keys is in several PDUs; a ping and a command come between them."""
    session = connections.login(offer={"MaxRecvDataSegmentLength": "512"})
    skip_if_renegotiating(session)
    sent = session.send(TextRequest(data=format_text(PRIVATE)))
    answer, data, pieces = session.receive(expected="a Text Response"), b"", 1
    while isinstance(answer, TextResponse) and not answer.final and pieces < len(PRIVATE):
        data += answer.data
        others(session)
        session.ask_for_more(sent.itt, answer.ttt)
        answer, pieces = session.receive(expected="the rest of a text"), pieces + 1
    observe(f"{pieces} pieces; the last is {answer.summary() if answer else 'a close'}")
    if pieces == 1 or answer is None:
        session.logged_in = answer is not None
        pytest.skip("the text is refused, or answered in one PDU")
    assert isinstance(answer, TextResponse), f"{answer.summary()} is no rest of a text"
    found = dict(parse_text(data + answer.data))
    missing = [name for name, _ in PRIVATE if found.get(name) != NOT_UNDERSTOOD]
    assert not missing, (
        f"{len(missing)} of {len(PRIVATE)} keys have no answer; requests came between its pieces"
    )


@pytest.mark.case(
    "ISC-BETWEEN-DATA",
    section="RFC 7143 4.2.5.2, 11.7",
    kills=("data-between-lost",),
    builds_on=("ISC-UNSOL-09",),
)
def test_unsolicited_data_may_come_after_other_requests(connections, scratch):
    """A ping and a command come between a write and its unsolicited Data-Out."""
    session = connections.prepared(scratch, 1, ImmediateData="No", InitialR2T="No")
    data = scratch.pattern(1, seed=1507)
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes")
    if len(data) > session.parameters.first_burst:
        pytest.skip(f"a block of {len(data)} bytes is longer than the first burst")
    write = session.start(cdb(c.WRITE_10, lba=scratch.lba, blocks=1), write=len(data), final=False)
    skip_if_serial(session)
    session.ping(b"between")
    session.send_data(write, data, start=0, end=len(data))
    done = session.finish(write, data)
    assert done.status == ScsiStatus.GOOD, (
        f"a write ends in status {done.status:#04x}; a ping came before its data"
    )
    assert scratch.read_back(session, 1) == data, "a write whose data came after a ping has other data"
