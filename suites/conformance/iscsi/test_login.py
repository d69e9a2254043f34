"""The login phase (RFC 7143 4.2.4, 6.3, 11.12, 11.13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import LoginStatus, Stage, TaskFunction
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.keys import format_text, numeric, parse_text, short_binary
from storagetest.wire.iscsi.login import DEFAULT_OFFER, LoginNegotiation
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    NopOut,
    ScsiCommand,
    TaskRequest,
    TextRequest,
)
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.3", level="MUST")]

LIO_DEVIATES = "LIO breaks this rule itself"


def refused(response: LoginResponse | None, *statuses: LoginStatus) -> None:
    """Assert that the login was refused: by a status (of ``statuses``, else class 2) or a close."""
    if response is None:
        assert not statuses, f"closed without a Login Response with {statuses[0].name}"
        return
    received = f"Login Response with status {response.status:04x}"
    if statuses:
        assert response.status in statuses, (
            f"{received}, not {' or '.join(status.name for status in statuses)}"
        )
    else:
        assert response.status >> 8 == 2, f"{received}: the login was not refused as the initiator's error"


def answered(response: LoginResponse | None) -> LoginResponse:
    """Assert that there was a response."""
    assert response is not None, "closed without a Login Response"
    return response


def refused_as(response: LoginResponse | None, status: LoginStatus, observe) -> None:
    """Assert that the login was refused with ``status``, or with 0200, which no sentence forbids."""
    refused(response, status, LoginStatus.INITIATOR_ERROR)
    observe(f"status {response.status:04x}")


@pytest.fixture
def plain(portal) -> None:
    """Skip if the login has to authenticate: the case needs one request and one response."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: its login takes more than one exchange")


@pytest.mark.case("ISC-LOGIN-01", section="RFC 7143 11.13.3", kills=("tsih-zero",))
def test_the_last_response_of_a_new_session_carries_a_tsih_that_is_not_zero(session):
    assert session.tsih != 0


@pytest.mark.case("ISC-LOGIN-02", section="RFC 7143 11.12, 6.3", kills=("login-itt-lost",))
@pytest.mark.usefixtures("plain")
def test_a_login_response_carries_the_task_tag_of_its_request(send_login):
    assert answered(send_login(itt=0x1234)).itt == 0x1234


@pytest.mark.case("ISC-LOGIN-03", section="RFC 7143 11.13", level="SHOULD", kills=("login-isid-changed",))
@pytest.mark.usefixtures("plain")
def test_a_login_response_carries_the_isid_of_its_request(send_login):
    assert answered(send_login(isid=b"\x80\x01\x02\x03\x04\x05")).isid == b"\x80\x01\x02\x03\x04\x05"


@pytest.mark.case("ISC-LOGIN-04", section="RFC 7143 11.13.4", kills=("stat-sn-skips",))
def test_the_first_full_feature_response_continues_the_stat_sn_of_the_login(session):
    session.ping()
    assert not session.validator.violations_of("stat-sn")


@pytest.mark.case("ISC-LOGIN-05", section="RFC 7143 11.12.8", kills=("exp-cmd-sn-stuck",))
@pytest.mark.usefixtures("plain")
def test_a_login_does_not_use_up_the_cmd_sn_that_it_carries(send_login):
    response = answered(send_login(overrides={"cmd_sn": 77}))
    assert response.exp_cmd_sn == 77


@pytest.mark.case("ISC-LOGIN-06", section="RFC 7143 11.13.2", kills=("login-version-active",))
@pytest.mark.usefixtures("plain")
def test_version_active_is_supported_by_both_sides(send_login):
    response = answered(send_login(version_min=0, version_max=0))
    assert response.status == 0
    assert response.version_active == 0, "the initiator has version 0 only"


@pytest.mark.case("ISC-LOGIN-07", section="RFC 7143 11.13.2, 11.13.5", kills=("login-version-accepted",))
def test_an_unsupported_version_is_refused_as_unsupported_version(send_login, observe):
    refused_as(send_login(version_min=0x7F, version_max=0x7F), LoginStatus.UNSUPPORTED_VERSION, observe)


