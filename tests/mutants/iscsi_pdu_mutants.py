"""Broken rules of PDUs and digests, of NOP, text requests and the logout."""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, honest, mutant, on_request
from iscsi_rules import replies, sets, text

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TextRequest,
    TextResponse,
    set_reserved_bits,
)

_MOST = 262144
"""What the lab's LIO declares as its MaxRecvDataSegmentLength."""

# Digests and PDUs


@on_request("header-digest-not-checked | RFC 7143 7.8 | a wrong header digest is not detected")
def header_digest_not_checked(talk: ProxyConnection, pdu: Pdu) -> Any:
    return talk.wire(pdu) if talk.memory["frame"].header_digest_wrong else pdu


@on_request("data-digest-not-checked | RFC 7143 7.8 | a wrong data digest is not detected")
def data_digest_not_checked(talk: ProxyConnection, pdu: Pdu) -> Any:
    return talk.wire(pdu) if talk.memory["frame"].data_digest_wrong else pdu


mutant(
    "header-digest-of-target | RFC 7143 13.1 | the target's header digest is wrong",
    spoil={"header_digest_xor": 1},
)(honest)
mutant(
    "data-digest-of-target | RFC 7143 13.1 | the target's data digest is wrong", spoil={"data_digest_xor": 1}
)(honest)


def drops_rejects(row: str) -> None:
    replies(row, Reject, lambda pdu, talk: None, keeps_open=True)


drops_rejects("data-digest-reject-missing | RFC 7143 7.8 | a wrong data digest is not rejected")
sets("reject-header-lost | RFC 7143 11.17.4 | a Reject does not contain the header", Reject, data=b"")


@mutant(
    "reject-reserved | RFC 7143 11.17 | a Reject has the residual count of an earlier response",
    kind="unsolicited",  # the small target; LIO 6.1 is known to set these bits, so its Rejects are not judged
)
def reject_reserved(talk: ProxyConnection, pdu: Pdu) -> Any:
    return pdu.parts().override_bytes(44, b"\0\0\x08\0") if isinstance(pdu, Reject) else pdu


@mutant("digest-unasked | RFC 7143 13.1 | PDUs have a header digest that was not negotiated")
def digest_unasked(talk: ProxyConnection, pdu: Pdu) -> Any:
    plain = not isinstance(pdu, LoginResponse) and talk.digests == (False, False)
    return pdu.parts().wire(header_digest=True, data_digest=False) if plain else pdu


replies("digest-in-login | RFC 7143 13.1 | digests start in the login phase", LoginResponse,
        lambda pdu, talk: pdu.parts().wire(header_digest=True, data_digest=False))  # fmt: skip


@mutant("digest-on-empty-data | RFC 7143 11.2.3 | a PDU without data has a data digest")
def digest_on_empty(talk: ProxyConnection, pdu: Pdu) -> Any:
    return [pdu, bytes(4)] if talk.digests[1] and not pdu.data and not isinstance(pdu, LoginResponse) else pdu


mutant("padding-not-zero | RFC 7143 11.1 | the padding is not zero", padding=b"\xee")(honest)


@mutant("padding-missing | RFC 7143 11.1 | a data segment is not padded")
def padding_missing(talk: ProxyConnection, pdu: Pdu) -> Any:
    return talk.wire(pdu, padding=b"") if len(pdu.data) % 4 and not isinstance(pdu, LoginResponse) else pdu


