"""Broken rules of the command window: requests of each kind outside of it (RFC 7143 4.2.2.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, Out, ProxyConnection, on_request
from iscsi_reinstatement_mutants import both

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    Request,
    Response,
    ScsiCommand,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import before

IMMEDIATE = 0x40
"""The I bit of a request (RFC 7143 11.2.1.1)."""
KIND = "full"
"""The full unit, which ignores every request outside of the window."""
RESPONSES: dict[type[Request], type[Pdu]] = {
    NopOut: NopIn,
    TextRequest: TextResponse,
    TaskRequest: TaskResponse,
    LogoutRequest: LogoutResponse,
}


def is_beyond(talk: ProxyConnection, pdu: Request) -> bool:
    """Whether ``pdu`` takes a CmdSN beyond the last MaxCmdSN."""
    last: Any = talk.last
    return not pdu.immediate and last is not None and before(last.max_cmd_sn, pdu.cmd_sn)


def is_below(talk: ProxyConnection, pdu: Request) -> bool:
    """Whether ``pdu`` takes a CmdSN below the last ExpCmdSN."""
    last: Any = talk.last
    return not pdu.immediate and last is not None and before(pdu.cmd_sn, last.exp_cmd_sn)


def answers(row: str, kind: type[Request], is_outside: Callable[[ProxyConnection, Request], bool]) -> None:
    """A mutant that answers requests of a kind outside of the window, which the target ignores."""

    @on_request(row, kind=KIND)
    def answer(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, kind) and is_outside(talk, pdu):
            talk.answer(pdu, RESPONSES[kind], stat_sn=pdu.exp_stat_sn)
        return pdu


answers("nop-below-window | RFC 7143 4.2.2.1 | a NOP-Out below ExpCmdSN is answered", NopOut, is_below)
for _name, _kind, _words in (
    ("text", TextRequest, "a Text Request"),
    ("task", TaskRequest, "a task management request"),
    ("logout", LogoutRequest, "a Logout Request"),
):
    answers(
        f"{_name}-beyond-window | RFC 7143 4.2.2.1 | {_words} beyond MaxCmdSN is answered", _kind, is_beyond
    )
    answers(f"{_name}-below-window | RFC 7143 4.2.2.1 | {_words} below ExpCmdSN is answered", _kind, is_below)


@on_request("write-below-window | RFC 7143 4.2.2.1 | a write below ExpCmdSN is executed", kind="mixed")
def write_below(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.write and is_below(talk, pdu):
        return replace(pdu, immediate=True)
    return pdu


def leaks(row: str, kind: type[Request]) -> None:
    """A mutant whose window loses a place for good with each request of a kind that is not immediate."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, kind) and not pdu.immediate:
            talk.memory["lost"] = talk.memory.get("lost", 0) + 1
        return pdu

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        lost = talk.memory.get("lost", 0)
        if not lost or not isinstance(pdu, Response) or isinstance(pdu, LoginResponse):
            return pdu
        places = (pdu.max_cmd_sn - pdu.exp_cmd_sn + 1) % 2**32
        return replace(pdu, max_cmd_sn=(pdu.max_cmd_sn - min(lost, places)) % 2**32)

    both(row, reply, request, kind="unsolicited")


leaks("window-of-pings | RFC 7143 4.2.2.1 | each ping that is not immediate takes a place for good", NopOut)
leaks("window-of-tasks | RFC 7143 4.2.2.1 | each task management request takes a place for good", TaskRequest)


@on_request(
    "reject-not-counted | RFC 7143 4.2.2.1 | requests after one that was rejected wait for its CmdSN",
    kind=KIND,
)
def after_reject(talk: ProxyConnection, pdu: Pdu) -> Out:
    waits = talk.memory.get("rejected") and isinstance(pdu, Request) and not pdu.immediate
    return None if waits else pdu


def note_reject(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note that a request without the I bit was rejected: its header is the data of the Reject (11.17.4)."""
    if isinstance(pdu, Reject) and not pdu.data[0] & IMMEDIATE:
        talk.memory["rejected"] = True
    return pdu


MUTANTS["reject-not-counted"].reply = note_reject
