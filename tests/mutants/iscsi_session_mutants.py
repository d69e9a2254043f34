"""Broken rules of sessions that show late, at a large size, or in two operations together."""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant, on_request
from iscsi_rules import replies, sets

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import before, plus

# Numbering


def is_beyond_window(talk: ProxyConnection, pdu: ScsiCommand | NopOut) -> bool:
    """Whether ``pdu`` takes a CmdSN beyond the last MaxCmdSN."""
    last: Any = talk.last
    return not pdu.immediate and last is not None and before(last.max_cmd_sn, pdu.cmd_sn)


@on_request("cmd-sn-window-late | RFC 7143 4.2.2.1 | a command beyond MaxCmdSN is executed a moment later")
def window_late(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and is_beyond_window(talk, pdu):
        talk.memory["late"] = pdu
    return pdu


def window_late_reply(talk: ProxyConnection, pdu: Pdu) -> Any:
    late = talk.memory.get("late")
    if not isinstance(pdu, NopIn) or late is None:
        return pdu
    del talk.memory["late"]
    return [
        pdu,
        ScsiResponse(
            itt=late.itt, stat_sn=plus(pdu.stat_sn, 1), exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn
        ),
    ]


MUTANTS["cmd-sn-window-late"].reply = window_late_reply


@on_request("nop-beyond-window | RFC 7143 4.2.2.1 | a NOP-Out beyond MaxCmdSN is answered")
def nop_beyond(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, NopOut) and is_beyond_window(talk, pdu):
        talk.answer(pdu, NopIn, stat_sn=pdu.exp_stat_sn, data=pdu.data)
    return pdu


@on_request("cmd-sn-duplicate | RFC 7143 4.2.2.1 | a duplicate CmdSN within the window is executed")
def duplicate(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if not isinstance(pdu, ScsiCommand) or pdu.immediate:
        return pdu
    seen = talk.memory.setdefault("seen", set())
    if pdu.cmd_sn in seen and talk.last is not None and not before(pdu.cmd_sn, talk.last.exp_cmd_sn):  # type: ignore[attr-defined]
        talk.answer(pdu, ScsiResponse, stat_sn=pdu.exp_stat_sn)
        return None
    seen.add(pdu.cmd_sn)
    return pdu


replies("stat-sn-reject | RFC 7143 4.2.2.2, 11.17.1 | a Reject does not increment StatSN", Reject,
        lambda pdu, talk: replace(pdu, stat_sn=plus(pdu.stat_sn, -1)))  # fmt: skip
sets("reject-reason-reserved | RFC 7143 11.17.1 | a Reject has a reserved reason", Reject, reason=0x2A)
sets("reject-tag | RFC 7143 11.17 | a Reject has the task tag of the rejected PDU", Reject, itt=0x43)

# Data

sets(
    "response-code-reserved | RFC 7143 11.4.3 | the response is a reserved code", ScsiResponse, response=0x02
)


@mutant("response-failure-good | RFC 7143 11.4.3 | completed commands have the response Target Failure")
def response_failure(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return replace(pdu, response=1) if isinstance(pdu, ScsiResponse) and not pdu.status else pdu


@mutant("overflow-allocation | RFC 7143 11.4.5.1 | data that the allocation length cuts are an overflow")
def overflow_allocation(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    command = talk.commands.get(pdu.itt)
    mine = (
        isinstance(pdu, DataIn)
        and pdu.has_status
        and command is not None
        and command.cdb[0] in (0x12, 0x9E, 0x1A, 0x5A)
    )
    if not mine or not isinstance(pdu, DataIn) or command is None or len(pdu.data) != command.expected_length:
        return pdu
    return replace(pdu, overflow=True, residual=20)


@mutant("both-residuals | RFC 7143 11.4.5 | overflow and underflow are set together")
def both_residuals(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, (DataIn, ScsiResponse)) and (pdu.underflow or pdu.overflow):
        return replace(pdu, underflow=True, overflow=True)
    return pdu


@on_request("offset-replaced | RFC 7143 11.7.6 | Data-Out at a wrong offset are stored as if it were right")
def offset_replaced(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    r2t = talk.memory.get("r2t")
    if not isinstance(pdu, DataOut) or pdu.ttt == NO_TAG or r2t is None:
        return pdu
    at = talk.memory["next"]
    talk.memory["next"] = at + len(pdu.data)
    return replace(pdu, buffer_offset=at)


def keeps_r2t(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ReadyToTransfer):
        talk.memory.update(r2t=pdu, next=pdu.buffer_offset)
    return pdu


MUTANTS["offset-replaced"].reply = keeps_r2t


@mutant("r2t-after-unsolicited | RFC 7143 13.19 | the first R2T requests again what came unsolicited")
def r2t_again(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ReadyToTransfer) or pdu.r2t_sn or not pdu.buffer_offset:
        return pdu
    talk.memory[pdu.ttt] = pdu.buffer_offset
    return replace(pdu, buffer_offset=0, desired_length=pdu.buffer_offset + pdu.desired_length)


def cuts_again(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if not isinstance(pdu, DataOut) or pdu.ttt not in talk.memory:
        return pdu
    over = max(0, talk.memory[pdu.ttt] - pdu.buffer_offset)
    if over >= len(pdu.data):
        talk.memory["dropped", pdu.ttt] = talk.memory.get(("dropped", pdu.ttt), 0) + 1
        return None
    number = max(0, pdu.data_sn - talk.memory.get(("dropped", pdu.ttt), 0))
    return replace(pdu, buffer_offset=pdu.buffer_offset + over, data=pdu.data[over:], data_sn=number)


MUTANTS["r2t-after-unsolicited"].request = cuts_again


@on_request(
    "overrun-kept | RFC 7143 11.7.6, 11.3.4 | data beyond the expected length are written to the blocks that follow"
)
def overrun_kept(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    command = talk.commands.get(pdu.itt)
    if (
        not isinstance(pdu, DataOut)
        or command is None
        or pdu.buffer_offset + len(pdu.data) <= command.expected_length
    ):
        return pdu
    keep = max(0, command.expected_length - pdu.buffer_offset)
    first = int.from_bytes(command.cdb[2:6], "big") + command.expected_length // 512
    talk.shared["over"] = {
        first + at // 512: pdu.data[keep + at : keep + at + 512] for at in range(0, len(pdu.data) - keep, 512)
    }
    return replace(pdu, data=pdu.data[:keep])


def reads_the_rest(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Return the data that went too far as those of the blocks behind."""
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x88:
        return pdu
    lba, data = int.from_bytes(block[2:10], "big") + pdu.buffer_offset // 512, bytearray(pdu.data)
    for at in range(0, len(data), 512):
        data[at : at + 512] = talk.shared.get("over", {}).get(lba + at // 512, data[at : at + 512])
    return replace(pdu, data=bytes(data)) if bytes(data) != pdu.data else pdu


MUTANTS["overrun-kept"].reply = reads_the_rest


@on_request(
    "first-burst-cut | RFC 7143 13.14 | a write ends in GOOD although its data over FirstBurstLength were dropped"
)
def first_burst_cut(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand) or not pdu.write or len(pdu.data) <= 1024 or not pdu.cdb[8]:
        return pdu
    if dict(talk.offered).get("FirstBurstLength") != "1024":
        return pdu
    return replace(pdu, data=pdu.data[:1024], expected_length=1024, cdb=pdu.cdb[:8] + b"\2" + pdu.cdb[9:])


sets("response-final | RFC 7143 11.4.1 | bit 0 of byte 1 is 0 in a SCSI Response", ScsiResponse, final=False)
sets("r2t-final | RFC 7143 11.8 | bit 0 of byte 1 is 0 in an R2T", ReadyToTransfer, final=False)


@mutant("header-digest-twelfth | RFC 7143 13.1 | the header digest of the target's twelfth PDU is wrong")
def digest_late(talk: ProxyConnection, pdu: Pdu) -> Any:
    if isinstance(pdu, LoginResponse) or not talk.digests[0]:
        return pdu
    talk.memory["sent"] = talk.memory.get("sent", 0) + 1
    return talk.wire(pdu, header_digest_xor=1) if talk.memory["sent"] == 12 else pdu


@on_request("data-digest-later | RFC 7143 7.8 | a wrong digest of a Data-Out after the first is not detected")
def digest_later(talk: ProxyConnection, pdu: Pdu) -> Any:
    later = isinstance(pdu, DataOut) and pdu.data_sn and talk.memory["frame"].data_digest_wrong
    return talk.wire(pdu) if later else pdu


@mutant(
    "data-of-another-task | RFC 7143 4.2.5.1, 11.2.1.8 | a Data-In has data of the command before it if several are outstanding"
)
def data_of_another(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] not in {0x28, 0x88}:
        return pdu
    last, talk.memory["last"] = talk.memory.get("last"), pdu
    later = [tag for tag in talk.commands if tag > pdu.itt]
    swap = later and last is not None and last.itt != pdu.itt and len(last.data) == len(pdu.data)
    return replace(pdu, data=last.data) if swap and last is not None else pdu


# Text


@on_request("text-c-answered | RFC 7143 6.2 | text that goes on (C) is answered before its end")
def text_c(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if not isinstance(pdu, TextRequest) or not pdu.continues:
        return pdu
    names = [piece.split(b"=")[0] for piece in pdu.data.split(b"\0") if b"=" in piece]
    talk.answer(pdu, TextResponse, stat_sn=pdu.exp_stat_sn, ttt=NO_TAG if pdu.final else 7, final=pdu.final,
                data=b"".join(name + b"=NotUnderstood\0" for name in names))  # fmt: skip
    return None
