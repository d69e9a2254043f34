"""Every response of a login of any number of exchanges: ISID, TSIH, Version-max, task tag, portal group.

RFC 7143 11.13, 11.12, 6.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

if TYPE_CHECKING:
    from storagetest.wire.iscsi.keys import Pairs

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.13")]

ISIDS = {"NORMAL": b"\x80\xa1\xb2\xc3\xd4\xe5", "DISCOVERY": b"\x40\x00\x01\x37\xd4\xe5"}
"""An ISID for each type of session: of random format, and with an IANA enterprise number (11.12.5)."""

ITT = 0x31
"""The task tag of each request: one login is one task (11.12.5 to 11.12.8; chosen)."""

ENDS = {"transit": True, "csg": Stage.OPERATIONAL, "nsg": Stage.FULL_FEATURE}


def exchanges(shape: str, identity: Pairs) -> list[tuple[dict[str, object], Pairs]]:
    """Return fields and keys of each request of a login."""
    offer = tuple(DEFAULT_OFFER.items())
    stays = {"transit": False, "csg": Stage.OPERATIONAL, "nsg": 0}
    return {
        "ONE": [(ENDS, (*identity, *offer))],
        "STAGES": [
            (
                {"transit": True, "csg": Stage.SECURITY, "nsg": Stage.OPERATIONAL},
                (*identity, ("AuthMethod", "None")),
            ),
            (ENDS, offer),
        ],
        "STEPS": [(stays, (*identity, *offer[:2])), (stays, offer[2:]), (ENDS, ())],
        "CONTINUED": [({**stays, "continues": True}, identity), (ENDS, offer)],
    }[shape]


@pytest.fixture
def logged_in(connections, portal, shape: str, kind: str) -> list[LoginResponse]:
    """Log in; return every response. Skip if the target requires authentication."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: it decides how many exchanges a login takes")
    initiator, isid = connections.open(), ISIDS[kind]
    identity: Pairs = (("InitiatorName", initiator.name), ("SessionType", kind.capitalize()))
    if kind == "NORMAL":
        identity = (*identity, ("TargetName", portal.iqn))
    received, requests = [], exchanges(shape, identity)
    for number, (fields, keys) in enumerate(requests, 1):
        request = LoginRequest(itt=ITT, isid=isid, cid=1, data=format_text(keys), **fields)  # type: ignore[arg-type]
        response = initiator.send_login(request)
        received.append(response)
        if response.status and shape == "CONTINUED":
            pytest.skip(f"text that continues is refused: {response.status:04x} (ISC-LOGIN-23)")
        assert not response.status, (
            f"request {number} of {len(requests)} of a login is refused: {response.status:04x}"
        )
        if not response.transit and fields["transit"]:
            pytest.skip(f"the target asks for more exchanges after request {number}: {response.summary()}")
    initiator.isid, initiator.tsih = isid, received[-1].tsih
    initiator.enter_full_feature({}, max_recv=int(DEFAULT_OFFER.get("MaxRecvDataSegmentLength", "8192")))
    return received


def shapes(claim: str, level: str, *kills: str, one: bool = True) -> pytest.MarkDecorator:
    """Return the parameters of a claim: each type of session by each shape of login.

    Without ``one``, only logins of several exchanges. That a login of each shape is served is red under its
    TSIH alone.
    """
    made = []
    for kind, names in (
        ("NORMAL", ("STAGES", "STEPS", "CONTINUED")),
        ("DISCOVERY", ("ONE", "STAGES", "STEPS")),
    ):
        for shape in (name for name in names if one or name != "ONE"):
            killed = [
                kill
                for kill in kills
                if (shape != "ONE" or kill.endswith("discovery"))
                and (kind == "DISCOVERY" or not kill.endswith("discovery"))
            ]
            name = f"ISC-LOGIN-{claim}-{kind}-{shape}"
            served = () if claim == "TSIH" else (f"ISC-LOGIN-TSIH-{kind}-{shape}",)
            mark = pytest.mark.case(name, level=level, kills=tuple(killed), builds_on=served)
            made.append(pytest.param(kind, shape, marks=mark))
    return pytest.mark.parametrize(("kind", "shape"), made)


@shapes("ISID", "SHOULD", "login-isid-first", "login-isid-last", "login-isid-discovery")
def test_each_response_of_a_login_has_the_isid_of_its_request(logged_in, kind) -> None:
    found = [response.isid.hex() for response in logged_in]
    assert found == [ISIDS[kind].hex()] * len(found), (
        f"the {len(found)} requests of a login have ISID {ISIDS[kind].hex()}; its responses have {found}"
    )


@pytest.mark.case(section="RFC 7143 11.13.3")
@shapes(
    "TSIH",
    "MUST",
    "login-nsg-without-t",
    "login-tsih-early",
    "login-tsih-changes",
    "tsih-zero-later",
    "tsih-zero-discovery",
)
def test_a_new_session_gets_its_tsih_in_the_last_response(logged_in) -> None:
    found = [response.tsih for response in logged_in]
    assert found[-1], f"the final response of a new session has TSIH 0: {found}"
    assert not any(found[:-1]), (
        f"the TSIH is returned in the final response only; those of this login have TSIH {found}"
    )


@pytest.mark.case(section="RFC 7143 11.13.1")
@shapes("VERSION", "MUST", "login-version-max", one=False)
def test_each_response_of_a_login_has_the_same_version_max(logged_in) -> None:
    found = [response.version_max for response in logged_in]
    assert len(set(found)) == 1, f"the Version-max of the responses of one login are {found}"


@pytest.mark.case(section="RFC 7143 11.13, 11.2.1.8")
@shapes("ITT", "MUST", "login-itt-later", one=False)
def test_each_response_of_a_login_has_the_task_tag_of_its_request(logged_in) -> None:
    found = [response.itt for response in logged_in]
    assert found == [ITT] * len(found), f"the requests of a login have tag {ITT}; its responses have {found}"


@pytest.mark.parametrize(("kind", "shape"), [
    pytest.param("NORMAL", shape, marks=pytest.mark.case(
        f"ISC-LOGIN-PORTAL-{shape}", kills=("portal-group-late",),
        builds_on=(f"ISC-LOGIN-TSIH-NORMAL-{shape}", "ISC-LOGIN-35")))
    for shape in ("STAGES", "STEPS")
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.3.1, 13.9", level="MUST")
def test_the_first_response_of_a_login_has_the_portal_group_tag(logged_in) -> None:
    """Its request names the target, and is whole (C=0)."""
    found = [name for name, _ in parse_text(logged_in[0].data)]
    assert "TargetPortalGroupTag" in found, (
        f"the first of the {len(logged_in)} responses of a login has the keys {found}"
    )
