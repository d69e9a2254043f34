"""Broken rules of the numbering (StatSN, CmdSN) and of the data: Data-In, R2T, Data-Out, residuals."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, Out, ProxyConnection, mutant, on_request
from iscsi_rules import good, replies, sets
from mutant_row import cells

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    ScsiCommand,
    ScsiResponse,
    TaskResponse,
)
from storagetest.wire.iscsi.validator import before, plus

# Numbering

sets(
    "stat-sn-skips | RFC 7143 4.2.2.2 | StatSN jumps", ScsiResponse, stat_sn=lambda pdu: plus(pdu.stat_sn, 5)
)
sets("stat-sn-task | RFC 7143 4.2.2.2 | a task management response does not increment StatSN", TaskResponse,
     stat_sn=lambda pdu: plus(pdu.stat_sn, -1))  # fmt: skip
sets(
    "stat-sn-nop | RFC 7143 11.19.2 | the response to a ping does not increment StatSN",
    NopIn,
    stat_sn=lambda pdu: plus(pdu.stat_sn, -1),
)
sets(
    "stat-sn-logout | RFC 7143 4.2.2.2 | the Logout Response has an old StatSN",
    LogoutResponse,
    stat_sn=lambda pdu: plus(pdu.stat_sn, -1),
)
sets(
    "stat-sn-r2t | RFC 7143 11.8.3 | an R2T increments StatSN",
    ReadyToTransfer,
    stat_sn=lambda pdu: plus(pdu.stat_sn, 1),
)
sets(
    "exp-cmd-sn-gap | RFC 7143 4.2.2.1 | ExpCmdSN advances over a gap",
    NopIn,
    exp_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, 1),
)
sets(
    "max-cmd-sn-low | RFC 7143 4.2.2.1 | MaxCmdSN is below ExpCmdSN - 1",
    ScsiResponse,
    max_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, -5),
)
sets(
    "max-cmd-sn-closed | RFC 7143 4.2.2.1 | the command window of an idle session is closed",
    NopIn,
    max_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, -1),
)


@mutant("exp-cmd-sn-stuck | RFC 7143 4.2.2.1 | ExpCmdSN does not advance")
def exp_cmd_sn_stuck(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    number = getattr(pdu, "exp_cmd_sn", None)
    return pdu if number is None else replace(pdu, exp_cmd_sn=talk.memory.setdefault("first", number))


@mutant("immediate-counts | RFC 7143 4.2.2.1 | an immediate request advances ExpCmdSN")
def immediate_counts(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, NopIn):
        return pdu
    talk.memory["pings"] = talk.memory.get("pings", 0) + 1
    return replace(pdu, exp_cmd_sn=plus(pdu.exp_cmd_sn, talk.memory["pings"]))


sets(
    "exp-cmd-sn-back | RFC 7143 4.2.2.1 | ExpCmdSN decreases",
    NopIn,
    exp_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, -3),
)


@mutant("cmd-sn-wrap | RFC 7143 4.2.2.1 | ExpCmdSN does not wrap round")
def cmd_sn_wrap(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    number = getattr(pdu, "exp_cmd_sn", 0xFFFF)
    wraps = number < 16 and talk.login is not None and talk.login.cmd_sn > 0xFFFFFFF0
    return replace(pdu, exp_cmd_sn=0xFFFFFFFF) if wraps else pdu


def answers_early(name: str, description: str, when: Any) -> None:
    @on_request(f"{name} | RFC 7143 4.2.2.1 | {description}")
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, ScsiCommand) and not pdu.immediate and talk.last is not None:
            last: Any = talk.last
            if when(pdu, last):
                talk.answer(pdu, ScsiResponse, stat_sn=pdu.exp_stat_sn)
        return pdu


answers_early(
    "cmd-sn-window-open",
    "a command beyond MaxCmdSN is answered",
    lambda pdu, last: before(last.max_cmd_sn, pdu.cmd_sn),
)
answers_early(
    "cmd-sn-old-answered",
    "a command below ExpCmdSN is answered",
    lambda pdu, last: before(pdu.cmd_sn, last.exp_cmd_sn),
)
answers_early(
    "cmd-sn-order", "a command after a gap is answered", lambda pdu, last: before(last.exp_cmd_sn, pdu.cmd_sn)
)


def waits_wrongly(row: str, change: Callable[[Any, int], Any]) -> None:
    """A mutant that changes a request after a gap: ``change(request, its distance from ExpCmdSN)``."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        last: Any = talk.last
        if not isinstance(pdu, (ScsiCommand, NopOut)) or pdu.immediate or last is None:
            return pdu
        ahead = (pdu.cmd_sn - last.exp_cmd_sn) % 2**32
        return change(pdu, ahead) if 0 < ahead < 8 else pdu


