"""What is left open when something else comes: a write or a text at a logout, places in the command window.

RFC 7143 11.14 (Logout), 4.2.2.1 (the command window), 13.12 (a segment length that is declared later).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.iscsi.test_sessions import stays_open
from storagetest.suites.conformance.iscsi.windows import skip_if_serial, with_room
from storagetest.wire.iscsi.codes import LogoutReason, LogoutResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, REJECT, format_text, numeric, parse_text
from storagetest.wire.iscsi.pdu import (
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    TextRequest,
    TextResponse,
)
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.14", level="MUST")]

SOLICITED = {"ImmediateData": "No", "InitialR2T": "Yes"}
BLOCKS = 4
"""Blocks of a write (chosen)."""

# A logout


def logs_out(session: Initiator, reason: int, cid: int, what: str) -> None:
    """Claim that a logout succeeds, and that the target closes after it."""
    sent = session.send(LogoutRequest(reason=reason, cid=cid))
    session.logged_in = False
    try:
        for pdu in session.responses("the Logout Response"):
            assert pdu is not None, f"{what}: the connection ends without a Logout Response"
            if isinstance(pdu, LogoutResponse):
                break
    except ResponseTimeout as error:
        raise AssertionError(f"{what}: a logout of reason {reason} is not answered: {error}") from error
    assert pdu.itt == sent.itt, f"{what}: {pdu.summary()}, of another tag than the logout"
    assert pdu.response == LogoutResult.SUCCESS, f"{what}: a logout of reason {reason}: {pdu.summary()}"


@pytest.mark.parametrize("reason", [
    pytest.param(LogoutReason.CLOSE_SESSION, id="session", marks=pytest.mark.case("ISC-LOGOUT-WAITING")),
    pytest.param(LogoutReason.CLOSE_CONNECTION, id="connection", marks=pytest.mark.case(
        "ISC-LOGOUT-WAITING-CID")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.14, 11.14.1",
    kills=("logout-waits-for-data", "logout-executes"),
    builds_on=("ISC-LOGOUT-01", "ISC-LOGOUT-02", "ISC-R2T-01"),
)
def test_a_logout_ends_a_write_that_waits_for_its_data(connections, scratch, reason):
    """It is answered although no data come, and the blocks are as they were."""
    session = connections.login("a", offer=SOLICITED)
    before, data = scratch.pattern(BLOCKS), scratch.pattern(BLOCKS, seed=1351)
    write = cdb(c.WRITE_16, lba=scratch.lba, blocks=BLOCKS)
    done = session.command(write, data=before)
    assert done.status == ScsiStatus.GOOD, f"a write ends in status {done.status:#04x}"
    session.start_write(write, len(data))
    skip_if_serial(session)
    logs_out(session, reason, 0, "a write waits for its data")
    found = scratch.read_back(connections.login("b"), BLOCKS)
    assert found == before, (
        f"blocks have changed by a write of {BLOCKS} blocks that waited for its data at a logout"
    )


@pytest.mark.case(
    "ISC-LOGOUT-OPEN-TEXT",
    section="RFC 7143 11.14, 6.2",
    kills=("logout-refused-in-text",),
    builds_on=("ISC-LOGOUT-01",),
)
def test_a_logout_succeeds_while_a_text_is_not_whole(discovery):
    discovery.send(TextRequest(final=False, continues=True, data=b"SendTar"))
    answer = discovery.receive(expected="an empty Text Response")
    if not isinstance(answer, TextResponse) or answer.data:
        pytest.skip(f"text that continues is met with {answer.summary() if answer else 'a close'}")
    logs_out(discovery, LogoutReason.CLOSE_SESSION, 0, "the first piece of a text has come")


# The command window


@pytest.mark.case(
    "ISC-CMDSN-TEXTS", section="RFC 7143 4.2.2.1", kills=("window-of-texts",), builds_on=("ISC-DISC-06",)
)
def test_the_window_does_not_close_over_many_text_requests(discovery):
    """Requests of a discovery session that are not immediate, each answered in one response or more."""
    if not with_window(discovery):
        pytest.skip("the window is closed after one Text Request")
    stays_open_by_text(discovery)


def with_window(session: Initiator) -> bool:
    """Whether the command window is open after a text."""
    session.text(("SendTargets", "All"))
    return bool(session.window)


def stays_open_by_text(session: Initiator) -> None:
    """Send SendTargets as often as the window has places, and more; claim that it stays open."""
    window = session.window
    for number in range(min(2 * window + 16, 288)):
        assert session.window, (
            f"after {number} Text Requests MaxCmdSN {session.numbers.max_cmd_sn:#x} is below CmdSN "
            f"{session.numbers.cmd_sn:#x}, and no request is outstanding; {window} were allowed at first"
        )
        session.text(("SendTargets", "All"))


@pytest.mark.parametrize("kind", [
    pytest.param("underflow", marks=pytest.mark.case(
        "ISC-CMDSN-UNDERFLOWS", kills=("window-of-underflows",))),
    pytest.param("immediate", marks=pytest.mark.case(
        "ISC-CMDSN-IMMEDIATES", kills=("window-of-immediates",))),
    pytest.param("solicited", marks=pytest.mark.case("ISC-CMDSN-WRITES", kills=("window-of-r2ts",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.2.1", builds_on=("ISC-CMDSN-18", "ISC-R2T-01"))
def test_the_window_does_not_close_over_many_commands_with_data(connections, scratch, kind):
    """Of less than was expected; writes of one block, with immediate data or by R2T."""
    session = connections.login(offer={} if kind == "immediate" else SOLICITED)
    size, data = scratch.block_size, scratch.pattern(1, seed=1352)
    if kind == "immediate" and not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    read, write = (cdb(code, lba=scratch.lba, blocks=1) for code in (c.READ_16, c.WRITE_16))

    def run() -> None:
        if kind == "underflow":
            session.command(read, read=2 * size)
            session.command(write, data=2 * data, expected=2 * size)
        else:
            session.command(write, data=data)

    stays_open(session, run)


@pytest.mark.case(
    "ISC-CMDSN-REJECTS",
    section="RFC 7143 4.2.2.1, 11.17",
    kills=("window-of-rejects",),
    builds_on=("ISC-CMDSN-18",),
)
def test_the_window_does_not_close_over_many_rejects(session):
    """Immediate Text Requests with a tag that the target has not given; it may close instead."""

    def rejected() -> None:
        sent = session.send(TextRequest(immediate=True, ttt=0x1234, data=b"X-org.storagetest.a=1\0"))
        answer = session.receive(expected="a Reject, or the Text Response")
        session.validator.forget(sent.itt)
        session.logged_in = answer is not None
        if not isinstance(answer, Reject):
            pytest.skip(f"no Reject but {answer.summary() if answer else 'a close'}")

    stays_open(session, rejected)


@pytest.mark.case(
    "ISC-CMDSN-WHOLE-WAITING",
    section="RFC 7143 4.2.2.1",
    kills=("window-end-ignored-while-waiting",),
    builds_on=("ISC-CMDSN-WHOLE", "ISC-R2T-01"),
)
def test_the_last_command_of_the_window_is_answered_while_a_write_waits(connections, scratch):
    """Pings, not immediate, up to the MaxCmdSN of the R2T; the data of the write come after all of them."""
    session = connections.login(offer=SOLICITED)
    data = scratch.pattern(1, seed=1353)
    write, r2t = session.start_write(cdb(c.WRITE_16, lba=scratch.lba, blocks=1), len(data))
    skip_if_serial(session)
    with_room(session, 1)
    last, sent = session.numbers.max_cmd_sn, []
    while len(sent) < 256 and (last - session.numbers.cmd_sn) % 2**32 < 2**31:
        sent.append(session.send(NopOut(immediate=False, itt=session.numbers.itt())).itt)
    missing = set(sent)
    try:
        while missing:
            pdu = session.expect(NopIn)
            missing.discard(pdu.itt)
    except ResponseTimeout as error:
        raise AssertionError(
            f"{len(missing)} of {len(sent)} pings up to MaxCmdSN {last:#x} are not answered while a write "
            f"waits for its data: {error}"
        ) from error
    session.send_data(write, data, start=r2t.buffer_offset, end=len(data), ttt=r2t.ttt)
    done = session.finish(write, data)
    assert done.status == ScsiStatus.GOOD, f"the write ends in status {done.status:#04x}"


# A segment length that is declared in another form

LARGE = 4096
FORMS: dict[str, list[list[tuple[str, str]]]] = {
    "BEHIND": [[("X-org.storagetest.key", "1"), ("MaxRecvDataSegmentLength", "512")]],
    "HEX": [[("MaxRecvDataSegmentLength", "0x200")]],
    "AGAIN": [[("MaxRecvDataSegmentLength", str(size))] for size in (1024, 2048, 512)],
}
"""The texts that declare a segment length of 512 bytes: the last one counts (6.1, 13.12)."""


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(
        f"ISC-SEGMENT-LATER-{form}", kills=(f"segment-{form.lower()}-lost",)))
    for form in FORMS
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 13.12, 6.2", builds_on=("ISC-SEGMENT-READ",))
def test_data_in_keep_to_a_segment_length_that_was_declared_in_any_form(connections, scratch, form):
    """Behind another key, in hexadecimal, and several times with different values."""
    session = connections.prepared(scratch, MaxRecvDataSegmentLength=str(LARGE))
    for pairs in FORMS[form]:
        session.send(TextRequest(data=format_text(pairs)))
        after = session.probe_alive(reject_decides=True)
        replies = [pdu for pdu in after.pdus if isinstance(pdu, TextResponse)]
        if not replies or after.closed or after.reject:
            pytest.skip(f"the target negotiates nothing in full feature phase: {after}")
        value = dict(parse_text(replies[0].data)).get("MaxRecvDataSegmentLength", "")
        if value in (REJECT, NOT_UNDERSTOOD, "Irrelevant"):
            pytest.skip(f"MaxRecvDataSegmentLength in full feature phase is answered {value}")
        if declared := numeric(value):
            session.parameters = session.validator.parameters = replace(session.parameters, max_send=declared)
    done = session.command(cdb(c.READ_10, lba=scratch.lba, blocks=16), read=16 * scratch.block_size)
    assert done.data == scratch.pattern(16), "not what was written"
    longest = max(len(pdu.data) for pdu in done.data_ins)
    assert longest <= 512, (
        f"a Data-In of {longest} bytes after the texts {FORMS[form]}; MaxRecvDataSegmentLength is 512 since"
    )


# What comes several times


@pytest.mark.case(
    "ISC-DISC-MANY", section="RFC 7143 C", kills=("send-targets-later-short",), builds_on=("ISC-DISC-AGAIN",)
)
def test_each_of_many_send_targets_has_the_whole_list(discovery):
    """In one discovery session, by name and for all in turn."""
    whole = discovery.text(("SendTargets", "All"))
    for number in range(2, 8):
        if not discovery.window:
            pytest.skip(f"the command window is closed after {number - 1} Text Requests (ISC-CMDSN-TEXTS)")
        found = discovery.text(("SendTargets", "All"))
        assert sorted(found) == sorted(whole), (
            f"SendTargets=All {number} of a session returns {found}; the first one returned {whole}"
        )


@pytest.mark.case(
    "ISC-LOGIN-PORTAL-GROUP-AGAIN",
    section="RFC 7143 13.9",
    kills=("portal-group-once",),
    builds_on=("ISC-LOGIN-35",),
)
def test_each_login_declares_the_portal_group_while_others_are_open(connections):
    """Sessions of two initiators, and another one of the first; each is open when the next one begins."""
    found = {}
    for letter in "aba":
        session = connections.login(letter)
        found[len(found)] = dict(session.replied).get("TargetPortalGroupTag")
    assert None not in found.values(), f"TargetPortalGroupTag of {len(found)} logins, one by one: {found}"
    assert len(set(found.values())) == 1, f"one portal has the tags {found}"
