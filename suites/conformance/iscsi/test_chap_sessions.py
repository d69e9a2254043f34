"""CHAP with several logins: each proves its own secret, whatever another one has proven (RFC 7143 12.1.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import Challenge, hexadecimal, response
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.login import Credentials
from storagetest.wire.iscsi.pdu import LoginResponse
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

from .test_chap import Step

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 12.1.3", level="MUST", builds_on=("ISC-CHAP-02",)),
]

WRONG_SECRET = b"certainly-not-the-secret"


@pytest.fixture
def known(portal) -> Credentials:
    """Return the target's credentials; skip if it has none."""
    if portal.credentials is None:
        pytest.skip("the target has no `chap`")
    return portal.credentials


@pytest.fixture
def wrong(known) -> Credentials:
    """Return the target's credentials with another secret."""
    return replace(known, secret=WRONG_SECRET, target_secret=b"")


@pytest.mark.case("ISC-CHAP-AFTER", kills=("chap-remembered",))
def test_a_wrong_secret_is_refused_after_a_right_one(connections, session, wrong):
    """The initiator has a session with the right secret, which goes on."""
    connections.refused("a", credentials=wrong)
    session.ping()


@pytest.mark.case(
    "ISC-CHAP-REINST",
    section="RFC 7143 6.3.5, 12.1.3",
    kills=("chap-after-reinstatement",),
    builds_on=("ISC-REINST-04",),
)
def test_a_login_with_a_wrong_secret_reinstates_nothing(connections, session, wrong):
    """It has the name and the ISID of a session, which goes on: otherwise anyone could end it."""
    connections.refused("a", credentials=wrong, isid=session.isid)
    try:
        session.ping()
    except RemoteProtocolError as error:
        raise AssertionError(
            f"a login with the name and ISID of a session, and a wrong secret, was refused: {error}"
        ) from error


def answer(step: Step, challenge: Challenge, credentials: Credentials) -> LoginResponse | None:
    """Send the response to ``challenge`` as that of the login ``step``."""
    digest = response(credentials.secret, challenge.identifier, challenge.challenge, challenge.algorithm)
    return step.send(("CHAP_N", credentials.name), ("CHAP_R", hexadecimal(digest)), transit=True)


Login = tuple[Step, Challenge]


def two_logins(connections, portal) -> tuple[Login, Login]:
    """Begin logins of two initiators; return each with its challenge. A target may serve one at a time."""
    first = Step(connections.open("a"), portal.iqn)
    challenge = first.challenge()
    second = Step(connections.open("b"), portal.iqn)
    try:
        return (first, challenge), (second, second.challenge())
    except ResponseTimeout:
        pytest.skip("a login is not answered while another one has not ended")


def proven(found: LoginResponse | None) -> bool:
    """Whether the login goes on."""
    return found is not None and not found.status


@pytest.mark.case("ISC-CHAP-APART", kills=("chap-last-challenge",), builds_on=("ISC-CHAP-01",))
def test_each_of_two_logins_at_once_has_a_challenge_of_its_own(connections, known, portal):
    """Both have their challenge before either responds; the response of each to its own is right."""
    logins = two_logins(connections, portal)
    for (step, challenge), which in zip(logins, ("first", "second"), strict=True):
        found = answer(step, challenge, known)
        assert proven(found), (
            f"the right response of the {which} of two logins at once is refused: "
            f"{found.summary() if found else 'a close'}"
        )


@pytest.mark.case("ISC-CHAP-OTHER", kills=("chap-any-challenge",), builds_on=("ISC-CHAP-06",))
def test_the_response_to_the_challenge_of_another_login_is_refused(connections, known, portal):
    """It is the right one to a challenge of the target, on another connection."""
    (_, other), (second, own) = two_logins(connections, portal)
    if (other.identifier, other.challenge) == (own.identifier, own.challenge):
        pytest.skip("both challenges are the same (ISC-CHAP-06)")
    found = answer(second, other, known)
    assert not proven(found), f"accepted: {found.summary() if found else ''}"


@pytest.mark.case("ISC-CHAP-DISCOVERY", section="RFC 7143 12.1.3, 4.3", kills=("chap-of-discovery",))
def test_a_discovery_session_that_authenticates_checks_the_secret(connections, wrong):
    """A target may leave its discovery sessions open; one that selects CHAP for them does CHAP."""
    made = connections.open("d")
    try:
        made.login(target=None, credentials=wrong)
    except (LoginRefused, PeerClosed):
        return
    methods = [value for name, value in made.replied if name == "AuthMethod"]
    if "CHAP" not in methods:
        pytest.skip(f"the target does not authenticate a discovery session: AuthMethod {methods}")
    raise AssertionError("a discovery session with CHAP and a wrong secret was accepted")