@pytest.mark.parametrize(
    ("csg", "nsg", "transit"),
    [
        pytest.param(2, 3, True, marks=pytest.mark.case("ISC-LOGIN-08", kills=("login-stage-accepted",))),
        pytest.param(
            3,
            3,
            True,
            marks=pytest.mark.case(
                "ISC-LOGIN-09", kills=("login-stage-accepted",), builds_on=("ISC-LOGIN-08",)
            ),
        ),
        pytest.param(
            1,
            2,
            True,
            marks=pytest.mark.case(
                "ISC-LOGIN-10", kills=("login-stage-accepted",), builds_on=("ISC-LOGIN-08",)
            ),
        ),
        pytest.param(1, 1, True, marks=pytest.mark.case("ISC-LOGIN-11", kills=("login-stage-accepted",))),
        pytest.param(
            1,
            0,
            True,
            marks=pytest.mark.case(
                "ISC-LOGIN-12", kills=("login-stage-accepted",), builds_on=("ISC-LOGIN-11",)
            ),
        ),
        pytest.param(
            2,
            0,
            False,
            marks=pytest.mark.case(
                "ISC-LOGIN-13", kills=("login-stage-accepted",), builds_on=("ISC-LOGIN-08",)
            ),
        ),
    ],
)
@pytest.mark.case(section="RFC 7143 6.3, 11.12.3, 7.7", level="MUST")
def test_a_stage_that_is_reserved_or_goes_back_is_refused(send_login, csg, nsg, transit):
    refused(send_login(csg=csg, nsg=nsg, transit=transit))


@pytest.mark.case("ISC-LOGIN-15", section="RFC 7143 6.3, 11.13.5", kills=("login-name-missing-accepted",))
def test_a_login_without_initiator_name_is_refused_as_missing_parameter(send_login, observe):
    refused_as(send_login(drop=("InitiatorName",)), LoginStatus.MISSING_PARAMETER, observe)


@pytest.mark.case("ISC-LOGIN-16", section="RFC 7143 6.3, 11.13.5", kills=("login-target-missing-accepted",))
def test_a_normal_session_without_target_name_is_refused_as_missing_parameter(send_login, observe):
    refused_as(send_login(drop=("TargetName",)), LoginStatus.MISSING_PARAMETER, observe)


# No sentence requires this status with a MUST; the table defines its meaning.
@pytest.mark.case("ISC-LOGIN-17", section="RFC 7143 11.13.5", level="SHOULD", no_mutant_reason=LIO_DEVIATES)
def test_an_unknown_target_is_refused_as_not_found(send_login):
    pairs = {"TargetName": "iqn.2024-01.org.storagetest:there-is-no-such-target"}
    refused(send_login(pairs=pairs), LoginStatus.NOT_FOUND)


@pytest.mark.case("ISC-LOGIN-18", section="RFC 7143 13.21, 7.12", kills=("login-session-type",))
def test_a_session_type_that_is_not_defined_is_refused(send_login):
    response = send_login(pairs={"SessionType": "Abnormal"})
    if response is not None and response.status == 0:
        assert dict(parse_text(response.data)).get("SessionType") == "Reject"
    else:
        refused(response)


@pytest.mark.case("ISC-LOGIN-19", section="RFC 7143 4.2.4", no_mutant_reason=LIO_DEVIATES)
def test_any_other_pdu_before_the_login_terminates_the_connection_at_once(connection):
    connection.send(ScsiCommand(itt=1))
    pdu = connection.receive()
    assert pdu is None, f"the connection was not terminated; received {pdu.summary()}"


