"""Logins that leave keys out, and the CmdSN of each login: what is in force then (RFC 7143 13, 11.12.8).

A key that neither side sends has its default: ImmediateData Yes, FirstBurstLength 65536, SessionType Normal.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import LoginStatus
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import CERTAIN, KEYS, RESERVED_WORDS, Negotiation, parse_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER, LoginNegotiation
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse
from storagetest.wire.scsi.cdb import WRITE_16, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .windows import skip_if_busy

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 13", level="MUST")]

NEUTRAL = {"HeaderDigest": "None", "DataDigest": "None", "MaxRecvDataSegmentLength": "65536"}
"""An offer without the keys of unsolicited data. A target may insist on digests."""
FIRST_CMD_SN = 0x4D2
"""The CmdSN of a login (chosen): neither 0 nor 1, which a target may have by itself."""
UNKNOWN_METHODS = {LoginStatus.AUTHENTICATION_FAILED, LoginStatus.AUTHORIZATION_FAILED}
"""Refusals of a login that was not asked for its names yet: a target may check either first."""


# Defaults


@pytest.mark.parametrize("most", [
    pytest.param(False, id="block", marks=pytest.mark.case(
        "ISC-DEFAULT-IMMEDIATE", kills=("immediate-default-no",))),
    pytest.param(True, id="most", marks=pytest.mark.case(
        "ISC-DEFAULT-FIRST", section="RFC 7143 13.14", kills=("first-burst-default-small",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 13.11", builds_on=("ISC-UNSOL-01",))
def test_immediate_data_are_taken_if_the_login_does_not_name_them(connections, scratch, facts, most):
    """One block of immediate data, or as many as FirstBurstLength and the target's segment hold."""
    session = connections.login(base=NEUTRAL)
    agreed, size = session.parameters, scratch.block_size
    if not agreed.immediate_data:
        pytest.skip("the target proposes ImmediateData=No itself")
    blocks = min(agreed.first_burst, agreed.max_send) // size
    if not blocks:
        pytest.skip(f"a block of {size} bytes is longer than one PDU or the first burst of the target")
    blocks = min(blocks, facts.largest) if most else 1
    scratch.require(blocks)
    data = scratch.pattern(blocks, seed=1401)
    block = cdb(WRITE_16, lba=scratch.lba, blocks=blocks)
    done = session.command(block, data=data, immediate_length=len(data))
    skip_if_busy(done.status)
    assert done.status == ScsiStatus.GOOD, (
        f"a write with {len(data)} bytes of immediate data ends in status {done.status:#04x}; without these "
        f"keys ImmediateData is Yes, and FirstBurstLength {agreed.first_burst}"
    )
    assert scratch.read_back(session, blocks) == data, "immediate data were not written"


def enter(initiator: Initiator, negotiation: LoginNegotiation) -> None:
    """Enter the full feature phase after a login by hand."""
    most = int(DEFAULT_OFFER["MaxRecvDataSegmentLength"])
    initiator.enter_full_feature(negotiation.negotiated, max_recv=most)
    initiator.isid, initiator.tsih = negotiation.isid, negotiation.tsih


@pytest.fixture
def without_type(connections, portal) -> Initiator:
    """Log in without SessionType."""
    initiator: Initiator = connections.open()
    identity = {"InitiatorName": initiator.name, "TargetName": portal.iqn}
    negotiation = LoginNegotiation(identity, credentials=portal.credentials)
    request: LoginRequest | None = negotiation.first()
    while request is not None:
        request = negotiation.next(initiator.send_login(request))
    assert not negotiation.status, (
        f"a login without SessionType, which is Normal then, is refused: {negotiation.status:04x}"
    )
    enter(initiator, negotiation)
    return initiator


@pytest.mark.case(
    "ISC-LOGIN-TYPE-DEFAULT",
    section="RFC 7143 13.21",
    kills=("session-type-default-discovery",),
    builds_on=("ISC-LOGIN-01",),
)
def test_a_session_is_normal_if_its_login_names_no_type(without_type):
    """A command is executed in it."""
    unit = LogicalUnit(without_type)
    unit.clear_attentions()
    answer = unit.inquiry()
    assert answer.good, f"{answer}, in a session whose login had no SessionType"


def refused_for_lack(response: LoginResponse | None, what: str, portal) -> None:
    """Claim that a login that lacks a key is refused; skip if it was refused as not authenticated.

    0207h is the status of it, and 0200h one that no sentence forbids.
    """
    assert response is not None, f"{what}: closed without a Login Response"
    if portal.credentials is not None and response.status in UNKNOWN_METHODS:
        pytest.skip(f"{what}: the target refuses the login for the lack of its authentication")
    assert response.status in (LoginStatus.MISSING_PARAMETER, LoginStatus.INITIATOR_ERROR), (
        f"{what}: Login Response with status {response.status:04x}"
    )


@pytest.mark.case(
    "ISC-LOGIN-TYPE-NO-TARGET",
    section="RFC 7143 6.3, 13.21",
    kills=("session-type-by-target",),
    builds_on=("ISC-LOGIN-16",),
)
def test_a_login_without_session_type_and_target_name_is_refused(send_login, portal):
    """The session would be a normal one, which needs a target."""
    answer = send_login(drop=("SessionType", "TargetName"))
    refused_for_lack(answer, "a login without SessionType and TargetName", portal)


