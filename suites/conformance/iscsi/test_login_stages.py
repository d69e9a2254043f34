"""Stages of a login: from the security stage straight to the full feature phase, and no change without T.

RFC 7143 6.3, 11.12.3, 11.13: a login goes from SecurityNegotiation to LoginOperationalNegotiation or to
FullFeaturePhase, and from LoginOperationalNegotiation to FullFeaturePhase. It changes its stage by a request
with T and a response with T. Without an operational stage the session has the defaults of section 13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.keys import format_text, outcome, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse
from storagetest.wire.scsi.logical_unit import LogicalUnit

if TYPE_CHECKING:
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.iscsi.keys import Pairs

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 6.3, 11.12.3", level="MUST"),
]

EXCHANGES = 8
"""Requests of a login that stays in the security stage before the case is skipped (chosen)."""
ISID = b"\x80\x11\x22\x33\x44\x55"
DEFAULT_SEGMENT = 8192
"""MaxRecvDataSegmentLength of a connection that has not declared it (13.12)."""
STRAIGHT = {"transit": True, "csg": Stage.SECURITY, "nsg": Stage.FULL_FEATURE}


def identity(initiator: Initiator, iqn: str, kind: str) -> Pairs:
    """Return the keys of the first request: names, session type, and no authentication."""
    names: Pairs = (("InitiatorName", initiator.name), ("SessionType", kind))
    target: Pairs = (("TargetName", iqn),) if kind == "Normal" else ()
    return (*names, *target, ("AuthMethod", "None"))


def request(pairs: Pairs, **fields: Any) -> LoginRequest:
    """Return a login request of one login."""
    return LoginRequest(itt=0x2B, isid=ISID, cid=1, data=format_text(pairs), **fields)


@pytest.fixture
def straight(connections, portal, observe) -> Any:
    """Return a function that logs in without an operational stage; skip if the target asks for one.

    A target may keep the login in the security stage, and may need authentication. It refuses neither.
    """
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: it decides how many exchanges a login takes")

    def run(kind: str) -> tuple[Initiator, LoginResponse]:
        initiator: Initiator = connections.open()
        pairs = identity(initiator, portal.iqn, kind)
        replied: Pairs = ()
        for number in range(1, EXCHANGES + 1):
            response = initiator.send_login(request(pairs, **STRAIGHT))
            assert not response.status, (
                f"request {number} of a login from the security stage to the full feature phase is refused: "
                f"{response.status:04x}"
            )
            replied, pairs = (*replied, *parse_text(response.data)), ()
            if response.transit:
                break
        observe(f"T={response.transit:d} NSG={int(response.nsg)} after {number} requests")
        if not response.transit or response.nsg != Stage.FULL_FEATURE:
            pytest.skip(f"the target asks for an operational stage: {response.summary()}")
        initiator.isid, initiator.tsih, initiator.replied = response.isid, response.tsih, replied
        initiator.enter_full_feature(outcome((), replied), max_recv=DEFAULT_SEGMENT)
        return initiator, response

    return run


@pytest.mark.parametrize("kind", [
    pytest.param("Normal", marks=pytest.mark.case("ISC-LOGIN-STRAIGHT-NORMAL")),
    pytest.param("Discovery", marks=pytest.mark.case("ISC-LOGIN-STRAIGHT-DISCOVERY")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 6.3, 11.12.3, 11.13.3",
    kills=("login-straight-no-session",),
    builds_on=("ISC-LOGIN-37",),
)
def test_a_login_may_go_from_the_security_stage_to_the_full_feature_phase(straight, portal, kind):
    """The response with T is the last one of the login: it has the TSIH, and the session is served."""
    session, response = straight(kind)
    assert response.tsih, f"the final response of a new session has TSIH 0: {response.summary()}"
    assert response.csg == Stage.SECURITY, f"CSG is {response.csg} in the response to a request with CSG 0"
    if kind == "Discovery":
        found = session.text(("SendTargets", "All"))
        assert ("TargetName", portal.iqn) in found, f"SendTargets=All lists {found}"
        return
    session.ping()
    unit = LogicalUnit(session)
    unit.clear_attentions()
    ready = unit.test_unit_ready()
    assert ready.good, f"{ready}: the first command after the login"


@pytest.mark.parametrize(("first", "then"), [
    pytest.param(Stage.OPERATIONAL, Stage.SECURITY, marks=pytest.mark.case("ISC-LOGIN-STAGE-BACK")),
    pytest.param(Stage.SECURITY, Stage.OPERATIONAL, marks=pytest.mark.case("ISC-LOGIN-STAGE-AHEAD")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 6.3, 11.12.3, 7.7",
    level="SHOULD",
    kills=("login-stage-changes-alone",),
    builds_on=("ISC-LOGIN-36",),
)
def test_a_request_of_another_stage_than_the_agreed_one_is_refused(connections, portal, first, then):
    """The first request has no T: the login is still in its stage when the second one comes."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: ISC-CHAP-STAGE-AHEAD")
    initiator = connections.open()
    pairs = identity(initiator, portal.iqn, "Normal")
    pairs = pairs if first is Stage.SECURITY else pairs[:-1]
    response = initiator.send_login(request(pairs, transit=False, csg=first, nsg=0))
    assert not response.status, f"a login request without T is refused: {response.status:04x}"
    assert not response.transit, f"T in the response to a request without T: {response.summary()}"
    initiator.send(request((), transit=True, csg=then, nsg=Stage.FULL_FEATURE))
    answer = initiator.receive()
    assert answer is None or isinstance(answer, LoginResponse), answer.summary()
    assert answer is None or answer.status >> 8 == 2, (
        f"a request of stage {int(then)} during stage {int(first)}: {answer.summary()}"
    )