EARLY = {
    "NOP": NopOut(immediate=True, itt=1, data=b"early"),
    "TASK": TaskRequest(function=TaskFunction.ABORT_TASK, itt=1, referenced_itt=2),
    "TEXT": TextRequest(itt=1, data=b"SendTargets=All\0"),
    "DATA-OUT": DataOut(itt=1, ttt=1, data=b"early"),
    "LOGOUT": LogoutRequest(itt=1),
}


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"ISC-LOGIN-EARLY-{kind}", kills=("answers-before-login",)))
    for kind in EARLY
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.4, 6.3", level="MUST")
def test_no_request_is_served_before_the_login(connections, connection, observe, kind):
    """A close or a refused login are met; that it is at once a close is the claim of ISC-LOGIN-19."""
    connection.send(EARLY[kind])
    try:
        pdu = connection.receive()
    except PeerClosed:
        pdu = None
    observe("closed" if pdu is None else pdu.summary())
    assert pdu is None or (isinstance(pdu, LoginResponse) and pdu.status), (
        f"before the login a request is met with {pdu.summary()}"
    )
    connections.login("b").ping()


@pytest.mark.case("ISC-LOGIN-21", section="RFC 7143 6.3", no_mutant_reason=LIO_DEVIATES)
@pytest.mark.usefixtures("plain")
def test_a_parameter_offered_twice_in_one_login_is_refused_as_initiator_error(send_login, connection, portal):
    text = format_text(
        [
            ("InitiatorName", connection.name),
            ("SessionType", "Normal"),
            ("TargetName", portal.iqn),
            ("MaxBurstLength", "65536"),
            ("MaxBurstLength", "131072"),
        ]
    )
    refused(send_login(text=text))


@pytest.mark.case("ISC-LOGIN-22", section="RFC 7143 6.3", no_mutant_reason=LIO_DEVIATES)
@pytest.mark.usefixtures("plain")
def test_a_parameter_offered_again_in_a_later_request_is_refused_as_initiator_error(send_login, connection):
    first = answered(send_login(transit=False, nsg=0))
    assert first.status == 0
    again = replace(
        LoginRequest(itt=0, isid=first.isid), transit=True, data=format_text([("MaxBurstLength", "131072")])
    )
    connection.send(again)
    answer = connection.receive()
    assert answer is None or isinstance(answer, LoginResponse)
    refused(answer)


