"""Broken rules of odd sizes, of residuals of several PDUs, and of numbers and lists in full feature phase.

The rules, from the text of RFC 7143, before any case:

- 4.2.2.1: a request for immediate delivery does not advance CmdSN, each other request does, whatever its
  kind: so ExpCmdSN moves by the one, and not by the other (MUST).
- 11.4.5: the Residual Count is the number of bytes that were not transferred because the expected length was
  too small, or that were not there: also if the transfer took several Data-In, or R2Ts (MUST).
- 11.7.6, 11.8.4: Buffer Offset and Desired Data Transfer Length count bytes; an R2T follows the data that
  came before it, of whatever length (MUST).
- 13.12: MaxRecvDataSegmentLength may be declared in any stage; no PDU is longer than the last one (MUST).
- C: "a target MUST return all path information", each time that SendTargets asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LogoutRequest,
    NopOut,
    ReadyToTransfer,
    Reject,
    Request,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.codes import Asc, SenseKey

KIND = "unsolicited"
"""The small target, which obeys limits of any length."""
BLOCK = 512


def _remember(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Keep the request by its task tag."""
    if isinstance(pdu, Request):
        talk.memory.setdefault("sent", {})[pdu.itt] = pdu
    return pdu


def _request(talk: ProxyConnection, pdu: Pdu) -> Any:
    """Return the request that ``pdu`` answers; that of a Reject is in its data (11.17.4)."""
    tag = int.from_bytes(pdu.data[16:20], "big") if isinstance(pdu, Reject) else pdu.itt
    return talk.memory.get("sent", {}).get(tag)


def _counts(row: str, kind: type[Request], *, immediate: bool) -> None:
    """A mutant whose ExpCmdSN is one too high for an immediate request, or too low for another one."""

    @mutant(row, request=_remember)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        asked: Any = _request(talk, pdu)
        if not isinstance(asked, kind) or asked.immediate != immediate or not hasattr(pdu, "exp_cmd_sn"):
            return pdu
        return replace(pdu, exp_cmd_sn=plus(pdu.exp_cmd_sn, 1 if immediate else -1))  # type: ignore[call-arg]


_counts("immediate-nop-counts | RFC 7143 4.2.2.1 | an immediate NOP-Out uses a CmdSN", NopOut, immediate=True)
_counts(
    "immediate-task-counts | RFC 7143 4.2.2.1 | immediate task management uses a CmdSN",
    TaskRequest,
    immediate=True,
)
_counts(
    "immediate-scsi-counts | RFC 7143 4.2.2.1 | an immediate SCSI command uses a CmdSN",
    ScsiCommand,
    immediate=True,
)
_counts(
    "immediate-text-counts | RFC 7143 4.2.2.1 | an immediate Text Request uses a CmdSN",
    TextRequest,
    immediate=True,
)
_counts(
    "immediate-logout-counts | RFC 7143 4.2.2.1 | an immediate Logout uses a CmdSN",
    LogoutRequest,
    immediate=True,
)
_counts(
    "numbered-nop-ignored | RFC 7143 4.2.2.1 | a NOP-Out that is not immediate uses no CmdSN",
    NopOut,
    immediate=False,
)
_counts(
    "numbered-task-ignored | RFC 7143 4.2.2.1 | task management that is not immediate uses no CmdSN",
    TaskRequest,
    immediate=False,
)
_counts(
    "numbered-scsi-ignored | RFC 7143 4.2.2.1 | ExpCmdSN in the answer to a SCSI command lacks that command",
    ScsiCommand,
    immediate=False,
)
_counts(
    "numbered-logout-ignored | RFC 7143 4.2.2.1 | a Logout that is not immediate uses no CmdSN",
    LogoutRequest,
    immediate=False,
)


# Residuals


def _data_ins(talk: ProxyConnection, pdu: Pdu) -> int:
    """Count the Data-In of each task; return those of the task of ``pdu``."""
    counts = talk.memory.setdefault("data-ins", {})
    counts[pdu.itt] = counts.get(pdu.itt, 0) + isinstance(pdu, DataIn)
    return int(counts[pdu.itt])


