"""Logins with a key that stands twice, behind another key, or in a list; many logins that fail or are lost.

RFC 7143 6.2: each key of a text is answered, whatever stands before it. 6.3: "An attempt to
renegotiate/redeclare parameters not specifically allowed MUST be detected", which is a rule for declarations,
too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.iscsi.codes import LoginStatus
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, REJECT, format_text, numeric, parse_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER
from storagetest.wire.iscsi.pdu import LoginRequest
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.tcp import PeerClosed

from .test_login import answered, refused
from .test_reinstatement import ends, works

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.3", level="MUST")]

BEFORE = "X-org.storagetest.before"
"""A private key, which no target knows."""
BEHIND = "X-org.storagetest.behind"
"""Another one."""
MANY = 48
"""Logins that fail, or sessions that are lost (chosen)."""
AT_ONCE = {"DefaultTime2Wait": "0", "DefaultTime2Retain": "0"}
"""Keys that state how long a session without a connection is kept, in seconds."""
LONGEST = 5
"""Seconds for which the case waits for that, at most (chosen)."""


@pytest.fixture(autouse=True)
def one_exchange(portal, request) -> None:
    """Skip if the login has to authenticate, and the case needs one request and one response."""
    if portal.credentials is not None and "send_login" in request.fixturenames:
        pytest.skip("the target requires authentication: its login takes more than one exchange")


TWICE = {
    "SEGMENT": (("MaxRecvDataSegmentLength", "8192"), ("MaxRecvDataSegmentLength", "65536")),
    "SAME": (("FirstBurstLength", "8192"), ("FirstBurstLength", "8192")),
    "DIGEST": (("HeaderDigest", "None"), ("HeaderDigest", "None")),
}
"""A declaration with two values, a proposal with the same value again, and a list."""


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(
        f"ISC-LOGIN-TWICE-{form}", kills=(f"login-twice-{form.lower()}",), builds_on=("ISC-LOGIN-21",)))
    for form in TWICE
])  # fmt: skip
def test_a_key_that_stands_twice_in_a_login_is_refused(send_login, connection, portal, form):
    """It is an initiator error, also for a declaration, and also with the value that it had."""
    names = [("InitiatorName", connection.name), ("SessionType", "Normal"), ("TargetName", portal.iqn)]
    refused(send_login(text=format_text([*names, *TWICE[form]])))


@pytest.mark.case(
    "ISC-KEY-BEHIND-REJECT",
    section="RFC 7143 6.2, 6.2.2",
    kills=("keys-behind-reject-lost",),
    builds_on=("ISC-KEY-42",),
)
def test_a_key_behind_one_that_is_rejected_is_answered(connections, portal, observe):
    """MaxBurstLength=0 is no legal value. A target that answers it by Reject goes on with the other keys."""
    initiator = connections.open()
    base = {
        "MaxBurstLength": "0",
        **{key: value for key, value in DEFAULT_OFFER.items() if key != "MaxBurstLength"},
    }
    try:
        initiator.login(target=portal.iqn, base=base, offer={BEHIND: "1"}, credentials=portal.credentials)
    except (LoginRefused, PeerClosed) as error:
        observe(f"the login is refused: {error}")
        return
    replied = dict(initiator.replied)
    observe(f"MaxBurstLength=0: {replied.get('MaxBurstLength')}")
    if replied.get("MaxBurstLength") != REJECT:
        pytest.skip("MaxBurstLength=0 is not rejected (ISC-KEY-31)")
    assert replied.get(BEHIND) == NOT_UNDERSTOOD, (
        f"the key behind one that was rejected: {replied.get(BEHIND)}"
    )
    missing = [
        key for key in ("DefaultTime2Wait", "DefaultTime2Retain", "MaxOutstandingR2T") if key not in replied
    ]
    assert not missing, f"keys behind one that was rejected are not answered: {missing}"


@pytest.mark.case(
    "ISC-SEGMENT-BEHIND-KEY",
    section="RFC 7143 13.12, 6.2",
    kills=("segment-behind-key-lost",),
    builds_on=("ISC-DATAIN-02",),
)
def test_data_in_keep_to_a_segment_length_that_stands_behind_an_unknown_key(connections, scratch):
    """The login has a private key first, and MaxRecvDataSegmentLength last."""
    connections.prepared(scratch)
    others = {key: value for key, value in DEFAULT_OFFER.items() if key != "MaxRecvDataSegmentLength"}
    session = connections.login("b", base={BEFORE: "1", **others, "MaxRecvDataSegmentLength": "512"})
    done = session.command(cdb(c.READ_10, lba=scratch.lba, blocks=16), read=16 * scratch.block_size)
    longest = max(len(pdu.data) for pdu in done.data_ins)
    assert longest <= 512, f"a Data-In of {longest} bytes; MaxRecvDataSegmentLength=512 stood behind {BEFORE}"
    assert done.data == scratch.pattern(16), "not what was written"


@pytest.mark.parametrize("methods", [
    pytest.param("KRB5,None", marks=pytest.mark.case("ISC-LOGIN-METHODS-LAST", kills=("auth-list-first",))),
    pytest.param("None,KRB5", marks=pytest.mark.case("ISC-LOGIN-METHODS-FIRST", kills=("auth-list-last",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.2.1, 6.3.2", builds_on=("ISC-LOGIN-37",))
def test_none_is_found_in_a_list_of_authentication_methods(send_login, methods):
    """The target takes logins without authentication. One that has KRB5 may select it."""
    response = answered(send_login(csg=0, nsg=1, offer=False, pairs={"AuthMethod": methods}))
    assert response.status == LoginStatus.SUCCESS, f"AuthMethod={methods}: status {response.status:04x}"
    selected = dict(parse_text(response.data)).get("AuthMethod", "None")
    assert selected in methods.split(","), f"AuthMethod={methods} is answered {selected}"


@pytest.mark.case(
    "ISC-LOGIN-REFUSED-MANY",
    section="RFC 7143 6.3, 7.12",
    kills=("logins-run-out-refused",),
    builds_on=("ISC-LOGIN-41",),
)
def test_a_login_succeeds_after_many_that_were_refused(connections, portal):
    """A login that fails leaves nothing, however many there are."""
    for _ in range(MANY):
        connections.refused("a", target=f"{portal.iqn}.absent")
    try:
        connections.login("b").ping()
    except LoginRefused as error:
        raise AssertionError(f"the login after {MANY} that were refused is refused, too: {error}") from None


@pytest.mark.case(
    "ISC-LOGIN-LOST-MANY",
    section="RFC 7143 7.4.3, 6.3.5",
    kills=("logins-run-out-lost",),
    builds_on=("ISC-LOGOUT-11",),
)
def test_a_login_succeeds_after_many_sessions_whose_connection_was_lost(connections, observe):
    """Each is open alone, and ends with its connection. A target may keep it for DefaultTime2Wait (6.3.5)."""
    for number in range(1, MANY + 1):
        try:
            session = connections.login(clear=False, offer=AT_ONCE)
        except LoginRefused as error:
            observe(f"refused after {number - 1} lost sessions: {error}")
            break
        if number == 1:
            kept = sum(numeric(session.negotiated.get(key, "")) or 0 for key in AT_ONCE)
            if kept > LONGEST:
                pytest.skip(f"a session without its connection is kept for {kept} s")
        lose(session)
    else:
        return

    def logs_in() -> bool:
        with suppress(LoginRefused):
            lose(connections.login(clear=False, offer=AT_ONCE))
            return True
        return False

    try:
        wait_until(logs_in, session.deadline + kept, "a login after lost sessions", interval=0.5)
    except DeadlineExceeded:
        raise AssertionError(
            f"each login after {number - 1} lost sessions is refused; none is to be kept for more than "
            f"{kept} s"
        ) from None


def lose(session: Initiator) -> None:
    """End the connection of a session without a logout."""
    session.ping()
    session.logged_in = False
    session.link.close()


# Reinstatement by other logins


@pytest.mark.case(
    "ISC-REINST-CID",
    section="RFC 7143 6.3.1, 6.3.5",
    kills=("reinstated-by-cid",),
    builds_on=("ISC-LOGIN-25", "ISC-LOGOUT-CID"),
)
def test_a_login_with_another_cid_reinstates_a_session(connections):
    """A session is its initiator and its ISID: with TSIH 0, the CID of the login names no session."""
    old = connections.login()
    new = connections.login("a", isid=old.isid, cid=7)
    ends(old, "a login with its name and ISID, and another CID, succeeded")
    works(new, "the session of a login with the same name and ISID, and another CID")


@pytest.mark.case(
    "ISC-REINST-STAGES",
    section="RFC 7143 6.3.1, 6.3.5",
    kills=("reinstated-in-one-stage",),
    builds_on=("ISC-LOGIN-25", "ISC-LOGIN-37"),
)
def test_a_login_that_begins_in_the_security_stage_reinstates_a_session(connections, portal):
    """It has both stages, without authentication."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: each of its logins begins in the security stage")
    old = connections.login()
    made = connections.open("a")
    names = {
        "InitiatorName": made.name,
        "SessionType": "Normal",
        "TargetName": portal.iqn,
        "AuthMethod": "None",
    }
    first = LoginRequest(itt=1, isid=old.isid, csg=0, nsg=1, data=format_text(names.items()))
    answer = made.send_login(first)
    if answer.status or not answer.transit:
        pytest.skip(f"a login that begins in the security stage: {answer.summary()} (ISC-LOGIN-37)")
    answer = made.send_login(replace(first, csg=1, nsg=3, data=format_text(DEFAULT_OFFER.items())))
    if answer.status or not answer.transit:
        pytest.skip(f"the operational stage needs more requests: {answer.summary()}")
    ends(old, "a login of two stages with its name and ISID succeeded")