@pytest.mark.case("ISC-LOGIN-23", section="RFC 7143 6.2, 11.12.2", no_mutant_reason=LIO_DEVIATES)
@pytest.mark.usefixtures("plain")
def test_text_that_continues_in_a_second_request_gets_an_empty_response(send_login, connection, portal):
    names = [("InitiatorName", connection.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    first = answered(send_login(text=format_text(names), transit=False, nsg=0, continues=True))
    assert (first.status, first.transit, first.data) == (0, False, b""), first.summary()
    negotiation = LoginNegotiation(dict(names), isid=first.isid)
    negotiation.first()  # the keys of the two requests
    rest = format_text(DEFAULT_OFFER.items())
    request: LoginRequest | None = replace(LoginRequest(itt=0, isid=first.isid), data=rest)
    while request is not None:  # a target may ask for more exchanges
        last = connection.send_login(request)
        request = negotiation.next(last)
    assert (last.status, last.transit, last.nsg) == (0, True, Stage.FULL_FEATURE)


@pytest.mark.case(
    "ISC-LOGIN-24", section="RFC 7143 6.2, 11.12.2", level="MAY", no_mutant_reason="a MAY never fails"
)
@pytest.mark.usefixtures("plain")
def test_c_and_t_together_are_refused(send_login):
    refused(send_login(continues=True, transit=True))


@pytest.mark.case("ISC-LOGIN-25", section="RFC 7143 6.3.1, 6.3.5", kills=("login-reinstatement",))
def test_a_login_with_the_same_name_and_isid_ends_the_old_session(connections, session):
    connections.login("a", isid=session.isid)
    assert session.receive() is None, "the old session's connection was not closed"
    session.logged_in = False


@pytest.mark.case("ISC-LOGIN-26", section="RFC 7143 6.3.1", kills=("second-session-refused",))
def test_another_isid_creates_a_second_session(connections, session):
    """A target that is out of resources (0302h) is, unless it serves another initiator at the same time."""
    try:
        other = connections.login("a")
    except pytest.skip.Exception as limit:
        connections.login("b")
        raise AssertionError(f"another initiator is served at the same time, but: {limit}") from None
    assert other.isid != session.isid
    session.ping()
    other.ping()


@pytest.mark.case("ISC-LOGIN-27", section="RFC 7143 13.2, 11.13.5", kills=("login-connections-accepted",))
def test_a_connection_over_max_connections_is_refused(connections, session, observe):
    if numeric(session.negotiated["MaxConnections"]) != 1:
        pytest.skip("MaxConnections is not 1")
    refusal = connections.refused("a", isid=session.isid, tsih=session.tsih, cid=1)
    observe(str(refusal))
    if isinstance(refusal, LoginRefused):
        assert refusal.status >> 8 in (2, 3)
    session.ping()


@pytest.mark.case("ISC-LOGIN-28", section="RFC 7143 6.3.1", kills=("login-tsih-accepted",))
def test_a_tsih_with_the_isid_of_another_session_is_refused(connections, session):
    connections.refused("a", tsih=session.tsih, cid=1)
    session.ping()


@pytest.mark.parametrize("cid", [
    pytest.param(0, marks=pytest.mark.case("ISC-LOGIN-NAME-AGAIN")),
    pytest.param(1, marks=pytest.mark.case("ISC-LOGIN-NAME-MORE")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.3.1, 4.4.3.1", kills=("login-tsih-accepted",))
def test_no_connection_is_added_to_the_session_of_another_initiator(connections, session, cid):
    """Its ISID and TSIH, and another InitiatorName: that is no session of it, whose own goes on."""
    connections.refused("b", isid=session.isid, tsih=session.tsih, cid=cid)
    session.ping()


@pytest.mark.case("ISC-LOGIN-29", section="RFC 7143 6.1", kills=("login-garbage-accepted",))
@pytest.mark.usefixtures("connection")
def test_text_without_an_equals_sign_is_refused(send_login):
    refused(send_login(text=b"InitiatorName\0SessionType\0"))


@pytest.mark.case("ISC-LOGIN-30", section="RFC 7143 6.1", kills=("login-garbage-accepted",))
def test_a_data_segment_of_binary_noise_does_not_log_in(send_login, connections):
    refused(send_login(text=bytes(range(128, 256))))
    connections.login("b").ping()


@pytest.mark.case("ISC-LOGIN-31", section="RFC 7143 7.14", no_mutant_reason="a proxy cannot crash a target")
def test_the_target_survives_half_a_login_request_and_a_close(connections):
    half = connections.open("a")
    half.send_raw(LoginRequest(itt=0, data=b"InitiatorName=iqn").encode()[:30])
    half.link.close()
    connections.login("b").ping()


@pytest.mark.case(
    "ISC-LOGIN-32", section="RFC 7143 11.1", no_mutant_reason="a proxy cannot make a target die of it"
)
@pytest.mark.usefixtures("plain")
def test_a_login_in_small_pieces_succeeds(connection, portal):
    keys = [("InitiatorName", connection.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    request = connection.assign_numbers(LoginRequest(itt=0, isid=b"\x80bytes", data=format_text(keys)))
    wire = request.encode()
    for at in range(0, len(wire), 7):
        connection.send_raw(wire[at : at + 7])
    response = connection.expect(LoginResponse)
    assert response.status == 0


@pytest.mark.case("ISC-LOGIN-33", section="RFC 7143 11", kills=("login-reserved-checked",))
@pytest.mark.usefixtures("plain")
def test_bits_that_are_not_defined_are_ignored_in_a_login_request(connection, portal):
    keys = [("InitiatorName", connection.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    request = connection.assign_numbers(LoginRequest(itt=0, isid=b"\x80resvd", data=format_text(keys)))
    connection.send_parts(request.parts().override_bytes(22, b"\xff\xff").override_bytes(32, b"\xff" * 16))
    assert connection.expect(LoginResponse).status == 0


@pytest.mark.case("ISC-LOGIN-34", section="RFC 7143 4.2.4", kills=("login-in-ffp",))
def test_a_login_request_in_full_feature_phase_is_rejected_or_ends_the_connection(session, observe):
    session.send(LoginRequest(itt=5, isid=session.isid, tsih=session.tsih))
    after = session.probe_alive()
    observe(str(after))
    assert after.closed or after.reject, f"{after}: neither a Reject nor a close"


@pytest.mark.case("ISC-LOGIN-35", section="RFC 7143 6.3.1, 13.9", kills=("portal-group-tag",))
def test_the_target_declares_its_portal_group_tag(session):
    """A binary value of 16 bits: in decimal, hexadecimal or base64 notation (6.1)."""
    tag = dict(session.replied).get("TargetPortalGroupTag")
    assert tag is not None, "TargetPortalGroupTag was not declared"
    value = short_binary(tag)
    assert value is not None, f"TargetPortalGroupTag is {tag}, which is no number"
    assert 0 <= value <= 65535, f"TargetPortalGroupTag is {tag}"


@pytest.mark.case("ISC-LOGIN-36", section="RFC 7143 11.13.6, 6.3", kills=("login-transit-unasked",))
@pytest.mark.usefixtures("plain")
def test_the_target_does_not_transit_without_a_request(send_login):
    response = answered(send_login(transit=False, nsg=0))
    assert response.status == 0
    assert not response.transit, "T is set, but not in the request"


@pytest.mark.case("ISC-LOGIN-37", section="RFC 7143 6.3.2", kills=("auth-method-unknown",))
@pytest.mark.usefixtures("plain")
def test_a_login_may_begin_in_the_security_stage_with_auth_method_none(send_login):
    response = answered(send_login(csg=0, nsg=1, offer=False, pairs={"AuthMethod": "None"}))
    assert response.status == 0
    assert dict(parse_text(response.data)).get("AuthMethod", "None") == "None"
    assert (response.csg, response.transit and response.nsg) in ((0, 1), (0, False))


@pytest.mark.case("ISC-LOGIN-38", section="RFC 7143 6.3.2", kills=("auth-method-unknown",))
def test_an_unknown_authentication_method_is_refused(send_login):
    response = send_login(
        csg=0, nsg=1, transit=False, offer=False, pairs={"AuthMethod": "X-org.storagetest.none"}
    )
    if response is not None and response.status == 0:
        assert dict(parse_text(response.data)).get("AuthMethod") == "Reject"
    else:
        refused(response)


@pytest.mark.case("ISC-LOGIN-39", section="RFC 7143 11.13.5", kills=("login-refused-open",))
def test_the_response_to_a_refused_login_is_followed_by_a_close(send_login, connection):
    refused(send_login(drop=("InitiatorName",)))
    assert connection.receive() is None, "the connection was not closed"


@pytest.mark.slow
@pytest.mark.exclusive  # some targets (LIO) serve no other login on the portal meanwhile
@pytest.mark.case("ISC-LOGIN-40", section="RFC 7143 4.2.4", level="MAY", no_mutant_reason="a MAY never fails")
def test_a_connection_without_a_login_is_closed_after_a_timeout(connection):
    assert connection.receive(deadline=60.0) is None


@pytest.mark.case("ISC-LOGIN-41", section="RFC 7143 6.3, 7.12", kills=("login-after-failed-one",))
def test_a_login_succeeds_after_one_that_was_refused(connections, portal):
    """A login that fails leaves nothing: the next one, of the same and of another initiator, succeeds."""
    for number in range(1, 4):
        refusal = connections.refused("a", target=f"{portal.iqn}.absent")
        for letter in ("a", "b"):
            try:
                connections.login(letter).ping()
            except LoginRefused as error:
                raise AssertionError(
                    f"the login after refusal {number} ({refusal}) is refused, too: {error}"
                ) from None


@pytest.mark.case(
    "ISC-LOGIN-42", section="RFC 7143 11.13.3", kills=("one-tsih",), builds_on=("ISC-LOGIN-01",)
)
def test_each_session_of_an_initiator_has_a_tsih_of_its_own(connections):
    """The TSIH is the target's handle for one session with an initiator: three sessions, three TSIHs."""
    sessions = [connections.login("a") for _ in range(3)]
    assert len({session.isid for session in sessions}) == 3
    found = [session.tsih for session in sessions]
    assert len(set(found)) == 3, f"three sessions at once have the TSIHs {found}"
    assert 0 not in found
