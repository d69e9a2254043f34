"""Broken rules of the login: access, and replies to keys."""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, honest, mutant, on_request
from iscsi_rules import key_set_to, sets, text, without

from storagetest.wire.iscsi.codes import LoginStatus
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import KEYS, Negotiation, format_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, Reject, set_reserved_bits


def accepted(talk: ProxyConnection, pdu: LoginResponse) -> LoginResponse:
    """A refusal made into what an acceptance would be."""
    request = talk.login
    assert request is not None
    tsih = 1 if request.transit and request.nsg == 3 else 0
    return replace(
        pdu, status=0, transit=request.transit, csg=request.csg, nsg=request.nsg, isid=request.isid, tsih=tsih,
        itt=request.itt,
    )  # fmt: skip


def accepts(row: str, *statuses: int, **more: Any) -> None:
    """A mutant that accepts the logins that are refused with one of ``statuses`` (none: any)."""

    @mutant(row, **more)
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, LoginResponse) and pdu.status and (not statuses or pdu.status in statuses):
            return accepted(talk, pdu)
        return pdu


# Login

accepts(
    "login-version-accepted | RFC 7143 11.13.2 | an unsupported version is accepted",
    LoginStatus.UNSUPPORTED_VERSION,
)
accepts("login-tsih-accepted | RFC 7143 6.3.1 | a TSIH of no session is accepted", LoginStatus.NO_SESSION)
accepts(
    "login-name-missing-accepted | RFC 7143 6.3 | a login without InitiatorName is accepted",
    LoginStatus.MISSING_PARAMETER,
)
accepts(
    "login-target-missing-accepted | RFC 7143 6.3 | a login without TargetName is accepted",
    LoginStatus.MISSING_PARAMETER,
)
accepts("login-stage-accepted | RFC 7143 6.3 | a reserved stage is accepted", keeps_open=True)
accepts("login-connections-accepted | RFC 7143 13.2 | a connection over MaxConnections is accepted")
accepts("login-session-type | RFC 7143 13.21 | any SessionType is accepted")
accepts("login-garbage-accepted | RFC 7143 6.1 | text without an equals sign is accepted", keeps_open=True)
accepts("key-range | RFC 7143 6.2 | a value out of its range is accepted")
accepts("chap-not-checked | RFC 7143 12.1.3 | a wrong CHAP response is accepted", kind="chap")
accepts("chap-skipped | RFC 7143 6.3.2 | a login without authentication is accepted", kind="chap")

sets("tsih-zero | RFC 7143 11.13.3 | a new session has TSIH 0", LoginResponse, tsih=0)
sets(
    "login-itt-lost | RFC 7143 11.12 | the Login Response has a wrong task tag",
    LoginResponse,
    itt=lambda pdu: pdu.itt ^ 1,
)
sets(
    "login-isid-changed | RFC 7143 11.13 | the Login Response has a wrong ISID",
    LoginResponse,
    isid=b"\x80other",
)
sets(
    "login-version-active | RFC 7143 11.13.2 | Version-active is a version that the initiator does not support",
    LoginResponse,
    version_active=1,
)


