"""Broken rules of what is left open: at a logout, in the command window, in a text (RFC 7143 4.2.2.1, 11.14, 13.12)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_reinstatement_mutants import both
from iscsi_window_mutants import leaks

from storagetest.wire.iscsi.codes import RejectReason
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginResponse,
    LogoutRequest,
    NopOut,
    ReadyToTransfer,
    Reject,
    Request,
    Response,
    ScsiResponse,
    TextRequest,
    TextResponse,
)

KIND = "unsolicited"


def note_r2t(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Remember an R2T whose data have not come yet."""
    waiting = talk.memory.setdefault("waiting", {})
    if isinstance(pdu, ReadyToTransfer):
        waiting[pdu.itt] = pdu
    elif isinstance(pdu, ScsiResponse):
        waiting.pop(pdu.itt, None)
    return pdu


def waits(talk: ProxyConnection, pdu: Pdu) -> Out:
    return None if isinstance(pdu, LogoutRequest) and talk.memory.get("waiting") else pdu


both(
    "logout-waits-for-data | RFC 7143 11.14 | a logout is not answered while a write waits for its data",
    note_r2t,
    waits,
    kind=KIND,
)


def executes(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LogoutRequest):
        return pdu
    asked = talk.memory.get("waiting", {}).values()
    sent: list[DataOut] = [one for r2t in asked for one in talk.data_out(r2t, b"")]
    return [*sent, pdu]


def but_its_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    note_r2t(talk, pdu)
    return pdu


both(
    "logout-executes | RFC 7143 11.14 | a logout executes the writes that wait, with zeros for their data",
    but_its_end,
    executes,
    kind=KIND,
)


def refuses(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TextRequest):
        talk.memory["open"] = pdu.continues
    if isinstance(pdu, LogoutRequest) and talk.memory.get("open"):
        talk.answer(
            replace(pdu, itt=0xFFFFFFFF),
            Reject,
            reason=RejectReason.PROTOCOL_ERROR,
            data=pdu.parts().bhs,
            stat_sn=pdu.exp_stat_sn,
        )
        return None
    return pdu


both(
    "logout-refused-in-text | RFC 7143 11.14 | a logout is rejected while a text is not whole",
    lambda _, pdu: pdu,
    refuses,
    kind=KIND,
)


# The command window

leaks(
    "window-of-texts | RFC 7143 4.2.2.1 | each Text Request that is not immediate takes a place for good",
    TextRequest,
)


def leaks_by_answer(row: str, counts: Callable[[ProxyConnection, Any], bool]) -> None:
    """A mutant whose window loses a place for good with each answer of a kind."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, Response) or isinstance(pdu, LoginResponse):
            return pdu
        lost = talk.memory["lost"] = talk.memory.get("lost", 0) + counts(talk, pdu)
        places = (pdu.max_cmd_sn - pdu.exp_cmd_sn + 1) % 2**32
        return replace(pdu, max_cmd_sn=(pdu.max_cmd_sn - min(lost, places)) % 2**32) if lost else pdu


leaks_by_answer(
    "window-of-underflows | RFC 7143 4.2.2.1 | each command with an underflow takes a place for good",
    lambda _, pdu: isinstance(pdu, (ScsiResponse, DataIn)) and pdu.underflow,
)
leaks_by_answer(
    "window-of-r2ts | RFC 7143 4.2.2.1 | each R2T takes a place for good",
    lambda _, pdu: isinstance(pdu, ReadyToTransfer),
)
leaks_by_answer(
    "window-of-rejects | RFC 7143 4.2.2.1 | each Reject takes a place for good",
    lambda _, pdu: isinstance(pdu, Reject),
)
leaks_by_answer(
    "window-of-immediates | RFC 7143 4.2.2.1 | each command with immediate data takes a place for good",
    lambda talk, pdu: (
        isinstance(pdu, ScsiResponse) and pdu.itt in talk.commands and bool(talk.commands[pdu.itt].data)
    ),
)


def last_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    last: Any = talk.last
    at_end = (
        isinstance(pdu, NopOut)
        and not pdu.immediate
        and pdu.cmd_sn == talk.memory.get("end", last and last.max_cmd_sn)
    )
    if talk.memory.get("waiting") and isinstance(pdu, Request) and at_end:
        return replace(pdu, itt=0xFFFFFFFF)
    return pdu


def note_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer):
        talk.memory["end"] = pdu.max_cmd_sn
    return note_r2t(talk, pdu)


both(
    "window-end-ignored-while-waiting | RFC 7143 4.2.2.1 | the request at MaxCmdSN is not answered while a write waits",
    note_end,
    last_ignored,
    kind=KIND,
)


# A segment length, a list of targets, a portal group tag

SEGMENT = "MaxRecvDataSegmentLength"


def segment_lost(row: str, is_lost: Callable[[ProxyConnection, list[tuple[str, str]]], bool]) -> None:
    """A mutant that answers a declared segment length, and does not keep to it."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, TextRequest) or SEGMENT.encode() not in pdu.data:
            return pdu
        pairs = list(parse_text(pdu.data))
        if not is_lost(talk, pairs):
            return pdu
        return replace(
            pdu, data=format_text([(name, "4096" if name == SEGMENT else value) for name, value in pairs])
        )

    both(row, lambda _, pdu: pdu, request, kind=KIND)


def again(talk: ProxyConnection, _: list[tuple[str, str]]) -> bool:
    talk.memory["times"] = talk.memory.get("times", 0) + 1
    return bool(talk.memory["times"] > 1)


segment_lost(
    "segment-behind-lost | RFC 7143 13.12 | a segment length behind another key of a text is not kept to",
    lambda _, pairs: pairs[0][0] != SEGMENT,
)
segment_lost(
    "segment-hex-lost | RFC 7143 6.1 | a hexadecimal segment length of a text is not kept to",
    lambda _, pairs: "0x" in dict(pairs)[SEGMENT],
)
segment_lost(
    "segment-again-lost | RFC 7143 13.12 | only the first segment length that is declared in a session is kept to",
    again,
)


@mutant(
    "send-targets-later-short | RFC 7143 C | the fourth SendTargets of a session has no addresses", kind=KIND
)
def later_short(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextResponse) or not pdu.final:
        return pdu
    talk.memory["lists"] = number = talk.memory.get("lists", 0) + 1
    if number < 4:
        return pdu
    return replace(
        pdu, data=format_text([pair for pair in parse_text(pdu.data) if pair[0] != "TargetAddress"])
    )


@mutant(
    "portal-group-once | RFC 7143 13.9 | a login has no TargetPortalGroupTag while another session is open",
    kind=KIND,
)
def portal_group_once(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    known = talk.shared.setdefault("talks", [])
    if talk not in known:
        known.append(talk)
    if not any(one is not talk and not one.over for one in known):
        return pdu
    return replace(
        pdu, data=format_text([pair for pair in parse_text(pdu.data) if pair[0] != "TargetPortalGroupTag"])
    )