@on_request("reserved-checked | RFC 7143 11 | reserved bits of a request are an error")
def reserved_checked(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    frame, last = talk.memory["frame"], talk.last
    if isinstance(pdu, ScsiCommand) and any(set_reserved_bits(frame.bhs)) and last is not None:
        talk.inject_to_initiator(Reject(reason=9, stat_sn=pdu.exp_stat_sn, data=frame.bhs))
        return None
    return pdu


drops_rejects("opcode-ignored | RFC 7143 11.2.1.2 | an unknown opcode is ignored")
drops_rejects("reject-swallowed | RFC 7143 11.17 | no PDU is ever rejected")


@on_request("ping-long-taken | RFC 7143 13.12 | a ping over MaxRecvDataSegmentLength is answered")
def ping_long_taken(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return replace(pdu, data=pdu.data[:4]) if isinstance(pdu, NopOut) and len(pdu.data) > _MOST else pdu


@mutant("coalesced-lost | RFC 7143 11.1 | one of several PDUs in one TCP segment is lost")
def coalesced_lost(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    talk.memory["count"] = talk.memory.get("count", 0) + isinstance(pdu, NopIn)
    return None if isinstance(pdu, NopIn) and talk.memory["count"] == 3 else pdu


@mutant("reject-then-deaf | RFC 7143 7.3 | after a Reject no request is answered", keeps_open=True)
def reject_then_deaf(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if talk.memory.get("deaf"):
        return None
    talk.memory["deaf"] = isinstance(pdu, Reject)
    return pdu


# NOP


sets("nop-echo | RFC 7143 11.19 | the last byte of a ping is lost", NopIn, data=lambda pdu: pdu.data[:-1])
sets("nop-itt | RFC 7143 11.19 | the response to a ping has a wrong tag", NopIn, itt=lambda pdu: pdu.itt ^ 1)
sets("nop-ttt | RFC 7143 11.19.1 | the response to a ping has a target transfer tag", NopIn, ttt=1)
sets("nop-final | RFC 7143 11.19 | a NOP-In lacks its fixed bit", NopIn, final=False)


@on_request("nop-unasked | RFC 7143 11.19 | a NOP-Out without a response request gets a response")
def nop_unasked(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, NopOut) and pdu.itt == NO_TAG:
        talk.answer(pdu, NopIn, itt=1, stat_sn=pdu.exp_stat_sn)
    return pdu


@mutant("nop-order | RFC 7143 4.2.2.1 | pings are answered out of order")
def nop_order(talk: ProxyConnection, pdu: Pdu) -> Any:
    if not isinstance(pdu, NopIn):
        return pdu
    held = talk.memory.pop("held", None)
    if held is not None:
        return [pdu, held]
    talk.memory["held"] = pdu
    return None


# Text, logout, SNACK


def listing(name: str, description: str, rewrite: Any) -> None:
    text(f"{name} | RFC 7143 C | {description}", rewrite, TextResponse)


listing(
    "send-targets-name",
    "a target is missing from the list",
    lambda pairs, talk: [pair for pair in pairs if pair[0] != "TargetName"] or pairs,
)
listing("send-targets-address", "an address has no portal group tag",
        lambda pairs, talk: [(name, value.partition(",")[0] if name == "TargetAddress" else value) for name, value in pairs])  # fmt: skip
listing("send-targets-first", "an address precedes its target", lambda pairs, talk: pairs[::-1])
listing("send-targets-other", "other targets than the requested one are listed",
        lambda pairs, talk: [*pairs, ("TargetName", "iqn.2024-01.org.example:another")])  # fmt: skip
sets(
    "text-itt | RFC 7143 11.11.3 | a Text Response has a wrong tag",
    TextResponse,
    itt=lambda pdu: pdu.itt ^ 0x100,
)
sets(
    "text-not-final | RFC 7143 11.11.1 | a response that is not final has no target transfer tag",
    TextResponse,
    final=False,
)


def speaks(row: str, kind: type[Pdu], response: type[Pdu], values: Any) -> None:
    """A mutant that answers a request itself, besides whatever the target does: ``values(pdu)``."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, kind) and talk.last is not None:
            talk.answer(pdu, response, **values(pdu))
        return pdu


speaks(
    "scsi-in-discovery | RFC 7143 4.3 | a SCSI command is executed in a discovery session",
    ScsiCommand,
    ScsiResponse,
    lambda pdu: {"stat_sn": pdu.exp_stat_sn},
)
speaks(
    "snack-answered | RFC 7143 11.16 | a SNACK is accepted at level 0",
    SnackRequest,
    DataIn,
    lambda pdu: {"data": bytes(36)},
)
sets("logout-failed | RFC 7143 11.15.1 | a logout fails", LogoutResponse, response=3)
sets(
    "logout-cid | RFC 7143 11.15.1 | a logout of a connection that does not exist succeeds",
    LogoutResponse,
    response=0,
)
sets(
    "logout-itt | RFC 7143 11.15 | a Logout Response has a wrong tag",
    LogoutResponse,
    itt=lambda pdu: pdu.itt ^ 0x100,
)


def logs_out(row: str, when: Any) -> None:
    """A mutant that answers a logout with success, and the target does not see it."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
        if not isinstance(pdu, LogoutRequest) or not when(pdu):
            return pdu
        last: Any = talk.last
        talk.answer(pdu, LogoutResponse, stat_sn=last.stat_sn + 1)
        return None


logs_out(
    "logout-reason | RFC 7143 11.14.1 | a logout for a reserved reason succeeds", lambda pdu: pdu.reason > 2
)
logs_out(
    "logout-recovery | RFC 7143 11.15.1 | removal for recovery succeeds at level 0",
    lambda pdu: pdu.reason == 2,
)


@on_request("leading-key-renegotiated | RFC 7143 13 | MaxBurstLength is negotiated again in a Text Request")
def leading_key_renegotiated(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if isinstance(pdu, TextRequest) and b"MaxBurstLength" in pdu.data:
        last: Any = talk.last
        talk.answer(pdu, TextResponse, stat_sn=last.stat_sn + 1, final=True, data=pdu.data)
        return None
    return pdu


mutant("logout-open | RFC 7143 11.15 | the connection stays open after the logout", keeps_open=True)(honest)