@mutant(
    "residual-of-many | RFC 7143 11.4.5 | the residual of a read of several Data-In is wrong",
    kind=KIND,
)
def residual_of_many(talk: ProxyConnection, pdu: Pdu) -> Out:
    several = _data_ins(talk, pdu) > 1
    if not several or not ends(pdu) or not (pdu.overflow or pdu.underflow):  # type: ignore[attr-defined]
        return pdu
    return replace(pdu, residual=pdu.residual + BLOCK)  # type: ignore[call-arg, attr-defined]


@mutant(
    "residual-of-write-by-r2t | RFC 7143 11.4.5 | a write states no residual if it took an R2T", kind=KIND
)
def residual_of_write_by_r2t(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer):
        talk.memory.setdefault("asked", set()).add(pdu.itt)
    if isinstance(pdu, ScsiResponse) and pdu.underflow and pdu.itt in talk.memory.get("asked", ()):
        return replace(pdu, underflow=False, residual=0)
    return pdu


# Offsets and lengths in bytes


def _of(row: str, change: Callable[[Any], Pdu], *, sort: type[Pdu]) -> None:
    """A mutant that changes each PDU of a sort."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return change(pdu) if isinstance(pdu, sort) else pdu


_of(
    "r2t-offset-of-block | RFC 7143 11.8.4 | an R2T asks from the block in which the data so far end",
    lambda pdu: replace(
        pdu,
        buffer_offset=pdu.buffer_offset // BLOCK * BLOCK,
        desired_length=pdu.desired_length + pdu.buffer_offset % BLOCK,
    ),
    sort=ReadyToTransfer,
)
_of(
    "r2t-of-whole-words | RFC 7143 11.8.4, 13.13 | the length that an R2T asks for is a multiple of four",
    lambda pdu: replace(pdu, desired_length=-(-pdu.desired_length // 4) * 4),
    sort=ReadyToTransfer,
)
_of(
    "data-in-of-whole-words | RFC 7143 11.7.6 | Buffer Offset of a Data-In is cut to a multiple of four",
    lambda pdu: replace(pdu, buffer_offset=pdu.buffer_offset & ~3),
    sort=DataIn,
)


# Declarations and lists


@on_request(
    "segment-of-login | RFC 7143 13.12 | a segment length that is declared after the login is ignored",
    kind=KIND,
)
def segment_of_login(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextRequest) or b"MaxRecvDataSegmentLength" not in pdu.data:
        return pdu
    return replace(pdu, data=b"")


def _lists(row: str, change: Callable[[ProxyConnection, list[tuple[str, str]], int], Any]) -> None:
    """A mutant of lists of targets: ``change(talk, pairs, number of the list)``."""

    @mutant(row, request=_remember)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, TextResponse) or b"TargetName" not in pdu.data:
            return pdu
        number = talk.memory["lists"] = talk.memory.get("lists", 0) + 1
        talk.memory["asked for"] = getattr(_request(talk, pdu), "data", b"")
        return replace(pdu, data=format_text(change(talk, list(parse_text(pdu.data)), number)))


def _names(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] == "TargetName"]


_lists(
    "send-targets-again-short | RFC 7143 C | the second list of targets has no addresses",
    lambda _, pairs, number: _names(pairs) if number > 1 else pairs,
)
_lists(
    "send-targets-again-empty | RFC 7143 C | the second list of targets is empty",
    lambda _, pairs, number: [] if number > 1 else pairs,
)
_lists(
    "send-targets-one-short | RFC 7143 C | a target that is asked for by its name has no addresses",
    lambda talk, pairs, _: (
        pairs if talk.memory["asked for"].startswith(b"SendTargets=All") else _names(pairs)
    ),
)


# Commands without data


def moves_nothing(command: ScsiCommand | None) -> bool:
    """Whether a command has R or W, and an Expected Data Transfer Length of 0 (11.3.1)."""
    return command is not None and (command.read or command.write) and not command.expected_length


@mutant(
    "no-data-flags-refused | RFC 7143 11.3.1 | a command with R or W and an expected length of 0 is refused",
    kind="full",
)
def flags_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    refused = ends(pdu) and moves_nothing(talk.commands.get(pdu.itt))
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if refused else pdu


@mutant(
    "r2t-of-nothing | RFC 7143 11.8.4 | a write of which no data are expected gets an R2T of 0 bytes",
    kind="full",
)
def r2t_of_nothing(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, ScsiResponse) or command is None or not command.write or command.expected_length:
        return pdu
    asks = ReadyToTransfer(
        itt=pdu.itt, ttt=1, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn
    )
    return [asks, pdu]