waits_wrongly(
    "cmd-sn-one-waits | RFC 7143 4.2.2.1 | of the commands after a gap all but the first one are lost",
    lambda pdu, ahead: pdu if ahead == 1 else None,
)
waits_wrongly(
    "cmd-sn-second-gap | RFC 7143 4.2.2.1 | a second gap holds nothing back when the first one is filled",
    lambda pdu, ahead: replace(pdu, cmd_sn=plus(pdu.cmd_sn, -1)) if ahead == 3 else pdu,
)
waits_wrongly(
    "cmd-sn-gap-nop | RFC 7143 4.2.2.1 | a numbered NOP-Out after a gap is answered at once",
    lambda pdu, _: replace(pdu, immediate=True) if isinstance(pdu, NopOut) else pdu,
)


replies("reserved-set | RFC 7143 11 | a reserved bit is set in a SCSI Response", ScsiResponse,
        lambda pdu, talk: pdu.parts().override_bytes(8, b"\x01"))  # fmt: skip
replies("itt-unknown | RFC 7143 11.2.1.8 | a response to a task that does not exist", ScsiResponse,
        lambda pdu, talk: [pdu, replace(pdu, itt=0x0BAD)])  # fmt: skip

# Data

replies("data-in-order | RFC 7143 13.18 | the second Data-In is at a wrong offset", DataIn,
        lambda pdu, talk: replace(pdu, buffer_offset=pdu.buffer_offset + 512) if pdu.data_sn else pdu)  # fmt: skip
sets("data-sn | RFC 7143 4.2.2.4 | DataSN counts from one", DataIn, data_sn=lambda pdu: pdu.data_sn + 1)
sets(
    "data-in-burst | RFC 7143 11.7.1 | a sequence does not end at MaxBurstLength",
    DataIn,
    final=lambda pdu: pdu.has_status,
)
sets("status-without-final | RFC 7143 11.7.3 | S is set and F is not", DataIn, final=False)
replies("residual-underflow | RFC 7143 11.4.5 | an underflow is not reported", DataIn,
        lambda pdu, talk: replace(pdu, underflow=False, residual=0) if pdu.underflow else pdu)  # fmt: skip
replies("residual-overflow | RFC 7143 11.4.5 | an overflow is not reported", DataIn,
        lambda pdu, talk: replace(pdu, overflow=False, residual=0) if pdu.overflow else pdu)  # fmt: skip
replies("residual-spurious | RFC 7143 11.4.5 | a residual is reported although there is none", DataIn,
        lambda pdu, talk: replace(pdu, underflow=True, residual=1) if pdu.has_status else pdu)  # fmt: skip
sets("data-in-ttt | RFC 7143 11.7.4 | a Data-In has a tag without an acknowledgement request", DataIn, ttt=5)
sets(
    "data-in-acknowledge | RFC 7143 11.7.2 | an acknowledgement is requested at level 0",
    DataIn,
    acknowledge=True,
    ttt=5,
)


