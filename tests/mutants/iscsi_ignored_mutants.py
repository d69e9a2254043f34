"""Broken rules of what a target ignores, reserved bits, and of what it returns, task tags (RFC 7143 11)."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import check

from storagetest.wire.iscsi.codes import NO_TAG, RejectReason, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    Response,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
    set_reserved_bits,
)
from storagetest.wire.scsi.codes import Asc, SenseKey

KIND = "full"


def checks(name: str, request: type[Pdu], words: str, *, kind: str = KIND, solicited: bool = True) -> None:
    """A mutant that refuses a request if any of its reserved bits is set."""

    def see(talk: ProxyConnection, pdu: Pdu) -> Out:
        bhs = talk.memory["frame"].bhs
        counts = not isinstance(pdu, DataOut) or (pdu.ttt != NO_TAG) == solicited
        if isinstance(pdu, request) and counts and any(set_reserved_bits(bhs)):
            talk.memory[pdu.itt] = bhs
        return pdu

    def refuse(talk: ProxyConnection, pdu: Pdu) -> Out:
        if pdu.itt not in talk.memory or not isinstance(pdu, Response):
            return pdu
        header = talk.memory.pop(pdu.itt)
        if request is DataOut and isinstance(pdu, ScsiResponse):
            return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
        return Reject(
            reason=RejectReason.INVALID_PDU_FIELD, data=header, stat_sn=pdu.stat_sn,
            exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn,
        )  # fmt: skip

    row = f"reserved-bits-of-{name} | RFC 7143 11 | {words} with a reserved bit set is refused"
    both(row, refuse, see, kind=kind)


checks("command", ScsiCommand, "a SCSI Command")
checks("data-out", DataOut, "a solicited Data-Out")
checks("logout", LogoutRequest, "a Logout Request")
checks("nop", NopOut, "a NOP-Out")
checks("task", TaskRequest, "a task management request")
checks("text", TextRequest, "a Text Request")
checks("unsolicited", DataOut, "an unsolicited Data-Out", kind="mixed", solicited=False)


def cuts_tag(name: str, response: type[Pdu], words: str) -> None:
    """A mutant whose answers have 31 bits of the task tag."""

    @mutant(f"tag-cut-of-{name} | RFC 7143 11.2.1.8 | {words} has 31 bits of the task tag", kind=KIND)
    def cut(talk: ProxyConnection, pdu: Pdu) -> Out:
        known = isinstance(pdu, response) and pdu.itt != NO_TAG
        return replace(pdu, itt=pdu.itt & 0x7FFFFFFF) if known and pdu.itt >> 31 else pdu


cuts_tag("login", LoginResponse, "a Login Response")
cuts_tag("logout", LogoutResponse, "a Logout Response")
cuts_tag("nop", NopIn, "the answer to a ping")
cuts_tag("scsi", ScsiResponse, "a SCSI Response")
cuts_tag("task", TaskResponse, "a task management response")
cuts_tag("text", TextResponse, "a Text Response")


@on_request(
    "abort-by-low-bits | RFC 7143 11.5.5 | ABORT TASK ends a task whose tag has the lower 16 bits that it names",
    kind=KIND,
)
def abort_by_low_bits(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TaskRequest) or pdu.function != TaskFunction.ABORT_TASK:
        return pdu
    known = [tag for tag in talk.commands if not (tag ^ pdu.referenced_itt) & 0xFFFF]
    return replace(pdu, referenced_itt=known[-1]) if known else pdu
