"""Logout and SNACK (RFC 7143 11.14, 11.15, 11.16, 7.1.5)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import LogoutReason, LogoutResult, SnackType
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import DataIn, LogoutRequest, LogoutResponse, ScsiResponse, SnackRequest
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.cdb import READ_10, TEST_UNIT_READY, cdb
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.15", level="MUST")]


FIRST = 1.0
"""Seconds that the target has for closing first after a logout (chosen)."""


def words(answer: object) -> str:
    """Return the PDU's summary, or that the target closed."""
    return "closed" if answer is None else answer.summary()  # type: ignore[attr-defined]  # a Pdu


def closes_after(session: Initiator, observe, reason: LogoutReason) -> None:
    """Log out, and claim that the target closes the connection.

    RFC 7143 11.15: "After Logout, the TCP connection referred by the CID MUST be closed at both ends". Either
    end may be first, so a target that waits is sent a FIN.
    """
    answer = session.logout(reason=reason)
    assert answer.response == LogoutResult.SUCCESS, f"{words(answer)}; 11.15.1: 0 is success"
    try:
        after = session.receive(deadline=FIRST)
        observe("the target closes first")
    except ResponseTimeout:
        session.link.shutdown_write()
        try:
            after = session.receive()
        except ResponseTimeout:
            raise AssertionError(
                f"after the Logout Response and our FIN the target keeps the connection open for "
                f"{session.deadline:g} s; 11.15: it MUST be closed at both ends"
            ) from None
        observe("the target closes when the initiator has closed")
    assert after is None, f"after the Logout Response: {words(after)}; 11.15: the connection is closed"


@pytest.mark.case("ISC-LOGOUT-01", section="RFC 7143 11.14.1, 11.15", kills=("logout-failed",))
def test_close_the_session_succeeds_and_the_target_closes(session, observe):
    closes_after(session, observe, LogoutReason.CLOSE_SESSION)


@pytest.mark.case("ISC-LOGOUT-02", section="RFC 7143 11.14.1, 11.15", kills=("logout-open",))
def test_close_the_connection_succeeds_and_the_target_closes(session, observe):
    closes_after(session, observe, LogoutReason.CLOSE_CONNECTION)


@pytest.mark.case("ISC-LOGOUT-03", section="RFC 7143 11.15.1", kills=("logout-cid", "logout-response-code"))
def test_close_of_a_connection_that_is_not_there_is_not_found(session, observe):
    session.send(LogoutRequest(reason=LogoutReason.CLOSE_CONNECTION, cid=0x4242))
    answer = session.receive()
    observe(words(answer))
    assert not (isinstance(answer, LogoutResponse) and answer.response == LogoutResult.SUCCESS)
    session.logged_in = answer is not None


@pytest.mark.case(
    "ISC-LOGOUT-AFTER", section="RFC 7143 11.15", kills=("logout-still-served",), builds_on=("ISC-LOGOUT-01",)
)
def test_no_command_is_served_after_the_logout_response(session, observe):
    """The session has ended: the command may be ignored or rejected, or meet a closed connection."""
    answer = session.logout()
    assert answer.response == LogoutResult.SUCCESS, f"{words(answer)}; 11.15.1: 0 is success"
    try:
        session.start(cdb(TEST_UNIT_READY))
        after = session.receive(deadline=FIRST)
    except ResponseTimeout:
        observe("ignored")
    except (PeerClosed, OSError):
        observe("closed")
    else:
        observe(words(after))
        assert not isinstance(after, ScsiResponse), f"{words(after)}: the session ended by a logout"


@pytest.mark.case(
    "ISC-LOGOUT-CID",
    section="RFC 7143 11.14.3, 11.12.7",
    kills=("logout-cid-not-zero",),
    builds_on=("ISC-LOGOUT-02",),
)
def test_a_connection_may_have_any_cid(connections):
    """It is closed by the CID of its login."""
    closed = connections.login(cid=0xBEEF).logout(reason=LogoutReason.CLOSE_CONNECTION, cid=0xBEEF)
    assert closed.response == LogoutResult.SUCCESS, f"{words(closed)}: the CID is that of the login"


@pytest.mark.case(
    "ISC-LOGOUT-ANY-CID",
    section="RFC 7143 11.14.3",
    kills=("logout-session-cid",),
    builds_on=("ISC-LOGOUT-01",),
)
def test_a_session_is_closed_whatever_the_cid_is(connections):
    """The CID is valid only if the reason is not to close the session."""
    closed = connections.login().logout(reason=LogoutReason.CLOSE_SESSION, cid=0xBEEF)
    assert closed.response == LogoutResult.SUCCESS, (
        f"{words(closed)} to a logout that closes the session; its CID is not valid, and to be ignored"
    )