@mutant("data-in-long | RFC 7143 11.7.1 | Data-In are longer than MaxRecvDataSegmentLength")
def data_in_long(talk: ProxyConnection, pdu: Pdu) -> Any:
    if not isinstance(pdu, DataIn):
        return pdu
    held = talk.memory.pop("held", b"") + pdu.data
    if not pdu.final and not pdu.has_status:
        talk.memory["held"] = held
        return None
    return replace(pdu, data=held, buffer_offset=pdu.buffer_offset + len(pdu.data) - len(held))


sets(
    "exp-data-sn | RFC 7143 11.4.8 | ExpDataSN does not count",
    ScsiResponse,
    exp_data_sn=lambda pdu: pdu.exp_data_sn + 1,
)


@mutant("data-in-beyond | RFC 7143 11.3.4 | data are sent where none are expected")
def data_in_beyond(talk: ProxyConnection, pdu: Pdu) -> Any:
    command = talk.commands.get(pdu.itt)
    if isinstance(pdu, ScsiResponse) and command is not None and command.read and not command.expected_length:
        return [
            DataIn(itt=pdu.itt, data=bytes(512), exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn),
            pdu,
        ]
    return pdu


@mutant("residual-write-underflow | RFC 7143 11.4.5 | a write of less than expected has no residual")
def residual_write(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    command = talk.commands.get(pdu.itt)
    return good(pdu) if isinstance(pdu, ScsiResponse) and command is not None and command.write else pdu


sets("r2t-sn | RFC 7143 4.2.2.4 | R2TSN counts from one", ReadyToTransfer, r2t_sn=lambda pdu: pdu.r2t_sn + 1)
sets(
    "r2t-beyond | RFC 7143 11.3.4 | an R2T requests data beyond the expected length",
    ReadyToTransfer,
    desired_length=lambda pdu: pdu.desired_length + 512,
)


@mutant("r2t-unneeded | RFC 7143 11.3.4 | an R2T requests data again that came with the command")
def r2t_unneeded(talk: ProxyConnection, pdu: Pdu) -> Any:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, ScsiResponse) or command is None or not command.data:
        return pdu
    asks = ReadyToTransfer(itt=pdu.itt, ttt=1, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn,
               desired_length=len(command.data))  # fmt: skip
    return [asks, pdu]


replies("r2t-outstanding | RFC 7143 13.17 | a second R2T while the first is outstanding", ReadyToTransfer,
        lambda pdu, talk: [pdu, replace(pdu, r2t_sn=pdu.r2t_sn + 1, ttt=pdu.ttt ^ 0x8000)])  # fmt: skip


@mutant("r2t-no-tag | RFC 7143 11.8.5 | an R2T has the reserved tag")
def r2t_no_tag(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ReadyToTransfer):
        return pdu
    talk.memory["tag"] = pdu.ttt
    return replace(pdu, ttt=NO_TAG)


def restores_tag(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return replace(pdu, ttt=talk.memory["tag"]) if isinstance(pdu, DataOut) and "tag" in talk.memory else pdu


MUTANTS["r2t-no-tag"].request = restores_tag


replies("r2t-order | RFC 7143 11.8 | an R2T requests data again that have been sent", ReadyToTransfer,
        lambda pdu, talk: replace(pdu, buffer_offset=pdu.buffer_offset - 512) if pdu.r2t_sn else pdu)  # fmt: skip


def restores_offset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, DataOut) or not isinstance(talk.last, ReadyToTransfer) or not talk.last.r2t_sn:
        return pdu
    return replace(pdu, buffer_offset=pdu.buffer_offset + 512)


MUTANTS["r2t-order"].request = restores_offset


@mutant("r2t-over-burst | RFC 7143 11.8.4 | two R2Ts are merged into one over MaxBurstLength")
def r2t_over_burst(talk: ProxyConnection, pdu: Pdu) -> Any:
    if not isinstance(pdu, ReadyToTransfer):
        return pdu
    if "rest" in talk.memory:
        talk.inject_to_target(*talk.data_out(pdu, talk.memory.pop("rest")))
        return None
    left = talk.commands[pdu.itt].expected_length - pdu.buffer_offset
    asked = min(2 * pdu.desired_length, left)
    talk.memory.update(true=pdu, asked=asked, got=b"", start=pdu.buffer_offset)
    return replace(pdu, desired_length=asked)