@mutant("chap-refused | RFC 7143 12.1.3 | the correct secret is refused", kind="chap")
def chap_refused(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    refused = isinstance(pdu, LoginResponse) and pdu.csg == 0 and pdu.transit
    return replace(pdu, status=LoginStatus.AUTHENTICATION_FAILED, transit=False) if refused else pdu


text("chap-same-challenge | RFC 7143 12.1.3 | every login gets the same challenge",
     key_set_to("CHAP_C", "0x" + "5a" * 16), kind="chap")  # fmt: skip
text(
    "chap-algorithm | RFC 7143 12.1.3 | the target selects an algorithm that was not offered",
    key_set_to("CHAP_A", "7"),
    kind="chap",
)


@mutant("chap-reflected | RFC 7143 9.2.1 | the target answers its own challenge", kind="chap")
def chap_reflected(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    offered = dict(talk.offered)
    if not isinstance(pdu, LoginResponse) or "CHAP_C" not in offered:
        return pdu
    return replace(
        accepted(talk, pdu), data=format_text([("CHAP_N", "target"), ("CHAP_R", offered["CHAP_R"])])
    )


@mutant("second-session-refused | RFC 7143 6.3.1 | an initiator may have only one session")
def second_session_refused(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, LoginResponse) or pdu.status or talk.login is None:
        return pdu
    first = talk.shared.setdefault(talk.name, talk.login.isid)
    refused = first != talk.login.isid
    return replace(pdu, status=LoginStatus.OUT_OF_RESOURCES, transit=False) if refused else pdu


@mutant("login-transit-unasked | RFC 7143 11.13.6 | the target enters full feature phase without a request")
def transit_unasked(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    stays = isinstance(pdu, LoginResponse) and talk.login is not None and not talk.login.transit
    return replace(pdu, transit=True, nsg=3) if stays else pdu


mutant(
    "login-refused-open | RFC 7143 11.13.5 | the connection stays open after a refused login", keeps_open=True
)(honest)
mutant(
    "chap-refused-open | RFC 7143 11.13.5 | the connection stays open after a failed authentication",
    kind="chap", keeps_open=True,
)(honest)  # fmt: skip


def _answers_again(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if not isinstance(pdu, LoginRequest) or not talk.memory.get("refused"):
        return pdu
    talk.inject_to_initiator(LoginResponse(itt=pdu.itt, isid=pdu.isid, tsih=7, csg=1, nsg=3, transit=True))
    return None


@mutant(
    "login-after-refusal | RFC 7143 11.13.5 | a login is accepted on a connection after one that was refused",
    keeps_open=True, request=_answers_again,
)  # fmt: skip
def login_after_refusal(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    talk.memory["refused"] = isinstance(pdu, LoginResponse) and bool(pdu.status)
    return pdu


@mutant("chap-order-refused | RFC 7143 12.1.3 | CHAP_R before CHAP_N is refused", kind="chap")
def chap_order_refused(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    names = [name for name, _ in talk.offered if name in ("CHAP_N", "CHAP_R")]
    ours = isinstance(pdu, LoginResponse) and names[:1] == ["CHAP_R"]
    return replace(pdu, status=LoginStatus.AUTHENTICATION_FAILED, transit=False) if ours else pdu


text(
    "chap-none-selected | RFC 7143 6.3.2 | AuthMethod=None is selected from a list that has CHAP",
    key_set_to("AuthMethod", "None"),
    kind="chap",
)
text(
    "chap-algorithm-unoffered | RFC 7143 12.1.3 | the target selects an algorithm that was not offered",
    key_set_to("CHAP_A", "4"),
    kind="chap",
)
mutant("login-reinstatement | RFC 7143 6.3.1 | the old session remains", keeps_open=True)(honest)


@mutant("login-in-ffp | RFC 7143 4.2.4 | a login in full feature phase is ignored", keeps_open=True)
def login_in_ffp(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    return (
        None if isinstance(pdu, (Reject, LoginResponse)) and talk.last is not None and talk.last.itt else pdu
    )


@on_request("login-reserved-checked | RFC 7143 11 | reserved bits of a login are an error")
def login_reserved(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    frame = talk.memory["frame"]
    if talk.login is not None and any(set_reserved_bits(frame.bhs)):
        talk.inject_to_initiator(LoginResponse(itt=pdu.itt, status=LoginStatus.INITIATOR_ERROR))
        return None
    return pdu


text(
    "portal-group-tag | RFC 7143 6.3.1 | TargetPortalGroupTag is not declared",
    without("TargetPortalGroupTag"),
)
text("answer-twice | RFC 7143 6.3 | a key is answered twice", lambda pairs, talk: [*pairs, *pairs[:1]])
text("max-recv-declared | RFC 7143 13.12 | MaxRecvDataSegmentLength is declared as 0",
     lambda pairs, talk: [*without("MaxRecvDataSegmentLength")(pairs, talk), ("MaxRecvDataSegmentLength", "0")])  # fmt: skip
text("not-understood | RFC 7143 6.2 | an unknown key is answered with a value",
     lambda pairs, talk: [(name, "1" if value == "NotUnderstood" else value) for name, value in pairs])  # fmt: skip
text("key-case | RFC 7143 6.1 | key names are compared case-insensitively",
     key_set_to("maxburstlength", "65536"))  # fmt: skip
text("key-hexadecimal | RFC 7143 6.1 | only the first digit of a hexadecimal number is used",
     key_set_to("MaxBurstLength", "0"))  # fmt: skip
text("first-burst-over-max | RFC 7143 13.14 | FirstBurstLength ends up over MaxBurstLength",
     key_set_to("FirstBurstLength", "65536"))  # fmt: skip


text("discovery-key | RFC 7143 6.2 | a key that is irrelevant in a discovery session is answered with NotUnderstood",
     lambda pairs, talk: [*without("InitialR2T")(pairs, talk), ("InitialR2T", "NotUnderstood")]
     if dict(talk.offered).get("SessionType") == "Discovery" else pairs)  # fmt: skip
text("auth-method-unknown | RFC 7143 6.3.2 | an unknown AuthMethod is accepted",
     key_set_to("AuthMethod", "X-org.storagetest.none"),
     keeps_open=True)  # fmt: skip  # a target that sends nothing has to close


def illegal(key: str, proposed: str) -> str:
    """What no responder may answer."""
    match KEYS[key].negotiation:
        case Negotiation.MINIMUM:
            return str(int(proposed) + 1)
        case Negotiation.MAXIMUM:
            return str(int(proposed) - 1)
        case Negotiation.AND:
            return "Yes"
        case Negotiation.OR:
            return "No"
    return "X-none"


def answers_wrongly(key: str) -> None:
    def rewrite(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
        offered = dict(talk.offered)
        if key not in offered:
            return pairs
        return [*without(key)(pairs, talk), (key, illegal(key, offered[key]))]

    section = f"RFC 7143 6.2, {KEYS[key].section}"
    text(f"key-{key} | {section} | {key} is answered with a value that the RFC forbids", rewrite)


for _key in ("HeaderDigest", "DataDigest", "MaxBurstLength", "FirstBurstLength", "MaxOutstandingR2T",
             "DefaultTime2Wait", "DefaultTime2Retain", "MaxConnections", "ErrorRecoveryLevel", "InitialR2T",
             "ImmediateData", "DataPDUInOrder", "DataSequenceInOrder", "iSCSIProtocolLevel"):  # fmt: skip
    answers_wrongly(_key)