@pytest.mark.case(
    "ISC-LOGIN-NAME-DISCOVERY",
    section="RFC 7143 6.3, 11.13.5",
    kills=("discovery-name-missing-accepted",),
    builds_on=("ISC-LOGIN-15",),
)
def test_a_discovery_login_without_initiator_name_is_refused(send_login, portal):
    answer = send_login(drop=("InitiatorName", "TargetName"), pairs={"SessionType": "Discovery"})
    refused_for_lack(answer, "a discovery login without InitiatorName", portal)


# Proposals of the target


@pytest.mark.case(
    "ISC-LOGIN-LAST-PROPOSAL",
    section="RFC 7143 6.3",
    kills=("proposal-with-transit",),
    builds_on=("ISC-LOGIN-01",),
)
def test_a_response_that_changes_the_stage_proposes_nothing(connections):
    """A proposal needs another Login Request, which the stage has no place for after T.

    A key that the initiator did not send is a proposal, unless it is declared, or its outcome is certain.
    """
    session = connections.login(base=NEUTRAL)
    for event in session.frames:
        pdu = event.pdu
        if not isinstance(pdu, LoginResponse) or not pdu.transit:
            continue
        proposed = [
            f"{name}={value}"
            for name, value in parse_text(pdu.data)
            if name in KEYS and name not in (*NEUTRAL, "AuthMethod")
            if KEYS[name].negotiation is not Negotiation.DECLARE
            if (KEYS[name].negotiation, value) not in CERTAIN and value not in RESERVED_WORDS
        ]
        assert not proposed, f"a Login Response with T proposes {', '.join(proposed)}, which needs an answer"


# Versions and limits


@pytest.mark.case(
    "ISC-LOGIN-VERSION-RANGE",
    section="RFC 7143 11.12.4, 11.13.2",
    kills=("version-max-checked",),
    builds_on=("ISC-LOGIN-06",),
)
def test_a_range_of_versions_that_has_zero_is_served_with_version_zero(send_login, portal):
    """An initiator that has later versions as well states the lowest one that it has."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: its login takes more than one exchange")
    answer = send_login(version_min=0, version_max=0x7F)
    assert answer is not None, "closed without a Login Response to a login with the versions 0 to 7Fh"
    assert not answer.status, f"a login with the versions 0 to 7Fh is refused: {answer.status:04x}"
    assert answer.version_active <= answer.version_max, (
        f"Version-active {answer.version_active:#x} is over Version-max {answer.version_max:#x} of the target"
    )


@pytest.mark.case(
    "ISC-LIMITS-MOST",
    section="RFC 7143 13.12, 13.13, 13.14",
    kills=("most-segment-small",),
    builds_on=("ISC-DATAIN-01",),
)
def test_data_are_whole_under_the_greatest_limits(connections, scratch, facts):
    """MaxRecvDataSegmentLength and both bursts are 2**24-1: a write and a read of many blocks."""
    names = ("MaxRecvDataSegmentLength", "MaxBurstLength", "FirstBurstLength")
    session = connections.login(offer=dict.fromkeys(names, str((1 << 24) - 1)))
    blocks = min(facts.largest, 512)
    data = scratch.pattern(blocks, seed=1415)
    written = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=blocks), data=data)
    skip_if_busy(written.status)
    assert written.status == ScsiStatus.GOOD, f"a write of {blocks} blocks: status {written.status:#04x}"
    for _ in range(2):
        assert scratch.read_back(session, blocks) == data, (
            f"{blocks} blocks are not read as they were written"
        )


# The first CmdSN


def last_response(initiator: Initiator, portal, kind: str) -> LoginResponse:
    """Log in with FIRST_CMD_SN, and return the last response; skip if the login is refused."""
    identity = {"InitiatorName": initiator.name, "SessionType": kind}
    if kind == "Normal":
        identity["TargetName"] = portal.iqn
    initiator.numbers.cmd_sn = FIRST_CMD_SN
    negotiation = LoginNegotiation(identity, credentials=portal.credentials)
    request: LoginRequest | None = negotiation.first()
    while request is not None:
        response = initiator.send_login(request)
        request = negotiation.next(response)
    if negotiation.status:
        pytest.skip(f"a {kind.lower()} login is refused: {negotiation.status:04x}")
    enter(initiator, negotiation)
    return response


@pytest.mark.parametrize("kind", [
    pytest.param("Discovery", marks=pytest.mark.case(
        "ISC-LOGIN-NUMBER-DISCOVERY", kills=("discovery-login-numbers-zero", "discovery-numbers-from-one"))),
    pytest.param("Normal", marks=pytest.mark.case(
        "ISC-LOGIN-NUMBER-NORMAL", kills=("login-numbers-from-one",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.2.1, 11.12.8", builds_on=("ISC-LOGIN-01",))
def test_the_cmd_sn_of_a_login_is_the_first_one_of_its_session(connections, portal, kind):
    """ExpCmdSN of the last response is that number: no Login Request uses it. MaxCmdSN follows it."""
    initiator: Initiator = connections.open()
    last = last_response(initiator, portal, kind)
    assert last.exp_cmd_sn == FIRST_CMD_SN, (
        f"ExpCmdSN of the last response is {last.exp_cmd_sn:#x}, and the login's CmdSN {FIRST_CMD_SN:#x}"
    )
    window = (last.max_cmd_sn - last.exp_cmd_sn + 1) % 2**32
    assert window < 2**31, f"MaxCmdSN {last.max_cmd_sn:#x} is below ExpCmdSN {last.exp_cmd_sn:#x} - 1"