@pytest.mark.case("ISC-LOGOUT-04", section="RFC 7143 11.15.1", kills=("logout-recovery",))
def test_removal_for_recovery_at_error_recovery_level_zero_is_not_supported(session, observe):
    session.send(LogoutRequest(reason=LogoutReason.RECOVERY, cid=0))
    answer = session.receive()
    observe(words(answer))
    if isinstance(answer, LogoutResponse):
        assert answer.response == LogoutResult.RECOVERY_NOT_SUPPORTED, f"response {answer.response}"
    session.logged_in = answer is not None


@pytest.mark.case("ISC-LOGOUT-05", section="RFC 7143 11.14.1, 7.7", kills=("logout-reason",))
def test_a_reason_that_is_not_defined_is_not_a_success(session, observe):
    session.send(LogoutRequest(reason=99))
    answer = session.receive()
    observe(words(answer))
    assert not (isinstance(answer, LogoutResponse) and answer.response == LogoutResult.SUCCESS), words(answer)
    session.logged_in = answer is not None


@pytest.mark.case("ISC-LOGOUT-06", section="RFC 7143 11.15", kills=("logout-itt",))
def test_the_response_has_the_task_tag_of_the_request(session):
    sent = session.send(LogoutRequest(itt=0x3C3C))
    assert session.expect(LogoutResponse).itt == sent.itt
    session.logged_in = False


@pytest.mark.case("ISC-LOGOUT-07", section="RFC 7143 4.2.2.1", kills=("exp-cmd-sn-stuck",))
def test_a_logout_that_is_not_immediate_uses_a_cmd_sn(session):
    number = session.numbers.cmd_sn
    assert session.logout(immediate=False).exp_cmd_sn == plus(number, 1)


@pytest.mark.case("ISC-LOGOUT-08", section="RFC 7143 6.3.1, 6.3.5", kills=("login-tsih-accepted",))
def test_after_a_logout_the_session_is_gone(connections, session):
    session.logout()
    connections.refused("a", isid=session.isid, tsih=session.tsih)


@pytest.mark.case(
    "ISC-LOGOUT-09", section="RFC 7143 11.14", level="MAY", no_mutant_reason="a MAY never fails"
)
@pytest.mark.usefixtures("unit")
def test_a_command_sent_before_the_logout_is_answered_before_it(session, scratch):
    command = session.start(cdb(READ_10, lba=scratch.lba, blocks=4), read=4 * scratch.block_size)
    session.send(LogoutRequest(immediate=False))
    done = session.finish(command)
    assert done.status == 0
    assert session.expect(LogoutResponse).response == LogoutResult.SUCCESS
    session.logged_in = False


# After a success below ErrorRecoveryLevel 2 both fields are "to be ignored": what stands there is recorded.
@pytest.mark.case(
    "ISC-LOGOUT-10", section="RFC 7143 11.15.3, 11.15.4", level="MAY", no_mutant_reason="a MAY never fails"
)
def test_time2wait_and_time2retain_are_within_the_range_of_their_keys(session, observe):
    answer = session.logout()
    observe(f"Time2Wait {answer.time2wait} Time2Retain {answer.time2retain}")
    assert answer.time2wait <= 3600
    assert answer.time2retain <= 3600


@pytest.mark.case("ISC-LOGOUT-11", section="RFC 7143 6.3.5", kills=("logout-failed",))
def test_many_sessions_come_and_go(connections):
    for letter in "abcdefgh":
        initiator = connections.login(letter)
        assert initiator.logout().response == LogoutResult.SUCCESS


SNACK = ("ISC-SNACK-01",)
"""Without it, no SNACK of another type is judged."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            SnackType.DATA_OR_R2T,
            marks=pytest.mark.case("ISC-SNACK-01", kills=("snack-answered", "reject-reason-none")),
        ),
        pytest.param(
            SnackType.STATUS,
            marks=pytest.mark.case("ISC-SNACK-02", kills=("snack-answered",), builds_on=SNACK),
        ),
        pytest.param(
            SnackType.DATA_ACK,
            marks=pytest.mark.case("ISC-SNACK-03", kills=("snack-answered",), builds_on=SNACK),
        ),
        pytest.param(
            SnackType.R_DATA,
            marks=pytest.mark.case("ISC-SNACK-04", kills=("snack-answered",), builds_on=SNACK),
        ),
    ],
)
@pytest.mark.case(section="RFC 7143 11.16", level="MUST")
def test_a_snack_at_error_recovery_level_zero_is_rejected(session, unit, observe, kind):
    assert session.parameters.error_recovery_level == 0
    unit.inquiry()
    last = session.numbers.exp_stat_sn
    run = plus(last, -1) if kind is SnackType.STATUS else 0
    session.send(SnackRequest(kind=kind, lun=session.lun, itt=0xFFFFFFFF, beg_run=run, run_length=1))
    after = session.probe_alive()
    observe(str(after))
    again = [pdu for pdu in after.pdus if isinstance(pdu, (DataIn, ScsiResponse))]
    assert not again, f"sent again at ErrorRecoveryLevel 0: {after}"
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"
