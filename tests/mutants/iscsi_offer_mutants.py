"""Broken rules of offers by their order, value and stage, of requests before the login, and of header digests."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import text, without

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import KEYS, Negotiation, Pairs, format_text, numeric, parse_text
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)


def _pairs(pdu: Any) -> Pairs:
    """Return the keys of a PDU, none if its data are no text."""
    try:
        return parse_text(pdu.data)
    except RemoteProtocolError:
        return ()


# Offers


def _burst(pairs: list[tuple[str, str]], offered: dict[str, str]) -> list[tuple[str, str]]:
    """Reply to FirstBurstLength without a look at MaxBurstLength."""
    first = min(65536, numeric(offered.get("FirstBurstLength", "")) or 65536)
    return [(key, str(first) if key == "FirstBurstLength" else value) for key, value in pairs]


def _before_max(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
    names = [name for name, _ in talk.offered if name in ("FirstBurstLength", "MaxBurstLength")]
    return _burst(pairs, dict(talk.offered)) if names == ["FirstBurstLength", "MaxBurstLength"] else pairs


text("first-burst-before-max | RFC 7143 13.14 | FirstBurstLength is limited only if it stands after MaxBurstLength",
     _before_max)  # fmt: skip


def _in_later_request(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
    now = _pairs(talk.login)
    alone = "FirstBurstLength" in dict(now) and "MaxBurstLength" not in dict(now)
    return _burst(pairs, dict(now)) if alone else pairs


text("first-burst-later | RFC 7143 13.14 | FirstBurstLength is limited only by a MaxBurstLength of its own request",
     _in_later_request, kind="unsolicited")  # fmt: skip


@on_request(
    "list-order-ignored | RFC 7143 6.2.1 | of a list the target selects what it prefers, not the first value that it takes"
)
def list_order(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or b"=None,CRC32C" not in pdu.data:
        return pdu
    return replace(pdu, data=pdu.data.replace(b"=None,CRC32C", b"=CRC32C,None"))


@on_request(
    "list-none-preferred | RFC 7143 6.2.1 | of a list of digests the target selects None wherever it is"
)
def none_preferred(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or b"=CRC32C,None" not in pdu.data:
        return pdu
    return replace(pdu, data=pdu.data.replace(b"=CRC32C,None", b"=None,CRC32C"))


def _level_two(pairs: list[tuple[str, str]], talk: ProxyConnection) -> list[tuple[str, str]]:
    offered = dict(talk.offered).get("iSCSIProtocolLevel")
    if offered is None or (numeric(offered) or 0) >= 2:
        return pairs
    return [*without("iSCSIProtocolLevel")(pairs, talk), ("iSCSIProtocolLevel", "2")]


text(
    "protocol-level-two | RFC 7143 13.24 | iSCSIProtocolLevel is answered 2, whatever was offered", _level_two
)


@on_request(
    "text-goes-on | RFC 7143 11.10.4 | text that was left is put in front of the next text", kind="full"
)
def text_goes_on(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextRequest):
        return pdu
    before = talk.memory.pop("left", b"")
    if pdu.continues:
        talk.memory["left"] = pdu.data
    return replace(pdu, data=before + pdu.data) if before else pdu


@on_request("login-key-in-text | RFC 7143 13 | a key of the login is negotiated in full feature phase")
def key_in_text(talk: ProxyConnection, pdu: Pdu) -> Out:
    late = [
        (name, value)
        for name, value in (_pairs(pdu) if isinstance(pdu, TextRequest) else ())
        if name in KEYS and KEYS[name].negotiation is not Negotiation.DECLARE
    ]
    if not late:
        return pdu
    last: Any = talk.last
    talk.answer(pdu, TextResponse, stat_sn=(last.stat_sn + 1) % 2**32, data=format_text(late))
    return None


def _over_segment(row: str, counts: Callable[[ProxyConnection], bool], **more: Any) -> None:
    """A mutant that answers many private keys in one PDU, in the sessions that count."""

    @on_request(row, **more)
    def over_segment(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, TextRequest):
            return pdu
        pairs = _pairs(pdu)
        talk.memory["declared"] = talk.memory.get("declared") or "MaxRecvDataSegmentLength" in dict(pairs)
        private = [name for name, _ in pairs if name.startswith("X-")]
        if len(private) < 16 or not counts(talk):
            return pdu
        last: Any = talk.last
        data = format_text([(name, "NotUnderstood") for name in private])
        talk.answer(pdu, TextResponse, stat_sn=(last.stat_sn + 1) % 2**32, data=data)
        return None


_over_segment(
    "text-over-segment | RFC 7143 13.12, 6.2 | the response to a text with many keys is one PDU of any length",
    lambda talk: True,
)
_over_segment(
    "text-over-segment-normal | RFC 7143 13.12 | a Text Response of a normal session is of any length",
    lambda talk: dict(talk.offered).get("SessionType") != "Discovery",
    kind="full",
)
_over_segment(
    "text-over-segment-later | RFC 7143 13.12 | a Text Response keeps to the segment length of the login alone",
    lambda talk: bool(talk.memory["declared"]),
    kind="full",
)


# Logins of several exchanges


@mutant("login-itt-later | RFC 7143 11.13, 11.2.1.8 | a Login Response after the first has task tag 0")
def itt_later(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    talk.memory["responses"] = talk.memory.get("responses", 0) + 1
    return replace(pdu, itt=0) if talk.memory["responses"] > 1 else pdu


@mutant(
    "portal-group-late | RFC 7143 6.3.1, 13.9 | TargetPortalGroupTag comes with the last response of a login"
)
def portal_group_late(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or pdu.status:
        return pdu
    pairs = list(_pairs(pdu))
    talk.memory["tag"] = dict(pairs).get("TargetPortalGroupTag", talk.memory.get("tag", "1"))
    rest = without("TargetPortalGroupTag")(pairs, talk)
    if pdu.transit and pdu.nsg == Stage.FULL_FEATURE:
        rest = [*rest, ("TargetPortalGroupTag", talk.memory["tag"])]
    return pdu if sorted(rest) == sorted(pairs) else replace(pdu, data=format_text(rest))


@on_request("answers-before-login | RFC 7143 4.2.4 | a request before the login is served", keeps_open=True)
def answers_before_login(talk: ProxyConnection, pdu: Pdu) -> Out:
    if talk.login is not None:
        return pdu
    window: dict[str, Any] = {"itt": pdu.itt, "stat_sn": 1, "exp_cmd_sn": 1, "max_cmd_sn": 9}
    answers: dict[type[Pdu], Pdu] = {
        NopOut: NopIn(**window, data=getattr(pdu, "data", b"")),
        TaskRequest: TaskResponse(**window, response=1),
        TextRequest: TextResponse(**window),
        LogoutRequest: LogoutResponse(**window),
        DataOut: Reject(**{**window, "itt": 0xFFFFFFFF}, reason=4, data=pdu.encode()[:48]),
    }
    if type(pdu) in answers:
        talk.inject_to_initiator(answers[type(pdu)])
        return None
    return pdu


@on_request("chap-name-in-part | RFC 7143 12.1.3 | only part of the name is compared", kind="chap")
def chap_name_in_part(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or "storagetes" not in dict(_pairs(pdu)).get("CHAP_N", ""):
        return pdu
    return replace(
        pdu,
        data=format_text([(key, "storagetest" if key == "CHAP_N" else value) for key, value in _pairs(pdu)]),
    )


# Digests


def _unchecked(kind: str, of: type[Pdu], *, writes: bool = False) -> None:
    @on_request(
        f"header-digest-of-{kind} | RFC 7143 7.8 | a wrong header digest of {kind.upper()} is not detected"
    )
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        wrong = isinstance(pdu, of) and talk.memory["frame"].header_digest_wrong
        return talk.wire(pdu) if wrong and (not writes or getattr(pdu, "write", False)) else pdu


for _kind, _of in (("nop", NopOut), ("task", TaskRequest), ("text", TextRequest), ("logout", LogoutRequest),
                   ("data-out", DataOut)):  # fmt: skip
    _unchecked(_kind, _of)
_unchecked("write", ScsiCommand, writes=True)