def splits_data(talk: ProxyConnection, pdu: Pdu) -> Any:
    if not isinstance(pdu, DataOut) or "true" not in talk.memory:
        return pdu
    talk.memory["got"] += pdu.data
    if not pdu.final:
        return None
    true, got, start = talk.memory.pop("true"), talk.memory["got"], talk.memory["start"]
    if len(got) > true.desired_length:
        talk.memory["rest"] = bytes(start) + got
    return list(talk.data_out(true, bytes(start) + got))


MUTANTS["r2t-over-burst"].request = splits_data


def feeds(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    """Answer an R2T from what the initiator sent too early."""
    if isinstance(pdu, ReadyToTransfer) and pdu.itt in talk.memory.get("early", {}):
        talk.inject_to_target(*talk.data_out(pdu, talk.memory["early"][pdu.itt]))
        return None
    return pdu


def takes_early(row: str, keep: Any) -> None:
    """Return a mutant that accepts immediate data that it must refuse; ``keep`` bytes stay."""

    @on_request(row)
    def change(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, ScsiCommand) and len(pdu.data) > keep(talk):
            talk.memory.setdefault("early", {})[pdu.itt] = pdu.data
            return replace(pdu, data=pdu.data[: keep(talk)], final=True)
        return pdu

    MUTANTS[cells(row)[0]].reply = feeds


takes_early(
    "first-burst-ignored | RFC 7143 13.12 | immediate data over FirstBurstLength are accepted",
    lambda talk: 1024,
)
takes_early(
    "immediate-data-taken | RFC 7143 13.11 | immediate data are accepted with ImmediateData=No",
    lambda talk: 0,
)


@on_request("unsolicited-taken | RFC 7143 13.11 | unsolicited Data-Out are accepted with InitialR2T=Yes")
def unsolicited_taken(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    if isinstance(pdu, ScsiCommand) and pdu.write and not pdu.final:
        talk.memory["early"] = {pdu.itt: b""}
        talk.memory["command"] = pdu
        return None
    if isinstance(pdu, DataOut) and pdu.ttt == NO_TAG and pdu.itt in talk.memory.get("early", {}):
        talk.memory["early"][pdu.itt] += pdu.data
        return replace(talk.memory["command"], final=True) if pdu.final else None
    return pdu


MUTANTS["unsolicited-taken"].reply = feeds


def data_out(row: str, change: Any) -> None:
    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        return (
            change(pdu, talk.last)
            if isinstance(pdu, DataOut) and isinstance(talk.last, ReadyToTransfer)
            else pdu
        )


data_out("offset-not-checked | RFC 7143 11.8 | data at a wrong offset are accepted",
         lambda pdu, r2t: replace(pdu, buffer_offset=r2t.buffer_offset, data=pdu.data.ljust(r2t.desired_length, b"\0")))  # fmt: skip
data_out(
    "overrun-taken | RFC 7143 11.8 | data beyond the R2T are truncated and accepted",
    lambda pdu, r2t: replace(pdu, data=pdu.data[: r2t.desired_length]),
)
data_out(
    "final-not-checked | RFC 7143 11.7.1 | a sequence ends without its F bit",
    lambda pdu, r2t: replace(pdu, final=True),
)
data_out(
    "data-sn-not-checked | RFC 7143 7.9 | any DataSN is accepted", lambda pdu, r2t: replace(pdu, data_sn=0)
)


@on_request("data-out-unknown-task | RFC 7143 11.7 | data for an unknown task get a response")
def data_out_unknown(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and pdu.itt not in talk.commands:
        talk.answer(pdu, ScsiResponse, stat_sn=pdu.exp_stat_sn)
    return pdu
